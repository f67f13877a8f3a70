//! Outcomes that are replayed to a request that was begun without a handler.

use serde_json::Value;

use super::*;
use crate::engine::{Begun, Disposition, Ended, Replayed};
use crate::protocol::record::Omission;

/// Ends a request with this outcome, and begins it again.
async fn replayed(outcome: Result<String, Omission>) -> Result<Replayed, Error<Infallible>> {
    let once = engine(Replies::default());
    let Begun::Run(run) = once.begin(key(), payload()).await.unwrap() else {
        panic!("nothing was done before")
    };
    let ended = run.end(Disposition::Complete(outcome)).await;
    assert_matches!(ended, Ok(Ended::Done));
    match once.begin(key(), payload()).await? {
        Begun::Replay(replayed) => Ok(replayed),
        Begun::Run(run) => panic!("{run:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_replayed_as_the_text_that_it_was() {
    // In its record; compressed in its record; beside it.
    let digits = |n: u32| (n.wrapping_mul(2_654_435_769) >> 8).to_string();
    let text = |count| format!("\"{}\"", (0..count).map(digits).collect::<String>());
    let large = [10, 20_000].map(text);
    let plain = ["7".to_owned(), format!("\"{}\"", "x".repeat(20_000))];
    for text in plain.into_iter().chain(large) {
        let replayed = replayed(Ok(text.clone())).await.unwrap();
        assert_eq!(replayed.replay.attempt, 1);
        assert!(replayed.replay.processed_at.is_some());
        assert_eq!(replayed.decode::<Value>().unwrap().to_string(), text);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_was_not_kept_is_no_replay() {
    let ended = replayed(Err(Omission::NotSerializable)).await;
    assert_matches!(
        ended,
        Err(Error::OutcomeOmitted {
            reason: Omission::NotSerializable,
            handler_ran: false,
            ..
        })
    );
}

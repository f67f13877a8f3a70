//! The answer of an event that comes again.

use super::*;
use crate::metrics::Counted;
use crate::secrets::Log;

on_each_server!(an_event_that_comes_twice_takes_effect_once_and_gets_the_same_answer);
async fn an_event_that_comes_twice_takes_effect_once_and_gets_the_same_answer(server: Server) {
    let once = builder(server.store().await).build().unwrap();
    let runs = Runs::default();
    let function = settling(&once, &runs);

    let first = invoke(&function, &settlement("s-1", 5)).await.unwrap();
    let again = invoke(&function, &settlement("s-1", 5)).await.unwrap();
    assert_eq!(again, first);
    let other = invoke(&function, &settlement("s-2", 5)).await.unwrap();
    assert_ne!(other, first);
    assert_eq!(runs.take(), 2);
}

on_each_server!(a_replay_is_byte_for_byte_what_was_answered);
async fn a_replay_is_byte_for_byte_what_was_answered(server: Server) {
    let once = builder(server.store().await).build().unwrap();
    let text =
        r#"{ "b": 1.50, "a": 1e2, "b": [ ],  "n": 123456789012345678901234567890, "s": "\u00e9" }"#;
    let function = settle(&once)
        .handler(move |_| async move { Ok(RawValue::from_string(text.to_owned()).unwrap()) });
    for _ in 0..2 {
        let answer = invoke(&function, &settlement("s-1", 5)).await.unwrap();
        assert_eq!(answer, text);
    }
}

on_each_server!(a_large_answer_is_replayed_whole);
async fn a_large_answer_is_replayed_whole(server: Server) {
    let once = builder(server.store().await).build().unwrap();
    let function = settle(&once).handler(|_| async { Ok("x".repeat(100_000)) });
    for _ in 0..2 {
        let answer = invoke(&function, &settlement("s-1", 5)).await.unwrap();
        assert_eq!(answer.len(), 100_002);
    }
}

/// JSON has no such names of members.
fn unwritable() -> HashMap<(u8, u8), u8> {
    HashMap::from([((1, 2), 3)])
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_json_is_an_error_each_time_and_the_work_is_done_once() {
    let runs = Runs::default();
    let count = runs.clone();
    let function = settle(&engine()).handler(move |_| {
        count.count();
        async { Ok(unwritable()) }
    });
    for _ in 0..2 {
        let error_type = error_type(&function, &settlement("s-1", 5)).await;
        assert_eq!(error_type, "Idempotency.OutcomeOmitted");
    }
    assert_eq!(runs.take(), 1);
}

#[tokio::test(start_paused = true)]
async fn where_no_answer_is_asked_for_each_event_that_is_done_gets_null() {
    let (log, _capture) = Log::capture();
    let counted = Counted::new();
    let once = builder(MemoryStore::new()).settings(|settings| settings.inline_limit = 100);
    let once = once.build().unwrap();
    let runs = Runs::default();
    let answering = counting(
        settle(&once).settings(|settings| settings.without_answer = true),
        &runs,
    );
    let count = runs.clone();
    let unwritable = settle(&once)
        .settings(|settings| settings.without_answer = true)
        .handler(move |_| {
            count.count();
            async { Ok(unwritable()) }
        });
    let count = runs.clone();
    let large = settle(&once)
        .settings(|settings| settings.without_answer = true)
        .handler(move |_| {
            count.count();
            async { Ok("x".repeat(200)) }
        });
    for _ in 0..2 {
        let answer = invoke(&answering, &settlement("s-1", 5)).await.unwrap();
        assert_eq!(answer, "null");
        let answer = invoke(&unwritable, &settlement("s-2", 5)).await.unwrap();
        assert_eq!(answer, "null");
        let answer = invoke(&large, &settlement("s-3", 5)).await.unwrap();
        assert_eq!(answer, "null");
    }
    assert_eq!(runs.take(), 3);
    // Nobody asks for the outcomes that were not kept: none of them is reported.
    let counts = counted.take();
    assert_eq!(counts.get("outcomes_omitted"), None, "{counts:?}");
    assert_eq!(counts.get("replays"), Some(&3), "{counts:?}");
    let log = log.text();
    assert!(!log.contains("outcome_omitted"), "{log}");
    for event in ["completed", "replayed"] {
        let event = format!("event=\"{event}\"");
        assert_eq!(log.matches(&event).count(), 3, "{log}");
    }
    // A mismatch is no answer.
    let mismatch = error_type(&answering, &settlement("s-1", 6)).await;
    assert_eq!(mismatch, "Idempotency.Mismatch");
}

//! Properties of every batch: its content and the ends of its messages are arbitrary.

use aws_lambda_events::event::sqs::SqsMessage;
use proptest::prelude::*;
use serde_json::json;

use crate::batch::reader::tests::{Plan, message, plan};
use crate::batch::report::*;
use crate::sqs::SqsEvent;

/// Few ids, keys and amounts, so that they meet; bodies that are missing, garbled, or without a
/// key.
fn any_message() -> impl Strategy<Value = SqsMessage> {
    let body = prop_oneof![
        1 => Just(None),
        1 => Just(Some("garbled".to_owned())),
        1 => Just(Some("{}".to_owned())),
        9 => (0..4_u8, 0..2_u8).prop_map(|(key, n)| Some(json!({ "key": key.to_string(), "n": n }).to_string())),
    ];
    (0..12_u8, body).prop_map(|(id, body)| {
        let mut message = message(&format!("m-{id}"), "");
        message.body = body;
        message
    })
}

/// Ends the run of a message: it is done, it fails, or its end is unknown.
#[derive(Clone, Copy, Debug)]
enum End {
    Done,
    Failed,
    Unknown,
}

fn any_end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Done), Just(End::Failed), Just(End::Unknown)]
}

/// Returns whether SQS may delete the message in this position.
fn is_done(fates: &[Fate], position: usize) -> bool {
    match &fates[position] {
        Fate::Done => true,
        Fate::Follows(leader) => is_done(fates, *leader),
        Fate::Reported(_) => false,
    }
}

proptest! {
    #[test]
    fn every_message_runs_follows_or_is_reported(messages in prop::collection::vec(any_message(), 0..24)) {
        let plan = plan(messages.clone());
        prop_assert_eq!(plan.fates.len(), messages.len());
        let running: Vec<_> = plan.ready.iter().map(|ready| ready.position).collect();
        prop_assert!(running.is_sorted_by(|a, b| a < b));
        for (position, fate) in plan.fates.iter().enumerate() {
            let runs = running.contains(&position);
            match fate {
                Fate::Reported(Reason::NotRun) => prop_assert!(runs),
                Fate::Reported(_) => prop_assert!(!runs),
                Fate::Follows(leader) => {
                    prop_assert!(!runs && leader < &position && running.contains(leader));
                    prop_assert_eq!(&messages[position].body, &messages[*leader].body);
                }
                Fate::Done => prop_assert!(false, "before anything ran"),
            }
        }
    }

    #[test]
    fn reported_ids_are_unique_and_known_and_all_that_are_not_done(
        messages in prop::collection::vec(any_message(), 0..24),
        ends in prop::collection::vec(any_end(), 24),
    ) {
        let ids = ids::<SqsEvent>(&messages).unwrap();
        let Plan { mut fates, ready, .. } = plan(messages);
        for (ready, end) in ready.iter().zip(ends) {
            match end {
                End::Done => fates[ready.position] = Fate::Done,
                End::Failed => fates[ready.position] = Fate::Reported(Reason::Panicked),
                End::Unknown => {}
            }
        }

        let again = distinct(reported(&ids, &fates).map(|(id, _)| id));

        let unique: HashSet<_> = again.iter().collect();
        prop_assert_eq!(unique.len(), again.len(), "an id twice");
        let places = again.iter().map(|id| {
            let not_done = |(position, other): &(usize, &String)| *other == id && !is_done(&fates, *position);
            ids.iter().enumerate().find(not_done).map(|(position, _)| position)
        });
        let places: Vec<_> = places.collect();
        prop_assert!(places.iter().all(Option::is_some), "an id that is unknown, or done");
        prop_assert!(places.is_sorted(), "not in the order of the batch");
        for (position, id) in ids.iter().enumerate() {
            prop_assert!(is_done(&fates, position) || again.contains(id), "{} is lost", id);
        }
    }
}

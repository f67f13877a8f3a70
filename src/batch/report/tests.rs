//! Tests of the module above.

use super::*;
use crate::batch::reader::tests::{message, plan};
use crate::protocol::causes::unlinked;
use crate::protocol::key::KeyError;
use crate::sqs::SqsEvent;

#[test]
fn a_body_that_does_not_decode_is_not_quoted() {
    let body = format!(r#""hunter2{}""#, "x".repeat(2_000));
    let error = serde_json::from_str::<u8>(&body).unwrap_err();
    assert!(error.to_string().contains("hunter2"), "the premise");
    let said = |quotes| unlinked(&Reason::undecodable(&error, quotes));
    assert_eq!(
        said(false),
        "the body doesn't decode: Data error at line 1, column 2009"
    );
    assert!(said(true).len() < 1_100, "it is cut");
    assert!(said(true).contains("hunter2"), "{}", said(true));
}

#[test]
fn a_body_that_lacks_a_field_is_told_which() {
    #[derive(serde::Deserialize)]
    struct Payment {
        #[expect(dead_code, reason = "it is decoded, not read")]
        order_id: String,
    }
    let error = serde_json::from_str::<Payment>("{}").err().unwrap();
    assert_eq!(
        unlinked(&Reason::undecodable(&error, false)),
        "the body doesn't decode: missing field `order_id` at line 1, column 2"
    );
    // As a caller's own `Deserialize` may say it.
    for quoting in ["missing field `4 1 1`", "missing field `x`: 4111", "4111"] {
        let error = <serde_json::Error as serde::de::Error>::custom(quoting);
        let said = Reason::undecodable(&error, false).to_string();
        assert!(!said.contains('4') && !said.contains('`'), "{said}");
    }
}

#[test]
fn what_no_retry_mends_is_rejected() {
    let garbled = serde_json::from_str::<u8>("garbled").unwrap_err();
    let of_key = |error: KeyError| Reason::of_obstacle(&error.into(), false);
    for (reason, rejection) in [
        (Reason::NoBody(BodyError::MISSING), Rejection::Undecodable),
        (Reason::undecodable(&garbled, false), Rejection::Undecodable),
        (of_key(KeyError::Missing), Rejection::KeyMissing),
        (of_key(KeyError::ControlCharacter), Rejection::UnusableKey),
        (
            Reason::of_obstacle(&Error::Mismatch, false),
            Rejection::Mismatch,
        ),
        (of_key(KeyError::BlankScope), Rejection::UnusableKey),
        (
            Reason::of_error(&std::fmt::Error, true, false),
            Rejection::Failed,
        ),
    ] {
        assert_eq!(reason.rejection(), Some(rejection), "{reason:?}");
    }
    for reason in [
        Reason::NotRun,
        Reason::OutOfTime,
        Reason::GroupStopped,
        Reason::Panicked,
        Reason::Mismatch { leader: 0 },
        Reason::Leader,
        Reason::of_error(&std::fmt::Error, false, false),
        Reason::of_obstacle(&Error::LeaseLost, false),
        of_key(KeyError::EmptyOperation),
    ] {
        assert_eq!(reason.rejection(), None, "{reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_in_flight_elsewhere_is_free_when_that_lease_ends() {
    let seconds = std::time::Duration::from_secs;
    let in_flight = |lease| {
        let retry_after = std::time::Duration::ZERO;
        Reason::of_obstacle(&Error::InFlight { retry_after, lease }, false)
    };
    let soon = Instant::now() + seconds(7);
    assert_eq!(in_flight(seconds(7)).free_at(), Some(soon));
    assert_eq!(in_flight(std::time::Duration::MAX).free_at(), None);
    assert_eq!(
        Reason::of_obstacle(&Error::LeaseLost, false).free_at(),
        None
    );
    assert_eq!(Reason::OutOfTime.free_at(), None);
}

#[test]
fn a_handlers_error_is_named_by_its_type_unless_its_text_may_be_logged() {
    let error = std::io::Error::other("card 4111 declined");
    let failure = Failure::of(&error);
    let said = |quotes| {
        let now = Reason::of_error(&error, true, quotes).to_string();
        let earlier = Reason::of_obstacle(&Error::Failed(failure.clone()), quotes);
        (now, earlier.to_string())
    };
    let both = |text: &str| (text.to_owned(), text.to_owned());
    assert_eq!(said(false), both("std::io::error::Error"));
    assert_eq!(said(true), both("card 4111 declined"));
}

#[test]
fn what_is_not_known_to_be_done_is_reported() {
    let plan = plan(vec![message("m-1", r#"{"key": "a"}"#)]);
    let ids = ["m-1".to_owned()];
    assert_eq!(reported(&ids, &plan.fates).count(), 1);
}

#[test]
fn a_follower_shares_its_leaders_fate() {
    let ids = ["m-1", "m-2", "m-3", "m-4"].map(str::to_owned);
    let fates = [
        Fate::Done,
        Fate::Reported(Reason::Panicked),
        Fate::Follows(0),
        Fate::Follows(1),
    ];
    let again: Vec<_> = reported(&ids, &fates).map(|(id, _)| id).collect();
    assert_eq!(again, ["m-2", "m-4"]);
}

#[test]
fn a_message_that_differs_has_its_turn_once_the_first_has_ended_for_good() {
    let differs = |leader| Fate::Reported(Reason::Mismatch { leader });
    let fates = [
        Fate::Done,
        differs(0),
        Fate::Reported(Reason::NotRun),
        differs(2),
        Fate::Reported(Reason::of_obstacle(&Error::Mismatch, false)),
        differs(4),
    ];
    assert_eq!(differing(&fates), [1, 5]);
}

#[test]
fn a_batch_is_misconfigured_as_a_whole_only_if_no_message_is_done() {
    let denied = || {
        Fate::Reported(Reason::Misconfigured {
            code: "store_failed",
            detail: "no table".to_owned(),
        })
    };
    let other = || Fate::Reported(Reason::Panicked);
    assert_eq!(
        misconfigured(&[other(), denied()]),
        Some("no table".to_owned())
    );
    assert_eq!(misconfigured(&[denied(), Fate::Done]), None);
    assert_eq!(misconfigured(&[other()]), None);
}

#[test]
fn an_id_is_reported_once_in_the_order_of_the_batch() {
    assert_eq!(distinct(["m-2", "m-1", "m-2"]), ["m-2", "m-1"]);
}

#[test]
fn a_message_without_an_id_is_found() {
    let mut nameless = message("", "1");
    assert_eq!(
        ids::<SqsEvent>(&[message("m-1", "1"), nameless.clone()]).unwrap_err(),
        1
    );
    nameless.message_id = None;
    assert_eq!(ids::<SqsEvent>(&[nameless]).unwrap_err(), 0);
}

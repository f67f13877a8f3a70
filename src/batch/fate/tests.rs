use super::*;
use crate::batch::plan::tests::{message, plan};
use crate::sqs::Sqs;

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
fn a_batch_is_misconfigured_as_a_whole_only_if_no_message_is_done() {
    let denied = || Fate::Reported(Reason::Misconfigured("no table".to_owned()));
    let other = || Fate::Reported(Reason::Panicked);
    assert_eq!(misconfigured(&[other(), denied()]), Some("no table"));
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
        ids::<Sqs>(&[message("m-1", "1"), nameless.clone()]).unwrap_err(),
        1
    );
    nameless.message_id = None;
    assert_eq!(ids::<Sqs>(&[nameless]).unwrap_err(), 0);
}

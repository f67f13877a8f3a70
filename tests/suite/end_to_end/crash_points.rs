//! `payments-worker`, killed at each point of the protocol's table: what is left behind, and what the next delivery makes of it.
//!
//! A request is stopped on its way to DynamoDB, or its reply on the way back, or a charge at the provider; there the process is
//! killed. The crash points of one form run side by side, each with tables and processes of its own.

use std::future::Future;

use axum::http::StatusCode;
use futures_util::future::join_all;

use super::payments_worker::{NONE, failed, one_payment};
use crate::support::lambda::{Function, Item, PATIENCE, number, text};
use crate::support::provider::{Provider, Stop};
use crate::support::{Fault, Proxy};

/// The point at which the process dies.
#[derive(Clone, Copy, Debug)]
enum At {
    /// The nth request of this operation is stopped before DynamoDB gets it.
    Before(&'static str, usize),
    /// It applies, and its reply is stopped.
    After(&'static str, usize),
    Provider(Stop),
}

/// The state that the next delivery finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// A claim, so that it has to wait for the lease.
    InProgress,
    Completed,
}

const CLAIM: (&str, usize) = ("PutItem", 1);
const ENTRY: (&str, usize) = ("PutItem", 2);

/// Kills an attempt at this point, and returns the state that it left.
async fn die(function: &Function, provider: Option<&Provider>, at: At) -> Left {
    let (proxy, wired) = function.behind_a_proxy().await;
    let mut doomed = wired.start().await;
    match at {
        At::Before(operation, n) => stop_at(&proxy, operation, n, false),
        At::After(operation, n) => stop_at(&proxy, operation, n, true),
        At::Provider(stop) => provider.expect("a provider").stop_next(stop),
    }
    doomed.begin(one_payment()).await;
    let stopped = async {
        match at {
            At::Provider(_) => provider.expect("a provider").stopped().await,
            _ => proxy.parked().await,
        }
    };
    let stopped = tokio::time::timeout(PATIENCE, stopped).await;
    assert!(stopped.is_ok(), "{at:?}: it never came there");
    doomed.kill();
    match function.records().await.as_slice() {
        [] => Left::Nothing,
        [record] if text(record, "status") == "COMPLETED" => Left::Completed,
        [record] => {
            assert_eq!(text(record, "status"), "INPROGRESS");
            Left::InProgress
        }
        more => panic!("{at:?}: {} records", more.len()),
    }
}

fn stop_at(proxy: &Proxy, operation: &str, n: usize, applies: bool) {
    for _ in 1..n {
        proxy.inject(operation, Fault::Pass);
    }
    proxy.inject(operation, Fault::Park { applies });
}

/// Delivers the payment again, and again after the lease; the messages that were reported.
async fn deliver_again(function: &Function, left: Left, at: At) -> Vec<String> {
    let mut successor = function.start().await;
    if left == Left::InProgress {
        let record = function.record().await;
        assert_eq!(
            failed(successor.invoke(one_payment()).await),
            ["message-0"],
            "{at:?}"
        );
        assert_eq!(
            function.record().await,
            record,
            "{at:?}: a refused duplicate changes nothing"
        );
        function.end_lease(&record).await;
    }
    failed(successor.invoke(one_payment()).await)
}

fn assert_completed(record: &Item, left: Left, at: At) {
    assert_eq!(text(record, "status"), "COMPLETED", "{at:?}");
    let attempts = if left == Left::InProgress { 2 } else { 1 };
    assert_eq!(number(record, "attempt"), attempts, "{at:?}");
}

async fn at_each<Fut: Future<Output = ()>>(points: &[At], check: impl Fn(At) -> Fut) {
    join_all(points.iter().map(|at| check(*at))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leased_form_ends_completed_and_repeats_only_an_effect_that_it_could_not_note() {
    let (claim, entry) = (CLAIM, ENTRY);
    let points = [
        (At::Before(claim.0, claim.1), Left::Nothing, 1),
        (At::After(claim.0, claim.1), Left::InProgress, 1),
        (At::Before(entry.0, entry.1), Left::InProgress, 1),
        // The first promise ends here: this ledger takes every entry, and has no key to recognise one by.
        (At::After(entry.0, entry.1), Left::InProgress, 2),
        (At::Before("UpdateItem", 1), Left::InProgress, 2),
        (At::After("UpdateItem", 1), Left::Completed, 1),
    ];
    join_all(points.map(|(at, expected, entries)| async move {
        let function = Function::payments_worker().await;
        let left = die(&function, None, at).await;
        assert_eq!(left, expected, "{at:?}");
        assert_eq!(deliver_again(&function, left, at).await, NONE, "{at:?}");
        assert_eq!(function.effects().await.len(), entries, "{at:?}");
        assert_completed(&function.record().await, left, at);
    }))
    .await;
}

/// Every point of an attempt in steps: the claim, the charge between its notes, the entry between its own, the completion.
const IN_STEPS: [At; 16] = [
    At::Before(CLAIM.0, CLAIM.1),
    At::After(CLAIM.0, CLAIM.1),
    At::Before("UpdateItem", 1),
    At::After("UpdateItem", 1),
    At::Provider(Stop::BeforeTheCharge),
    At::Provider(Stop::AfterTheCharge),
    At::Before("UpdateItem", 2),
    At::After("UpdateItem", 2),
    At::Before("UpdateItem", 3),
    At::After("UpdateItem", 3),
    At::Before(ENTRY.0, ENTRY.1),
    At::After(ENTRY.0, ENTRY.1),
    At::Before("UpdateItem", 4),
    At::After("UpdateItem", 4),
    At::Before("UpdateItem", 5),
    At::After("UpdateItem", 5),
];

#[tokio::test(flavor = "multi_thread")]
async fn in_steps_with_a_provider_that_honours_keys_there_is_one_charge_and_one_entry() {
    at_each(&IN_STEPS, async |at| {
        let provider = Provider::that_honours_keys().await;
        let function = Function::payments_worker().await.with_provider(&provider);
        let left = die(&function, Some(&provider), at).await;
        assert_eq!(deliver_again(&function, left, at).await, NONE, "{at:?}");
        assert_eq!(provider.charges().len(), 1, "{at:?}");
        let entries = function.effects().await;
        assert_eq!(entries.len(), 1, "{at:?}");
        assert_eq!(text(&entries[0], "charge_id"), "charge-1", "{at:?}");
        assert_completed(&function.record().await, left, at);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_steps_with_a_provider_that_ignores_keys_there_is_never_a_second_charge() {
    at_each(&IN_STEPS, async |at| {
        let provider = Provider::that_ignores_keys().await;
        let function = Function::payments_worker().await.with_provider(&provider);
        let left = die(&function, Some(&provider), at).await;
        let charged = provider.charges().len();
        let reported = deliver_again(&function, left, at).await;
        let record = function.record().await;
        // Between the charge's two notes nobody knows whether it was made.
        let unknown = matches!(
            at,
            At::After("UpdateItem", 1) | At::Provider(_) | At::Before("UpdateItem", 2)
        );
        if unknown {
            assert_eq!(reported, ["message-0"], "{at:?}");
            assert_eq!(
                provider.charges().len(),
                charged,
                "{at:?}: it waits for an operator"
            );
            assert_eq!(text(&record, "last_error"), "interrupted step", "{at:?}");
            assert!(function.effects().await.is_empty(), "{at:?}");
        } else {
            assert_eq!(reported, NONE, "{at:?}");
            assert_eq!(provider.charges().len(), 1, "{at:?}");
            assert_eq!(function.effects().await.len(), 1, "{at:?}");
            assert_completed(&record, left, at);
        }
    })
    .await;
}

#[tokio::test]
async fn a_refused_charge_is_asked_for_again_and_one_without_an_answer_stays_in_doubt() {
    for provider in [
        Provider::that_honours_keys().await,
        Provider::that_ignores_keys().await,
    ] {
        let function = Function::payments_worker().await.with_provider(&provider);
        let mut sandbox = function.start().await;
        provider.refuse_next(StatusCode::PAYMENT_REQUIRED);
        assert_eq!(failed(sandbox.invoke(one_payment()).await), ["message-0"]);
        assert_eq!(failed(sandbox.invoke(one_payment()).await), NONE);
        assert_eq!(failed(sandbox.invoke(one_payment()).await), NONE);
        assert_eq!(
            (provider.charges().len(), function.effects().await.len()),
            (1, 1)
        );

        // An answer that says nothing: only a provider that honours keys may be asked again.
        let function = Function::payments_worker().await.with_provider(&provider);
        let mut sandbox = function.start().await;
        provider.refuse_next(StatusCode::BAD_GATEWAY);
        assert_eq!(failed(sandbox.invoke(one_payment()).await), ["message-0"]);
        let record = function.record().await;
        let charge = record["step:charge"].as_m().expect("an entry");
        assert_eq!(text(charge, "state"), "PENDING");
        let again = failed(sandbox.invoke(one_payment()).await);
        assert_eq!(again.is_empty(), provider.honours_keys());
    }
}

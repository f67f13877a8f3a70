//! `rerun --keys`: which keys the handler derives from then on.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;

use aws_sdk_dynamodb::types::{AttributeValue, Put};
use futures_util::FutureExt;
use lambda_idempotency::store::transaction::WriteError;
use lambda_idempotency::testing::Crash;
use lambda_idempotency::{Claim, Error, Fingerprint, Idempotency, Outcome, StepError, Verdict};

use super::{WHY, deliver, engine, engine_an_hour_ago, id};
use crate::support::{Said, dynamodb, get, key, number, on, put, record, step, table, text};

/// An order, created under an id that follows from the key.
async fn place(once: &Idempotency, orders: &str) -> Result<Outcome<String>, Error<WriteError>> {
    let handler = async |claim: Claim| {
        let order = claim.derive_uuid("order");
        let put = Put::builder()
            .table_name(orders)
            .item("id", AttributeValue::S(order.clone()))
            .condition_expression("attribute_not_exists(id)");
        claim.write(put)?;
        Ok(order)
    };
    once.run(key("A-17"), Fingerprint::json(b"{}"), handler)
        .await
}

async fn rerun(table: &str, keys: &str, why: &str) -> Said {
    let id = id(table, "A-17");
    let rerun = format!("rerun {id} --keys {keys} --reason '{why}' --yes --json");
    on(table, &rerun).await
}

async fn count(table: &str) -> usize {
    let scan = dynamodb().client().scan().table_name(table);
    scan.send().await.unwrap().items().len()
}

#[tokio::test]
async fn what_was_created_is_created_again_under_new_keys_and_refused_under_the_same() {
    let (records, orders) = (table().await, table().await);
    let once = engine(&records);
    let first = place(&once, &orders).await.unwrap().into_inner();
    rerun(&records, "same", "one").await.ended_with(0);
    let refused = place(&once, &orders).await;
    assert_matches!(refused, Err(Error::Refused(_)));
    // It may be given in another way, since its attempts fail.
    rerun(&records, "new", "two").await.ended_with(0);
    let second = place(&once, &orders).await.unwrap();
    assert!(!second.is_replayed());
    assert_ne!(*second.get(), first);
    assert!(place(&once, &orders).await.unwrap().is_replayed());
    let got = on(&records, &format!("get {}", id(&records, "A-17"))).await;
    got.refused(0, "the derived keys of generation 1");
    // The same as before means those of the last attempts.
    rerun(&records, "same", "three").await.ended_with(0);
    let refused = place(&once, &orders).await;
    assert_matches!(refused, Err(Error::Refused(_)));
    rerun(&records, "new", "four").await.ended_with(0);
    let third = place(&once, &orders).await.unwrap().into_inner();
    assert!(third != first && third != *second.get());
    assert_eq!(count(&orders).await, 3);
}

#[tokio::test]
async fn all_attempts_after_a_rerun_derive_the_same_new_keys() {
    let table = table().await;
    let given = Mutex::new(Vec::new());
    let derive = async |claim: &Claim| {
        let step = claim.step("mail", async |key| Err::<(), _>(std::io::Error::other(key)));
        let Err(StepError::Effect(step)) = step.await else {
            panic!("it did not fire");
        };
        let keys = [
            claim.derive_key("gateway"),
            claim.derive_uuid("order"),
            claim.event_id("placed", "order-1", ""),
            claim.event_id("placed\u{1f}", "order-1", ""),
            step.to_string(),
        ];
        given.lock().unwrap().push(keys);
    };
    let complete = async |once: &Idempotency| {
        let handler = async |claim: Claim| {
            derive(&claim).await;
            Ok::<_, std::io::Error>(claim.attempt())
        };
        let ran = once.run(key("A-17"), Fingerprint::json(b"{}"), handler);
        assert!(!ran.await.unwrap().is_replayed());
    };
    complete(&engine(&table)).await;
    rerun(&table, "new", "charged 0").await.ended_with(0);
    let (past, crash) = (engine_an_hour_ago(&table), Crash::new());
    let attempt = past.run(key("A-17"), Fingerprint::json(b"{}"), async |claim| {
        derive(&claim).await;
        crash.here::<Result<u32, std::io::Error>>().await
    });
    crash.cut_off(attempt).await.unwrap();
    complete(&engine(&table)).await;
    let [first, died, last] = <[_; 3]>::try_from(given.into_inner().unwrap()).unwrap();
    assert_eq!(died, last);
    for (before, after) in first.iter().zip(&last) {
        assert_ne!(before, after);
    }
}

#[tokio::test]
async fn without_a_claim_nothing_is_created_under_an_id_that_is_derived_no_more() {
    let (records, orders) = (table().await, table().await);
    let first = place(&engine(&records).claimless(), &orders).await;
    let first = first.unwrap().into_inner();
    rerun(&records, "new", "charged 0").await.ended_with(0);
    // Two processes that know nothing of it.
    let (one, other) = (engine(&records).claimless(), engine(&records).claimless());
    for once in [&one, &other] {
        let stale = place(once, &orders).await;
        assert_matches!(stale, Err(Error::InFlight { .. }));
        assert_eq!(count(&orders).await, 1);
    }
    let second = place(&one, &orders).await.unwrap();
    assert!(!second.is_replayed());
    assert_ne!(*second.get(), first);
    let replayed = place(&other, &orders).await.unwrap();
    assert!(replayed.is_replayed());
    assert_eq!(replayed.get(), second.get());
    assert_eq!(count(&orders).await, 2);
}

/// The failure may be the answer of a provider to a key that is derived no more.
#[tokio::test]
async fn without_a_claim_no_failure_is_stored_or_told_of_a_key_that_is_derived_no_more() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    rerun(&table, "new", "charged 0").await.ended_with(0);
    let once = engine(&table).claimless();
    for (code, state) in [("in_flight", "released"), ("handler_failed", "failed")] {
        let declined = async |claim: Claim| {
            let key = claim.derive_key("gateway");
            Err::<String, _>(std::io::Error::other(key))
        };
        let payload = Fingerprint::json(b"{}");
        let failed = once.run_with(key("A-17"), payload, declined, |_| Verdict::Fail);
        assert_eq!(failed.await.unwrap_err().code(), code);
        let got = get(&table, &id(&table, "A-17")).await;
        assert_eq!(got["state"], state);
    }
}

/// The end of a run without a claim that commits nothing.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Failed,
    NotFinal,
    Panicked,
}

/// Each attempt would be refused by what the first one has created under the old keys.
#[tokio::test]
async fn without_a_claim_a_run_that_commits_nothing_is_followed_by_one_with_the_new_keys() {
    for ends in [Ends::Failed, Ends::NotFinal, Ends::Panicked] {
        let table = table().await;
        deliver(&table, "A-17").await.unwrap();
        rerun(&table, "new", "charged 0").await.ended_with(0);
        // A process that knows nothing of it.
        let once = engine(&table).claimless();
        let derived = Mutex::new(Vec::new());
        for _ in 0..3 {
            let handler = async |claim: Claim| {
                derived.lock().unwrap().push(claim.derive_key("gateway"));
                match ends {
                    Ends::Failed => Err(std::io::Error::other("it is there already")),
                    Ends::NotFinal => Ok("busy".to_owned()),
                    Ends::Panicked => panic!("it is there already"),
                }
            };
            let payload = Fingerprint::json(b"{}");
            let run = once.run_with(key("A-17"), payload, handler, |_| Verdict::Release);
            let _ = AssertUnwindSafe(run).catch_unwind().await;
            let got = get(&table, &id(&table, "A-17")).await;
            assert_eq!(got["state"], "released", "{ends:?}");
        }
        let derived = derived.into_inner().unwrap();
        assert_ne!(derived[0], derived[1], "{ends:?}");
        assert_eq!(derived[1], derived[2], "{ends:?}");
    }
}

#[tokio::test]
async fn without_a_claim_a_handler_that_derives_nothing_runs_at_once() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    rerun(&table, "new", "charged 0").await.ended_with(0);
    let once = engine(&table).claimless();
    let handler = async |_claim: Claim| Ok::<_, std::io::Error>("again".to_owned());
    let ran = once.run(key("A-17"), Fingerprint::json(b"{}"), handler);
    assert_eq!(ran.await.unwrap(), Outcome::Executed("again".to_owned()));
}

/// Its effect may have happened under the key that it had.
#[tokio::test]
async fn a_step_that_is_pending_gets_no_new_key_unless_it_is_said() {
    for (status, name) in [("COMPLETED", "charge"), ("FAILED", "charge/undo")] {
        let (table, pending) = (table().await, format!("step:{name}"));
        let own = [
            ("data", text("1")),
            ("completed_at", number(1_700_000_000_000_u64)),
            (pending.as_str(), step("PENDING", 1_700_000_000_000, &[])),
        ];
        put(&table, record("any", status, own)).await;
        let rerun = async |words: &str| {
            let rerun = format!("rerun any --keys {words} {WHY}");
            on(&table, &rerun).await
        };
        for words in ["new", "new --steps keep"] {
            rerun(words).await.refused(2, name);
        }
        if name == "charge/undo" {
            // A provider may answer with the charge that was undone.
            let same = rerun("same --steps repeat").await;
            same.refused(2, "--keys new");
        }
        rerun("same").await.ended_with(0);
        rerun("new").await.refused(2, name);
        rerun("new --steps repeat")
            .await
            .refused(0, "released before");
        let got = get(&table, "any").await;
        assert_eq!(got["steps"][0]["state"], "failed", "{got}");
    }
}

#[tokio::test]
async fn which_keys_are_derived_must_be_said() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    for which in [
        &*id,
        "--operation charge --token A-17",
        "--from /nonexistent",
    ] {
        let said = on(&table, &format!("rerun {which} {WHY}")).await;
        let said = said.ended_with(2);
        for words in ["--keys new", "--keys same", "is refused"] {
            assert!(said.err.contains(words), "{said:?}");
        }
    }
    assert!(deliver(&table, "A-17").await.unwrap().is_replayed());
}

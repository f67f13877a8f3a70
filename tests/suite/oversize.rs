//! Outcomes over the inline limit: compressed, then kept beside the record; whatever happens, never a second run.

use std::convert::Infallible;
use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue::{self, B, M, N, S};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::store::{CachedStore, MemoryStore};
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{
    Error, Fingerprint, Idempotency, Key, Omission, OnStoreUnavailable, Outcome, StoreError,
};

use crate::on_each_server;
use crate::support::crash::kill_when;
use crate::support::lambda::Item;
use crate::support::{Bench, Fault, Server};

mod bucket;

const ID: &str = "oversize#1";

/// Text that doesn't become much smaller than three quarters of itself.
fn noise(bytes: usize) -> String {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
        char::from(alphabet[usize::try_from(state % 64).unwrap()])
    };
    (0..bytes).map(|_| next()).collect()
}

impl Bench {
    /// The record, and the outcome beside it.
    async fn items(&self) -> (Item, Option<Item>) {
        let scan = self
            .direct
            .client()
            .scan()
            .table_name(&self.table)
            .consistent_read(true);
        let mut items = scan.send().await.unwrap().items.unwrap_or_default();
        items.sort_by_key(|item| item["id"].as_s().unwrap().len());
        assert!((1..=2).contains(&items.len()), "{}", items.len());
        let mut items = items.into_iter();
        (items.next().unwrap(), items.next())
    }
}

async fn run(once: &Idempotency, text: &str) -> Result<Outcome<String>, Error<Infallible>> {
    let text = text.to_owned();
    once.run(key(), payload(), |_| async { Ok(text) }).await
}

fn key() -> Key {
    Key::raw("export", ID)
}

fn payload() -> Fingerprint {
    Fingerprint::bytes(b"p")
}

/// A duplicate, whose handler would produce something else.
async fn replay(once: &Idempotency) -> Result<String, Error<Infallible>> {
    let outcome = run(once, "ran again").await?;
    assert!(outcome.is_replayed());
    Ok(outcome.into_inner())
}

/// Returns why a duplicate is not given the outcome.
async fn omitted(once: &Idempotency) -> Omission {
    match replay(once).await {
        Err(Error::OutcomeOmitted { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn seconds(item: &Item) -> i64 {
    item["expiration"].as_n().unwrap().parse().unwrap()
}

on_each_server!(an_outcome_that_compresses_well_stays_in_its_record);
async fn an_outcome_that_compresses_well_stays_in_its_record(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let large = r#"{"sku": "tea", "quantity": 1}, "#.repeat(2_000);
    assert_eq!(
        run(&once, &large).await.unwrap(),
        Outcome::Executed(large.clone())
    );
    assert_eq!(bench.proxy.take_total(), 2);
    assert_eq!(replay(&once).await.unwrap(), large);
    assert_eq!(bench.proxy.take_total(), 1);
    let (record, beside) = bench.items().await;
    assert_eq!(beside, None);
    assert!(!record.contains_key("data"));
}

on_each_server!(a_large_outcome_has_an_item_of_its_own);
async fn a_large_outcome_has_an_item_of_its_own(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let large = noise(450_000);
    assert_eq!(
        run(&once, &large).await.unwrap(),
        Outcome::Executed(large.clone())
    );
    let counts = bench.proxy.take_counts();
    assert_eq!(
        (counts["PutItem"], counts["UpdateItem"], counts.len()),
        (2, 1, 2)
    );
    assert_eq!(replay(&once).await.unwrap(), large);
    let counts = bench.proxy.take_counts();
    assert_eq!(
        (counts["PutItem"], counts["GetItem"], counts.len()),
        (1, 1, 2)
    );

    let (record, beside) = bench.items().await;
    let beside = beside.unwrap();
    let owner = record["owner"].as_s().unwrap();
    assert_eq!(beside["id"], S(format!("{ID}#outcome#{owner}")));
    let lasts_longer = seconds(&beside) - seconds(&record);
    assert!((3_600..3_610).contains(&lasts_longer), "{lasts_longer}");
    let record_size: usize = record
        .values()
        .map(|value| format!("{value:?}").len())
        .sum();
    assert!(
        record_size < 1_500,
        "duplicates are billed by it: {record_size}"
    );
}

on_each_server!(an_outcome_that_no_item_takes_is_done_and_never_run_again);
async fn an_outcome_that_no_item_takes_is_done_and_never_run_again(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let huge = noise(600_000);
    assert_eq!(run(&once, &huge).await.unwrap(), Outcome::Executed(huge));
    assert_eq!(omitted(&once).await, Omission::TooLarge);
    assert_eq!(bench.items().await.1, None);
}

on_each_server!(
    an_outcome_under_the_limit_that_its_record_has_no_room_for_is_done_and_never_run_again
);
async fn an_outcome_under_the_limit_that_its_record_has_no_room_for_is_done_and_never_run_again(
    server: Server,
) {
    let bench = Bench::on(&server).await;
    let once = bench.once_with(|once| once.settings(|settings| settings.inline_limit = 1_000_000));
    let huge = noise(450_000);
    assert_eq!(run(&once, &huge).await.unwrap(), Outcome::Executed(huge));
    assert_eq!(
        bench.proxy.take_counts()["UpdateItem"],
        2,
        "the second without the outcome"
    );
    let (record, beside) = bench.items().await;
    assert_eq!(
        (&record["status"], &record["omitted"]),
        (&S("COMPLETED".into()), &S("too_large".into()))
    );
    assert_eq!(beside, None);
    assert_eq!(omitted(&once).await, Omission::TooLarge);
}

on_each_server!(an_outcome_that_is_damaged_or_gone_is_never_replaced_by_a_second_run);
async fn an_outcome_that_is_damaged_or_gone_is_never_replaced_by_a_second_run(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    run(&once, &noise(20_000)).await.unwrap();
    let (record, beside) = bench.items().await;
    let beside = beside.unwrap();
    let B(content) = &beside["content"] else {
        panic!("binary")
    };
    let mut flipped = content.clone().into_inner();
    flipped[100] ^= 1;
    let damaged = [
        B(Blob::new(flipped)),
        B(Blob::new(&content.as_ref()[..100])),
        B(Blob::new(Vec::new())),
    ];
    for content in damaged {
        let id = beside["id"].as_s().unwrap();
        bench.put(id, [("content", content)]).await;
        assert_eq!(omitted(&once).await, Omission::Damaged);
    }
    let delete = bench.direct.client().delete_item().table_name(&bench.table);
    delete.key("id", beside["id"].clone()).send().await.unwrap();
    assert_eq!(omitted(&once).await, Omission::Lost);
    assert_eq!(bench.items().await.0, record);
}

on_each_server!(an_outcome_that_cannot_be_kept_leaves_a_marker);
async fn an_outcome_that_cannot_be_kept_leaves_a_marker(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let outcome = once.run(key(), payload(), |_| async {
        bench.proxy.inject("PutItem", Fault::DENY);
        Ok::<_, Infallible>(noise(20_000))
    });
    assert_matches!(outcome.await, Ok(Outcome::Executed(_)));
    assert_eq!(omitted(&once).await, Omission::NotKept);
}

on_each_server!(a_store_that_does_not_answer_leaves_time_for_the_completion);
async fn a_store_that_does_not_answer_leaves_time_for_the_completion(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once_with(|once| once.lease(Duration::from_secs(3)));
    let outcome = once.run(key(), payload(), |_| async {
        bench.proxy.repeat("PutItem", Fault::INTERNAL, 200);
        Ok::<_, Infallible>(noise(20_000))
    });
    assert_matches!(outcome.await, Ok(Outcome::Executed(_)));
    let (record, _) = bench.items().await;
    assert_eq!(record["omitted"], S("not_kept".into()));
}

on_each_server!(lost_replies_change_nothing);
async fn lost_replies_change_nothing(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    let large = noise(20_000);
    let given = large.clone();
    let outcome = once.run(key(), payload(), |_| async {
        bench.proxy.inject("PutItem", Fault::LoseReply);
        bench.proxy.inject("UpdateItem", Fault::LoseReply);
        Ok::<_, Infallible>(given)
    });
    assert_matches!(outcome.await, Ok(Outcome::Executed(_)));
    assert_eq!(replay(&once).await.unwrap(), large);
}

on_each_server!(a_read_that_fails_is_an_error_and_never_opens_the_door);
async fn a_read_that_fails_is_an_error_and_never_opens_the_door(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once_with(|once| once.on_store_unavailable(OnStoreUnavailable::FailOpen));
    run(&once, &noise(20_000)).await.unwrap();
    bench.proxy.repeat("GetItem", Fault::LoseRequest, 3);
    let error = replay(&once).await.unwrap_err();
    assert_matches!(error, Error::Store(StoreError::Unavailable(_)));
    assert_eq!(replay(&once).await.unwrap(), noise(20_000));
}

on_each_server!(an_attempt_that_dies_before_it_completes_leaves_an_outcome_that_expires);
async fn an_attempt_that_dies_before_it_completes_leaves_an_outcome_that_expires(server: Server) {
    let bench = Bench::on(&server).await;
    let clock = ManualClock::default();
    let once = bench.builder().clock(clock.clone()).build().unwrap();
    let stale = once.run(key(), payload(), |_| async {
        bench
            .proxy
            .inject("UpdateItem", Fault::Park { applies: false });
        Ok::<_, Infallible>(noise(20_000))
    });
    kill_when(bench.proxy.parked(), stale).await;
    let (record, orphan) = bench.items().await;
    assert_eq!(record["status"], S("INPROGRESS".into()));
    let orphan = orphan.expect("kept before the completion");
    assert!(
        seconds(&orphan) > seconds(&record),
        "TTL will find it, later than its record"
    );

    clock.advance(Duration::from_hours(1));
    let store = DynamoDbStore::new(server.client(), &bench.table);
    let next = Idempotency::builder(store)
        .namespace("oversize")
        .clock(clock)
        .build()
        .unwrap();
    assert_eq!(
        run(&next, "small").await.unwrap(),
        Outcome::Executed("small".into())
    );
    assert_eq!(replay(&next).await.unwrap(), "small");
}

on_each_server!(a_malformed_pointer_is_left_alone);
async fn a_malformed_pointer_is_left_alone(server: Server) {
    let bench = Bench::on(&server).await;
    let once = bench.once();
    run(&once, &noise(20_000)).await.unwrap();
    let (sound, _) = bench.items().await;
    let M(packed) = sound["packed"].clone() else {
        panic!("a map")
    };
    let with = |name: &str, value: Option<AttributeValue>| {
        let mut packed = packed.clone();
        match value {
            Some(value) => packed.insert(name.into(), value),
            None => packed.remove(name),
        };
        M(packed)
    };
    let broken = [
        S("x".into()),
        with("in", Some(S("cloud".into()))),
        with("in", Some(S("record".into()))),
        with("owner", None),
        with("sha256", Some(N("1".into()))),
        with("bytes", Some(N("-1".into()))),
        with("bytes", None),
    ];
    for pointer in broken {
        let mut item = sound.clone();
        item.insert("packed".into(), pointer.clone());
        bench.put(ID, item.clone()).await;
        let error = replay(&once).await.unwrap_err();
        assert_matches!(error, Error::Unreadable(_), "{pointer:?}");
        assert_eq!(bench.items().await.0, item);
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_remembers_the_record_of_a_large_outcome_but_not_the_outcome() {
    let once = Idempotency::builder(CachedStore::new(MemoryStore::new()))
        .namespace("oversize")
        .build()
        .unwrap();
    for replayed in [false, true, true] {
        let outcome = once.run(Key::new("export", "1"), None, |_| async {
            Ok::<_, Infallible>(noise(20_000))
        });
        let outcome = outcome.await.unwrap();
        assert_eq!(outcome.is_replayed(), replayed);
        assert_eq!(outcome.into_inner(), noise(20_000));
    }
}

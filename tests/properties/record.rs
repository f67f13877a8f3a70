//! Any item under a key is never treated as absent, is left alone unless its claim is over, and gives its content back unchanged; a store
//! reads every record that it writes.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use lambda_idempotency::protocol::record::{
    Completion, Found, Owner, Record, RecordWrite, Release, Status, StoredOutcome,
};
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::{Fingerprint, Idempotency, Key, Outcome};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::table::{Item, Table};
use super::{NOW, block_on, engine};

pub mod item;

/// The skew margin that engines have by default, in milliseconds.
const MARGIN: i64 = 1_000;

/// # Panics
///
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    block_on(judge(item::arbitrary(data)));
}

fn key() -> Key {
    Key::raw("charge", "the-only-one")
}

async fn judge(item: Item) {
    let table = Table::holding(item.clone());
    let once = engine(table.store());
    let id = once.record_id(&key()).expect("a usable id");
    let found = once
        .store()
        .load(&id, deadline())
        .await
        .expect("the table answers");
    let found = found.expect("an item that is there is never absent");

    let runs = Cell::new(0);
    let first = run(&once, &runs).await;
    let may = Verdict::on(&item, &found);
    assert!(
        may.run || runs.get() == 0,
        "it must not run:\n{item:?}\n{found:?}\n{first:?}"
    );
    assert!(
        !may.stay_away || runs.get() == 1,
        "nothing is in its way:\n{item:?}\n{found:?}"
    );
    if runs.get() == 0 {
        assert_eq!(table.item().as_ref(), Some(&item), "it is left alone");
    }
    match first {
        Ok(Outcome::Executed(_)) => {
            assert_eq!(runs.get(), 1);
            match run(&once, &runs).await {
                Ok(Outcome::Replayed(value, _)) => assert_eq!(value, made()),
                other => panic!("what was stored is not replayed: {other:?}"),
            }
            assert_eq!(runs.get(), 1, "it ran again");
        }
        Ok(Outcome::Replayed(value, _)) => assert_is_what_stands(&value, &found),
        Ok(other) => panic!("neither run nor replayed: {other:?}"),
        Err(_) => assert_eq!(runs.get(), 0),
    }
    if let Ok(record) = found.content {
        comes_back(&record).await;
    }
}

fn made() -> Value {
    json!({ "made": "now" })
}

async fn run(
    once: &Idempotency,
    runs: &Cell<usize>,
) -> Result<Outcome<Value>, lambda_idempotency::Error<Infallible>> {
    let handler = |_| {
        runs.set(runs.get() + 1);
        std::future::ready(Ok(made()))
    };
    once.run(key(), Fingerprint::json(item::PAYLOAD), handler)
        .await
}

fn assert_is_what_stands(value: &Value, found: &Found) {
    let record = found.content.as_ref().expect("it was understood");
    assert_eq!(record.status, Status::Completed);
    match &record.outcome {
        Some(StoredOutcome::Inline(text)) => {
            assert_eq!(
                *value,
                serde_json::from_str::<Value>(text).expect("it was replayed")
            );
        }
        Some(StoredOutcome::Packed(packed)) => {
            let text = serde_json::to_string(value).expect("a value");
            assert!(packed.bytes >= text.len() as u64, "it grew");
        }
        other => panic!("{other:?} was replayed"),
    }
}

/// The documentation's verdict on an item, worked out from the item itself.
struct Verdict {
    run: bool,
    /// Nothing that the item says keeps a handler from running.
    stay_away: bool,
}

impl Verdict {
    fn on(item: &Item, found: &Found) -> Self {
        let text = |name: &str| match item.get(name) {
            None => Ok(None),
            Some(value) => value["S"].as_str().map(Some).ok_or(()),
        };
        let number = |name: &str| match item.get(name) {
            None => Ok(None),
            Some(value) => {
                let digits = value["N"].as_str().ok_or(())?;
                digits.parse::<i64>().map(Some).map_err(|_| ())
            }
        };
        let version = || {
            Ok((
                text("owner")?,
                text("status")?,
                number("in_progress_expiration")?,
                number("expiration")?,
            ))
        };
        let Ok::<_, ()>((owner, status, lease, expiration)) = version() else {
            return Self {
                run: false,
                stay_away: false,
            };
        };
        let margin = if owner.is_some() { 0 } else { MARGIN };
        let lease_is_over = lease.map(|lease| NOW.0 >= lease.saturating_add(margin));
        let is_final = matches!(status, Some("COMPLETED" | "FAILED"));
        let expired = expiration.is_some_and(|expiration| {
            NOW.0 >= expiration.saturating_mul(1_000).saturating_add(MARGIN)
        }) && (is_final || lease_is_over.unwrap_or(true));
        if expired {
            return Self {
                run: true,
                stay_away: true,
            };
        }
        let Ok(record) = &found.content else {
            return Self {
                run: false,
                stay_away: false,
            };
        };
        let is_other_payload = record.layout.is_some()
            && record
                .fingerprint
                .as_ref()
                .is_some_and(|known| *known != Fingerprint::json(item::PAYLOAD));
        let free = !is_final && (lease == Some(0) || lease_is_over == Some(true));
        Self {
            run: free && !is_other_payload,
            stay_away: false,
        }
    }
}

/// Writes what was read, and reads what was written.
async fn comes_back(record: &Record) {
    let owner = Owner::from_stored("0123456789abcdef0123456789abcdef");
    for (name, entry) in record.journal.iter() {
        let back = write(&owner, async |store, id| {
            let amendment = RecordWrite::Amend {
                id,
                owner: owner.clone(),
                step: name.to_owned(),
                entry: entry.clone(),
            };
            store.write(&amendment, deadline()).await
        })
        .await;
        assert_eq!(back.journal.get(name), Some(entry));
    }
    if record.last_error.is_some() {
        let back = write(&owner, async |store, id| {
            let release = Release {
                id,
                owner: owner.clone(),
                tombstone: Owner::from_stored("tombstone"),
                last_error: record.last_error.clone(),
                forget_fingerprint: false,
            };
            store.write(&release.into(), deadline()).await
        })
        .await;
        assert_eq!(back.last_error, record.last_error);
    }
    let Some(outcome) = &record.outcome else {
        return;
    };
    let completed_at = record.completed_at.unwrap_or(NOW);
    let back = write(&owner, async |store, id| {
        let completion = Completion::new(
            id,
            owner.clone(),
            outcome.clone(),
            completed_at,
            record.expiration,
        );
        store.write(&completion.into(), deadline()).await
    })
    .await;
    let expected = (
        Status::Completed,
        Some(outcome),
        Some(completed_at),
        record.expiration,
    );
    assert_eq!(
        (
            back.status,
            back.outcome.as_ref(),
            back.completed_at,
            back.expiration
        ),
        expected
    );
}

/// Writes something on a claim, and reads the record.
async fn write(
    owner: &Owner,
    change: impl AsyncFnOnce(
        &lambda_idempotency::dynamodb::DynamoDbStore,
        lambda_idempotency::RecordId,
    ) -> Result<Answer, lambda_idempotency::StoreError>,
) -> Record {
    let table = Table::holding(item::claimed_by(owner));
    let store = table.store();
    let once = engine(store.clone());
    let id = once.record_id(&key()).expect("a usable id");
    let answer = change(&store, id.clone()).await.expect("the table answers");
    assert!(matches!(answer, Answer::Applied(_)), "the claim is held");
    let found = store
        .load(&id, deadline())
        .await
        .expect("the table answers");
    *found
        .expect("it is there")
        .content
        .expect("what was written can be read")
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

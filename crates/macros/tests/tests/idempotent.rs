//! Functions with the attribute, and the uses that the attribute refuses.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Display;
use std::io::Error as IoError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{Claim, Error, Fingerprint, Idempotency, Key, Outcome, idempotent};
use serde::Serialize;

fn engine() -> Idempotency {
    let builder = Idempotency::builder(MemoryStore::new());
    builder.namespace("payments").build().unwrap()
}

#[derive(Clone)]
struct Order {
    id: String,
    tenant: u32,
    body: Vec<u8>,
}

fn order(tenant: u32, body: &str) -> Order {
    Order {
        id: "17".to_owned(),
        tenant,
        body: body.into(),
    }
}

/// Documentation stays, as other attributes do.
#[idempotent(
    operation = "charge",
    key = order.id,
    scope = order.tenant,
    fingerprint = Fingerprint::json(&order.body),
)]
pub(crate) async fn charge(
    once: &Idempotency,
    claim: Claim,
    order: Order,
    runs: &AtomicU32,
) -> Result<String, IoError> {
    if runs.fetch_add(1, Ordering::Relaxed) == 0 {
        Err(IoError::other("the first attempt fails"))?;
    }
    if order.body.is_empty() {
        return Ok("nothing to charge".to_owned());
    }
    Ok(claim.derive_key("gateway"))
}

#[tokio::test]
async fn the_body_runs_once_for_a_key_and_a_scope_and_its_value_is_replayed() {
    let (once, runs) = (engine(), AtomicU32::new(0));
    let failed = charge(&once, order(1, "{}"), &runs).await.unwrap_err();
    assert!(matches!(failed, Error::Handler(_)));
    let first = charge(&once, order(1, "{}"), &runs).await.unwrap();
    assert!(matches!(first, Outcome::Executed(_)));
    let second = charge(&once, order(1, "{ }"), &runs).await.unwrap();
    assert!(second.is_replayed());
    assert_eq!(second.get(), first.get());
    assert_eq!(runs.load(Ordering::Relaxed), 2);

    let other = charge(&once, order(1, "[]"), &runs).await.unwrap_err();
    assert!(matches!(other, Error::Mismatch));
    let tenant = charge(&once, order(2, ""), &runs).await.unwrap();
    assert_eq!(tenant.into_inner(), "nothing to charge");
    assert_eq!(runs.load(Ordering::Relaxed), 3);
}

#[idempotent(operation = "remind", key = id, fingerprint = None, retention = Duration::from_hours(2))]
async fn remind(once: &Idempotency, id: u32) -> Result<u32, IoError> {
    Ok(id)
}

#[tokio::test]
async fn an_outcome_is_replayed_for_the_retention_of_the_attribute() {
    let clock = ManualClock::default();
    let builder = Idempotency::builder(MemoryStore::new()).clock(clock.clone());
    let once = builder.namespace("payments").build().unwrap();
    remind(&once, 17).await.unwrap();
    clock.advance(Duration::from_hours(1));
    assert!(remind(&once, 17).await.unwrap().is_replayed());
    clock.advance(Duration::from_hours(2));
    assert!(!remind(&once, 17).await.unwrap().is_replayed());
}

#[tokio::test]
async fn the_key_is_the_one_that_is_written_by_hand() {
    let (once, runs) = (engine(), AtomicU32::new(1));
    charge(&once, order(1, "{}"), &runs).await.unwrap();
    let key = Key::new("charge", "17").scope("1");
    let by_hand = once.run(key, Fingerprint::json(b"{}"), |_| async {
        Err::<String, _>(IoError::other("it ran"))
    });
    assert!(by_hand.await.unwrap().is_replayed());
}

struct Shop {
    once: Idempotency,
    runs: AtomicU32,
}

impl Shop {
    #[idempotent(operation = "ship", key = id, fingerprint = None, engine = self.once)]
    async fn ship(&self, id: u64) -> Result<u32, IoError> {
        Ok(self.runs.fetch_add(1, Ordering::Relaxed))
    }
}

#[tokio::test]
async fn a_method_names_its_engine_and_needs_no_claim() {
    let shop = Shop {
        once: engine(),
        runs: AtomicU32::new(5),
    };
    for _ in 0..2 {
        assert_eq!(shop.ship(7).await.unwrap().into_inner(), 5);
    }
    assert_eq!(shop.ship(8).await.unwrap().into_inner(), 6);
}

/// A line of an order that somebody else has.
struct Line<'a> {
    sku: &'a str,
    pieces: u32,
}

#[idempotent(
    operation = "pack",
    key = format!("{}#{parcel}", line.sku),
    fingerprint = Fingerprint::of(note)?,
)]
async fn pack<N: Serialize + ?Sized>(
    once: &Idempotency,
    claim: Claim,
    line: Line<'_>,
    note: &N,
    parcel: impl Display,
) -> Result<(String, u32), IoError> {
    let attempt = claim.attempt();
    Ok((format!("{} in {parcel}, {attempt}", line.sku), line.pieces))
}

#[tokio::test]
async fn a_function_may_have_type_parameters_and_lifetimes() {
    let once = engine();
    let line = |pieces| Line {
        sku: "green tea",
        pieces,
    };
    let first = pack(&once, line(5), "fragile", 7).await.unwrap();
    assert_eq!(first.get(), &("green tea in 7, 1".to_owned(), 5));
    let again = pack(&once, line(8), "fragile", "7").await.unwrap();
    assert!(again.is_replayed());
    let other = pack(&once, line(5), &["heavy"], 7).await.unwrap_err();
    assert!(matches!(other, Error::Mismatch));
}

trait Carrier {
    async fn carry(&self, place: &str) -> Result<Outcome<u32>, Error<IoError>>;
}

impl Carrier for Shop {
    #[idempotent(operation = "carry", key = place, fingerprint = None, engine = self.once)]
    async fn carry(&self, place: &str) -> Result<u32, IoError> {
        Ok(self.runs.fetch_add(1, Ordering::Relaxed))
    }
}

#[tokio::test]
async fn a_method_may_be_that_of_a_trait() {
    let shop = Shop {
        once: engine(),
        runs: AtomicU32::new(5),
    };
    for (place, expected) in [("Bonn", 5), ("Bonn", 5), ("Köln", 6)] {
        let carried = shop.carry(place).await.unwrap();
        assert_eq!(carried.into_inner(), expected);
    }
}

#[test]
#[ignore = "it compiles the dependencies once more: `make verify` runs it"]
fn what_it_refuses_is_told_at_its_place() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}

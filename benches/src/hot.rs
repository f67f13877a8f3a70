//! The paths whose instructions are counted. Everything is made ready first; only [`measured`] counts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue::{self, N, S};
use lambda_idempotency::dynamodb::{DynamoDbStore, TableLayout};
use lambda_idempotency::protocol::record::{
    Completion, Found, NewClaim, Owner, Record as Stored, StoredOutcome,
};
use lambda_idempotency::protocol::{Asking, Decision, OnCrash, Rules, decide, settle};
use lambda_idempotency::sqs::SqsEvent;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{EpochMillis, EpochSeconds, Fingerprint, Idempotency, Key, RecordId};
use tokio::runtime::{Builder, Runtime};

use crate::Error;
use crate::canned::{self, World};
use crate::layer::Layer;
use crate::messages::{event, ids};
use crate::raw::{Raw, Record, Style};
use crate::web::{self, Web};

/// Messages in a batch.
const BATCH: usize = 10;
const LARGE: usize = 100;
const LARGEST: usize = 10_000;

/// The paths that are counted, each with the number of units (calls, or messages) in a round.
pub const PATHS: [(&str, usize); 18] = [
    ("fingerprint-200B", 1),
    ("fingerprint-10KB", 1),
    ("key", 1),
    ("settle", 1),
    ("decide", 1),
    ("decode", 1),
    ("memory-new", BATCH),
    ("memory-replay", BATCH),
    ("sdk-new", BATCH),
    ("sdk-replay", BATCH),
    ("sdk-new-100", LARGE),
    ("sdk-new-10000", LARGEST),
    ("floor-new", BATCH),
    ("floor-replay", BATCH),
    ("http-new", 1),
    ("http-replay", 1),
    ("http-floor-new", 1),
    ("http-floor-replay", 1),
];

/// One round, made ready.
pub type Round = Box<dyn FnOnce() -> Result<(), Error>>;

/// Makes the next round ready; its argument is the round's number.
pub type Path = Box<dyn FnMut(usize) -> Result<Round, Error>>;

/// The part that counts: callgrind is told its name.
#[inline(never)]
pub fn measured(round: Round) -> Result<(), Error> {
    black_box(round)()
}

/// A path by its name in [`PATHS`].
pub fn path(name: &str) -> Result<Path, Error> {
    match name {
        "fingerprint-200B" => Ok(fingerprint(200)),
        "fingerprint-10KB" => Ok(fingerprint(10_000)),
        "key" => key(),
        "settle" => settling(),
        "decide" => deciding(),
        "decode" => decoding(),
        "memory-new" => layer(Layer::new(MemoryStore::new())?, BATCH, false),
        "memory-replay" => layer(Layer::new(MemoryStore::new())?, BATCH, true),
        "sdk-new" => layer(Layer::new(store(World::Empty))?, BATCH, false),
        "sdk-replay" => layer(Layer::new(store(World::Done))?, BATCH, false),
        "sdk-new-100" => layer(Layer::new(store(World::Empty))?, LARGE, false),
        "sdk-new-10000" => layer(Layer::new(store(World::Empty))?, LARGEST, false),
        "floor-new" => floor(World::Empty),
        "floor-replay" => floor(World::Done),
        "http-new" => requests(Web::guarded(store(World::Empty), false)?),
        "http-replay" => requests(Web::guarded(store(World::Answered), false)?),
        "http-floor-new" => requests(Web::by_hand(by_hand(World::Empty))),
        "http-floor-replay" => requests(Web::by_hand(by_hand(World::Answered))),
        _ => Err(format!("no path {name}").into()),
    }
}

fn call<T>(call: impl Fn() -> T + 'static) -> Path {
    let call = Rc::new(call);
    Box::new(move |_| {
        let call = Rc::clone(&call);
        Ok(Box::new(move || {
            black_box(call());
            Ok(())
        }))
    })
}

fn fingerprint(bytes: usize) -> Path {
    let text = json(bytes);
    call(move || Fingerprint::json(black_box(text.as_bytes())))
}

/// An order of at least so many bytes.
fn json(bytes: usize) -> String {
    let item = r#"{"sku": "B-12", "quantity": 2, "price": 12.5, "note": "caf\u00e9"}"#;
    let items = vec![item; bytes.div_ceil(item.len())].join(", ");
    format!(r#"{{"payment_id": "P-1", "order_id": "A-17", "amount": 1250, "items": [{items}]}}"#)
}

fn engine() -> Result<Idempotency, Error> {
    Ok(Idempotency::builder(MemoryStore::new())
        .namespace("bench")
        .build()?)
}

fn id(token: &str) -> Result<RecordId, Error> {
    Ok(engine()?.record_id(&Key::new("charge", token))?)
}

fn key() -> Result<Path, Error> {
    let once = engine()?;
    Ok(call(move || {
        once.record_id(&Key::new(
            black_box("charge"),
            black_box("payment-000001734"),
        ))
    }))
}

/// A completed record, as an item of the table.
fn item() -> HashMap<String, AttributeValue> {
    let hex = |digits: usize| "0123456789abcdef".repeat(digits / 16);
    let attributes = [
        ("id", S(format!("bench#charge#{}", hex(64)))),
        ("status", S("COMPLETED".to_owned())),
        ("owner", S(hex(32))),
        ("attempt", N("1".to_owned())),
        ("expiration", N("4102444800".to_owned())),
        ("started_at", N("1763640000000".to_owned())),
        ("completed_at", N("1763640000001".to_owned())),
        ("v", N("1".to_owned())),
        ("validation", S(hex(64))),
        ("data", S("\"done\"".to_owned())),
    ];
    attributes
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn decoding() -> Result<Path, Error> {
    let (layout, item) = (TableLayout::default(), item());
    layout.read(&item).content?;
    Ok(call(move || layout.read(black_box(&item))))
}

/// A duplicate that is replayed.
fn deciding() -> Result<Path, Error> {
    let found = TableLayout::default().read(&item());
    let rules = Rules {
        on_crash: OnCrash::RunAgain,
        max_attempts: None,
        skew_margin: Duration::from_secs(1),
    };
    let owner = Owner::random()?;
    let fingerprint = found.content.clone()?.fingerprint;
    Ok(call(move || {
        let now = EpochMillis(1_763_640_000_002);
        let asking = Asking::new(&owner, fingerprint.as_ref(), now);
        matches!(
            decide(Some(black_box(&found)), asking, &rules),
            Decision::Replay(_)
        )
    }))
}

/// A completion that met its own record: what a lost reply costs to see through.
fn settling() -> Result<Path, Error> {
    let (id, owner) = (id("settle")?, Owner::random()?);
    let fingerprint = Fingerprint::bytes(b"settle");
    let mut claim = NewClaim::new(
        id.clone(),
        owner.clone(),
        EpochMillis(1),
        EpochMillis(2),
        EpochSeconds(9),
    );
    claim.fingerprint = Some(fingerprint.clone());
    let mut record = Stored::claimed(&claim);
    let outcome = StoredOutcome::Inline("\"done\"".to_owned());
    let completion = Completion::new(id, owner, outcome, EpochMillis(2), EpochSeconds(9));
    record.status = completion.status;
    record.outcome = Some(completion.outcome.clone());
    record.completed_at = Some(completion.completed_at);
    let found = Found::readable(record);
    Ok(call(move || {
        matches!(
            settle(Some(black_box(&found)), &completion, Some(&fingerprint)),
            lambda_idempotency::protocol::Settled::Recorded
        )
    }))
}

fn store(world: World) -> DynamoDbStore {
    DynamoDbStore::new(canned::client(world), canned::TABLE)
}

fn runtime() -> Result<Rc<Runtime>, Error> {
    Ok(Rc::new(Builder::new_current_thread().enable_all().build()?))
}

/// Batches of this size through the layer; `again`: each was there before.
fn layer(layer: Layer<SqsEvent>, size: usize, again: bool) -> Result<Path, Error> {
    let (runtime, layer) = (runtime()?, Rc::new(RefCell::new(layer)));
    Ok(Box::new(move |number| {
        let batch = event(&ids("round", number, size), 1)?;
        if again {
            runtime.block_on(layer.borrow_mut().batch(batch.clone()))?;
        }
        let (runtime, layer) = (Rc::clone(&runtime), Rc::clone(&layer));
        Ok(Box::new(move || {
            runtime.block_on(layer.borrow_mut().batch(batch))?;
            Ok(())
        }))
    }))
}

/// The same batches through the SDK, by hand.
fn floor(world: World) -> Result<Path, Error> {
    let raw = Rc::new(by_hand(world));
    let runtime = runtime()?;
    Ok(Box::new(move |number| {
        let records: Vec<_> = ids("round", number, BATCH)
            .iter()
            .map(|id| Record::of(id))
            .collect();
        let (runtime, raw) = (Rc::clone(&runtime), Rc::clone(&raw));
        Ok(Box::new(move || {
            runtime.block_on(raw.batch(&records))?;
            Ok(())
        }))
    }))
}

fn by_hand(world: World) -> Raw {
    Raw::new(canned::client(world), canned::TABLE, Style::Groups)
}

/// Requests over HTTP, one after the other.
fn requests(web: Web) -> Result<Path, Error> {
    let (runtime, web) = (runtime()?, Rc::new(RefCell::new(web)));
    Ok(Box::new(move |number| {
        let request = web::request(&format!("round-{number}"))?;
        let (runtime, web) = (Rc::clone(&runtime), Rc::clone(&web));
        Ok(Box::new(move || {
            runtime.block_on(web.borrow_mut().requests(vec![request]))?;
            Ok(())
        }))
    }))
}

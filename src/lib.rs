//! Idempotency for AWS Lambda handlers, backed by DynamoDB: a delivery that comes twice takes effect once.
//!
//! Queues deliver at least once, clients retry, and a function may die between its effect and its acknowledgement. This crate
//! wraps a handler so that the first delivery runs, a concurrent one is told to wait, a later one gets the stored outcome,
//! and an attempt that died is recovered when its lease is over, with stale handlers fenced out of the record.
//!
//! # Quick start
//!
//! ```
//! use lambda_idempotency::{Fingerprint, Idempotency, Key, Outcome, store::MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`, on the table that IDEMPOTENCY_TABLE names.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
//!
//! let body = br#"{"order": "A-17", "amount": 1250, "currency": "EUR"}"#;
//! let charge = || {
//!     once.run(Key::new("charge", "A-17"), Fingerprint::json(body), |claim| async move {
//!         // Charge the card here, and hand the provider `claim.derive_key("gateway")`: it is the same in every attempt.
//!         Ok::<_, std::io::Error>(format!("receipt of attempt {}", claim.attempt()))
//!     })
//! };
//!
//! assert!(matches!(charge().await?, Outcome::Executed(_)));
//! assert!(matches!(charge().await?, Outcome::Replayed(_, _)));
//! # Ok(()) }
//! ```
//!
//! Handlers of SQS messages are wrapped by `sqs::BatchLayer`, HTTP services by `http::IdempotencyLayer`; anything else calls
//! [`Idempotency::run`].
//!
//! # What it promises
//!
//! 1. **One at a time, then replay** ([`Idempotency::run`]): at most one live claim on a key, one stored outcome, stale owners
//!    fenced out. A handler that outlives its lease may overlap its successor: the effect inside it can then happen twice,
//!    its *outcome* can't be stored twice.
//! 2. **The same key downstream** ([`Claim::derive_key`]): equal across attempts, so that a provider which honours idempotency
//!    keys catches what the first promise can't.
//! 3. **Exactly-once effects**, in DynamoDB ([`Claim::write`]): the business writes and the outcome are one transaction under the
//!    fence. Handlers that do nothing else need no claim: [`Idempotency::claimless`].
//!
//! Between several effects, [`Claim::step`] keeps a journal: an attempt that takes over repeats none that is confirmed.
//!
//! `docs/protocol.md` in the repository is the whole protocol: every write, its condition, and what each crash leaves behind.
//!
//! # Where things are
//!
//! | you want to | look at |
//! |---|---|
//! | wrap a handler | [`Idempotency`], `sqs`, `http` |
//! | choose settings | [`Builder`] |
//! | name a request | [`Key`], [`Fingerprint`] |
//! | write to DynamoDB exactly once | [`transaction`], `guard`, `outbox` |
//! | know what came back | [`Outcome`], [`Error`] |
//! | have several effects | [`Claim::step`], [`Step`] |
//! | keep records | [`store`]: `DynamoDbStore`, [`MemoryStore`](store::MemoryStore), or your own |
//! | see how it decides | [`protocol`] |
//! | count what happens | [`metrics`](mod@metrics) |
//!
//! # Features
//!
//! | feature | default | gives |
//! |---|---|---|
//! | `dynamodb` | yes | `store::dynamodb::DynamoDbStore`, over `aws-sdk-dynamodb` with one TLS stack |
//! | `s3` | | `store::dynamodb::OutcomeBucket`: outcomes that are too large for an item; implies `dynamodb` |
//! | `sqs` | | `sqs::BatchLayer`, for functions behind an SQS queue |
//! | `jmespath` | | `sqs::Selector::jmespath`: keys that an expression finds in the body; implies `sqs` |
//! | `visibility` | | `sqs::Visibility`: messages in flight elsewhere stay hidden until the other's lease is over; implies `sqs` |
//! | `http` | | `http::IdempotencyLayer`, for functions behind API Gateway or a load balancer |
//! | `axum` | | the same layer, around an axum router in a function or in a server |
//! | `powertools` | | `powertools`: the keys of a function with Powertools for AWS Lambda, whose records are to be shared |
//! | `test-util` | | `testing`: a clock to set by hand, and the conformance suite for stores |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod claim;
mod clock;
mod engine;
mod error;
mod fingerprint;
#[cfg(feature = "dynamodb")]
#[cfg_attr(docsrs, doc(cfg(feature = "dynamodb")))]
pub mod guard;
mod hash;
#[cfg(feature = "http")]
#[cfg_attr(docsrs, doc(cfg(feature = "http")))]
pub mod http;
mod idempotency;
pub mod journal;
mod key;
pub mod metrics;
mod observe;
mod omission;
#[cfg(feature = "dynamodb")]
#[cfg_attr(docsrs, doc(cfg(feature = "dynamodb")))]
pub mod outbox;
mod outcome;
mod owner;
pub mod packed;
#[cfg(feature = "powertools")]
#[cfg_attr(docsrs, doc(cfg(feature = "powertools")))]
pub mod powertools;
pub mod protocol;
pub mod record;
mod settings;
#[cfg(feature = "sqs")]
pub mod sqs;
mod step;
pub mod store;
#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub mod testing;
pub mod transaction;

pub use claim::Claim;
pub use clock::{Clock, EpochMillis, EpochSeconds, SystemClock};
pub use error::{BoxError, Error, StoreError};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use idempotency::Idempotency;
pub use key::{DEFAULT_MAX_TOKEN_CHARS, Key, KeyError, RecordId};
pub use outcome::{Outcome, Replay, Verdict};
pub use protocol::Crashed;
pub use record::{Failure, Omission};
pub use settings::{
    Builder, DISABLED_VARIABLE, EVENT_RETENTION, HTTP_RETENTION, InFlight, MissingKey, StoreDown,
    Unrecorded,
};
pub use step::{Step, StepError};

/// Compiles what the README and the guide show.
#[cfg(all(
    doctest,
    feature = "dynamodb",
    feature = "http",
    feature = "powertools",
    feature = "sqs"
))]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/operations.md")]
#[doc = include_str!("../docs/exactly-once.md")]
#[doc = include_str!("../docs/powertools.md")]
struct Readme;

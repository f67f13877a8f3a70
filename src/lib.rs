//! Idempotency for AWS Lambda handlers, backed by DynamoDB: a delivery that comes twice takes
//! effect once.
//!
//! Queues deliver at least once, clients retry, and a function may die between its effect and its
//! acknowledgement. This crate wraps a handler so that the first delivery runs, a concurrent one is
//! told to wait, a later one gets the stored outcome, and an attempt that died is recovered when
//! its lease is over, with stale handlers fenced out of the record. This is what two deliveries of
//! one message send:
//!
#![doc = concat!(
    "![The first delivery runs, the second gets its outcome](data:image/svg+xml,",
    include_str!("../docs/diagrams/twice.uri"),
    ")"
)]
//!
//! # Quick start
//!
//! ```
//! use lambda_idempotency::{Fingerprint, Idempotency, Key, Outcome, store::MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?` on the table of IDEMPOTENCY_TABLE, and for each event
//! // `once.invocation(&event.context)`, which tells the run its deadline.
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
//! Handlers of queues and streams are wrapped by the `BatchLayer` of their source's module, HTTP services
//! by `http::IdempotencyLayer`, functions of one event by `invoke::InvokeLayer`; anything else calls
//! [`Idempotency::run`].
//!
//! # What it promises
//!
//! 1. **One at a time, then replay** ([`Idempotency::run`]): at most one live claim on a key, one
//!    stored outcome, stale owners fenced out. A handler that outlives its lease may overlap its
//!    successor: the effect inside it can then happen twice, its *outcome* can't be stored twice.
//! 2. **The same key downstream** ([`Claim::derive_key`]): equal across attempts, so that a
//!    provider which honours idempotency keys catches what the first promise can't.
//! 3. **Exactly-once effects**, in DynamoDB ([`Claim::write`]): the business writes and the outcome
//!    are one transaction under the fence. Handlers that do nothing else need no claim:
//!    [`Idempotency::claimless`].
//!
//! They hold while the record is kept ([`Builder::retention`]): a delivery after that runs again.
//!
//! Between several effects, [`Claim::step`] keeps a journal: an attempt that takes over repeats
//! none that is confirmed.
//!
//! `docs/internals/protocol.md` in the repository is the whole protocol: every write, its condition, and what
//! each crash leaves behind.
//!
//! # Where things are
//!
//! | you want to | look at |
//! |---|---|
//! | wrap a handler | [`Idempotency::run`], [`sqs`], [`kinesis`], [`dynamodb_streams`], [`kafka`], [`http`], [`invoke`], the attribute `#[idempotent]` |
//! | hold a claim without a closure | [`Idempotency::begin`], [`Run`] |
//! | choose settings | [`Builder`] |
//! | name a request | [`Key`], [`Fingerprint`] |
//! | write to DynamoDB exactly once | [`store::transaction`], `dynamodb::guard`, `dynamodb::outbox` |
//! | know what came back | [`Outcome`], [`Error`] |
//! | choose key, form and retention | [`guide::choose`] |
//! | test your handlers | [`testing`], [`guide::testing`] |
//! | know what an error asks you to do | [`guide::errors`] |
//! | act on an alarm | [`guide::alarms`] |
//! | send requests with keys | the crate [`lambda-idempotency-client`](https://docs.rs/lambda-idempotency-client) |
//! | have several effects | [`Claim::step`], [`Step`] |
//! | undo what was done | [`Claim::saga`], [`Saga`] |
//! | keep records | `dynamodb::DynamoDbStore`, [`MemoryStore`](store::MemoryStore), or a [`Store`](store::Store) of your own |
//! | see what each write makes of a record | [`transition`](fn@protocol::transition) |
//! | count what happens | [`metrics`](mod@metrics) |
//!
//! # Features
//!
//! | feature | default | gives |
//! |---|---|---|
//! | `dynamodb` | yes | `DynamoDbStore` of [`dynamodb`], over `aws-sdk-dynamodb` with one TLS stack |
//! | `s3` | | `DynamoDbStore::outcome_bucket`: outcomes that are too large for an item; implies `dynamodb` |
//! | `lambda` | | [`Idempotency::invocation`](Idempotency): an engine bound to the invocation of `lambda_runtime` |
//! | `batch` | | [`batch`]: what every source of batches shares; for a `batch::Source` of your own |
//! | `sqs` | | `BatchLayer` of [`sqs`], for functions behind an SQS queue; implies `batch` |
//! | `streams` | | [`kinesis`], [`dynamodb_streams`], [`kafka`] and the other sources of batches; implies `batch` |
//! | `invoke` | | `InvokeLayer` of [`invoke`], for handlers of one event: direct, Step Functions, EventBridge, SNS |
//! | `jmespath` | | with `batch`, `http` or `invoke`: `Selector::jmespath`, for keys that an expression finds in the body |
//! | `visibility` | | `sqs::Visibility`: messages in flight elsewhere stay hidden until the other's lease is over; `sqs::BatchLayer::rejected_to`; implies `sqs` |
//! | `http` | | `IdempotencyLayer` of [`http`], for any tower service of `http::Request`; links nothing of Lambda's |
//! | `axum` | | the same layer, around an axum router; with `lambda-http` in a function, without it in a server; implies `http` |
//! | `lambda-http` | | the same layer, for functions behind API Gateway, a load balancer or a function URL; implies `http` |
//! | `window` | | [`window`]: a bounded memory of keys, as a hint in front of a store and, lossy, alone |
//! | `uuid` | | `uuid::Uuid` as a key |
//! | `macros` | | `#[idempotent]`: an attribute that makes an async function idempotent |
//! | `powertools` | | [`powertools`]: the keys of a function with Powertools for AWS Lambda, whose records are to be shared |
//! | `test-util` | | [`testing`]: claims, messages, crashes and a clock for tests of handlers; the conformance suite for stores |
//! | `test-dynamodb` | | `testing::TestDynamoDb`: a DynamoDB API in the test's own process; implies `test-util` and `dynamodb` |
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

/// Implements `Clone` field by field. A derive would ask it of every type parameter: of a source, a
/// store, an error.
#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
macro_rules! clone_fields {
    ([$($parameters:tt)*] $type:ty { $($field:ident),+ }) => {
        impl<$($parameters)*> Clone for $type {
            fn clone(&self) -> Self {
                Self { $($field: self.$field.clone()),+ }
            }
        }
    };
}

/// Implements `Debug` with these fields alone: the others hold what is not for logs, or have no `Debug`.
macro_rules! debug_fields {
    ([$($parameters:tt)*] $name:ident $(<$($argument:ident),+>)? { $($field:ident),* }) => {
        /// Shows what may be logged, and nothing else.
        impl<$($parameters)*> std::fmt::Debug for $name $(<$($argument),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}

/// Writes both spans of a `Source`, with the fields of OpenTelemetry's conventions for messaging and those
/// in braces. `destination` names the queue, stream or topic of one record.
#[cfg(any(feature = "sqs", feature = "streams"))]
macro_rules! messaging_spans {
    (
        system: $system:literal, trigger: $trigger:literal, verb: $verb:literal, destination: $destination:expr,
        |$records:ident| $batch_name:literal { $($batch_fields:tt)* }
        |$record:ident| $record_name:literal { $($record_fields:tt)* }
    ) => {
        fn batch_span(
            $records: &[Self::Record],
            context: &lambda_runtime::Context,
        ) -> tracing::Span {
            let destination = $records.first().map_or("", |$record| $destination);
            tracing::info_span!(
                $batch_name,
                otel.kind = "consumer",
                otel.name = format_args!("{} {destination}", $verb),
                faas.trigger = $trigger,
                faas.invocation_id = context.request_id,
                messaging.system = $system,
                messaging.operation.name = $verb,
                messaging.operation.r#type = "receive",
                messaging.destination.name = destination,
                messaging.batch.message_count = $records.len(),
                $($batch_fields)*
            )
        }

        fn record_span($record: &Self::Record) -> tracing::Span {
            let destination: &str = $destination;
            tracing::info_span!(
                $record_name,
                otel.kind = "consumer",
                otel.name = format_args!("process {destination}"),
                messaging.system = $system,
                messaging.operation.name = "process",
                messaging.operation.r#type = "process",
                messaging.destination.name = destination,
                $($record_fields)*
            )
        }
    };
}

/// Implements `Debug` by `Display`, for the errors that `main` may return at start-up: Rust prints
/// the `Debug` of what `main` returns.
macro_rules! debug_by_display {
    ($error:ty) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// Links an error's text to its section of [`guide::errors`], which says what to do. Without a
/// section it is what each of these links begins with.
macro_rules! see {
    ($section:literal) => {
        concat!(
            ". See https://docs.rs/lambda-idempotency/latest/lambda_idempotency/guide/errors/index.html#",
            $section
        )
    };
}

#[cfg(test)]
#[macro_use]
#[path = "../tests/support/assert_matches.rs"]
mod assert_matches;

#[cfg(feature = "batch")]
#[cfg_attr(docsrs, doc(cfg(feature = "batch")))]
pub mod batch;
#[cfg(feature = "streams")]
#[cfg_attr(docsrs, doc(cfg(feature = "streams")))]
pub mod cloudwatch_logs;
#[cfg(feature = "dynamodb")]
#[cfg_attr(docsrs, doc(cfg(feature = "dynamodb")))]
pub mod dynamodb;
#[cfg(feature = "streams")]
#[cfg_attr(docsrs, doc(cfg(feature = "streams")))]
pub mod dynamodb_streams;
mod engine;
#[cfg(any(feature = "batch", feature = "invoke"))]
#[cfg_attr(
    not(feature = "batch"),
    allow(
        dead_code,
        unreachable_pub,
        reason = "`invoke` opens two of the envelopes"
    )
)]
mod envelope;
#[cfg(any(doc, doctest))]
pub mod guide;
#[cfg(feature = "http")]
#[cfg_attr(docsrs, doc(cfg(feature = "http")))]
pub mod http;
mod idempotency;
#[cfg(feature = "invoke")]
#[cfg_attr(docsrs, doc(cfg(feature = "invoke")))]
pub mod invoke;
#[cfg(feature = "streams")]
#[cfg_attr(docsrs, doc(cfg(feature = "streams")))]
pub mod kafka;
#[cfg(feature = "streams")]
#[cfg_attr(docsrs, doc(cfg(feature = "streams")))]
pub mod kinesis;
#[cfg(feature = "streams")]
#[cfg_attr(docsrs, doc(cfg(feature = "streams")))]
pub mod mq;
#[cfg(all(feature = "streams", feature = "sqs"))]
#[cfg_attr(docsrs, doc(cfg(all(feature = "streams", feature = "sqs"))))]
pub mod pipes;
#[cfg(feature = "powertools")]
#[cfg_attr(docsrs, doc(cfg(feature = "powertools")))]
pub mod powertools;
pub mod protocol;
#[cfg(feature = "streams")]
#[cfg_attr(docsrs, doc(cfg(feature = "streams")))]
pub mod s3_events;
mod setup;
#[cfg(feature = "sqs")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqs")))]
pub mod sqs;
pub mod store;
#[cfg(feature = "streams")]
mod streams;
#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub mod testing;
#[cfg(feature = "window")]
#[cfg_attr(docsrs, doc(cfg(feature = "window")))]
pub mod window;

pub use engine::claim::{Claim, PreparedStep, Saga};
pub use engine::claim::{SagaError, Step, StepError};
pub use engine::error::{Error, ErrorKind};
pub use engine::metrics;
#[doc(hidden)]
pub use engine::settings::EVENT_RETENTION;
pub use engine::settings::{
    AtDeadline, InFlight, OnMissingKey, OnStoreUnavailable, Settings, Unrecorded,
};
pub use engine::{Begun, Disposition, Ended, Replay, Replayed, Run};
pub use idempotency::{Builder, Idempotency};
pub use idempotency::{Outcome, Verdict};
#[cfg(feature = "macros")]
#[cfg_attr(docsrs, doc(cfg(feature = "macros")))]
#[doc = include_str!("idempotent.md")]
pub use lambda_idempotency_macros::idempotent;
pub use protocol::OnCrash;
pub use protocol::causes::HandlerError;
#[doc(hidden)]
pub use protocol::causes::{in_words, marker};
pub use protocol::clock::{Clock, EpochMillis, EpochSeconds};
pub use protocol::fingerprint::Fingerprint;
#[doc(hidden)]
pub use protocol::journal::SagaStatus;
pub use protocol::key::IntoToken;
pub use protocol::key::{Key, KeyError, RecordId};
pub use protocol::pointer::Pointer;
pub use protocol::record::{Failure, Omission};
#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
#[cfg_attr(
    docsrs,
    doc(cfg(any(feature = "batch", feature = "http", feature = "invoke")))
)]
pub use protocol::selector::Selector;
pub use setup::BuildError;
pub use store::StoreError;

/// Compiles what the README and the guide show.
#[cfg(all(
    doctest,
    feature = "axum",
    feature = "dynamodb",
    feature = "invoke",
    feature = "lambda-http",
    feature = "macros",
    feature = "powertools",
    feature = "sqs",
    feature = "streams"
))]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/local.md")]
#[doc = include_str!("../docs/recipes/effects.md")]
#[doc = include_str!("../docs/recipes/saga.md")]
#[doc = include_str!("../docs/recipes/transactions.md")]
#[doc = include_str!("../docs/recipes/guards.md")]
#[doc = include_str!("../docs/recipes/outbox.md")]
#[doc = include_str!("../docs/recipes/inbox.md")]
#[doc = include_str!("../docs/recipes/agents.md")]
#[doc = include_str!("../docs/recipes/servers.md")]
#[doc = include_str!("../docs/recipes/managed-instances.md")]
#[doc = include_str!("../docs/recipes/window.md")]
#[doc = include_str!("../docs/recipes/webhooks.md")]
#[doc = include_str!("../docs/recipes/tenants.md")]
#[doc = include_str!("../docs/recipes/observe.md")]
#[doc = include_str!("../docs/operations/records.md")]
#[doc = include_str!("../docs/operations/table.md")]
#[doc = include_str!("../docs/reference/log-events.md")]
#[doc = include_str!("../docs/reference/metrics.md")]
#[doc = include_str!("../docs/reference/settings.md")]
#[doc = include_str!("../docs/recipes/powertools.md")]
#[doc = include_str!("../docs/sources/sqs.md")]
#[doc = include_str!("../docs/sources/http.md")]
#[doc = include_str!("../docs/sources/http-answers.md")]
#[doc = include_str!("../docs/sources/kinesis.md")]
#[doc = include_str!("../docs/sources/dynamodb-streams.md")]
#[doc = include_str!("../docs/sources/kafka.md")]
#[doc = include_str!("../docs/sources/cloudwatch-logs.md")]
#[doc = include_str!("../docs/sources/mq.md")]
#[doc = include_str!("../docs/sources/s3-notifications.md")]
#[doc = include_str!("../docs/sources/pipes.md")]
#[doc = include_str!("../docs/sources/invoke.md")]
#[doc = include_str!("../docs/sources/step-functions.md")]
#[doc = include_str!("../docs/sources/sns.md")]
#[doc = include_str!("../docs/sources/eventbridge.md")]
#[doc = include_str!("../docs/sources/scheduler.md")]
#[doc = include_str!("../docs/sources/s3-batch.md")]
#[doc = include_str!("../docs/sources/anything.md")]
struct Readme;

//! Makes a handler of Lambda's events idempotent: one event, one answer.
//!
//! [`InvokeLayer`] takes the key of an event, runs the handler for it once, and stores the answer.
//! An event of the same key that is delivered again gets the stored answer, byte for byte, and the handler
//! doesn't run. It serves functions that are invoked directly, by Step Functions, SNS, an
//! EventBridge bus, EventBridge Scheduler or an S3 Batch Operations job.
//!
//! ```
//! use lambda_idempotency::invoke::{InvokeLayer, Invocation};
//! use lambda_idempotency::{Idempotency, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use serde_json::value::to_raw_value;
//! use tower::Service;
//!
//! #[derive(serde::Deserialize, serde::Serialize)]
//! struct Settlement {
//!     settlement_id: String,
//!     amount: u64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a function: `DynamoDbStore::from_env().await?`.
//! let once = Idempotency::builder(MemoryStore::new()).namespace("settlements").build()?;
//! let mut function = InvokeLayer::new(once)
//!     .operation("settle")
//!     .key(|settlement: &Settlement| settlement.settlement_id.clone())
//!     .handler(|event: Invocation<Settlement>| async move {
//!         // The bank gets the same key in every attempt.
//!         let payout = event.claim.derive_key("bank");
//!         Ok::<_, std::io::Error>(format!("{} cents under {payout}", event.payload.amount))
//!     });
//! // In a function: `lambda_runtime::run(function).await`. Here, the same event twice by hand.
//! let settlement = Settlement { settlement_id: "s-1".into(), amount: 1250 };
//! let event = || Ok::<_, serde_json::Error>(LambdaEvent::new(to_raw_value(&settlement)?, Context::default()));
//! let first = function.call(event()?).await?;
//! let again = function.call(event()?).await?;
//! assert_eq!(again.get(), first.get());
//! # Ok(()) }
//! ```
//!
//! # Which key
//!
//! A key names the work. Without one each event fails, and the error says what to set: a hash of
//! the payload would be unsafe as a default, because two equal payments are two payments.
//!
//! | made by | key, unless one is set | payload | kept for | answer |
//! |---|---|---|---|---|
//! | [`InvokeLayer::new`] | none: set one | the event | 7 days | the handler's |
//! | [`InvokeLayer::step_functions`] | execution, state, index, iteration | the event | 7 days | the handler's |
//! | [`InvokeLayer::sns`] | `MessageId` | the message | 30 days | `null` |
//! | [`InvokeLayer::event_bridge`] | `id` | `detail` | 7 days | `null` |
//! | [`InvokeLayer::scheduler`] | schedule and time | the event | 7 days | `null` |
//! | [`InvokeLayer::s3_batch`] | job, bucket, object key, version | [`S3BatchTask`] | 7 days | the job's reply |
//!
//! An identity of the work in the payload is better than each id that a transport makes: it is the
//! same where a producer sends its request again. The pages of `docs/sources` in the repository say for each
//! source which repetitions its key survives, and how to set the source up.
//!
//! # What is compared
//!
//! Two events of one key must ask for the same, else the second fails with `Idempotency.Mismatch`.
//! The whole payload is compared by default, JSON by its value;
//! [`fingerprint_without`](Settings::fingerprint_without) leaves out a time or a trace id.
//!
//! # Errors
//!
//! A function can't know whether its caller waits for the answer. So each obstacle is an error of
//! the invocation, and the caller decides: Lambda retries an asynchronous event, a state of Step
//! Functions has `Retry` and `Catch`. The caller gets these words as `errorType`, and
//! [`InvokeError::error_type`] returns them:
//!
//! | `errorType` | what happened | what to do |
//! |---|---|---|
//! | `Idempotency.InFlight` | another attempt is running | retry, when its lease is over at the latest |
//! | `Idempotency.LeaseLost` | another attempt took over while this one ran | retry: it gets the other's answer |
//! | `Idempotency.TooLate` | no time was left; nothing ran | retry |
//! | `Idempotency.TimedOut` | the handler was ended shortly before the deadline, or when its lease could not be renewed | retry, with a longer timeout |
//! | `Idempotency.Panicked` | the handler panicked, or what reads the event | retry |
//! | `Idempotency.StoreUnavailable` | the store failed; nothing ran now, and an earlier attempt may be done | retry |
//! | `Idempotency.NotCommitted` | the handler's transaction wrote nothing | retry |
//! | `Idempotency.OutcomeUnknown` | it is not known whether the transaction committed | retry: it finds out |
//! | `Idempotency.Unrecorded` | the handler succeeded, and its answer was not stored | retry, where the effect is safe to repeat |
//! | `Idempotency.ConditionFailed` | the condition of a business write did not hold | don't retry with the same data |
//! | `Idempotency.Overloaded` | too many detached runs | retry |
//! | `Idempotency.Mismatch` | the key belongs to another payload | correct the caller: other work needs a new key; the same work under a new key would be done twice |
//! | `Idempotency.Failed` | an earlier attempt failed permanently | don't retry |
//! | `Idempotency.OutcomeOmitted` | the work is done, and its answer was not kept | go on; read the result elsewhere |
//! | `Idempotency.Interrupted` | an earlier attempt crashed, and an operator must look | look, then complete or release the record, or settle the step |
//! | `Idempotency.Exhausted` | an attempt crashed, the last that is allowed | look, then complete or release the record |
//! | `Idempotency.Unreadable` | the record can't be read | look at the record |
//! | `Idempotency.KeyMissing` | the event has no key | correct the caller |
//! | `Idempotency.UnusableKey` | the key is too long or has control characters, or the tenant is blank | correct the caller |
//! | `Idempotency.Undecodable` | the payload doesn't decode | correct the caller |
//! | `Idempotency.WrongEvent` | the event is not one of the layer's source, or invokes a durable execution | correct the trigger; take the layer off a durable function |
//! | `Idempotency.Misconfigured` | the layer has no key, or the store no table or permission | correct the function |
//!
//! A job of S3 Batch Operations gets each of them as the result of its task instead, with the word
//! at the beginning: [`InvokeLayer::s3_batch`].
//!
//! The handler's own error keeps the `errorType` that its conversion into a
//! [`Diagnostic`](lambda_runtime::Diagnostic) gives it.
//! [`on_rejected`](InvokeLayer::on_rejected) answers the events that no retry will fix, so that an
//! asynchronous event isn't tried three times in vain.
//!
//! # When time runs out
//!
//! A claim lasts until the invocation's deadline. In the [reserve](Settings::reserve) before it,
//! a handler that still runs is ended, its claim is released, and the caller gets
//! `Idempotency.TimedOut`. A handler that blocks its thread can't be ended: Lambda ends the process,
//! and a retry runs when the lease is over. On Lambda Managed Instances nothing ends, and a handler
//! [goes on](crate::AtDeadline::GoOn) under a lease that is renewed: a retry is in flight, and gets
//! the stored answer later.
//!
//! # What is logged
//!
//! The layer logs `reported` when it fails an invocation, `rejected` when a hook answered the
//! event, and the error `hook_failed` when a hook failed. These events have no payload, key or
//! answer, unless [`log_errors`](crate::Settings::log_errors) is set: then the texts of the parser,
//! of hooks and of stored failures may quote them. The engine logs its own events.

mod error;
mod hook;
mod kind;
mod layer;
mod reader;
mod run;
mod settings;

pub use crate::engine::rejection::Rejection;
pub use error::InvokeError;
pub use kind::S3BatchTask;
pub use layer::InvokeLayer;
pub use run::{Invocation, InvokeService};
pub use settings::Settings;

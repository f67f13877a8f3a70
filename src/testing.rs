//! Helps to test handlers and stores. Feature `test-util`; `docs/testing.md` in the repository has
//! whole tests.
//!
//! | to test | use |
//! |---|---|
//! | a handler that the test calls directly | [`TestClaim`] |
//! | a handler of SQS messages | `TestMessage` (feature `sqs`) |
//! | a handler of Kinesis, DynamoDB Streams or Kafka records | `TestRecord` (feature `streams`) |
//! | a handler of one event | `TestInvocation` (feature `invoke`) |
//! | an HTTP handler | `TestRequest` (feature `lambda-http`) |
//! | what a handler passes to [`Claim::write`](crate::Claim::write) | `TestDynamoDb` (feature `test-dynamodb`) |
//! | a lease or a retention that is over | [`ManualClock`] |
//! | an outcome that duplicates are to read | [`reads_back`] |
//! | an attempt whose process died | [`Crash`] |
//! | lost, late and repeated store calls | [`FaultyStore`] |
//! | a store of your own | [`conformance()`] |
//!
//! ```
//! use std::time::Duration;
//! use lambda_idempotency::testing::{Crash, ManualClock};
//! use lambda_idempotency::{Clock, Error, Fingerprint, Idempotency, Key, store::MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::default();
//! let once = Idempotency::builder(MemoryStore::new())
//!     .namespace("tests")
//!     .lease(Duration::from_secs(60))
//!     .clock(clock.clone())
//!     .build()?;
//! let run = || once.run(Key::new("charge", "1"), Fingerprint::bytes(b""), |claim| async move {
//!     Ok::<_, std::io::Error>(claim.attempt())
//! });
//!
//! // The process of the first attempt dies in its handler, and holds the key …
//! let crash = Crash::new();
//! let dies = once.run(Key::new("charge", "1"), Fingerprint::bytes(b""), |_| crash.here::<Result<u32, std::io::Error>>());
//! crash.cut_off(dies).await?;
//! assert!(matches!(run().await, Err(Error::InFlight { .. })));
//!
//! // … until its lease is over.
//! clock.pass_lease(&once);
//! assert_eq!(run().await?.into_inner(), 2);
//! # Ok(()) }
//! ```

mod claim;
mod clock;
mod conformance;
#[cfg(feature = "test-dynamodb")]
mod dynamodb;
mod error;
mod faults;
#[cfg(feature = "lambda-http")]
mod http;
#[cfg(feature = "invoke")]
mod invoke;
#[cfg(feature = "sqs")]
mod sqs;
#[cfg(feature = "streams")]
mod streams;

pub use claim::{Crash, TestClaim, reads_back};
pub use clock::ManualClock;
pub use conformance::conformance;
#[cfg(feature = "test-dynamodb")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-dynamodb")))]
pub use dynamodb::TestDynamoDb;
pub use error::TestError;
pub use faults::{Call, Fault, FaultyStore};
#[cfg(feature = "lambda-http")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda-http")))]
pub use http::TestRequest;
#[cfg(feature = "invoke")]
#[cfg_attr(docsrs, doc(cfg(feature = "invoke")))]
pub use invoke::TestInvocation;
#[cfg(feature = "sqs")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqs")))]
pub use sqs::TestMessage;
#[cfg(feature = "streams")]
#[cfg_attr(docsrs, doc(cfg(feature = "streams")))]
pub use streams::TestRecord;

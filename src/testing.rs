//! For tests: a clock to set by hand, a store whose wire fails on purpose, and the suite that every store must pass. Feature
//! `test-util`.
//!
//! ```
//! use std::time::Duration;
//! use lambda_idempotency::testing::ManualClock;
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
//! // An attempt that is cut off holds its lease …
//! let cut_off = once.run(Key::new("charge", "1"), Fingerprint::bytes(b""), |_| std::future::pending::<Result<u32, std::io::Error>>());
//! let _ = tokio::time::timeout(Duration::from_millis(10), cut_off).await;
//! assert!(matches!(run().await, Err(Error::InFlight { .. })));
//!
//! // … until it runs out.
//! clock.advance(Duration::from_secs(61));
//! assert_eq!(run().await?.into_inner(), 2);
//! # Ok(()) }
//! ```

mod clock;
mod conformance;
mod faults;

pub use clock::ManualClock;
pub use conformance::{Violation, conformance};
pub use faults::{Call, Fault, FaultyStore};

//! Idempotency for AWS Lambda handlers: a delivery that comes twice takes effect once.
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
mod hash;
mod idempotency;
mod key;
mod observe;
mod outcome;
pub mod protocol;
pub mod record;
mod settings;
#[cfg(feature = "sqs")]
pub mod sqs;
pub mod store;
#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub mod testing;

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

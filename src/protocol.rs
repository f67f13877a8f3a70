//! The claim protocol has values, and rules as pure functions. It does no I/O, has no store, and
//! awaits nothing.
//!
//! [`transition`] says what each conditional write makes of the record that it meets. The engine, the
//! stores, the model and the simulation all follow from it. `docs/internals/protocol.md` is the prose.
//!
//! ```
//! use lambda_idempotency::protocol::record::{Record, RecordWrite};
//! use lambda_idempotency::protocol::transition;
//!
//! /// Writes as a store does, in one atomic step; `None` where the condition doesn't hold.
//! fn write(met: Option<&Record>, write: &RecordWrite) -> Option<Record> {
//!     transition(met, write)
//! }
//! ```

pub(crate) mod causes;
pub(crate) mod clock;
mod decide;
pub(crate) mod digest;
pub(crate) mod fingerprint;
#[cfg(any(feature = "http", feature = "streams"))]
pub(crate) mod gzip;
pub(crate) mod hash;
pub mod journal;
pub(crate) mod key;
#[cfg(any(feature = "batch", feature = "invoke"))]
pub(crate) mod key_source;
pub(crate) mod lock;
pub(crate) mod outcome;
pub(crate) mod owner;
pub mod packed;
pub(crate) mod pointer;
pub mod record;
#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
pub(crate) mod selector;
#[doc(hidden)]
pub mod stored;
mod transition;

pub use decide::OnCrash;
#[doc(hidden)]
pub use decide::{Asking, Decision, Rules, Settled, StepDecision, decide, decide_step, settle};
pub use fingerprint::canonical_text;
pub use transition::{transition, transition_to_final};

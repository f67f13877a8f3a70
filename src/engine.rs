//! The engine begins and ends runs in bytes: it has no handler's type and no handler's error.
//!
//! [`Engine::begin`] gives a [`Run`], or an earlier outcome; [`Run::end`] carries out its
//! disposition.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use settings::Settings;
use time::Moment;

use crate::protocol::clock::Clock;
use crate::protocol::key::Namespace;
use crate::protocol::record::Owners;
use crate::store::DynStore;
use crate::store::grouped::Groups;

mod abandoned;
mod begin;
pub(crate) mod claim;
mod commit;
mod end;
pub(crate) mod error;
pub(crate) mod events;
mod fence;
mod finish;
mod held;
#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
pub(crate) mod hook;
mod lease;
pub mod metrics;
mod outcome;
mod pace;
#[cfg(any(feature = "batch", feature = "invoke"))]
pub(crate) mod permanent;
mod permission;
mod persist;
mod places;
#[cfg(any(feature = "batch", feature = "invoke"))]
pub(crate) mod rejection;
pub(crate) mod request;
mod run;
pub(crate) mod settings;
#[cfg(test)]
mod tests;
pub(crate) mod time;
mod wait;

#[cfg(feature = "batch")]
pub(crate) use crate::store::GROUP;
pub(crate) use abandoned::{OnDrop, UnsentEndings};
pub use finish::{Disposition, Ended};
pub(crate) use held::HeldKeys;
pub(crate) use metrics::Meters;
pub use outcome::{Replay, Replayed};
pub(crate) use pace::Pace;
pub(crate) use permission::Permission;
pub(crate) use places::DetachedRuns;
#[cfg(feature = "batch")]
pub(crate) use places::Place;
pub(crate) use request::Request;
pub use run::{Begun, Run};
#[cfg(feature = "batch")]
pub(crate) use settings::Batch;
pub(crate) use settings::{Host, Options};
pub(crate) use time::{Deadlines, LEAST_STORE_TIME, REPLY_TIME};

/// All that the runs of one [`Idempotency`](crate::Idempotency) share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn DynStore>,
    /// `None` where each request leaves alone, but for those of a batch.
    pub(crate) groups: Option<Groups>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) deadlines: Deadlines,
    pub(crate) namespace: Namespace,
    pub(crate) settings: Settings,
    /// The state of the kill switch: handlers run unprotected.
    pub(crate) disabled: bool,
    /// The namespace that keys are derived in while the engine only observes; its own is that of
    /// the shadow records.
    pub(crate) observed: Option<Namespace>,
    pub(crate) meters: Meters,
    pub(crate) owners: Owners,
    pub(crate) detached: DetachedRuns,
    pub(crate) permission: Permission,
    pub(crate) unsent: UnsentEndings,
    pub(crate) held_keys: HeldKeys,
    pub(crate) pace: Pace,
    /// A claimless run met a record with new derived keys: each reads its record first from then on.
    pub(crate) reads_first: AtomicBool,
}

impl Engine {
    /// Returns whether the engine only observes.
    pub(crate) fn is_observing(&self) -> bool {
        self.observed.is_some() && !self.disabled
    }

    /// Reads both clocks.
    fn moment(&self) -> Moment {
        Moment::now(self.clock.now())
    }
}

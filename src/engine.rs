//! The engine begins and ends runs in bytes: it has no handler's type and no handler's error.
//!
//! [`Engine::begin`] gives a [`Run`], or an earlier outcome; [`Run::end`] carries out its
//! disposition.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::time::Instant;

use crate::protocol::clock::Clock;
use crate::protocol::namespace::Namespace;
use crate::protocol::owner::Owners;

mod acquire;
mod begin;
mod caller;
mod calls;
pub(crate) mod claim;
mod claimed;
mod claimless;
mod commit;
mod deadlines;
mod detached;
pub(crate) mod error;
pub(crate) mod events;
mod fence;
mod fence_off;
mod finish;
#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
pub(crate) mod hook;
mod journal;
pub mod metrics;
mod moment;
mod options;
mod oversize;
mod pace;
mod permission;
mod persist;
mod place;
mod protection;
#[cfg(any(feature = "batch", feature = "invoke"))]
pub(crate) mod rejection;
mod renew;
mod replay;
mod request;
mod run;
pub(crate) mod settings;
mod shadow;
pub(crate) mod step;
#[cfg(test)]
mod tests;
pub(crate) mod times;
mod unprotected;
mod unsent;

pub use replay::{Replay, Replayed};
pub use run::{Begun, Disposition, Ended, Run};

pub(crate) use caller::Caller;
pub(crate) use deadlines::{Deadlines, Host};
pub(crate) use detached::DetachedRuns;
pub(crate) use metrics::Meters;
pub(crate) use moment::{LEAST_STORE_TIME, REPLY_TIME};
#[cfg(feature = "batch")]
pub(crate) use options::Batch;
pub(crate) use options::Options;
pub(crate) use pace::Pace;
pub(crate) use permission::Permission;
#[cfg(feature = "batch")]
pub(crate) use place::Place;
pub(crate) use request::Request;
pub(crate) use unsent::UnsentEndings;

use crate::store::DynStore;
#[cfg(feature = "batch")]
pub(crate) use crate::store::GROUP;
use moment::Moment;
use settings::Settings;

/// All that the runs of one [`Idempotency`](crate::Idempotency) share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn DynStore>,
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
    pub(crate) pace: Pace,
    /// A claimless run met a record with new derived keys: each reads its record first from then on.
    pub(crate) reads_first: AtomicBool,
}

impl Engine {
    /// Tells whether the engine only observes.
    pub(crate) fn is_observing(&self) -> bool {
        self.observed.is_some() && !self.disabled
    }

    /// Reads both clocks.
    fn moment(&self) -> Moment {
        Moment {
            time: self.clock.now(),
            instant: Instant::now(),
        }
    }
}

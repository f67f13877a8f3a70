//! The options of one call or one batch, which go before the engine's settings.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::caller::CalledBy;
use crate::engine::place::Place;
use crate::engine::settings::{EVENT_RETENTION, OnMissingKey};
use crate::protocol::clock::EpochMillis;

#[cfg(feature = "batch")]
use crate::protocol::owner::Owners;
#[cfg(feature = "batch")]
use crate::store::{DynStore, GROUP, groups::Groups};

/// The options of one call.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The end of the invocation, where it is known.
    pub(crate) deadline: Option<EpochMillis>,
    /// The retention, where neither the call nor the settings name one.
    pub(crate) default_retention: Duration,
    pub(crate) retention: Option<Duration>,
    pub(crate) missing_key: Option<OnMissingKey>,
    /// A record is expected, so that reading first is the cheaper way.
    pub(crate) read_first: bool,
    pub(crate) claimless: bool,
    /// The outcome of a replay is read. Where it is not, a large one needn't be kept.
    pub(crate) wants_outcome: bool,
    pub(crate) called_by: CalledBy,
    #[cfg(feature = "batch")]
    pub(crate) batch: Option<Arc<Batch>>,
    /// Given back while the request waits for another attempt.
    pub(crate) place: Option<Arc<Place>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: None,
            default_retention: EVENT_RETENTION,
            retention: None,
            missing_key: None,
            read_first: false,
            claimless: false,
            wants_outcome: true,
            called_by: CalledBy::default(),
            #[cfg(feature = "batch")]
            batch: None,
            place: None,
        }
    }
}

impl Options {
    /// Copies the options of this call alone.
    pub(super) fn without_batch(&self) -> Self {
        Self {
            #[cfg(feature = "batch")]
            batch: None,
            place: None,
            ..self.clone()
        }
    }
}

#[cfg(feature = "batch")]
impl Options {
    pub(super) fn groups(&self) -> Option<&Groups> {
        self.batch.as_ref()?.groups.as_ref()
    }
}

impl Options {
    /// Returns the instant from which on a message of a batch may not start.
    pub(super) fn stop(&self) -> Option<Instant> {
        self.place.as_ref()?.stop().filter(|_| self.is_batch())
    }

    /// Tells whether it has its place, or needs none.
    pub(super) fn has_place(&self) -> bool {
        self.place.as_ref().is_none_or(|place| place.is_held())
    }

    /// Waits until it has its place again; `false` where none was free in time.
    pub(super) async fn takes_place(&self) -> bool {
        match &self.place {
            Some(place) => Box::pin(place.take()).await,
            None => true,
        }
    }

    /// Tells whether the request is a message of a batch.
    #[cfg_attr(
        not(feature = "batch"),
        expect(clippy::unused_self, reason = "there is no batch")
    )]
    pub(super) fn is_batch(&self) -> bool {
        #[cfg(feature = "batch")]
        return self.batch.is_some();
        #[cfg(not(feature = "batch"))]
        false
    }

    /// Returns the instant that ends each store call, whatever time the call would get by itself.
    #[cfg_attr(
        not(feature = "batch"),
        expect(clippy::unused_self, reason = "only a batch ends store calls early")
    )]
    pub(super) fn store_end(&self) -> Option<Instant> {
        #[cfg(feature = "batch")]
        return self.batch.as_ref()?.store_end;
        #[cfg(not(feature = "batch"))]
        None
    }
}

/// The state that the requests of one batch share.
#[cfg(feature = "batch")]
#[derive(Debug)]
pub(crate) struct Batch {
    /// `None` where each request leaves alone.
    groups: Option<Groups>,
    pub(super) owners: Owners,
    /// `None` where the invocation's deadline is not known. The reply to the other requests doesn't
    /// wait longer for a slow store.
    store_end: Option<Instant>,
}

#[cfg(feature = "batch")]
impl Batch {
    /// Creates the state for a batch of this many requests; without a store, each request leaves
    /// alone.
    pub(crate) fn new(
        store: Option<Arc<dyn DynStore>>,
        requests: usize,
        store_end: Option<Instant>,
    ) -> Self {
        Self {
            groups: store.map(|store| Groups::new(store, true)),
            owners: Owners::for_batch(requests.min(GROUP)),
            store_end,
        }
    }
}

//! Says how the requests of a route are treated.

use std::time::Duration;

use super::selector::Selector;
use crate::engine::settings::OnMissingKey;

/// Says how the requests of one route are treated: whether they need a key, where it is, and how
/// long their outcomes are kept. [`IdempotencyLayer::route`](super::IdempotencyLayer::route) takes it.
///
/// ```
/// use std::time::Duration;
/// use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
/// use lambda_idempotency::{Idempotency, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
/// let month = Duration::from_secs(30 * 86_400);
/// let layer = IdempotencyLayer::unscoped(once)
///     .route("POST /payments", RoutePolicy::required().retention(month))?
///     .route("PUT /carts/{cart}", RoutePolicy::optional())?
///     .other_routes(RoutePolicy::off());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a policy does nothing until a layer is given it"]
pub struct RoutePolicy {
    pub(super) is_off: bool,
    /// The policy for a missing key, where it differs from the engine's.
    pub(super) missing_key: Option<OnMissingKey>,
    /// The place of the key, where it is not the layer's header.
    pub(super) selector: Option<Selector>,
    pub(super) retention: Option<Duration>,
}

impl RoutePolicy {
    /// Treats the requests of routes that have no policy of their own.
    pub(super) const UNDECLARED: Self = Self::new(None);

    /// Refuses a request without a key, whatever the engine's [`OnMissingKey`] policy says.
    pub const fn required() -> Self {
        Self::new(Some(OnMissingKey::Refuse))
    }

    /// Runs a request without a key unprotected, and its answer says so; protects one with a key.
    pub const fn optional() -> Self {
        Self::new(Some(OnMissingKey::RunUnprotected))
    }

    /// Lets requests pass through untouched, with a key or without; their answers aren't buffered.
    pub const fn off() -> Self {
        let mut policy = Self::UNDECLARED;
        policy.is_off = true;
        policy
    }

    /// Takes the key from another place than the layer's
    /// [header](super::IdempotencyLayer::header): from another header, the body, the path, or by a
    /// closure.
    ///
    /// For requests whose identity is in them already, such as the events of a webhook, or a PUT
    /// that creates what its path names. [`Selector`] says what makes a key.
    pub fn key_from(mut self, selector: Selector) -> Self {
        self.selector = Some(selector);
        self
    }

    /// Sets how long this route's outcomes are kept, whatever the engine's
    /// [`retention`](crate::Builder::retention) says. One under a second is one of a second. Server
    /// errors have [a retention of their own](super::IdempotencyLayer::store_server_errors).
    pub const fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    const fn new(missing_key: Option<OnMissingKey>) -> Self {
        Self {
            is_off: false,
            missing_key,
            selector: None,
            retention: None,
        }
    }
}

//! Answers what the layers and the test kit ask of an engine's settings.

use std::fmt::Display;
#[cfg(feature = "test-util")]
use std::time::Duration;

use crate::engine::claim::Claim;
use crate::engine::events;
#[cfg(feature = "test-util")]
use crate::engine::settings::{EVENT_RETENTION, HTTP_RETENTION};
use crate::idempotency::Idempotency;
#[cfg(feature = "test-util")]
use crate::protocol::clock::EpochMillis;
use crate::protocol::record::error_text;

impl Idempotency {
    /// Tells whether the kill switch is thrown.
    #[cfg(feature = "http")]
    pub(crate) fn is_disabled(&self) -> bool {
        self.engine.disabled
    }

    /// Tells whether handlers run whatever the records say.
    pub(crate) fn is_passive(&self) -> bool {
        self.engine.disabled || self.engine.is_observing()
    }

    /// Tells whether the engine only observes.
    #[cfg(feature = "http")]
    pub(crate) fn is_observing(&self) -> bool {
        self.engine.is_observing()
    }

    /// Tells whether texts that may quote a payload are logged.
    #[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
    pub(crate) fn logs_errors(&self) -> bool {
        self.engine.settings.logs_errors
    }

    /// Logs the text of a handler's error, where the setting asks for it.
    pub(crate) fn log_error<E: Display + 'static>(&self, claim: &Claim, error: &E) {
        if self.engine.settings.logs_errors {
            events::handler_failed(claim, &error_text(error));
        }
    }

    /// Reads the engine's clock.
    #[cfg(feature = "test-util")]
    pub(crate) fn now(&self) -> EpochMillis {
        self.engine.clock.now()
    }

    /// Returns the engine's lease as it is stored, with the skew margin.
    #[cfg(feature = "test-util")]
    pub(crate) fn stored_lease(&self) -> Duration {
        let settings = &self.engine.settings;
        settings.lease + settings.rules.skew_margin
    }

    /// Returns the time after which no outcome counts any more, unless a route keeps it for longer.
    #[cfg(feature = "test-util")]
    pub(crate) fn stored_retention(&self) -> Duration {
        let settings = &self.engine.settings;
        let retention = self.options.retention.or(settings.retention);
        let retention = retention.unwrap_or(EVENT_RETENTION.max(HTTP_RETENTION));
        retention.max(settings.failure_retention) + settings.rules.skew_margin
    }
}

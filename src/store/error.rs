//! The errors that a store reports.

use std::error::Error as StdError;

use crate::protocol::causes::unlinked;

/// A boxed error of any kind.
pub(crate) type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// A request to a store failed. A condition that did not hold is no error: it is an
/// [`Answer`](super::Answer).
///
/// The engine decides by the kind what to do next, and by
/// [`may_have_applied`](Self::may_have_applied), which is `true` where an earlier send of the same
/// request had no answer. The source is the store's own error, with its
/// advice to an operator: `DynamoDbError` for `DynamoDbStore`. `Display` shows both.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No answer came before the deadline. The write may have applied.
    #[error("no answer before the deadline{}", see!("store-timeout"))]
    Timeout,
    /// The request waited in this process for all the time that it had, for its turn or for credentials, and
    /// was not sent. It says nothing of the store. Nothing applied.
    #[error("not sent before the deadline{}", see!("store-not-sent"))]
    NotSent,
    /// The store is over its throughput, or its pool has no connection free. Nothing applied, unless an
    /// earlier send did.
    #[error("throttled: {}{}", unlinked(.0), see!("store-throttled"))]
    Throttled(#[source] BoxError),
    /// Another write to the same place was under way. Nothing applied.
    #[error("another write to the same place was under way{}", see!("store-conflict"))]
    Conflict,
    /// The store could not be reached, or failed, or too few of its replicas have the write. The write
    /// may have applied.
    #[error("the store could not be reached: {}{}", unlinked(.0), see!("store-unreachable"))]
    Unavailable(#[source] BoxError),
    /// The process has no credentials, or the store refuses them: they have expired, it doesn't know
    /// them, or the clock is wrong. Nothing applied. The source says what to do.
    #[error("{}{}", unlinked(.0), see!("store-unauthenticated"))]
    Unauthenticated(#[source] BoxError),
    /// The function lacks a permission, or doesn't trust the store's certificate. The source says what to
    /// correct.
    #[error("{}{}", unlinked(.0), see!("store-denied"))]
    Denied(#[source] BoxError),
    /// The store is not set up as it was configured. The source says what to correct.
    #[error("{}{}", unlinked(.0), see!("store-misconfigured"))]
    Misconfigured(#[source] BoxError),
    /// The record is larger than the store takes.
    #[error("the record is larger than the store takes: lower the inline limit{}", see!("record-too-large"))]
    TooLarge,
    /// The store refused for another reason, which a retry will not change.
    #[error("the store refused the request: {}{}", unlinked(.0), see!("store-rejected"))]
    Rejected(#[source] BoxError),
}

impl StoreError {
    /// Returns whether the store gave no answer that can be relied on, so that a write may have applied.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Timeout | Self::Unavailable(_))
    }

    /// Returns whether a send of the write may have applied, the last or an earlier one: an error whose kind
    /// says that nothing did may be of the last one alone.
    pub fn may_have_applied(&self) -> bool {
        self.is_unreachable() || self.is_uncertain()
    }

    /// Returns whether the store has answered, and the write may have applied.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.source().is_some_and(<dyn StdError>::is::<Uncertain>)
    }

    /// Notes that the write may have applied, although the store has answered: an earlier send of it had
    /// no answer, or too few replicas have it. The engine then releases what it may hold, and counts the
    /// store as reached. `Conflict` and `NotSent` become `Unavailable`, `Timeout` and `TooLarge` stay as
    /// they are; in another kind the store's own error is the source's source.
    #[must_use]
    pub fn uncertain(self) -> Self {
        let source = |source| Uncertain(source).into();
        match self {
            Self::Throttled(error) => Self::Throttled(source(error)),
            Self::Unavailable(error) => Self::Unavailable(source(error)),
            Self::Unauthenticated(error) => Self::Unauthenticated(source(error)),
            Self::Denied(error) => Self::Denied(source(error)),
            Self::Misconfigured(error) => Self::Misconfigured(source(error)),
            Self::Rejected(error) => Self::Rejected(source(error)),
            error @ (Self::Conflict | Self::NotSent) => Self::Unavailable(source(error.into())),
            other => other,
        }
    }

    /// Marks it as [`uncertain`](Self::uncertain), where another send of the write had no answer. An error
    /// that says by itself that the write may have applied stays as it is.
    pub(crate) fn uncertain_if(self, is_silent: bool) -> Self {
        if is_silent && !self.may_have_applied() {
            self.uncertain()
        } else {
            self
        }
    }

    /// Returns whether a group leaves the write to its caller, who sends it alone.
    pub(crate) fn is_left_to_caller(&self) -> bool {
        let mark = self
            .source()
            .and_then(<dyn StdError>::downcast_ref::<Uncertain>);
        let marked = mark.and_then(|Uncertain(error)| error.downcast_ref::<Self>());
        matches!(marked.unwrap_or(self), Self::NotSent)
    }

    /// Returns whether the same request may succeed a moment later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Timeout
                | Self::NotSent
                | Self::Throttled(_)
                | Self::Conflict
                | Self::Unavailable(_)
                | Self::Unauthenticated(_)
        )
    }
}

/// An answer to a write that may have applied.
#[derive(Debug, thiserror::Error)]
#[error("{}; the write may have applied", unlinked(.0))]
struct Uncertain(#[source] BoxError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misconfiguration_is_not_transient() {
        let denied = StoreError::Denied("allow the function to write".into());
        assert!(!denied.is_transient());
        assert!(denied.to_string().contains("allow the function to write"));
        assert!(!StoreError::Misconfigured("no such database".into()).is_transient());
        assert!(StoreError::Throttled("slow down".into()).is_transient());
    }

    #[test]
    fn the_stores_own_error_is_the_source() {
        let own = || BoxError::from("its own words");
        for error in [
            StoreError::Throttled(own()),
            StoreError::Unavailable(own()),
            StoreError::Unauthenticated(own()),
            StoreError::Denied(own()),
            StoreError::Misconfigured(own()),
            StoreError::Rejected(own()),
        ] {
            let source = error.source().map(ToString::to_string);
            assert_eq!(source.as_deref(), Some("its own words"));
            assert!(unlinked(&error).ends_with("its own words"), "{error}");
        }
    }
}

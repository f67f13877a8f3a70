//! Tells a detached run whether its caller still waits for the outcome.

use std::sync::{Arc, Weak};

/// The caller of a detached run: it waits for as long as this value lives.
#[derive(Debug, Default)]
pub(crate) struct Caller(Arc<()>);

/// The view that a run has of its caller. A run that is not detached is dropped with its caller, so
/// that it has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct CalledBy(Option<Weak<()>>);

impl Caller {
    pub(crate) fn called_by(&self) -> CalledBy {
        CalledBy(Some(Arc::downgrade(&self.0)))
    }
}

impl CalledBy {
    /// Tells whether the caller has gone away.
    pub(super) fn has_gone(&self) -> bool {
        let caller = self.0.as_ref();
        caller.is_some_and(|caller| caller.strong_count() == 0)
    }
}

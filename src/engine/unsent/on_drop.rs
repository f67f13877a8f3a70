//! Acts where a future is dropped before its store call was answered.

/// Calls a function when it is dropped, unless it was disarmed before.
#[must_use = "it acts as soon as it is dropped"]
pub(in crate::engine) struct OnDrop<F: FnOnce()> {
    act: Option<F>,
}

impl<F: FnOnce()> OnDrop<F> {
    pub(in crate::engine) fn new(act: F) -> Self {
        Self { act: Some(act) }
    }

    /// Keeps the function from being called: the store has answered.
    pub(in crate::engine) fn disarm(mut self) {
        self.act = None;
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(act) = self.act.take() {
            act();
        }
    }
}

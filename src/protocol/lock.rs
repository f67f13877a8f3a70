//! Locks that a panic doesn't poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a value. A panic under its lock leaves it whole: each change is one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

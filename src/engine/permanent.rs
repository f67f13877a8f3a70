//! Asks the caller whether an error is permanent.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Tells whether an error of the handler is one that no retry will fix.
pub(crate) type Permanent<E> = Arc<dyn Fn(&E) -> bool + Send + Sync>;

/// Asks the caller whether an error is permanent. Where that panics, the handler has not crashed: the
/// error is not permanent.
pub(crate) fn is_permanent<E>(permanent: Option<&Permanent<E>>, error: &E) -> bool {
    let ask = || permanent.is_some_and(|permanent| permanent(error));
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or(false)
}

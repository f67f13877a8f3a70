//! What depends on half a second of real time.

/// Calls it until it returns something, at most five times.
///
/// Past a claim's time the library keeps half a second for finding out what became of a write, and then says that it doesn't know. On a machine
/// that is busy that is so now and then, and shows nothing: the test begins anew.
pub async fn decided<T>(attempt: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..5 {
        if let Some(found) = attempt().await {
            return found;
        }
    }
    panic!("five times the library could not find out")
}

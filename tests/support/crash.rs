//! Attempts that end as those of a process do that dies: while their handler runs, and never before.
//!
//! Their futures are leaked. A process that is killed runs no destructor; a future that is dropped leaves its release to the engine's
//! next call.

use std::fmt::Debug;
use std::time::Duration;

use tokio::sync::Notify;

/// Says that a handler runs.
#[derive(Debug, Default)]
pub struct Begun(Notify);

impl Begun {
    /// Tells that the handler runs, and never returns.
    pub async fn then_never<T>(&self) -> T {
        self.0.notify_one();
        std::future::pending().await
    }

    /// Ends an attempt as the death of its process does, as soon as its handler runs, however long the claim before it takes.
    pub async fn cut_off<T: Debug>(&self, attempt: impl Future<Output = T>) {
        kill_when(self.0.notified(), attempt).await;
    }

    /// Drops an attempt as soon as its handler runs, while its process lives on.
    pub async fn hang_up<T: Debug>(&self, attempt: impl Future<Output = T>) {
        drop_when(self.0.notified(), attempt).await;
    }
}

/// Ends an attempt, as the death of its process does, when this happens.
pub async fn kill_when<T: Debug>(happens: impl Future, attempt: impl Future<Output = T>) {
    let mut attempt = Box::pin(attempt);
    tokio::select! {
        ended = &mut attempt => panic!("it was to be cut off: {ended:?}"),
        _ = happens => std::mem::forget(attempt),
    }
}

/// Drops an attempt, while its process lives on, when this happens.
pub async fn drop_when<T: Debug>(happens: impl Future, attempt: impl Future<Output = T>) {
    tokio::select! {
        ended = attempt => panic!("it was to be dropped: {ended:?}"),
        _ = happens => {}
    }
}

/// Ends an attempt, as the death of its process does, whose handler doesn't return and whose store is in memory.
pub async fn kill<T: Debug>(attempt: impl Future<Output = T>) {
    kill_when(tokio::time::sleep(Duration::from_millis(5)), attempt).await;
}

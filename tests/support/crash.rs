//! Attempts that end as those of a process do that dies: while their handler runs, and never before.

use std::fmt::Debug;
use std::pin::pin;

use tokio::sync::Notify;

/// Says that a handler runs.
#[derive(Debug, Default)]
pub struct Begun(Notify);

impl Begun {
    /// What a handler awaits that never returns.
    pub async fn then_never<T>(&self) -> T {
        self.0.notify_one();
        std::future::pending().await
    }

    /// Drops an attempt as soon as its handler runs, however long the claim before it takes.
    pub async fn cut_off<T: Debug>(&self, attempt: impl Future<Output = T>) {
        tokio::select! {
            ended = pin!(attempt) => panic!("it was to be cut off: {ended:?}"),
            () = self.0.notified() => {}
        }
    }
}

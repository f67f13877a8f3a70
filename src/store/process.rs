//! The process of an attempt that a test cuts off: the tasks that this crate spawns for the attempt
//! end with it. A caller that is in no such process spawns its tasks as they are.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::future::Either;

tokio::task_local! {
    /// The process that the task under way is in.
    static PROCESS: Process;
}

/// A process that dies when a test says so.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process(Arc<AtomicBool>);

impl Process {
    /// Runs an attempt in this process.
    pub(crate) fn run<F: Future>(&self, attempt: F) -> impl Future<Output = F::Output> + use<F> {
        PROCESS.scope(self.clone(), attempt)
    }

    /// Ends its tasks: none of them is polled again, and none is dropped, as a process that dies runs
    /// no destructor.
    pub(crate) fn die(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    async fn while_alive<T>(self, task: impl Future<Output = T>) -> T {
        let mut task = Box::pin(task);
        let poll = poll_fn(|context| {
            if self.0.load(Ordering::SeqCst) {
                return Poll::Pending;
            }
            task.as_mut().poll(context)
        });
        poll.await
    }
}

/// Makes a task that ends with the process that its caller is in.
pub(crate) fn ending_with_it<T: 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> + Send + 'static {
    match PROCESS.try_with(Process::clone) {
        Ok(process) => Either::Left(PROCESS.scope(process.clone(), process.while_alive(task))),
        Err(_) => Either::Right(task),
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    async fn yield_often(times: u32) {
        for _ in 0..times {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_task_ends_with_the_process_and_so_does_one_that_it_spawned() {
        let is_done = Arc::new(AtomicBool::new(false));
        let work = |is_done: Arc<AtomicBool>| async move {
            yield_often(9).await;
            is_done.store(true, Ordering::SeqCst);
        };
        let inner = work(Arc::clone(&is_done));
        let outer = async move { drop(tokio::spawn(ending_with_it(inner))) };
        let process = Process::default();
        let attempt = async { drop(tokio::spawn(ending_with_it(outer))) };
        process.run(attempt).await;
        yield_often(4).await;
        process.die();
        yield_often(99).await;
        assert!(!is_done.load(Ordering::SeqCst));

        let elsewhere = tokio::spawn(ending_with_it(work(Arc::clone(&is_done))));
        elsewhere.await.unwrap();
        assert!(is_done.load(Ordering::SeqCst));
    }
}

//! What spares a batch system calls: a future whose parts wake each other is polled again without a way around by the runtime, and
//! timers that will hardly ever be due don't wake it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::{Sleep, sleep};

/// So often a future that woke itself is polled again at once. Then the runtime has its turn: other tasks may be ready, and what
/// a task may do before it must yield is counted by turn.
const MOST_ROUNDS: usize = 8;

/// Who is to be woken.
#[derive(Debug, Default)]
struct Rounds {
    /// Whether the future is being polled, so that it will be looked at whether it has been woken.
    polled: AtomicBool,
    woken: AtomicBool,
    runtime: AtomicWaker,
}

impl Wake for Rounds {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if !self.polled.load(Ordering::SeqCst) {
            self.runtime.wake();
        }
    }
}

/// The same future; when it has woken itself while it was polled, it is polled again before the runtime looks for events, which
/// takes a system call.
pub(super) async fn in_rounds<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let rounds = Arc::new(Rounds::default());
    let waker = Waker::from(Arc::clone(&rounds));
    poll_fn(|context| {
        rounds.runtime.register(context.waker());
        rounds.polled.store(true, Ordering::SeqCst);
        for _ in 0..MOST_ROUNDS {
            rounds.woken.store(false, Ordering::SeqCst);
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_ready() {
                return polled;
            }
            if !rounds.woken.load(Ordering::SeqCst) {
                break;
            }
        }
        rounds.polled.store(false, Ordering::SeqCst);
        // Once more: somebody may have come between the last look and now.
        if rounds.woken.load(Ordering::SeqCst) {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// A timer that keeps others quiet as long as it is held and they are due later. Tokio has a timer that becomes the next to be due wake
/// the thread that waits for it, by a system call, even where that is the very thread that sets it.
pub(super) fn anchor(due: Duration) -> Pin<Box<Sleep>> {
    let mut anchor = Box::pin(sleep(due));
    // Only once it has been polled, tokio knows of it.
    let _ = anchor
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    anchor
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    #[derive(Debug, Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Wakes itself so many times before it is ready.
    fn restless(mut times: usize) -> impl Future<Output = ()> {
        poll_fn(move |context| {
            if times == 0 {
                return Poll::Ready(());
            }
            times -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn what_wakes_itself_is_polled_again_at_once() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let restless = restless(MOST_ROUNDS - 1);
        let mut future = pin!(in_rounds(restless));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_ready());
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn the_runtime_has_its_turn_after_so_many_rounds() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let restless = restless(usize::MAX);
        let mut future = pin!(in_rounds(restless));
        for turns in 1..4 {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            assert_eq!(count.0.load(Ordering::SeqCst), turns);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_comes_from_elsewhere_at_any_time_is_heard() {
        for _ in 0..2_000 {
            let (send, receive) = tokio::sync::oneshot::channel();
            let sender = thread::spawn(move || send.send(7));
            assert_eq!(in_rounds(receive).await, Ok(7));
            sender.join().unwrap().unwrap();
        }
    }
}

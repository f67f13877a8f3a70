//! Memory, counted by the allocator: what is alive, and how much it was at most.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use peak_alloc::PeakAlloc;
use tokio::runtime::Builder;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

static TURN: Mutex<()> = Mutex::new(());

/// One measurement at a time: the allocator counts for the whole process. The runtime ends within
/// the turn, so that what it gives back is not missed in the next measurement.
pub fn alone<T>(work: impl Future<Output = T>) -> T {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

/// Bytes that are allocated now.
pub fn alive() -> usize {
    ALLOCATOR.current_usage()
}

/// Returns the result of this work, and the peak of the live bytes while it ran, beyond those that were alive before.
pub async fn peak_of<T>(work: impl Future<Output = T>) -> (T, usize) {
    let before = alive();
    ALLOCATOR.reset_peak_usage();
    let result = work.await;
    (result, ALLOCATOR.peak_usage().saturating_sub(before))
}

/// Formats a number of bytes for an operator who reads along.
#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
pub fn megabytes(bytes: usize) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

mod tests {
    use super::*;

    #[test]
    fn what_was_allocated_for_a_moment_counts() {
        alone(async {
            let ((), peak) = peak_of(async {
                let moment = vec![1_u8; 5_000_000];
                tokio::task::yield_now().await;
                drop(moment);
            })
            .await;
            assert!((4_900_000..5_100_000).contains(&peak), "{peak}");
        });
    }
}

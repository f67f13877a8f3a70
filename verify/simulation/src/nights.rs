//! Plays many nights, side by side.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::broken::Mutation;
use crate::night;
use crate::report::Report;

/// A thread takes as many seeds at once.
const TOGETHER: u64 = 64;

/// The time between two tellings of progress.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The seeds of a run: so many, from the first on.
#[derive(Clone, Copy, Debug)]
pub struct Lot {
    pub first: u64,
    pub count: u64,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub played: u64,
    pub broken: u64,
    pub took: Duration,
    /// Each seed before this one has been played, or is being played.
    pub next: u64,
}

/// Plays each night of the lot, on as many threads as there are processors. `tell` is told now and then how far the run has come;
/// `found` of each night that breaks an invariant, at once.
pub fn play(
    lot: Lot,
    mutation: Mutation,
    tell: impl Fn(Progress) + Sync,
    found: impl Fn(u64, &[String]) + Sync,
) -> Report {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (taken, played, broken) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let began = Instant::now();
    let progress = || Progress {
        played: played.load(Ordering::Relaxed),
        broken: broken.load(Ordering::Relaxed),
        took: began.elapsed(),
        next: lot.first + taken.load(Ordering::Relaxed).min(lot.count),
    };
    let work = || {
        let mut report = Report::default();
        loop {
            let from = taken.fetch_add(TOGETHER, Ordering::Relaxed);
            if from >= lot.count {
                return report;
            }
            for seed in from..(from + TOGETHER).min(lot.count) {
                let night = night::run(lot.first + seed, mutation);
                report.add(&night);
                played.fetch_add(1, Ordering::Relaxed);
                if !night.broken.is_empty() {
                    broken.fetch_add(1, Ordering::Relaxed);
                    found(night.seed, &night.broken);
                }
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let watch = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                thread::park_timeout(TOLD_EVERY);
                tell(progress());
            }
        });
        let reports = workers
            .into_iter()
            .map(|worker| worker.join().expect("no panic in the simulation"));
        let report = reports.fold(Report::default(), Report::merge);
        over.store(true, Ordering::Relaxed);
        watch.thread().unpark();
        report
    })
}

//! The time of each path in the process, in nanoseconds: `cargo bench -p benches`. The paths are
//! those that `benches/run instructions` counts.
#![allow(
    clippy::expect_used,
    reason = "a measurement that panics has its own mistake"
)]
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use benches::hot::{PATHS, path};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

fn paths(criterion: &mut Criterion) {
    for (name, units) in PATHS {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(units as u64));
        let mut path = path(name).expect("a path");
        let mut number = 0;
        group.bench_function("round", |bencher| {
            bencher.iter_batched(
                || {
                    number += 1;
                    path(number).expect("a round")
                },
                |round| round().expect("a round that works"),
                BatchSize::SmallInput,
            );
        });
        group.finish();
    }
}

criterion_group!(benches, paths);
criterion_main!(benches);

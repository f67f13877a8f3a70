//! Properties that hold for every input, hostile ones among it: each takes bytes, and panics when it doesn't hold.
//!
//! There is one implementation of each. `verify/fuzz/` drives it with what libFuzzer finds; `tests/suite/hostile.rs` with the kept
//! corpora, and with bytes that proptest makes. They see the library from outside, through its doors.

pub mod document;
pub mod fingerprint;
pub mod header;
pub mod http_event;
pub mod identity;
pub mod invoke_event;
pub mod multipart;
pub mod outbox;
pub mod record;
pub mod selector;
pub mod source_event;
pub mod sqs_event;
pub mod stored_answer;
pub mod stream_event;
mod table;

use std::cell::OnceCell;

use lambda_idempotency::store::{MemoryStore, Store};
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{EpochMillis, Idempotency};
use tokio::runtime::{Builder, Runtime};

/// A property of one input.
pub type Property = fn(&[u8]);

/// All of them, each under the name of its target and its corpus.
pub const ALL: [(&str, Property); 13] = [
    ("fingerprint", fingerprint::check),
    ("header", header::check),
    ("http_event", http_event::check),
    ("identity", identity::check),
    ("invoke_event", invoke_event::check),
    ("multipart", multipart::check),
    ("outbox", outbox::check),
    ("record", record::check),
    ("selector", selector::check),
    ("source_event", source_event::check),
    ("sqs_event", sqs_event::check),
    ("stored_answer", stored_answer::check),
    ("stream_event", stream_event::check),
];

/// The time at which all of it happens.
const NOW: EpochMillis = EpochMillis(1_800_000_000_000);

/// Runs to its end what waits for nothing but timers, which cost no time.
fn block_on<F: Future>(future: F) -> F::Output {
    thread_local! {
        static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
    }
    let runtime = || {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.expect("a runtime")
    };
    RUNTIME.with(|cell| cell.get_or_init(runtime).block_on(future))
}

/// An engine at that time, on a store.
fn engine<S: Store>(store: S) -> Idempotency {
    let builder = Idempotency::builder(store).namespace("hostile");
    builder
        .clock(ManualClock::at(NOW))
        .build()
        .expect("a namespace")
}

fn empty() -> Idempotency {
    engine(MemoryStore::new())
}

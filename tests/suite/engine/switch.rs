//! The variable that switches protection off, in its own process: the environment belongs to all tests of a process.

use super::*;
use crate::secrets::Log;
use crate::support::alone;

const TEST: &str = concat!(
    module_path!(),
    "::only_a_word_for_yes_runs_duplicates_and_an_unknown_word_is_warned_of"
);

/// Returns the number of times that the handler runs when a request is delivered twice.
async fn runs(builder: Builder) -> usize {
    let once = builder.namespace("engine").build().unwrap();
    let runs = AtomicUsize::new(0);
    for _ in 0..2 {
        let handler = |_| async { Ok::<_, Infallible>(runs.fetch_add(1, Ordering::Relaxed)) };
        once.run(key(), payload(), handler).await.unwrap();
    }
    runs.into_inner()
}

/// Returns the counts of a process with this value of the variable: runs by default, runs where the builder says that protection is on,
/// and warnings of an unknown word.
fn counted_by_a_process(value: Option<&str>) -> String {
    let variable = value.map(|value| ("IDEMPOTENCY_DISABLED", value));
    let output = alone::run(TEST, "switch", variable.as_slice());
    let printed = String::from_utf8(output.stdout).unwrap();
    let line = printed.lines().find_map(|line| line.split_once("runs: "));
    line.unwrap_or_else(|| panic!("no count in: {printed}"))
        .1
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn only_a_word_for_yes_runs_duplicates_and_an_unknown_word_is_warned_of() {
    if alone::child().is_some() {
        let (log, _capture) = Log::capture();
        let builder = || Idempotency::builder(MemoryStore::new());
        let (by_default, switched_on) =
            (runs(builder()).await, runs(builder().disabled(false)).await);
        let warnings = log.text().matches("switch_unknown").count();
        println!("\nruns: {by_default} {switched_on} {warnings}");
        return;
    }
    for (value, counted) in [
        (None, "1 1 0"),
        (Some("true"), "2 1 0"),
        (Some("YES"), "2 1 0"),
        (Some("1"), "2 1 0"),
        (Some("false"), "1 1 0"),
        (Some("ture"), "1 1 1"),
    ] {
        assert_eq!(counted_by_a_process(value), counted, "{value:?}");
    }
}

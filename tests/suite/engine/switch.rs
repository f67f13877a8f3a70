//! The variable that switches protection off, in a process of its own: the environment belongs to all tests of a process.

use std::process::Command;

use lambda_idempotency::DISABLED_VARIABLE;

use super::*;

/// Says to the test below that it runs as the child process.
const CHILD_VARIABLE: &str = "IDEMPOTENCY_TESTS_SWITCH_CHILD";

/// How often the handler runs when a request is delivered twice.
async fn runs(builder: Builder<MemoryStore>) -> usize {
    let once = builder.namespace("engine").build().unwrap();
    let runs = AtomicUsize::new(0);
    for _ in 0..2 {
        let handler = |_| async { Ok::<_, Infallible>(runs.fetch_add(1, Ordering::Relaxed)) };
        once.run(key(), payload(), handler).await.unwrap();
    }
    runs.into_inner()
}

/// What a process with this value of the variable counts: by default, and where the builder says that protection is on.
fn counted_by_a_process(value: Option<&str>) -> String {
    let path = concat!(
        module_path!(),
        "::only_the_variable_with_true_runs_duplicates"
    );
    let (_, test) = path.split_once("::").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]);
    child.env(CHILD_VARIABLE, "1").env_remove(DISABLED_VARIABLE);
    if let Some(value) = value {
        child.env(DISABLED_VARIABLE, value);
    }
    let output = child.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    let line = printed.lines().find(|line| line.contains("runs: "));
    line.unwrap_or_else(|| panic!("no count in: {printed}"))
        .split_once("runs: ")
        .unwrap()
        .1
        .to_owned()
}

#[tokio::test]
async fn only_the_variable_with_true_runs_duplicates() {
    if std::env::var_os(CHILD_VARIABLE).is_some() {
        let builder = || Idempotency::builder(MemoryStore::new());
        let (by_default, switched_on) =
            (runs(builder()).await, runs(builder().disabled(false)).await);
        println!("\nruns: {by_default} {switched_on}");
        return;
    }
    for (value, counted) in [(None, "1 1"), (Some("true"), "2 1"), (Some("false"), "1 1")] {
        assert_eq!(counted_by_a_process(value), counted, "{value:?}");
    }
}

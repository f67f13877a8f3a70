//! One test in its own process: what belongs to a whole process, its environment or its subscriber, is the test's alone.

use std::process::{Command, Output};

/// Says to a test that it runs as the child, and which one.
const CHILD: &str = "IDEMPOTENCY_TESTS_CHILD";

/// The name of this child; `None` in the process of all tests.
pub fn child() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// Runs a test of this binary as this child, with these variables instead of Lambda's and of the switch. `test` is
/// `module_path!()` and its name.
pub fn run(test: &str, child: &str, variables: &[(&str, &str)]) -> Output {
    let (_, test) = test.split_once("::").expect("a path in a crate");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env_remove("AWS_LAMBDA_FUNCTION_NAME")
        .env_remove("AWS_LAMBDA_RUNTIME_API")
        .env_remove("AWS_LAMBDA_MAX_CONCURRENCY")
        .env_remove("IDEMPOTENCY_DISABLED")
        .env(CHILD, child)
        .envs(variables.iter().copied())
        .output()
        .expect("a process");
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{said}");
    assert!(printed.contains("1 passed"), "no such test: {printed}");
    output
}

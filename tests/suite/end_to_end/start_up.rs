//! The output of a function that can't start.

use std::process::Command;

use crate::support::lambda::program;

#[test]
fn a_function_without_its_table_says_on_stderr_what_to_set() {
    let mut function = Command::new(program("payments-worker"));
    let output = function.env_clear().output().unwrap();
    assert!(!output.status.success());
    let printed = String::from_utf8(output.stderr).unwrap();
    let says = "Error: set the environment variable IDEMPOTENCY_TABLE to the name of the idempotency table. See https://docs.rs/";
    assert!(printed.starts_with(says), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
}

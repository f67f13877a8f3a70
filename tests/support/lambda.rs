//! Lambda, as far as these tests need it: execution environments that get events and a deadline, and die at it.
//!
//! `lambda-simulator` speaks the Runtime API to the process. It announces deadlines but enforces none, so the kill at the
//! deadline is done here. Processes have real time: each invocation has minutes of it, and a lease is [ended](Function::end_lease), not
//! waited for.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;

mod function;
mod process;
mod programs;
mod sandbox;
mod watch;

pub use function::Function;
pub use programs::{Version, program};
pub use sandbox::{Invocation, Reply, Sandbox};
pub use watch::{Answer, Running, Watch};

/// As DynamoDB gives it.
pub type Item = HashMap<String, AttributeValue>;

/// The time to wait for something that must happen soon, on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_mins(1);

const LOOK_AGAIN: Duration = Duration::from_millis(10);

pub fn text<'a>(item: &'a Item, attribute: &str) -> &'a str {
    item[attribute].as_s().expect("a string")
}

pub fn number(item: &Item, attribute: &str) -> i64 {
    item[attribute]
        .as_n()
        .expect("a number")
        .parse()
        .expect("whole")
}

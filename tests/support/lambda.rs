//! Lambda, as far as these tests need it: execution environments that get events and a deadline, and die at it.
//!
//! `lambda-simulator` speaks the Runtime API to the process. It announces deadlines but enforces none, so the kill at the
//! deadline is done here.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::types::AttributeValue;
use tokio::time::sleep;

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

/// How long to wait for what must happen soon, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);

const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Waits until the record's lease has run out.
pub async fn lease_over(record: &Item) {
    let lease = number(record, "in_progress_expiration");
    let lease = UNIX_EPOCH + Duration::from_millis(lease.try_into().expect("after 1970"));
    if let Ok(left) = lease.duration_since(SystemTime::now()) {
        sleep(left + LOOK_AGAIN).await;
    }
}

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

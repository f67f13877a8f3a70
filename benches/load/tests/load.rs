//! A short run: nothing is lost and nothing is done twice, however busy the machine is. Times are not looked at.
#![allow(clippy::unwrap_used, reason = "a test that panics has found something")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use load::job::{Job, Which};
use load::report::Report;

const SERVER: &str = env!("CARGO_BIN_EXE_load-server");

/// The function's program: built with this test into `FUNCTIONS`, or beside it.
fn orders_api() -> PathBuf {
    let beside = || Path::new(SERVER).parent().unwrap().to_owned();
    let folder = std::env::var_os("FUNCTIONS").map_or_else(beside, PathBuf::from);
    let program = folder.join("orders-api");
    assert!(
        program.exists(),
        "build it first: cargo build -p orders-api --all-features"
    );
    program
}

async fn run(which: Which, program: &Path, is_bare: bool) -> Report {
    let job = Job {
        which,
        program,
        is_bare,
        per_second: 20.0,
        lasting: Duration::from_secs(6),
        again: 0.5,
        seed: 3,
    };
    let report = job.run().await.unwrap();
    assert!(report.sent > 120 && report.again > 30, "{report:?}");
    assert_eq!(report.lost, 0, "{report:?}");
    report
}

#[tokio::test]
async fn a_server_places_each_order_once() {
    let report = run(Which::Server, Path::new(SERVER), false).await;
    assert_eq!((report.doubled, report.unanswered), (0, 0), "{report:?}");
    assert!(
        report.statuses.keys().all(|status| *status == 201),
        "{report:?}"
    );
}

#[tokio::test]
async fn a_bare_server_places_each_order_as_often_as_it_comes() {
    let report = run(Which::Server, Path::new(SERVER), true).await;
    assert_eq!(report.doubled, report.again, "{report:?}");
}

#[tokio::test]
async fn a_function_places_each_order_once() {
    let report = run(Which::Function(3), &orders_api(), false).await;
    assert_eq!((report.doubled, report.unanswered), (0, 0), "{report:?}");
    // A repetition that meets its first request at work is told to wait.
    assert!(
        report
            .statuses
            .keys()
            .all(|status| [201, 409].contains(status)),
        "{report:?}"
    );
}

//! Sends each request when it is due, whatever became of the ones before: a slow server gets no rest.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::arrivals::Arrival;
use crate::target::Target;

/// The result of a request.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The request.
    pub arrival: Arrival,
    /// From the time at which it was due until its answer.
    pub latency: Duration,
    /// The status; `None` where there was no answer.
    pub status: Option<u16>,
}

/// The longest time that a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends all of them, and waits for their answers.
pub async fn drive(target: &Arc<Target>, arrivals: Vec<Arrival>) -> Vec<Sent> {
    let (done, mut all) = mpsc::unbounded_channel();
    let start = Instant::now();
    for arrival in arrivals {
        let due = start + arrival.at;
        sleep_until(due).await;
        let (target, done) = (Arc::clone(target), done.clone());
        tokio::spawn(async move {
            let answer = tokio::time::timeout(PATIENCE, target.send(arrival.order)).await;
            let sent = Sent {
                arrival,
                latency: due.elapsed(),
                status: answer.ok().and_then(Result::ok),
            };
            // The receiver stays until the last result has come.
            let _ = done.send(sent);
        });
    }
    drop(done);
    let mut sent = Vec::new();
    while let Some(one) = all.recv().await {
        sent.push(one);
    }
    sent
}

//! A whole run: the tables, the processes, the requests, the count.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::interval;

use crate::Error;
use crate::arrivals::schedule;
use crate::effects;
use crate::generator::drive;
use crate::memory::{cpu_ticks, resident_kib};
use crate::report::Report;
use crate::target::{Environment, Target};

/// The target of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// `load-server`: axum, without Lambda.
    Server,
    /// `orders-api`, in so many environments.
    Function(usize),
}

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The target.
    pub which: Which,
    /// Its program.
    pub program: &'a Path,
    /// Without the library's protection: the bare handler.
    pub is_bare: bool,
    /// New orders a second.
    pub per_second: f64,
    /// For how long.
    pub lasting: Duration,
    /// The chance of each that it is sent again.
    pub again: f64,
    /// Of the schedule.
    pub seed: u64,
}

impl Job<'_> {
    /// Does it, in a DynamoDB API of its own in this process.
    pub async fn run(self) -> Result<Report, Error> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        tokio::spawn(dynoxide::server::serve_on(
            listener,
            dynoxide::Database::memory()?,
        ));
        let client = effects::client(&endpoint);
        for (table, key) in [("records", "id"), ("orders", "order_id"), ("outbox", "id")] {
            effects::create(&client, table, key).await?;
        }
        let mut target = self.target(&endpoint).await?;
        let (pids, shared) = (target.pids(), Arc::new(target));
        // A process that was just started reads its program from the disk: no request of the schedule waits for that.
        for order in 0..20 {
            let status = shared.send(u32::MAX - order).await?;
            if !(200..300).contains(&status) {
                return Err(format!("the first answers are {status}").into());
            }
        }
        let before = cpu_ticks(&pids);
        let (stop, stopped) = oneshot::channel();
        let watched = tokio::spawn(watch(pids.clone(), stopped));
        let sent = drive(
            &shared,
            schedule(self.seed, self.per_second, self.lasting, self.again),
        )
        .await;
        let taken = cpu_ticks(&pids).saturating_sub(before) * 10;
        drop(stop);
        let memory = watched.await?;
        target = Arc::into_inner(shared).ok_or("a request is still under way")?;
        target.end().await?;
        let effects = effects::count(&client, "orders", "sku").await?;
        Report::of(&sent, &effects, memory, taken)
    }

    async fn target(&self, endpoint: &str) -> Result<Target, Error> {
        let variables = [
            ("AWS_ACCESS_KEY_ID", "load"),
            ("AWS_SECRET_ACCESS_KEY", "load"),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_ENDPOINT_URL", endpoint),
            ("IDEMPOTENCY_TABLE", "records"),
            (
                "IDEMPOTENCY_DISABLED",
                if self.is_bare { "true" } else { "false" },
            ),
            ("MIMALLOC_PURGE_DELAY", "-1"),
            ("ORDERS_TABLE", "orders"),
            ("OUTBOX_TABLE", "outbox"),
            ("RUST_LOG", "error"),
        ];
        let environment: Environment = variables
            .map(|(name, value)| (name, value.to_owned()))
            .into();
        match self.which {
            Which::Server => Target::server(self.program, &environment).await,
            Which::Function(environments) => {
                Target::function(self.program, &environment, environments).await
            }
        }
    }
}

/// The memory of these processes, each second, until it is stopped.
async fn watch(pids: Vec<u32>, mut stopped: oneshot::Receiver<()>) -> Vec<u64> {
    let mut seconds = interval(Duration::from_secs(1));
    let mut memory = Vec::new();
    loop {
        tokio::select! {
            _ = seconds.tick() => memory.push(resident_kib(&pids)),
            _ = &mut stopped => return memory,
        }
    }
}

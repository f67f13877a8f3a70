//! A function, its settings, and what it leaves in its tables.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_simulator::Simulator;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::process::Process;
use super::programs::Version;
use super::{Item, LOOK_AGAIN, PATIENCE, Running, Sandbox, Watch, number, text};
use crate::support::provider::Provider;
use crate::support::proxy::Meddler;
use crate::support::{Fault, Proxy, Server};

/// A function as it is deployed: its program, its tables, its timeout.
#[derive(Clone)]
pub struct Function {
    program: &'static str,
    version: Version,
    server: Server,
    endpoint: String,
    records: String,
    effects: String,
    timeout: Duration,
    environment: Vec<(&'static str, String)>,
}

/// Stops what writes to this table.
struct StoppingWrites(String);

impl Meddler for StoppingWrites {
    fn fault(&self, _: &str, request: &Value) -> Fault {
        if request["TableName"] == *self.0 {
            Fault::Stop
        } else {
            Fault::Pass
        }
    }
}

/// The time that an invocation may take, and that its claims last. Nothing waits for it.
const TIMEOUT: Duration = Duration::from_mins(5);

impl Function {
    pub async fn orders_api() -> Self {
        let mut function = Self::deploy("orders-api", "ORDERS_TABLE", "order_id").await;
        let outbox = function.server.outbox_table().await;
        function.environment.push(("OUTBOX_TABLE", outbox));
        function
    }

    /// The relay of this outbox, on this server, which sends its events to a FIFO queue behind this endpoint.
    pub fn relay_of(server: &Server, outbox: &str, queues: &str) -> Self {
        let function = Self {
            program: "orders-api",
            version: Version::This,
            server: server.clone(),
            endpoint: server.endpoint().to_owned(),
            records: outbox.to_owned(),
            effects: outbox.to_owned(),
            timeout: TIMEOUT,
            environment: vec![("OUTBOX_TABLE", outbox.to_owned())],
        };
        function.outbox_relay(queues)
    }

    /// The relay of a function's outbox, which sends its events to a FIFO queue behind this endpoint.
    pub fn outbox_relay(&self, queues: &str) -> Self {
        let outbox = self.outbox().to_owned();
        Self {
            program: "outbox-relay",
            effects: outbox.clone(),
            environment: vec![
                ("OUTBOX_TABLE", outbox),
                ("OUTBOX_TARGET", format!("sqs:{queues}/1/payments.fifo")),
                ("AWS_ENDPOINT_URL_SQS", queues.to_owned()),
                ("AWS_ENDPOINT_URL_SNS", queues.to_owned()),
                ("AWS_ENDPOINT_URL_EVENTBRIDGE", queues.to_owned()),
                ("SWEEP_AFTER_SECONDS", "0".to_owned()),
            ],
            ..self.clone()
        }
    }

    /// The same relay, which sends to another target behind the same endpoint.
    pub fn target(&self, target: &str) -> Self {
        let mut other = self.clone();
        other.environment.push(("OUTBOX_TARGET", target.to_owned()));
        other
    }

    /// The table that its events wait in.
    pub fn outbox(&self) -> &str {
        let mut variables = self.environment.iter();
        let found = variables.find(|(name, _)| *name == "OUTBOX_TABLE");
        &found.expect("a function with an outbox").1
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    pub async fn payments_worker() -> Self {
        Self::deploy("payments-worker", "LEDGER_TABLE", "entry_id").await
    }

    pub async fn checkout() -> Self {
        Self::deploy("checkout", "SHOP_TABLE", "effect_id").await
    }

    pub async fn settlements() -> Self {
        Self::deploy("settlements", "PAYOUTS_TABLE", "payout_id").await
    }

    /// The audit of the settlements that this function has made.
    pub fn drift_audit(&self) -> Self {
        let mut audit = Self {
            program: "drift-audit",
            ..self.clone()
        };
        let variables = [
            ("EFFECTS_TABLE", self.effects.as_str()),
            ("EFFECTS_ATTRIBUTE", "settlement_id"),
            ("EFFECT_KEY", "/settlement_id"),
            ("NAMESPACE", "settlements"),
            ("OPERATION", "settle"),
            ("SETTLED_FOR_SECONDS", "0"),
        ];
        let variables = variables.map(|(name, value)| (name, value.to_owned()));
        audit.environment.extend(variables);
        audit
    }

    pub async fn stock_movements() -> Self {
        Self::deploy("stock-movements", "MOVEMENTS_TABLE", "entry_id").await
    }

    async fn deploy(program: &'static str, variable: &'static str, key: &str) -> Self {
        let server = Server::dynamodb_local().await;
        let records = server.idempotency_table().await;
        let effects = server.table_with_key(program, key).await;
        Self {
            program,
            version: Version::This,
            endpoint: server.endpoint().to_owned(),
            timeout: TIMEOUT,
            environment: vec![
                ("IDEMPOTENCY_TABLE", records.clone()),
                (variable, effects.clone()),
            ],
            server,
            records,
            effects,
        }
    }

    /// The same function, with another timeout. Its claims last so much longer than the event's arrival, and a second.
    pub fn timeout(&self, timeout: Duration) -> Self {
        Self {
            timeout,
            ..self.clone()
        }
    }

    /// The same function, as this version of it runs it.
    pub fn version(&self, version: Version) -> Self {
        Self {
            version,
            ..self.clone()
        }
    }

    /// The same function, slow: it sleeps between the claim and its effect.
    pub fn slow(&self, pause: Duration) -> Self {
        let mut slow = self.clone();
        slow.environment
            .push(("PAYMENT_DELAY_MS", pause.as_millis().to_string()));
        slow
    }

    /// The same function, with a payment provider.
    pub fn with_provider(&self, provider: &Provider) -> Self {
        let mut function = self.clone();
        let honours_keys = provider.honours_keys().to_string();
        let variables = [
            ("PAYMENT_PROVIDER_URL", provider.url().to_owned()),
            ("PAYMENT_PROVIDER_HONOURS_KEYS", honours_keys),
        ];
        function.environment.extend(variables);
        function
    }

    /// The same function, with a variable more in its environment.
    pub fn with(&self, variable: &'static str, value: &str) -> Self {
        let mut function = self.clone();
        function.environment.push((variable, value.to_owned()));
        function
    }

    /// The same function, which reaches DynamoDB through a wire that can be cut.
    pub async fn behind_a_proxy(&self) -> (Proxy, Self) {
        let proxy = Proxy::before(&self.server).await;
        let function = self.behind(&proxy);
        (proxy, function)
    }

    /// The same function, whose effects are stopped on their way to DynamoDB until the test lets them go.
    pub async fn with_stopped_effects(&self) -> (Proxy, Self) {
        let stopping = Arc::new(StoppingWrites(self.effects.clone()));
        let proxy = Proxy::meddled_with(&self.server, stopping).await;
        let function = self.behind(&proxy);
        (proxy, function)
    }

    /// The same function, which reaches DynamoDB through this wire.
    pub fn behind(&self, proxy: &Proxy) -> Self {
        self.reached_at(proxy.server())
    }

    /// The same function, which reaches DynamoDB at this server.
    pub fn reached_at(&self, server: &Server) -> Self {
        Self {
            endpoint: server.endpoint().to_owned(),
            ..self.clone()
        }
    }

    /// The name of its idempotency table.
    pub fn records_table(&self) -> &str {
        &self.records
    }

    /// The name of the table that has what it did.
    pub fn effects_table(&self) -> &str {
        &self.effects
    }

    /// A new execution environment, ready for its first event.
    pub async fn start(&self) -> Sandbox {
        let simulator = Simulator::builder()
            .function_name(self.program)
            .region("eu-central-1")
            .build()
            .await
            .expect("a Runtime API");
        let mut sandbox = Sandbox {
            process: self.process(simulator.lambda_env_vars()),
            simulator,
            timeout: self.timeout,
            version: self.version,
        };
        let patience = Instant::now() + PATIENCE;
        while !sandbox.simulator.is_initialized().await {
            assert!(sandbox.process.is_alive(), "it ended at start");
            assert!(Instant::now() < patience, "it never asked for an event");
            sleep(LOOK_AGAIN).await;
        }
        sandbox
    }

    /// The function's process, which asks `cargo lambda watch` for its events.
    pub fn start_under(&self, watch: &Watch) -> Running {
        let lambda = [
            ("AWS_LAMBDA_FUNCTION_NAME", self.program.to_owned()),
            ("AWS_LAMBDA_FUNCTION_VERSION", "1".to_owned()),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "4096".to_owned()),
            ("AWS_LAMBDA_RUNTIME_API", watch.runtime_api(self.program)),
            ("AWS_REGION", "eu-central-1".to_owned()),
        ];
        Running(self.process(lambda))
    }

    /// The function's process, with what Lambda puts into its environment.
    fn process<N, V>(&self, lambda: impl IntoIterator<Item = (N, V)>) -> Process
    where
        N: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let mut command = Command::new(self.version.program(self.program));
        command
            .env_clear()
            .envs(lambda)
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ENDPOINT_URL_DYNAMODB", &self.endpoint)
            .env("RUST_BACKTRACE", "1")
            .envs(self.environment.clone());
        Process::start(command, self.program)
    }

    /// The effects of the function, as its table has them.
    pub async fn effects(&self) -> Vec<Item> {
        self.scan(&self.effects).await
    }

    /// The records in its idempotency table.
    pub async fn records(&self) -> Vec<Item> {
        self.scan(&self.records).await
    }

    /// The only record in its idempotency table.
    pub async fn record(&self) -> Item {
        let mut records = self.records().await;
        assert_eq!(records.len(), 1);
        records.remove(0)
    }

    /// Deletes the only record, as TTL does when it has expired.
    pub async fn forget(&self) {
        let record = self.record().await;
        let delete = self.server.client().delete_item();
        let delete = delete.table_name(&self.records);
        let deleted = delete.key("id", record["id"].clone()).send().await;
        deleted.expect("deleted");
    }

    /// The only record, once an attempt of this number holds the claim.
    pub async fn claimed_by_attempt(&self, attempt: u32) -> Item {
        let patience = Instant::now() + PATIENCE;
        loop {
            for record in self.records().await {
                if text(&record, "status") == "INPROGRESS"
                    && number(&record, "attempt") == i64::from(attempt)
                {
                    return record;
                }
            }
            assert!(Instant::now() < patience, "attempt {attempt} never came");
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Lets the lease of the only record, which must be this one, be over.
    pub async fn end_lease(&self, record: &Item) {
        assert_eq!(self.record().await, *record);
        assert!(self.ends(record).await, "it stands as it was");
    }

    /// Lets all leases be over that are so within this time.
    pub async fn end_leases_within(&self, time: Duration) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let until = since_epoch.expect("after 1970") + time;
        let until = i64::try_from(until.as_millis()).expect("an age");
        for record in self.records().await {
            if text(&record, "status") == "INPROGRESS"
                && (1..until).contains(&number(&record, "in_progress_expiration"))
            {
                self.ends(&record).await;
            }
        }
    }

    /// Ends the record's lease, and tells whether it still had this owner.
    async fn ends(&self, record: &Item) -> bool {
        let update = self.server.client().update_item();
        let ended = update
            .table_name(&self.records)
            .key("id", record["id"].clone())
            .condition_expression("#owner = :owner")
            .update_expression("SET in_progress_expiration = :long_ago")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":owner", record["owner"].clone())
            .expression_attribute_values(":long_ago", AttributeValue::N("1".to_owned()));
        ended.send().await.is_ok()
    }

    async fn scan(&self, table: &str) -> Vec<Item> {
        let pages = self.server.client().scan();
        let pages = pages.table_name(table).consistent_read(true);
        let items = pages.into_paginator().items().send();
        items.collect::<Result<_, _>>().await.expect("a scan")
    }
}

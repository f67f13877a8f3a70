//! Lambda, as far as these tests need it: execution environments that get events and a deadline, and die at it.
//!
//! `lambda-simulator` speaks the Runtime API to the process. It announces deadlines but enforces none, so the kill at the
//! deadline is done here.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_simulator::{InvocationBuilder, InvocationStatus, Simulator};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::provider::Provider;
use crate::support::server::unique;
use crate::support::{Proxy, Server};

/// As DynamoDB gives it.
pub type Item = HashMap<String, AttributeValue>;

/// How long to wait for what must happen soon, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);

const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A function as it is deployed: its program, its tables, its timeout.
#[derive(Clone)]
pub struct Function {
    program: &'static str,
    server: Server,
    endpoint: String,
    records: String,
    effects: String,
    timeout: Duration,
    environment: Vec<(&'static str, String)>,
}

impl Function {
    pub async fn orders_api() -> Self {
        let mut function = Self::deploy("orders-api", "ORDERS_TABLE", "order_id").await;
        let outbox = function.server.outbox_table().await;
        function.environment.push(("OUTBOX_TABLE", outbox));
        function
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

    async fn deploy(program: &'static str, variable: &'static str, key: &str) -> Self {
        let server = Server::dynamodb_local().await;
        let records = server.idempotency_table().await;
        let effects = server.table_with_key(program, key).await;
        Self {
            program,
            endpoint: server.endpoint().to_owned(),
            timeout: Duration::from_secs(10),
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

    /// The same function, which reaches DynamoDB through a wire that can be cut.
    pub async fn behind_a_proxy(&self) -> (Proxy, Self) {
        let proxy = Proxy::before(&self.server).await;
        let function = Self {
            endpoint: proxy.server().endpoint().to_owned(),
            ..self.clone()
        };
        (proxy, function)
    }

    /// A new execution environment, ready for its first event.
    pub async fn start(&self) -> Sandbox {
        let simulator = Simulator::builder()
            .function_name(self.program)
            .region("eu-central-1")
            .build()
            .await
            .expect("a Runtime API");
        let mut command = Command::new(program(self.program));
        command
            .env_clear()
            .envs(simulator.lambda_env_vars())
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ENDPOINT_URL_DYNAMODB", &self.endpoint)
            .env("RUST_BACKTRACE", "1")
            .envs(self.environment.clone());
        let mut sandbox = Sandbox {
            process: Process::start(command, self.program),
            simulator,
            timeout: self.timeout,
        };
        let patience = Instant::now() + PATIENCE;
        while !sandbox.simulator.is_initialized().await {
            assert!(sandbox.process.is_alive(), "it ended at start");
            assert!(Instant::now() < patience, "it never asked for an event");
            sleep(LOOK_AGAIN).await;
        }
        sandbox
    }

    /// What the function did, as its table has it.
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

    async fn scan(&self, table: &str) -> Vec<Item> {
        let reply = self
            .server
            .client()
            .scan()
            .table_name(table)
            .consistent_read(true)
            .send()
            .await
            .expect("a scan");
        assert!(reply.last_evaluated_key.is_none(), "more than one page");
        reply.items.unwrap_or_default()
    }
}

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

/// One execution environment: a process, and the Runtime API that it polls. Both end when it is dropped.
pub struct Sandbox {
    process: Process,
    simulator: Simulator,
    timeout: Duration,
}

/// An event on its way.
pub struct Invocation {
    id: String,
    deadline: Instant,
}

/// What became of an event.
#[derive(Debug)]
pub enum Reply {
    Answered(Value),
    Failed(String),
    /// Killed at the deadline.
    TimedOut,
    /// The process ended before it answered.
    Died,
}

impl Reply {
    /// The answer; there must be one.
    pub fn answer(self) -> Value {
        match self {
            Self::Answered(answer) => answer,
            Self::Failed(message) => panic!("the function failed: {message}"),
            Self::TimedOut => panic!("no answer before the deadline"),
            Self::Died => panic!("the process ended without an answer"),
        }
    }
}

impl Sandbox {
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Delivers an event and waits for what becomes of it, at most until the deadline.
    pub async fn invoke(&mut self, event: Value) -> Reply {
        let invocation = self.begin(event).await;
        self.finish(invocation).await
    }

    /// Delivers an event.
    pub async fn begin(&self, event: Value) -> Invocation {
        let timeout = self.timeout.as_millis().try_into().expect("short");
        let invocation = InvocationBuilder::new()
            .payload(event)
            .timeout_ms(timeout)
            .build()
            .expect("complete");
        let deadline = Instant::now() + self.timeout;
        let id = self.simulator.enqueue(invocation).await;
        Invocation { id, deadline }
    }

    /// Waits for the reply; kills the process at the deadline, as Lambda does.
    pub async fn finish(&mut self, invocation: Invocation) -> Reply {
        let deadline = invocation.deadline;
        if let Some(reply) = self.reply(&invocation, deadline).await {
            reply
        } else {
            self.kill();
            Reply::TimedOut
        }
    }

    /// Waits for the reply of a process that was stopped past its deadline, as a pause of the machine would.
    pub async fn finish_late(&mut self, invocation: Invocation) -> Reply {
        self.reply(&invocation, Instant::now() + PATIENCE)
            .await
            .expect("an answer, however late")
    }

    async fn reply(&mut self, invocation: &Invocation, until: Instant) -> Option<Reply> {
        loop {
            // Looked at first: a process that answered and then ended has answered.
            let alive = self.process.is_alive();
            let state = self.simulator.get_invocation_state(&invocation.id).await;
            let state = state.expect("an event that was delivered");
            match state.status {
                InvocationStatus::Success => {
                    return state
                        .response
                        .map(|response| Reply::Answered(response.payload));
                }
                InvocationStatus::Error => {
                    return state.error.map(|error| Reply::Failed(error.error_message));
                }
                _ if !alive => return Some(Reply::Died),
                _ if Instant::now() >= until => return None,
                _ => sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// `kill -9`: no destructor runs, nothing is released.
    pub fn kill(&mut self) {
        self.process.end();
    }

    /// Pauses the process where it is, as a frozen virtual machine would.
    pub fn stop(&self) {
        kill(self.pid(), Signal::SIGSTOP).expect("a process to stop");
    }

    /// Lets a stopped process go on.
    pub fn go_on(&self) {
        kill(self.pid(), Signal::SIGCONT).expect("a process to continue");
    }
}

/// A child that never outlives its test, and whose output is shown when the test fails.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(mut command: Command, name: &str) -> Self {
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique(name) + ".log");
        let output = File::create(&log).expect("a log file");
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output)
            .spawn()
            .expect("a process");
        Self { child, log }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("a process id"))
    }

    fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    fn end(&mut self) {
        // Fails only where it has ended already.
        let _ = self.child.kill();
        self.child.wait().expect("its exit code");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            let output = fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("--- {}\n{output}", self.log.display());
        }
        let _ = fs::remove_file(&self.log);
    }
}

/// The path of a function's program, built on first use, so that it is never older than the code.
fn program(name: &str) -> &'static Path {
    static PROGRAMS: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    &PROGRAMS.get_or_init(build)[name]
}

fn build() -> BTreeMap<String, PathBuf> {
    // The whole workspace with its tests, as `cargo test` has just built it: another selection would have other features, and
    // build the dependencies again.
    let mut cargo = Command::new(env!("CARGO"));
    // What `cargo test` tells a test about its package would reach build scripts, and some of them run again when it changes.
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if shown.starts_with("CARGO_PKG_") || shown.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    let output = cargo
        .args([
            "build",
            "--workspace",
            "--all-features",
            "--tests",
            "--bins",
            "--message-format=json-render-diagnostics",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| {
            message["target"]["kind"][0] == "bin" && message["profile"]["test"] == false
        })
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_owned();
            Some((name, message["executable"].as_str()?.into()))
        })
        .collect()
}

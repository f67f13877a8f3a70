//! A function with Powertools, as a process that is told line by line what to do.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::PREFIX;
use crate::support::Server;

pub type Item = HashMap<String, AttributeValue>;

/// A running process of `tests/peers/powertools.py`; killed when dropped.
pub struct Function {
    _process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    table: String,
    /// The settings that each call sends besides its payload.
    settings: Value,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Called {
    /// The function runs, and waits to be told how it ends.
    Running,
    /// The caller got this.
    Returned(Value),
    /// The caller got this exception.
    Raised(String),
}

impl Function {
    pub async fn start(server: &Server, table: &str) -> Self {
        let python = std::env::var("POWERTOOLS_PYTHON").expect(
            "POWERTOOLS_PYTHON is not set: run `make test`, or `scripts/with powertools -- COMMAND`",
        );
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/powertools.py");
        let mut process = Command::new(python)
            .arg(script)
            .arg(server.endpoint())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a Python with Powertools");
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        // Leases of a second don't wait for Python to load.
        let ready = output.next_line().await.unwrap();
        assert_eq!(ready.as_deref(), Some(r#"{"ready": true}"#));
        Self {
            input: process.stdin.take().unwrap(),
            output,
            _process: process,
            table: table.to_owned(),
            settings: json!({ "do": "call", "prefix": PREFIX, "remaining": 60_000 }),
        }
    }

    /// The same, with another setting: `do`, `config`, `store`, `prefix`, or `remaining`, the time that its invocation has.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.settings[name] = value.into();
        self
    }

    /// Calls the guarded function.
    pub async fn call(&mut self, payload: Value) -> Called {
        let mut job = self.settings.clone();
        job["table"] = json!(self.table);
        job["payload"] = payload;
        self.tell(&job).await
    }

    /// A call for this order.
    pub async fn charge(&mut self, order: &str) -> Called {
        self.call(json!({ "order_id": order })).await
    }

    /// The function that is running returns this.
    pub async fn return_(&mut self, value: Value) -> Called {
        self.tell(&json!({ "return": value })).await
    }

    /// The function that is running raises an exception.
    pub async fn raise(&mut self) -> Called {
        self.tell(&json!({ "raise": "card declined" })).await
    }

    /// A call that runs, and its result.
    pub async fn run(&mut self, order: &str, result: Value) {
        assert_eq!(self.charge(order).await, Called::Running);
        assert_eq!(self.return_(result.clone()).await, Called::Returned(result));
    }

    pub async fn tell(&mut self, line: &Value) -> Called {
        let line = format!("{line}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_mins(1), self.output.next_line());
        let answer = answer.await.expect("an answer").unwrap();
        let answer = answer.expect("the process lives; its error is above");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        if answer.get("running").is_some() {
            Called::Running
        } else if let Some(value) = answer.get("returned") {
            Called::Returned(value.clone())
        } else {
            Called::Raised(answer["raised"].as_str().unwrap().to_owned())
        }
    }
}

/// Returns the result of a call that returned this value.
pub fn returned(value: impl Into<Value>) -> Called {
    Called::Returned(value.into())
}

/// Returns the result of a call that raised this exception.
pub fn raised(exception: &str) -> Called {
    Called::Raised(exception.to_owned())
}

pub const IN_PROGRESS: &str = "IdempotencyAlreadyInProgressError";
pub const PERSISTENCE: &str = "IdempotencyPersistenceLayerError";
pub const VALIDATION: &str = "IdempotencyValidationError";

/// Plays a scenario of `tests/peers/powertools.mjs`, with Powertools for AWS Lambda (TypeScript), and returns its output.
pub async fn typescript(server: &Server, table: &str, scenario: &str) -> Value {
    let packages = std::env::var("POWERTOOLS_NODE").expect(
        "POWERTOOLS_NODE is not set: run `make test`, or `scripts/with powertools -- COMMAND`",
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/powertools.mjs");
    let output = Command::new("node")
        .args([script, server.endpoint(), table, scenario])
        .current_dir(packages)
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .expect("Node");
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

//! Tables on DynamoDB Local, workers on any store, and the binary.

use std::collections::HashMap;
use std::fmt::{self, Display, Write as _};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use axum::Router;
use futures_util::{StreamExt, stream};
use lambda_idempotency::store::Store;
use lambda_idempotency::testing::{Crash, ManualClock, TestDynamoDb};
use lambda_idempotency::{Builder, Claim, Error, Fingerprint, Idempotency, Key, Outcome};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// A server that is missing is a failure: a lane that skips itself proves nothing.
pub(crate) fn dynamodb_endpoint() -> String {
    std::env::var("DYNAMODB_LOCAL_ENDPOINT")
        .expect("DYNAMODB_LOCAL_ENDPOINT is not set: run it by `scripts/with dynamodb-local -- …`")
}

/// DynamoDB Local.
pub(crate) fn dynamodb() -> TestDynamoDb {
    TestDynamoDb::at(dynamodb_endpoint())
}

/// A new table on DynamoDB Local, with the key `id`.
pub(crate) async fn table() -> String {
    table_with(&["id"]).await
}

/// A new table on DynamoDB Local, with this key.
pub(crate) async fn table_with(key: &[&str]) -> String {
    let name = format!("cli-{:016x}", fastrand::u64(..));
    dynamodb().create_table(&name, key).await.unwrap();
    name
}

pub(crate) type Item = HashMap<String, AttributeValue>;

pub(crate) fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

pub(crate) fn number(number: impl Display) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(crate) fn item<N: Into<String>>(
    attributes: impl IntoIterator<Item = (N, AttributeValue)>,
) -> Item {
    let attributes = attributes.into_iter();
    attributes
        .map(|(name, value)| (name.into(), value))
        .collect()
}

/// The item of a record: what each has, and attributes of its own.
pub(crate) fn record<N: Into<String>>(
    id: impl Into<String>,
    status: &str,
    own: impl IntoIterator<Item = (N, AttributeValue)>,
) -> Item {
    let mut record = item([
        ("id", text(id)),
        ("status", text(status)),
        ("owner", text("0f")),
        ("attempt", number(1)),
        ("expiration", number(4_000_000_000_u64)),
        ("v", number(1)),
    ]);
    record.extend(item(own));
    record
}

/// A step that is in this state since then, with attributes of its own.
pub(crate) fn step(state: &str, at: i64, own: &[(&str, AttributeValue)]) -> AttributeValue {
    let mut step = item([
        ("state", text(state)),
        ("revision", number(1)),
        ("tries", number(1)),
        ("at", number(at)),
    ]);
    step.extend(item(own.iter().cloned()));
    AttributeValue::M(step)
}

pub(crate) async fn put(table: &str, item: Item) {
    let put = dynamodb().client().put_item().table_name(table);
    put.set_item(Some(item)).send().await.unwrap();
}

/// Puts items in batches side by side.
pub(crate) async fn put_all(table: &str, items: impl IntoIterator<Item = Item>) {
    let request = |item| {
        let put = PutRequest::builder().set_item(Some(item)).build();
        WriteRequest::builder().put_request(put.unwrap()).build()
    };
    let requests: Vec<_> = items.into_iter().map(request).collect();
    let client = dynamodb().client();
    let batches = requests.chunks(25).map(|batch| {
        let write = client.batch_write_item();
        let write = write.request_items(table, batch.to_vec());
        async move {
            let left = write.send().await.unwrap().unprocessed_items;
            assert!(left.is_none_or(|left| left.is_empty()));
        }
    });
    let batches = stream::iter(batches);
    batches.for_each_concurrent(8, |batch| batch).await;
}

/// The time that one request may take on a machine that does much else, here and in the binary.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// A size that the environment may set.
pub(crate) fn size(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |size| size.parse().expect("a number"))
}

pub(crate) fn key(token: &str) -> Key {
    Key::new("charge", token)
}

/// A worker's engine on the store, as a function in production has it.
pub(crate) fn engine(store: impl Store) -> Builder {
    Idempotency::builder(store)
        .namespace("payments")
        .settings(|settings| settings.store_timeout = PATIENCE)
}

/// The same, an hour ago.
pub(crate) fn engine_an_hour_ago(store: impl Store) -> Idempotency {
    let hour_ago = SystemTime::now() - Duration::from_hours(1);
    let clock = ManualClock::at(hour_ago.into());
    engine(store).clock(clock).build().unwrap()
}

/// Leaves the record of an attempt that is cut off, and returns its id.
pub(crate) async fn cut_off(once: &Idempotency, token: &str) -> String {
    let crash = Crash::new();
    let payload = Fingerprint::json(b"{}");
    let attempt = once.run(key(token), payload, async |_claim| {
        crash.here::<Result<String, std::io::Error>>().await
    });
    crash.cut_off(attempt).await.unwrap();
    let id = once.record_id(&key(token)).unwrap();
    id.as_str().to_owned()
}

/// A delivery: a handler that answers with its attempt.
pub(crate) async fn deliver(
    once: &Idempotency,
    token: &str,
) -> Result<Outcome<String>, Error<std::io::Error>> {
    let handler = async |claim: Claim| Ok(receipt(claim.attempt()));
    let payload = Fingerprint::json(b"{}");
    once.run(key(token), payload, handler).await
}

/// The outcome of a delivery.
pub(crate) fn receipt(attempt: u32) -> String {
    format!("receipt of attempt {attempt}")
}

/// A file or folder of a test, which is removed with it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A path at which there is nothing yet.
    pub(crate) fn new() -> Self {
        Self(std::env::temp_dir().join(format!("cli-{:016x}", fastrand::u64(..))))
    }

    pub(crate) fn with(text: impl AsRef<[u8]>) -> Self {
        let scratch = Self::new();
        std::fs::write(&*scratch, text).unwrap();
        scratch
    }

    pub(crate) fn folder() -> Self {
        let scratch = Self::new();
        std::fs::create_dir(&*scratch).unwrap();
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = if self.is_dir() {
            std::fs::remove_dir_all(&self.0)
        } else {
            std::fs::remove_file(&self.0)
        };
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Display for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

/// The exit code and the output of a run of the binary.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The one JSON document of the output.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The ids of the records that were listed as JSON, sorted.
    pub(crate) fn listed(&self) -> Vec<String> {
        let id = |line| {
            let listed: Value = serde_json::from_str(line).unwrap();
            listed["id"].as_str().unwrap().to_owned()
        };
        let mut ids: Vec<_> = self.out.lines().map(id).collect();
        ids.sort();
        ids
    }

    /// Fails unless the run ended with this code.
    pub(crate) fn ended_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Fails unless the run ended with this code, and said these words to the person.
    pub(crate) fn refused(self, code: i32, words: &str) -> Self {
        let mut all = String::new();
        let _ = write!(all, "{}{}", self.err, self.out);
        assert!(all.contains(words), "{words:?} is not in {self:?}");
        self.ended_with(code)
    }
}

/// Runs the binary to its end, as [`Said::ended_with`] checks it.
pub(crate) async fn ended_with(run: impl Future<Output = Said>, code: i32) -> Said {
    run.await.ended_with(code)
}

/// Runs the binary to its end, as [`Said::refused`] checks it.
pub(crate) async fn refused(run: impl Future<Output = Said>, code: i32, words: &str) -> Said {
    run.await.refused(code, words)
}

/// The words of a line. What is between two `'` is one word.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        if number % 2 == 1 {
            words.push(part);
        } else {
            words.extend(part.split_whitespace());
        }
    }
    words
}

/// The binary with the words of this line.
pub(crate) fn command(line: &str) -> Command {
    command_of(&words(line))
}

/// The binary, with nothing of this process's environment that it reads. It waits long, unless it is told otherwise.
pub(crate) fn command_of(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idempotency"));
    if !words.contains(&"--timeout") {
        command.args(["--timeout", "2min"]);
    }
    command
        .args(words)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        // Reading all of the system's certificates takes longer than most commands, and no endpoint here has one.
        .env(
            "SSL_CERT_FILE",
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/authority.pem"),
        )
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("AWS_REGION", "eu-central-1")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("USER", "alice")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs the binary, without a terminal.
pub(crate) async fn run(line: &str) -> Said {
    Said::of(&command(line).output().await.unwrap())
}

/// The flags of a table of DynamoDB Local.
pub(crate) fn place(table: &str) -> String {
    format!("--endpoint-url {} --table {table}", dynamodb_endpoint())
}

/// Runs the binary on a table of DynamoDB Local.
pub(crate) async fn on(table: &str, line: &str) -> Said {
    run(&format!("{line} {}", place(table))).await
}

/// Shows a record.
pub(crate) async fn get(table: &str, id: &str) -> Value {
    let shown = on(table, &format!("get '{id}' --json")).await;
    shown.ended_with(0).json()
}

/// Starts a server of HTTP, and returns its address.
pub(crate) async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// The ids of the findings of a check.
pub(crate) fn findings(check: &Value) -> Vec<String> {
    let findings = check["findings"].as_array().unwrap().iter();
    let ids = findings.map(|finding| finding["id"].as_str().unwrap().to_owned());
    ids.collect()
}

/// The binary at a terminal, which `script` makes.
pub(crate) struct Terminal {
    child: Child,
    shown: String,
}

impl Terminal {
    /// Starts a command line on a table of DynamoDB Local.
    pub(crate) fn start(table: &str, words: &str) -> Self {
        let (binary, place) = (env!("CARGO_BIN_EXE_idempotency"), place(table));
        let line = format!("{binary} {words} {place} --timeout 2min");
        let mut script = Command::new("script");
        script
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .envs([
                ("AWS_ACCESS_KEY_ID", "test"),
                ("AWS_SECRET_ACCESS_KEY", "test"),
                ("AWS_REGION", "eu-central-1"),
                ("TERM", "xterm"),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        Self {
            child: script.spawn().expect("util-linux has `script`"),
            shown: String::new(),
        }
    }

    /// Reads what is shown until these words.
    pub(crate) async fn wait_for(&mut self, words: &str) {
        while !self.shown.contains(words) {
            assert!(
                self.read().await > 0,
                "{words:?} is not in {:?}",
                self.shown
            );
        }
    }

    async fn read(&mut self) -> usize {
        let mut bytes = [0; 1_024];
        let read = self
            .child
            .stdout
            .as_mut()
            .unwrap()
            .read(&mut bytes)
            .await
            .unwrap();
        self.shown
            .push_str(&String::from_utf8_lossy(&bytes[..read]));
        read
    }

    pub(crate) async fn type_line(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// All that was shown, and the exit code.
    pub(crate) async fn end(mut self) -> (String, i32) {
        while self.read().await > 0 {}
        let status = self.child.wait().await.unwrap();
        (self.shown, status.code().unwrap_or(-1))
    }
}

//! Tables on DynamoDB Local, and the binary.

use std::fmt::Write as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use lambda_idempotency::testing::TestDynamoDb;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
    let name = format!("cli-{:016x}", fastrand::u64(..));
    dynamodb().create_table(&name, &["id"]).await.unwrap();
    name
}

/// The time that one request may take on a machine that does much else, here and in the binary.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// A size that the environment may set.
pub(crate) fn size(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |size| size.parse().expect("a number"))
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

/// The binary, with nothing of this process's environment that it reads. It waits long, unless it is told otherwise.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idempotency"));
    if !arguments.contains(&"--timeout") {
        command.args(["--timeout", "2min"]);
    }
    command
        .args(arguments)
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
pub(crate) async fn run(arguments: &[&str]) -> Said {
    Said::of(&command(arguments).output().await.unwrap())
}

/// Runs the binary on a table of DynamoDB Local.
pub(crate) async fn on(table: &str, arguments: &[&str]) -> Said {
    let endpoint = dynamodb_endpoint();
    let place = ["--endpoint-url", &endpoint, "--table", table];
    run(&[arguments, &place].concat()).await
}

/// The binary at a terminal, which `script` makes.
pub(crate) struct Terminal {
    child: Child,
    shown: String,
}

impl Terminal {
    /// Starts a command line on a table of DynamoDB Local.
    pub(crate) fn start(table: &str, words: &str) -> Self {
        let (binary, endpoint) = (env!("CARGO_BIN_EXE_idempotency"), dynamodb_endpoint());
        let line =
            format!("{binary} {words} --table {table} --endpoint-url {endpoint} --timeout 2min");
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

//! `cargo lambda watch`, which speaks the Runtime API to functions and HTTP to their users.

use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use nix::unistd::Pid;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::process::Process;
use super::{LOOK_AGAIN, PATIENCE};

/// The number of ports that are tried, since another process may take one that was free.
const PORTS: u32 = 5;

/// The real program on its own port. It starts no function, and ends when it is dropped.
pub struct Watch {
    process: Process,
    address: String,
}

/// A function's process under [`Watch`]. It ends when it is dropped.
pub struct Running(pub(super) Process);

/// The answer that a user gets.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Watch {
    pub async fn start() -> Self {
        let program = std::env::var_os("CARGO_LAMBDA")
            .expect("`scripts/with cargo-lambda` sets CARGO_LAMBDA");
        for _ in 0..PORTS {
            let port = free_port();
            let mut command = Command::new(&program);
            command
                .args(["lambda", "watch", "--only-lambda-apis"])
                .args(["--invoke-address", "127.0.0.1"])
                .args(["--invoke-port", &port])
                .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
            let mut watch = Self {
                process: Process::start(command, "cargo-lambda-watch"),
                address: format!("127.0.0.1:{port}"),
            };
            if watch.is_listening().await {
                return watch;
            }
        }
        panic!("`cargo lambda watch` ended at start, {PORTS} times");
    }

    async fn is_listening(&mut self) -> bool {
        let patience = Instant::now() + PATIENCE;
        while self.process.is_alive() {
            if TcpStream::connect(&self.address).await.is_ok() {
                return true;
            }
            assert!(Instant::now() < patience, "it never listened");
            sleep(LOOK_AGAIN).await;
        }
        false
    }

    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Returns the address at which the function of this name asks for its events.
    pub fn runtime_api(&self, function: &str) -> String {
        format!("http://{}/.rt/{function}", self.address)
    }

    /// `POST` as a client of the function's URL would send it.
    pub async fn post(
        &self,
        function: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let path = format!("/lambda-url/{function}{path}");
        self.send(&path, headers, body).await
    }

    /// An event, as `cargo lambda invoke` sends it.
    pub async fn invoke(&self, function: &str, event: &Value) -> Answer {
        let path = format!("/2015-03-31/functions/{function}/invocations");
        self.send(&path, &[], event).await
    }

    async fn send(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let mut request = Request::post(format!("http://{}{path}", self.address))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::from(body.to_string()));
        let request = request.body(body).expect("complete");
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let answer = async {
            let (parts, body) = client.request(request).await?.into_parts();
            let body = body.collect().await.expect("a whole answer").to_bytes();
            Ok::<_, hyper_util::client::legacy::Error>(Answer {
                status: parts.status,
                headers: parts.headers,
                body,
            })
        };
        let answer = timeout(PATIENCE, answer).await;
        answer.expect("an answer in time").expect("an answer")
    }
}

/// A port that no server of another test is given before the program listens at it.
fn free_port() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/with");
    let said = Command::new(script)
        .arg("free-port")
        .output()
        .expect("Python")
        .stdout;
    String::from_utf8(said).expect("text").trim().to_owned()
}

impl Running {
    /// The lines that the function has written since the last call.
    pub fn lines(&mut self) -> String {
        self.0.lines()
    }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    pub fn is_replayed(&self) -> bool {
        self.headers
            .get("idempotent-replayed")
            .is_some_and(|value| value == "true")
    }
}

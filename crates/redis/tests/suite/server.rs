//! Servers of Redis, each of one test and ended with it.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lambda_idempotency_redis::RedisStore;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep};

/// No test waits longer for anything, and none fails on a slow machine before.
pub(crate) const MINUTE: Duration = Duration::from_mins(1);

/// A server on the loopback interface, without a file.
pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
    options: Vec<String>,
}

/// A port that nothing listens at. It and that of a cluster's bus are below the range from which the
/// system gives ports to those that ask for any.
pub(crate) fn free_port() -> u16 {
    for _ in 0..1_000 {
        let port = fastrand::u16(10_000..22_000);
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
    panic!("no port is free");
}

/// The file in which a node of a cluster keeps what it knows of the others.
fn nodes_of(port: u16) -> String {
    format!("nodes-{port}.conf")
}

/// A connection that waits longer than by default, which is a second for itself and half of one for an
/// answer.
pub(crate) async fn connect(address: &str) -> redis::RedisResult<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(MINUTE))
        .set_response_timeout(Some(MINUTE));
    redis::Client::open(address)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

impl Server {
    pub(crate) async fn start(options: &[&str]) -> Self {
        // Another process may take the port before the server does.
        for _ in 0..10 {
            if let Some(server) = Self::start_at(free_port(), options).await {
                return server;
            }
        }
        panic!("it ends");
    }

    /// `None` where the server ends at once.
    async fn start_at(port: u16, options: &[&str]) -> Option<Self> {
        let program = std::env::var("REDIS_SERVER")
            .expect("run the tests with `scripts/with redis -- …` before the command");
        let given = options.iter().map(|option| (*option).to_owned());
        let mut server = Self {
            process: spawn(&program, port, options),
            port,
            options: given.collect(),
        };
        let patience = Instant::now() + MINUTE;
        while server.try_ask::<String>(&["PING"]).await.is_err() {
            assert!(Instant::now() < patience, "no server answers");
            if server.process.try_wait().unwrap().is_some() {
                return None;
            }
            sleep(Duration::from_millis(20)).await;
        }
        Some(server)
    }

    /// One that may be a node of a cluster.
    pub(crate) async fn node() -> Self {
        Self::start(&["--cluster-enabled", "yes"]).await
    }

    /// A primary and its replica, up to date.
    pub(crate) async fn pair() -> (Self, Self) {
        let primary = Self::start(&[]).await;
        let port = primary.port.to_string();
        let replica = Self::start(&["--replicaof", "127.0.0.1", &port]).await;
        replica
            .until(&["INFO", "replication"], "master_link_status:up")
            .await;
        (primary, replica)
    }

    pub(crate) fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        connect(&self.address()).await.unwrap()
    }

    pub(crate) async fn store(&self) -> RedisStore {
        RedisStore::connect(&self.address()).await.unwrap()
    }

    async fn try_ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut connection = connect(&self.address()).await?;
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query_async(&mut connection).await
    }

    /// The answer to a command of an operator's.
    pub(crate) async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).await.unwrap()
    }

    /// Sets a parameter of its configuration.
    pub(crate) async fn set(&self, parameter: &str, value: &str) {
        let words = ["CONFIG", "SET", parameter, value];
        self.ask::<String>(&words).await;
    }

    /// Asks until the answer has this in it.
    pub(crate) async fn until(&self, words: &[&str], part: &str) {
        let patience = Instant::now() + MINUTE;
        while !self.ask::<String>(words).await.contains(part) {
            assert!(Instant::now() < patience, "{words:?} never has {part}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again at its port, after it was killed. It has lost all.
    pub(crate) async fn again(&self) -> Self {
        let options: Vec<_> = self.options.iter().map(String::as_str).collect();
        let again = Self::start_at(self.port, &options).await;
        again.expect("its port is its own")
    }

    /// Stops it, or lets it go on.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }
}

fn spawn(program: &str, port: u16, options: &[&str]) -> Child {
    Command::new("setpriv")
        // It ends with the test, whatever ends that.
        .args(["--pdeathsig", "KILL", program])
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(std::env::temp_dir())
        .args(["--dbfilename", &format!("redis-{port}.rdb")])
        .args(["--cluster-config-file", &nodes_of(port)])
        .args(["--repl-diskless-sync-delay", "0"])
        .args(options)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server")
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(std::env::temp_dir().join(nodes_of(self.port)));
    }
}

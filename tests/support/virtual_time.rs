//! Virtual time with real servers: the clock of a test is paused, and stands while a request is under way.
//!
//! A paused clock goes on to the next timer as soon as its runtime has nothing to do, and a runtime that waits for a socket has nothing
//! to do. Tokio keeps the clock from that while a blocking task runs, so each request has one until its reply is read. Time passes where
//! the library, the SDK or a handler waits on purpose, and none where the machine is slow.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::config::http::HttpRequest;
use aws_sdk_dynamodb::config::{HttpClient, RuntimeComponents, SharedHttpClient};
use aws_smithy_http_client::Builder;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::byte_stream::ByteStream;
use http::HeaderMap;
use lambda_idempotency::{Clock, EpochMillis};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The header that tells a [`Proxy`](super::Proxy) which request it makes wait.
const NUMBER: &str = "x-request-under-way";

/// Keeps the clock from going on until it is dropped.
pub struct Stands(#[expect(dead_code, reason = "its end ends the task")] Sender<()>);

/// Keeps the clock of this runtime from going on.
pub fn stand() -> Stands {
    let (sender, receiver) = channel();
    tokio::task::spawn_blocking(move || receiver.recv());
    Stands(sender)
}

/// The requests under way, by number; `None` for one that a [`Proxy`](super::Proxy) makes wait.
static UNDER_WAY: Mutex<BTreeMap<u64, Option<Stands>>> = Mutex::new(BTreeMap::new());

fn under_way() -> MutexGuard<'static, BTreeMap<u64, Option<Stands>>> {
    UNDER_WAY.lock().expect("not poisoned")
}

/// A request, until it is dropped.
struct UnderWay(u64);

impl UnderWay {
    fn begin() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        under_way().insert(number, Some(stand()));
        Self(number)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        under_way().remove(&self.0);
    }
}

/// Waits with this request, while time passes.
pub async fn wait<T>(request: &HeaderMap, until: impl Future<Output = T>) -> T {
    let number = request.get(NUMBER).and_then(|value| value.to_str().ok());
    let number = number.and_then(|number| number.parse().ok());
    let set = |stands: fn() -> Option<Stands>| {
        // A request whose client is gone is there no more.
        if let Some(number) = number
            && let Some(request) = under_way().get_mut(&number)
        {
            *request = stands();
        }
    };
    set(|| None);
    let result = until.await;
    set(|| Some(stand()));
    result
}

/// The SDK's client over plain HTTP, whose requests keep the clock from going on.
#[derive(Debug)]
struct Standing<C>(C);

pub fn http_client() -> SharedHttpClient {
    // DynamoDB Local closes a connection that had no request for 30 seconds.
    let http = Builder::new().pool_idle_timeout(Duration::from_secs(10));
    SharedHttpClient::new(Standing(http.build_http()))
}

impl HttpClient for Standing<SharedHttpClient> {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(Standing(self.0.http_connector(settings, components)))
    }
}

impl HttpConnector for Standing<SharedHttpConnector> {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let connector = self.0.clone();
        // Its own task: a request of an attempt that is leaked, as of a process that was killed, ends too.
        let mut task = JoinSet::new();
        task.spawn(async move {
            let under_way = UnderWay::begin();
            let number = under_way.0.to_string();
            request.headers_mut().insert(NUMBER, number);
            let mut reply = connector.call(request).await?;
            let body = ByteStream::new(reply.take_body()).collect().await;
            let body = body.map_err(|error| ConnectorError::io(error.into()))?;
            *reply.body_mut() = body.into_bytes().into();
            Ok(reply)
        });
        HttpConnectorFuture::new(async move {
            let reply = task.join_next().await.expect("one task");
            reply.unwrap_or_else(|error| Err(ConnectorError::io(error.into())))
        })
    }
}

/// The longest time before the first test's look at which a test's time may have begun.
const BEFORE: Duration = Duration::from_hours(1);

/// The machine's time when the first test looked, and from then on tokio's.
#[derive(Clone, Copy, Debug, Default)]
pub struct VirtualClock;

impl VirtualClock {
    /// The deadline of an invocation that has this much time, as Lambda says it.
    pub fn deadline(time: Duration) -> u64 {
        let deadline = Self.now() + time;
        deadline.0.try_into().expect("after 1970")
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> EpochMillis {
        static BEGAN: OnceLock<(EpochMillis, std::time::Instant)> = OnceLock::new();
        let (time, began) =
            *BEGAN.get_or_init(|| (SystemTime::now().into(), std::time::Instant::now()));
        // A test's time begins when its runtime does, which may be before the first test looked, and goes on by whole milliseconds.
        let now = Instant::now() + BEFORE;
        time + now.saturating_duration_since(Instant::from_std(began)) - BEFORE
    }
}

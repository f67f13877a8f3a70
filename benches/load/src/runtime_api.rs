//! As much of Lambda's Runtime API as execution environments need that take one event at a time:
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::Error;

type Answer = oneshot::Sender<Bytes>;

/// The events that wait for an environment, and those that are under way.
pub(crate) struct RuntimeApi {
    /// The address at which the environments find it.
    pub(crate) address: String,
    events: mpsc::UnboundedSender<(String, Answer)>,
}

struct Events {
    waiting: tokio::sync::Mutex<mpsc::UnboundedReceiver<(String, Answer)>>,
    under_way: Mutex<HashMap<String, Answer>>,
    number: AtomicU64,
}

const TIMEOUT: Duration = Duration::from_secs(10);

impl RuntimeApi {
    pub(crate) async fn start() -> Result<Self, Error> {
        let (sender, waiting) = mpsc::unbounded_channel();
        let events = Arc::new(Events {
            waiting: tokio::sync::Mutex::new(waiting),
            under_way: Mutex::default(),
            number: AtomicU64::new(0),
        });
        let router = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(answer))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(answer))
            .with_state(events);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?.to_string();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self {
            address,
            events: sender,
        })
    }

    /// Hands an event to the next environment that asks, and returns its answer.
    pub(crate) async fn invoke(&self, event: String) -> Result<Bytes, Error> {
        let (answer, answered) = oneshot::channel();
        self.events.send((event, answer))?;
        Ok(answered.await?)
    }
}

type Next = ([(&'static str, String); 3], String);

async fn next(State(events): State<Arc<Events>>) -> Result<Next, StatusCode> {
    let (event, answer) = events
        .waiting
        .lock()
        .await
        .recv()
        .await
        .ok_or(StatusCode::GONE)?;
    let number = events.number.fetch_add(1, Ordering::Relaxed);
    let id = format!("00000000-0000-4000-8000-{number:012x}");
    let mut under_way = events
        .under_way
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    under_way.insert(id.clone(), answer);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let arn = "arn:aws:lambda:eu-central-1:123456789012:function:orders-api";
    let headers = [
        ("lambda-runtime-aws-request-id", id),
        (
            "lambda-runtime-deadline-ms",
            (now + TIMEOUT).as_millis().to_string(),
        ),
        ("lambda-runtime-invoked-function-arn", arn.to_owned()),
    ];
    Ok((headers, event))
}

async fn answer(
    State(events): State<Arc<Events>>,
    Path(id): Path<String>,
    body: Bytes,
) -> StatusCode {
    let mut under_way = events
        .under_way
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let Some(answer) = under_way.remove(&id) else {
        return StatusCode::BAD_REQUEST;
    };
    // The client may have gone.
    let _ = answer.send(body);
    StatusCode::ACCEPTED
}

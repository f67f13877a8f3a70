//! A small payment provider: it takes charges over HTTP, and remembers them. It may honour idempotency keys, or not.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// A charge that was made: the key that it was asked for with.
pub type Charge = String;

/// The provider, on the loopback interface.
#[derive(Clone)]
pub struct Provider {
    url: String,
    book: Arc<Book>,
}

/// Where the next request stops, to be answered never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    BeforeTheCharge,
    AfterTheCharge,
}

struct Book {
    honours_keys: bool,
    charges: Mutex<Vec<Charge>>,
    /// What the next requests meet: an answer, or a stop.
    next: Mutex<Option<Result<StatusCode, Stop>>>,
    stopped: Notify,
}

impl Provider {
    /// One that answers a key that it has seen with the charge that it made then.
    pub async fn that_honours_keys() -> Self {
        Self::new(true).await
    }

    /// One that makes a charge for each request.
    pub async fn that_ignores_keys() -> Self {
        Self::new(false).await
    }

    async fn new(honours_keys: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let book = Arc::new(Book {
            honours_keys,
            charges: Mutex::default(),
            next: Mutex::default(),
            stopped: Notify::new(),
        });
        let router = Router::new()
            .route("/charges", post(charge))
            .with_state(Arc::clone(&book));
        tokio::spawn(async { axum::serve(listener, router).await });
        Self { url, book }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn honours_keys(&self) -> bool {
        self.book.honours_keys
    }

    /// The next request stops there.
    pub fn stop_next(&self, stop: Stop) {
        *self.book.next.lock().expect("not poisoned") = Some(Err(stop));
    }

    /// The next request is refused with this status, and not charged.
    pub fn refuse_next(&self, status: StatusCode) {
        *self.book.next.lock().expect("not poisoned") = Some(Ok(status));
    }

    /// Waits until a request has stopped.
    pub async fn stopped(&self) {
        self.book.stopped.notified().await;
    }

    /// The charges that were made, by their keys.
    pub fn charges(&self) -> Vec<Charge> {
        self.book.charges.lock().expect("not poisoned").clone()
    }
}

async fn charge(
    State(book): State<Arc<Book>>,
    headers: HeaderMap,
    Json(payment): Json<Value>,
) -> Result<Json<Value>, StatusCode> {
    let key = headers
        .get("idempotency-key")
        .ok_or(StatusCode::BAD_REQUEST)?;
    let key = key
        .to_str()
        .map_err(|_| StatusCode::BAD_REQUEST)?
        .to_owned();
    assert!(payment["amount"].is_u64(), "{payment}");
    let met = book.next.lock().expect("not poisoned").take();
    match met {
        Some(Ok(status)) => return Err(status),
        Some(Err(Stop::BeforeTheCharge)) => book.stop().await,
        _ => {}
    }
    let number = book.enter(key);
    if met == Some(Err(Stop::AfterTheCharge)) {
        book.stop().await;
    }
    Ok(Json(json!({ "charge_id": format!("charge-{number}") })))
}

impl Book {
    /// The charge's number, from 1.
    fn enter(&self, key: String) -> usize {
        let mut charges = self.charges.lock().expect("not poisoned");
        if self.honours_keys
            && let Some(position) = charges.iter().position(|known| *known == key)
        {
            return position + 1;
        }
        charges.push(key);
        charges.len()
    }

    async fn stop(&self) {
        self.stopped.notify_one();
        std::future::pending::<()>().await;
    }
}

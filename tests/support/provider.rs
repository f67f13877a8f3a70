//! A small payment provider: it takes charges over HTTP, and remembers them. It may honour idempotency keys, or not.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::loopback;

/// A charge that was made: the key that it was asked for with.
pub type Charge = String;

/// A charge that was asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    pub payment_id: String,
    pub amount: u64,
    pub at: SystemTime,
    /// Whether the charge was made; else it was refused, or is known already.
    pub is_charged: bool,
}

/// A mishap that a request may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// It is answered with this status, and not charged.
    Refused(StatusCode),
    /// It is charged, and answered with this status.
    Charged(StatusCode),
    /// It takes so long.
    Slow(Duration),
}

type Mishaps = Box<dyn FnMut() -> Option<Mishap> + Send>;

/// The provider, on the loopback interface.
#[derive(Clone)]
pub struct Provider {
    url: String,
    book: Arc<Book>,
}

/// The point at which the next request stops, never to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    BeforeTheCharge,
    AfterTheCharge,
}

struct Book {
    honours_keys: bool,
    charges: Mutex<Vec<Charge>>,
    asked: Mutex<Vec<Asked>>,
    mishaps: Mutex<Option<Mishaps>>,
    /// The answer that the next request gets, or the point at which it stops.
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
        let (listener, url) = loopback::bind().await;
        let book = Arc::new(Book {
            honours_keys,
            charges: Mutex::default(),
            asked: Mutex::default(),
            mishaps: Mutex::default(),
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

    /// Lets requests meet these mishaps from now on, one after the other.
    pub fn befall(&self, mishaps: impl FnMut() -> Option<Mishap> + Send + 'static) {
        *self.book.mishaps.lock().expect("not poisoned") = Some(Box::new(mishaps));
    }

    /// Every request that got as far as the book, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.book.asked.lock().expect("not poisoned").clone()
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
    let amount = payment["amount"].as_u64().expect("an amount");
    let payment_id = payment["payment_id"].as_str().expect("an id").to_owned();
    let met = book.next.lock().expect("not poisoned").take();
    let mishap = book.mishap();
    if let Some(Mishap::Slow(pause)) = mishap {
        tokio::time::sleep(pause).await;
    }
    match met {
        Some(Ok(status)) => return Err(status),
        Some(Err(Stop::BeforeTheCharge)) => book.stop().await,
        _ => {}
    }
    if let Some(Mishap::Refused(status)) = mishap {
        return Err(status);
    }
    let at = SystemTime::now();
    let (number, is_charged) = book.enter(key);
    book.asked.lock().expect("not poisoned").push(Asked {
        payment_id,
        amount,
        at,
        is_charged,
    });
    if let Some(Mishap::Charged(status)) = mishap {
        return Err(status);
    }
    if met == Some(Err(Stop::AfterTheCharge)) {
        book.stop().await;
    }
    Ok(Json(json!({ "charge_id": format!("charge-{number}") })))
}

impl Book {
    fn mishap(&self) -> Option<Mishap> {
        let mut mishaps = self.mishaps.lock().expect("not poisoned");
        mishaps.as_mut()?()
    }

    /// The charge's number, from 1, and whether it is new.
    fn enter(&self, key: String) -> (usize, bool) {
        let mut charges = self.charges.lock().expect("not poisoned");
        if self.honours_keys
            && let Some(position) = charges.iter().position(|known| *known == key)
        {
            return (position + 1, false);
        }
        charges.push(key);
        (charges.len(), true)
    }

    async fn stop(&self) {
        self.stopped.notify_one();
        std::future::pending::<()>().await;
    }
}

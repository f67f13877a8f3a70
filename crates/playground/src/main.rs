//! Serves a page that delivers one message to a handler with the library, and to one without it, and lets the reader break what is in
//! between.
//!
//! The engine, its requests and the table are real: `TestDynamoDb` behind a wire that loses replies on purpose. Each delivery has a
//! thread with its own engine and SDK, as an execution environment has: to kill it, the thread is ended, and to freeze it, stopped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use axum::extract::{Path, Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::testing::{ManualClock, TestDynamoDb};
use lambda_idempotency::{Clock, Fingerprint, Idempotency, Key, Outcome};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::wire::{Fault, Wire};
use crate::words::{Words, number};

mod wire;
/// The words of the arrows: the book's diagrams have the same.
#[path = "../../../tests/suite/diagrams/words.rs"]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod words;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const LEASE: Duration = Duration::from_mins(1);
const ORDER: &str = "A-17";
const AMOUNT: &str = "12.50";
/// The attributes that the arrows show.
const SHOWN: &[&str] = &[
    "status",
    "owner",
    "in_progress_expiration",
    "validation",
    "data",
];

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let port = std::env::args()
        .nth(1)
        .map_or(Ok(7117), |port| port.parse())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let session = tokio::sync::Mutex::new(Session::begin().await?);
    let shown = Mutex::new(Arc::clone(&session.lock().await.stage));
    let app = Router::new()
        .route("/", get(Html(include_str!("index.html"))))
        .route("/state", get(state))
        .route("/act/{name}", post(act))
        .layer(from_fn_with_state(address.port(), own_page_alone))
        .with_state(Arc::new(App { session, shown }));
    println!("http://{address}/");
    axum::serve(listener, app).await?;
    Ok(())
}

struct App {
    /// Held while an action is under way.
    session: tokio::sync::Mutex<Session>,
    shown: Mutex<Arc<Stage>>,
}

/// Refuses what a page from elsewhere sends: each page that the reader has open can reach this port.
async fn own_page_alone(State(port): State<u16>, request: Request, next: Next) -> Response {
    if is_of_own_page(port, request.headers()) {
        return next.run(request).await;
    }
    let words = "the playground answers its own page alone";
    (StatusCode::FORBIDDEN, words).into_response()
}

/// Returns whether a request is for this port under a name of this machine, and from a page of the same
/// place, where it says from which. A name of another site may lead here, too.
fn is_of_own_page(port: u16, headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let (name, of) = host
        .rsplit_once(':')
        .map_or((host, Ok(80)), |(name, of)| (name, of.parse::<u16>()));
    let origin = format!("http://{host}");
    matches!(name, "127.0.0.1" | "localhost")
        && of == Ok(port)
        && headers.get(ORIGIN).is_none_or(|from| *from == origin)
}

async fn state(State(app): State<Arc<App>>) -> Json<Value> {
    let stage = Arc::clone(&lock(&app.shown));
    Json(stage.state().await)
}

/// Does what a button says; its answer is the state behind it.
async fn act(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, (StatusCode, String)> {
    let failed = |error: BoxError| (StatusCode::BAD_REQUEST, error.to_string());
    let mut session = app.session.lock().await;
    if name == "reset" {
        let begun = Session::begin().await.map_err(failed)?;
        *lock(&app.shown) = Arc::clone(&begun.stage);
        *session = begun;
    } else {
        session.act(&name).await.map_err(failed)?;
    }
    Ok(Json(session.stage.state().await))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line of the drawing: an arrow, or a note where `to` is missing.
#[derive(Clone, Debug, Serialize)]
struct Line {
    from: String,
    to: Option<String>,
    is_answer: bool,
    text: String,
}

/// An effect at the payment provider.
#[derive(Clone, Debug, Serialize)]
struct Charge {
    amount: String,
    key: Option<String>,
    receipt: String,
    /// The provider knew the key, and charged nothing.
    is_repeated: bool,
}

#[derive(Default)]
struct Ledger {
    protected: Vec<Charge>,
    unprotected: Vec<Charge>,
    /// The keys that the provider knows.
    known: Vec<String>,
}

/// The stage that all environments share.
struct Stage {
    clock: ManualClock,
    words: Mutex<Words>,
    lines: Mutex<Vec<Line>>,
    ledger: Mutex<Ledger>,
    fault: Mutex<Fault>,
    dynamodb: TestDynamoDb,
    table: String,
}

impl Stage {
    fn arrow(&self, from: &str, to: &str, is_answer: bool, text: impl Into<String>) {
        lock(&self.lines).push(Line {
            from: from.to_owned(),
            to: Some(to.to_owned()),
            is_answer,
            text: text.into(),
        });
    }

    fn note(&self, over: &str, text: impl Into<String>) {
        lock(&self.lines).push(Line {
            from: over.to_owned(),
            to: None,
            is_answer: false,
            text: text.into(),
        });
    }

    /// Charges with a key that the provider recognises.
    fn charge(&self, lane: &str, amount: &str, key: String) -> String {
        let mut ledger = lock(&self.ledger);
        let known = ledger.known.len();
        let number = number(&mut ledger.known, &key);
        let receipt = format!("receipt {number}");
        let short: String = key.chars().take(6).collect();
        self.arrow(
            lane,
            "Provider",
            false,
            format!("charge {amount}, key {short}…"),
        );
        self.arrow("Provider", lane, true, receipt.clone());
        ledger.protected.push(Charge {
            amount: amount.to_owned(),
            key: Some(key),
            receipt: receipt.clone(),
            is_repeated: number <= known,
        });
        receipt
    }

    /// The handler without the library.
    fn charge_unprotected(&self, amount: &str) {
        let mut ledger = lock(&self.ledger);
        let receipt = format!("receipt {}", ledger.unprotected.len() + 1);
        ledger.unprotected.push(Charge {
            amount: amount.to_owned(),
            key: None,
            receipt,
            is_repeated: false,
        });
    }

    async fn state(&self) -> Value {
        let scan = self.dynamodb.client().scan().table_name(&self.table);
        let scanned = scan.consistent_read(true).send().await;
        let records = scanned
            .ok()
            .and_then(|found| found.items)
            .unwrap_or_default();
        let record = records.into_iter().next().map(|record| {
            let attributes = record
                .into_iter()
                .map(|(name, value)| (name, shown(&value)));
            attributes.collect::<Map<_, _>>()
        });
        let seconds = lock(&self.words).seconds(self.clock.now());
        let ledger = lock(&self.ledger);
        json!({
            "lines": *lock(&self.lines),
            "record": record,
            "protected": ledger.protected,
            "unprotected": ledger.unprotected,
            "seconds": seconds,
        })
    }
}

fn shown(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) | AttributeValue::N(text) => json!(text),
        AttributeValue::Bool(is) => json!(is),
        AttributeValue::B(bytes) => json!(format!("{} bytes", bytes.as_ref().len())),
        AttributeValue::M(map) => map
            .iter()
            .map(|(name, value)| (name.clone(), shown(value)))
            .collect(),
        AttributeValue::L(list) => list.iter().map(shown).collect(),
        other => json!(format!("{other:?}")),
    }
}

/// The event that an environment meets while its handler runs.
enum Meets {
    Nothing,
    KillBefore,
    KillAfter,
    LostReply,
    /// It stops before its effect, until it is sent something.
    Stop(&'static str, std::sync::mpsc::Receiver<()>),
}

struct Session {
    stage: Arc<Stage>,
    wire: Wire,
    _servers: Servers,
    /// The environments that were killed.
    dead: usize,
}

/// The runtime of the emulator and of the wire, which end with it.
struct Servers(Option<Runtime>);

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Another runtime's thread drops it, which must not wait.
            runtime.shutdown_background();
        }
    }
}

impl Session {
    async fn begin() -> Result<Self, BoxError> {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build()?;
        let begun = runtime.spawn(Self::serve());
        let servers = Servers(Some(runtime));
        let (stage, wire) = begun.await??;
        Ok(Self {
            stage,
            wire,
            _servers: servers,
            dead: 0,
        })
    }

    /// Starts the emulator, and the wire before it.
    async fn serve() -> Result<(Arc<Stage>, Wire), BoxError> {
        let dynamodb = TestDynamoDb::start().await?;
        let table = "idempotency-playground".to_owned();
        dynamodb.create_table(&table, &["id"]).await?;
        let clock = ManualClock::default();
        let stage = Arc::new(Stage {
            words: Mutex::new(Words::new(clock.now(), SHOWN)),
            clock,
            lines: Mutex::default(),
            ledger: Mutex::default(),
            fault: Mutex::default(),
            dynamodb,
            table,
        });
        let wire = Wire::start(Arc::clone(&stage)).await?;
        Ok((stage, wire))
    }

    async fn act(&mut self, name: &str) -> Result<(), BoxError> {
        match name {
            "deliver" => self.deliver(0, AMOUNT, Meets::Nothing).await,
            "two" => self.deliver_beside("", |_| {}).await,
            "lose-reply" => self.deliver(0, AMOUNT, Meets::LostReply).await,
            "kill-before" => self.deliver(0, AMOUNT, Meets::KillBefore).await,
            "kill-after" => self.deliver(0, AMOUNT, Meets::KillAfter).await,
            "freeze" => self.deliver_beside("is frozen", Self::pass_lease).await,
            "pass-lease" => self.pass_lease(),
            "other-payload" => self.deliver(0, "99.00", Meets::Nothing).await,
            "store-down" => {
                *lock(&self.stage.fault) = Fault::Down;
                self.deliver(0, AMOUNT, Meets::Nothing).await;
                *lock(&self.stage.fault) = Fault::None;
            }
            _ => return Err(format!("there is no action `{name}`").into()),
        }
        Ok(())
    }

    fn pass_lease(&self) {
        self.stage.clock.advance(LEASE + Duration::from_secs(2));
        let seconds = lock(&self.stage.words).seconds(self.stage.clock.now());
        self.stage
            .note("SQS", format!("{seconds} s after the start"));
    }

    async fn deliver(&mut self, beside: usize, amount: &'static str, meets: Meets) {
        let mut said = self.start(beside, amount, meets);
        while said.recv().await.is_some() {
            self.dead += 1;
        }
    }

    /// Delivers the message, and once more while the first delivery is stopped, which then goes on.
    async fn deliver_beside(&mut self, why: &'static str, between: impl FnOnce(&Self)) {
        let (go, stopped) = std::sync::mpsc::channel();
        let mut first = self.start(0, AMOUNT, Meets::Stop(why, stopped));
        let is_stopped = first.recv().await.is_some();
        between(self);
        self.deliver(usize::from(is_stopped), AMOUNT, Meets::Nothing)
            .await;
        // Where the first ended at once, nobody waits for it.
        let _ = go.send(());
        while first.recv().await.is_some() {}
    }

    /// Delivers the message to an environment; it says when it stops, is killed, or has ended.
    fn start(&self, beside: usize, amount: &'static str, meets: Meets) -> UnboundedReceiver<()> {
        let (says, said) = unbounded_channel();
        let stage = Arc::clone(&self.stage);
        let lane = format!("Lambda {}", 1 + self.dead + beside);
        let endpoint = self.wire.endpoint(&lane);
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => {
                    runtime.block_on(environment(&stage, &lane, endpoint, amount, meets, says));
                }
                Err(error) => stage.note(&lane, error.to_string()),
            }
        });
        said
    }
}

/// An execution environment that is given the message.
async fn environment(
    stage: &Arc<Stage>,
    lane: &str,
    endpoint: String,
    amount: &'static str,
    meets: Meets,
    says: UnboundedSender<()>,
) {
    stage.arrow("SQS", lane, false, format!("charge {ORDER}, {amount}"));
    let store = DynamoDbStore::new(TestDynamoDb::at(endpoint).client(), &stage.table);
    let once = Idempotency::builder(store)
        .namespace("payments")
        .lease(LEASE)
        .settings(|settings| {
            settings.store_timeout = Duration::from_secs(2);
            settings.max_retry_after = Duration::MAX;
        })
        .clock(stage.clock.clone())
        .build();
    let once = match once {
        Ok(once) => once,
        Err(error) => return stage.note(lane, error.to_string()),
    };
    if !matches!(meets, Meets::KillBefore) {
        stage.charge_unprotected(amount);
    }
    let payload = Fingerprint::bytes(format!("{ORDER}, {amount}").as_bytes());
    let (own, name, tells) = (Arc::clone(stage), lane.to_owned(), says.clone());
    let killed = Arc::new(Notify::new());
    let kill = Arc::clone(&killed);
    let run = once.run(Key::new("charge", ORDER), payload, async move |claim| {
        let lane = name.as_str();
        own.note(lane, "the handler runs");
        match &meets {
            Meets::KillBefore => die(&own, lane, "is killed before the charge", &kill).await,
            Meets::Stop(why, go) => {
                if !why.is_empty() {
                    own.note(lane, *why);
                }
                // The whole thread stands, its runtime among it.
                let _ = tells.send(());
                let _ = go.recv();
                if !why.is_empty() {
                    own.note(lane, "goes on");
                }
            }
            _ => {}
        }
        let receipt = own.charge(lane, amount, claim.derive_key("gateway"));
        match &meets {
            Meets::KillAfter => die(&own, lane, "is killed after the charge", &kill).await,
            Meets::LostReply => *lock(&own.fault) = Fault::LoseReply,
            _ => {}
        }
        Ok::<_, std::io::Error>(receipt)
    });
    let ended = tokio::select! {
        ended = run => ended,
        // As after `kill -9`, nothing more is sent: the engine's next call would release the claim, and
        // there is none.
        () = killed.notified() => {
            let _ = says.send(());
            return;
        }
    };
    let answer = match ended {
        Ok(Outcome::Executed(receipt)) => receipt,
        Ok(replayed) => format!("{} (replayed)", replayed.get()),
        Err(error) => error
            .to_string()
            .split(" See http")
            .next()
            .unwrap_or_default()
            .to_owned(),
    };
    stage.arrow(lane, "SQS", true, answer);
    drop(says);
}

/// Has the environment end here: nothing of it runs any more.
async fn die(stage: &Stage, lane: &str, why: &str, killed: &Notify) {
    stage.note(lane, why);
    killed.notify_one();
    std::future::pending::<()>().await;
}

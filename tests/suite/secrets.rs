//! What is never logged, whatever happens: a payload, a token, a scope, an outcome, an error's message.

use std::io::{Error as HandlerError, Write};
use std::sync::{Arc, Mutex};

use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Fingerprint, Idempotency, Key, Verdict};
use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing_subscriber::fmt::MakeWriter;

/// Collects what is logged.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// As long as it lives, what this thread logs is collected.
pub struct Capture {
    _log: DefaultGuard,
    _other: Dispatch,
}

impl Log {
    /// What this crate logs on this thread, at every level.
    ///
    /// While there is only one dispatcher, `tracing` lets the thread that first meets an event decide for all threads
    /// whether it is wanted, and another test's thread would say no. So there are two.
    pub fn capture() -> (Self, Capture) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("lambda_idempotency=trace")
            .with_writer(log.clone())
            .finish();
        let other = Dispatch::new(NoSubscriber::new());
        let capture = Capture {
            _log: tracing::subscriber::set_default(subscriber),
            _other: other,
        };
        (log, capture)
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn secrets_reach_neither_logs_nor_debug() {
    let (log, _capture) = Log::capture();

    let once = Idempotency::builder(MemoryStore::new())
        .namespace("secrets")
        .build()
        .unwrap();
    let mut shown = Vec::new();
    for key in [
        Key::new("charge", "secret-token").scope("secret-tenant"),
        Key::raw("charge", "secret-raw-id"),
    ] {
        let payload = || Fingerprint::json(br#"{"card":"secret-card"}"#);
        shown.push(format!("{key:?} {:?}", once.record_id(&key).unwrap()));

        let failing = |_| async { Err::<String, _>(HandlerError::other("secret-message")) };
        once.run(key.clone(), payload(), failing).await.unwrap_err();
        let busy = once.run(key.clone(), payload(), |claim| {
            shown.push(format!("{claim:?}"));
            let inner = once.run(key.clone(), payload(), failing);
            async {
                inner
                    .await
                    .map(|_| String::new())
                    .or_else(|_| Ok::<_, HandlerError>("secret-outcome".to_owned()))
            }
        });
        busy.await.unwrap();
        once.run(key.clone(), payload(), failing).await.unwrap();
        once.run(key.clone(), Fingerprint::bytes(b"secret-other"), failing)
            .await
            .unwrap_err();
        let unreadable = once
            .run(key.clone(), payload(), |_| async {
                Ok::<u32, HandlerError>(1)
            })
            .await;
        shown.push(format!("{:?}", unreadable.unwrap_err()));
    }
    let declined = |_| async { Err::<String, _>(HandlerError::other("secret-decline")) };
    for _ in 0..2 {
        let run = once.run_with(Key::new("charge", "secret-2"), None, declined, |_| {
            Verdict::Fail
        });
        run.await.unwrap_err();
    }
    once.run(Key::new("charge", "secret\n3"), None, declined)
        .await
        .unwrap_err();

    let logged = log.text();
    for event in [
        "claimed",
        "replayed",
        "released",
        "in_flight",
        "mismatch",
        "retried",
        "completed",
    ] {
        assert!(
            logged.contains(event),
            "{event} is not in the log:\n{logged}"
        );
    }
    assert!(
        !logged.contains("secret-") && !logged.contains("secret\\n"),
        "{logged}"
    );
    for text in shown {
        assert!(!text.contains("secret-"), "{text}");
    }
}

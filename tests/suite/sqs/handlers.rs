//! The message that a handler gets, and the liberties that it has: to fail, panic, change its message, be busy.

use std::fmt;
use std::task::{Context, Poll};

use lambda_idempotency::{InFlight, Key};
use tokio::time::Instant;
use tower::ServiceBuilder;

use super::*;
use crate::secrets::Log;

on_each_server!(a_handler_gets_the_message_as_delivered);
async fn a_handler_gets_the_message_as_delivered(server: Server) {
    let once = engine(&server).await;
    let mut worker = charge(&once).handler(|message| async move {
        assert_eq!(message.id(), "m-1");
        assert_eq!(message.body.amount, 5);
        let attribute = &message.metadata.message_attributes["trace"];
        assert_eq!(attribute.string_value.as_deref(), Some("t-1"));
        assert_eq!(message.claim.operation(), "charge");
        assert_eq!(message.claim.attempt(), 1);
        assert_eq!(message.claim.derive_key("gateway").len(), 64);
        assert!(!format!("{message:?}").contains("p-1"));
        Ok(())
    });
    reports(&mut worker, [payment("m-1", "p-1", 5)], &[]).await;
}

on_each_server!(a_claim_lasts_until_the_invocations_deadline);
async fn a_claim_lasts_until_the_invocations_deadline(server: Server) {
    let once = engine(&server).await;
    let seen = Arc::new(Mutex::new(None));
    let deadline_of = Arc::clone(&seen);
    let mut worker = charge(&once).handler(move |message| {
        *deadline_of.lock().unwrap() = message.claim.deadline();
        async { Ok(()) }
    });
    let mut event = batch([payment("m-1", "p-1", 5)]);
    event.context.deadline = VirtualClock::deadline(Duration::from_mins(1));
    let deadline = event.context.deadline();
    worker.call(event).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), Some(deadline));
}

/// An error whose text can't be made.
#[derive(Debug)]
struct Unprintable;

impl fmt::Display for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no text")
    }
}

impl std::error::Error for Unprintable {}

on_each_server!(a_panic_in_an_errors_text_is_its_messages_own_trouble);
async fn a_panic_in_an_errors_text_is_its_messages_own_trouble(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let done = effects.clone();
    let mut worker = BatchLayer::new(once)
        .permanent(|_: &Unprintable| true)
        .handler(move |message: Message<Payment>| {
            let done = done.clone();
            async move {
                if message.id() == "bad" {
                    return Err(Unprintable);
                }
                done.of(&message);
                Ok(())
            }
        });
    let messages = [payment("bad", "p-1", 5), payment("good", "p-2", 5)];
    assert_eq!(deliver(&mut worker, messages).await, ["bad"]);
    assert_eq!(effects.take(), ["good"]);
}

on_each_server!(a_panic_is_its_messages_own_trouble_and_a_retry_runs_at_once);
async fn a_panic_is_its_messages_own_trouble_and_a_retry_runs_at_once(server: Server) {
    let (log, _capture) = Log::capture();
    let (once, effects) = (engine(&server).await, Effects::default());
    let done = effects.clone();
    let mut worker = charge(&once).handler(move |message| {
        let done = done.clone();
        let attempt = message.claim.attempt();
        assert!(
            message.id() != "early" || attempt > 1,
            "before there is a future"
        );
        async move {
            tokio::task::yield_now().await;
            assert!(message.id() != "late" || attempt > 1, "in the midst of it");
            done.of(&message);
            Ok(())
        }
    });
    let messages = || {
        [
            payment("early", "p-1", 5),
            payment("late", "p-2", 5),
            payment("good", "p-3", 5),
        ]
    };
    assert_eq!(deliver(&mut worker, messages()).await, ["early", "late"]);
    assert_eq!(effects.take(), ["good"]);
    assert_eq!(log.text().matches(r#"reason="panicked""#).count(), 2);

    assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
    assert_eq!(effects.take(), ["early", "late"]);
}

on_each_server!(a_handler_that_changes_its_message_changes_neither_key_nor_fingerprint);
async fn a_handler_that_changes_its_message_changes_neither_key_nor_fingerprint(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let runs = effects.clone();
    let mut worker = charge(&once).handler(move |mut message| {
        runs.of(&message);
        message.body.payment_id.push_str("-changed");
        message.body.amount = 0;
        message.metadata.body = None;
        async { Ok(()) }
    });
    for expected in [1, 0] {
        reports(&mut worker, [payment("m-1", "p-1", 5)], &[]).await;
        assert_eq!(effects.take().len(), expected);
    }
}

on_each_server!(a_failure_that_no_retry_mends_is_reported_each_time_and_runs_once);
async fn a_failure_that_no_retry_mends_is_reported_each_time_and_runs_once(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let runs = effects.clone();
    let mut worker = charge(&once)
        .permanent(|error| matches!(error, PaymentError::Declined))
        .handler(move |message| {
            runs.of(&message);
            let declined = message.id() == "declined";
            async move {
                Err::<(), _>(if declined {
                    PaymentError::Declined
                } else {
                    PaymentError::Unreachable
                })
            }
        });
    let messages = || {
        [
            payment("declined", "p-1", 5),
            payment("unreachable", "p-2", 5),
        ]
    };
    reports(&mut worker, messages(), &["declined", "unreachable"]).await;
    effects.take();
    reports(&mut worker, messages(), &["declined", "unreachable"]).await;
    assert_eq!(effects.take(), ["unreachable"]);
}

/// A service that insists on having been asked whether it is ready.
#[derive(Default)]
struct Shy {
    ready: bool,
}

impl Clone for Shy {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Message<Payment>> for Shy {
    type Response = ();
    type Error = PaymentError;
    type Future = std::future::Ready<Result<(), PaymentError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), PaymentError>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Message<Payment>) -> Self::Future {
        assert!(self.ready, "called before it was ready");
        std::future::ready(Ok(()))
    }
}

on_each_server!(each_message_waits_for_a_handler_that_is_ready);
async fn each_message_waits_for_a_handler_that_is_ready(server: Server) {
    let once = engine(&server).await;
    let mut worker = ServiceBuilder::new()
        .layer(charge(&once))
        .service(Shy::default());
    let messages = [payment("m-1", "p-1", 5), payment("m-2", "p-2", 5)];
    assert_eq!(deliver(&mut worker, messages).await, NOTHING);
}

/// A service that has no connection.
#[derive(Clone)]
struct Broken;

impl Service<Message<Payment>> for Broken {
    type Response = ();
    type Error = PaymentError;
    type Future = std::future::Ready<Result<(), PaymentError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), PaymentError>> {
        Poll::Ready(Err(PaymentError::Unreachable))
    }

    fn call(&mut self, _: Message<Payment>) -> Self::Future {
        panic!("it is not ready")
    }
}

on_each_server!(a_message_whose_handler_fails_to_become_ready_runs_when_it_is_delivered_again);
async fn a_message_whose_handler_fails_to_become_ready_runs_when_it_is_delivered_again(
    server: Server,
) {
    // Where duplicates wait, it is claimed before.
    for in_flight in [
        InFlight::FailFast,
        InFlight::WaitUpTo(Duration::from_secs(5)),
    ] {
        let once = builder(server.store().await).in_flight(in_flight).build();
        let (once, effects) = (once.unwrap(), Effects::default());
        let messages = || [payment("m-1", "p-1", 5)];
        // No attempt has failed, whatever the error says.
        let layer = charge(&once).permanent(|_| true);
        let mut broken = ServiceBuilder::new().layer(layer).service(Broken);
        assert_eq!(deliver(&mut broken, messages()).await, ["m-1"]);
        let id = once.record_id(&Key::new("charge", "p-1")).unwrap();
        let soon = Instant::now() + Duration::from_secs(5);
        let found = once.store().load(&id, soon).await.unwrap();
        assert_eq!(found.is_some(), in_flight != InFlight::FailFast);
        let mut worker = charging(&once, &effects);
        assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
        assert_eq!(effects.take(), ["m-1"]);
    }
}

on_each_server!(a_worker_fits_concurrent_invocations);
async fn a_worker_fits_concurrent_invocations(server: Server) {
    /// Requires the traits that `lambda_runtime::run_concurrent` requires.
    fn fits<W>(worker: W) -> W
    where
        W: Worker + Clone + Send + 'static,
        W::Future: Send + 'static,
    {
        worker
    }
    let once = engine(&server).await;
    let layer = BatchLayer::new(once).key(|payment: &Payment| payment.payment_id.clone());
    let worker = fits(
        ServiceBuilder::new()
            .layer(layer)
            .service_fn(|_: Message<Payment>| async { Ok::<_, PaymentError>(()) }),
    );
    let invocations = (0..4).map(|n| {
        let mut worker = worker.clone();
        async move { deliver(&mut worker, [payment("m-1", &format!("p-{n}"), 5)]).await }
    });
    for reported in futures_util::future::join_all(invocations).await {
        assert_eq!(reported, NOTHING);
    }
}

on_each_server!(logs_tell_which_message_and_why_but_quote_nothing);
async fn logs_tell_which_message_and_why_but_quote_nothing(server: Server) {
    let (log, _capture) = Log::capture();
    let once = engine(&server).await;
    let mut worker = BatchLayer::new(once)
        .operation("charge")
        .key(|body: &String| format!("secret-token-{body}"))
        .permanent(|error: &String| error.contains("declined"))
        .handler(|message| async move {
            match message.id() {
                "good" => Ok("secret-outcome".to_owned()),
                id => Err(format!("{id}: secret-error")),
            }
        });
    let messages = || {
        [
            message("good", r#""secret-1""#),
            message("declined", r#""secret-2""#),
            message("unreachable", r#""secret-3""#),
            message("undecodable", r#"{"secret-4": "secret"}"#),
            message("long", format!(r#""secret-{}""#, "x".repeat(300))),
        ]
    };
    for _ in 0..2 {
        let reported = deliver(&mut worker, messages()).await;
        assert_eq!(reported, ["declined", "unreachable", "undecodable", "long"]);
    }

    let log = log.text();
    for reason in [
        "handler_failed",
        "failure_replayed",
        "undecodable_body",
        r#"event="key_too_long" operation="charge""#,
        r#"reason="key_too_long""#,
    ] {
        assert!(log.contains(reason), "{reason} in {log}");
    }
    assert!(log.contains(r#"message_id="undecodable""#), "{log}");
    assert!(!log.contains("secret"), "{log}");
}

//! A handler that hangs costs its own message a delivery, and the others nothing.

use std::convert::Infallible;

use lambda_idempotency::sqs::Order;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, Fault, FaultyStore};
use lambda_idempotency::{AtDeadline, Begun, InFlight, Key, OnCrash, Step};
use tokio::time::Instant;
use tower::Layer as _;

use super::turns::Reluctant;
use super::*;
use crate::secrets::Log;

/// The time that an invocation has.
const TIME: Duration = Duration::from_secs(10);

type Layer = BatchLayer<u64, Infallible>;

struct Bench {
    once: Idempotency,
}

impl Bench {
    fn new(crashed: OnCrash) -> Self {
        Self::with(|once| once.on_crash(crashed))
    }

    fn with(settings: impl FnOnce(Builder) -> Builder) -> Self {
        let once = builder_on(MemoryStore::new(), "sqs")
            .settings(|settings| settings.at_deadline = AtDeadline::End);
        let once = settings(once).build().unwrap();
        Self { once }
    }

    fn layer(&self) -> Layer {
        BatchLayer::new(self.once.clone()).operation("charge")
    }

    /// Delivers messages to a worker, and returns the ids of those that must come again.
    async fn call(&self, worker: &mut impl Worker, messages: Vec<Value>) -> Vec<String> {
        let mut event = batch(messages);
        event.context.deadline = VirtualClock::deadline(TIME);
        let began = Instant::now();
        let reply = worker.call(event).await.unwrap();
        assert!(began.elapsed() < TIME, "the reply is in time");
        let failures = reply.batch_item_failures.into_iter();
        failures.map(|failure| failure.item_identifier).collect()
    }

    /// Delivers three messages, of which the second may hang, and returns the ids of those that must come again, and of those that ran.
    async fn deliver(&self, hangs: bool) -> (Vec<String>, Vec<String>) {
        let effects = Effects::default();
        let ran = effects.clone();
        let mut worker = self.layer().handler(move |message: Message<u64>| {
            ran.of(&message);
            async move {
                if hangs && message.id() == "m-2" {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(())
            }
        });
        let reported = self.call(&mut worker, three()).await;
        (reported, effects.take())
    }
}

fn three() -> Vec<Value> {
    (1..=3)
        .map(|n| message(&format!("m-{n}"), n.to_string()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_is_ended_before_the_deadline_and_reported_alone() {
    let (log, _capture) = Log::capture();
    let bench = Bench::new(OnCrash::RunAgain);
    let (reported, ran) = bench.deliver(true).await;
    assert_eq!(reported, ["m-2"]);
    assert_eq!(ran, ["m-1", "m-2", "m-3"]);
    assert!(log.text().contains(r#"reason="timed_out""#));

    // Its claim was released: the next delivery runs at once.
    let (reported, ran) = bench.deliver(false).await;
    assert_eq!(reported, NOTHING);
    assert_eq!(ran, ["m-2"]);
}

#[tokio::test(start_paused = true)]
async fn behind_a_handler_that_hangs_nothing_of_its_group_runs_and_all_of_it_comes_again() {
    let bench = Bench::new(OnCrash::RunAgain);
    for (hangs, reported, expected) in [
        (true, &["m-2", "m-3"][..], &["m-1", "m-2"][..]),
        (false, &NOTHING, &["m-2", "m-3"]),
    ] {
        let effects = Effects::default();
        let ran = effects.clone();
        let layer = bench.layer();
        let layer = layer.settings(|settings| settings.order = Order::Batch);
        let mut worker = layer.handler(move |message: Message<u64>| {
            ran.of(&message);
            async move {
                if hangs && message.id() == "m-2" {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(())
            }
        });
        assert_eq!(bench.call(&mut worker, three()).await, reported);
        assert_eq!(effects.take(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hung_waits_for_an_operator_where_the_policy_says_so() {
    let bench = Bench::new(OnCrash::Interrupt);
    assert_eq!(bench.deliver(true).await.0, ["m-2"]);
    for wait in [0, 60] {
        // In flight until its lease is over, interrupted after it.
        tokio::time::sleep(Duration::from_secs(wait)).await;
        let (reported, ran) = bench.deliver(false).await;
        assert_eq!((reported, ran), (vec!["m-2".to_owned()], Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_handler_was_never_ready_did_not_start() {
    let (log, _capture) = Log::capture();
    let bench = Bench::new(OnCrash::Interrupt);
    let effects = Effects::default();
    let ran = effects.clone();
    let working = move |message: Message<u64>| {
        ran.of(&message);
        async { Ok::<_, Infallible>(()) }
    };
    let one = || vec![message("m-1", "1")];
    let mut reluctant = bench.layer().layer(Reluctant::new(60, working.clone()));
    assert_eq!(bench.call(&mut reluctant, one()).await, ["m-1"]);
    assert!(log.text().contains(r#"reason="out_of_time""#));
    let mut ready = bench.layer().layer(Reluctant::new(0, working));
    assert_eq!(
        bench.call(&mut ready, one()).await,
        NOTHING,
        "no person is needed"
    );
    assert_eq!(effects.take(), ["m-1"]);
}

on_each_server!(a_duplicate_without_a_claim_is_done_though_its_handler_is_never_ready);
async fn a_duplicate_without_a_claim_is_done_though_its_handler_is_never_ready(server: Server) {
    let waiting = builder(server.store().await).in_flight(InFlight::WaitUpTo(TIME));
    let once = waiting.build().unwrap().claimless();
    let bench = Bench { once };
    for seconds in [0, 60] {
        let handler = |_: Message<u64>| async { Ok::<_, Infallible>(()) };
        let mut worker = bench.layer().layer(Reluctant::new(seconds, handler));
        let messages = vec![message("m-1", "1")];
        assert_eq!(bench.call(&mut worker, messages).await, NOTHING);
    }
}

/// The end of the second message's handler, just before its time is over.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Well,
    Failed,
    Panicked,
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_at_the_end_of_the_time_costs_no_other_message_its_acknowledgement() {
    for (end, call, expected) in [
        (End::Well, Call::Complete, &NOTHING[..]),
        (End::Failed, Call::Release, &["m-2"]),
        (End::Panicked, Call::Release, &["m-2"]),
    ] {
        let start = Instant::now();
        let store = FaultyStore::new(MemoryStore::new());
        let once = builder_on(store.clone(), "sqs")
            .settings(|settings| settings.at_deadline = AtDeadline::End)
            .build()
            .unwrap();
        // Short, so that the least time of a store call doesn't fit into it.
        let layer = BatchLayer::new(once)
            .settings(|settings| settings.reserve = Some(Duration::from_millis(100)));
        let mut worker = layer.handler(move |message: Message<u64>| {
            let store = store.clone();
            async move {
                if message.id() == "m-2" {
                    tokio::time::sleep(TIME.saturating_sub(Duration::from_millis(300))).await;
                    store.inject(call, Fault::Delayed(Duration::from_hours(1)));
                    match end {
                        End::Well => {}
                        End::Failed => return Err(std::fmt::Error),
                        End::Panicked => panic!("injected"),
                    }
                }
                Ok(())
            }
        });
        let mut event = batch((1..=3).map(|n| message(&format!("m-{n}"), n.to_string())));
        event.context.deadline = VirtualClock::deadline(TIME);
        let reply = worker.call(event).await.unwrap();
        let took = start.elapsed();
        assert!(took < TIME, "{end:?}: the reply is in time: {took:?}");
        let failures = reply.batch_item_failures.into_iter();
        let reported: Vec<_> = failures.map(|failure| failure.item_identifier).collect();
        assert_eq!(reported, expected, "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_handler_hung_stays_bound_to_its_payload() {
    let bench = Bench::new(OnCrash::RunAgain);
    let by_one_key = || bench.layer().key(|_| "one");
    let effects = Effects::default();
    let mut hanging = by_one_key().handler(|_| std::future::pending::<Result<(), Infallible>>());
    let ran = effects.clone();
    let mut working = by_one_key().handler(move |message: Message<u64>| {
        ran.of(&message);
        async { Ok(()) }
    });
    let first = || vec![message("m-1", "1")];
    assert_eq!(bench.call(&mut hanging, first()).await, ["m-1"]);
    let other = vec![message("m-2", "2")];
    assert_eq!(bench.call(&mut working, other).await, ["m-2"]);
    assert_eq!(effects.take(), NOTHING, "the first may have had its effect");
    assert_eq!(bench.call(&mut working, first()).await, NOTHING);
    assert_eq!(effects.take(), ["m-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_hung_waits_for_an_operator_where_its_policy_says_so() {
    let bench = Bench::new(OnCrash::RunAgain);
    for crashed in [OnCrash::RunAgain, OnCrash::Interrupt] {
        let effects = Effects::default();
        let worker = |hangs: bool| {
            let ran = effects.clone();
            let layer = BatchLayer::new(bench.once.clone()).operation(format!("{crashed:?}"));
            layer.handler(move |message: Message<u64>| {
                let ran = ran.clone();
                async move {
                    let claim = message.claim.clone();
                    let effect = async |_: String| {
                        ran.of(&message);
                        if hangs {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, Infallible>(())
                    };
                    let step = Step::named("charge").on_crash(crashed);
                    claim.step(step, effect).await
                }
            })
        };
        let one = || vec![message("m-1", "1")];
        assert_eq!(bench.call(&mut worker(true), one()).await, ["m-1"]);
        assert_eq!(effects.take(), ["m-1"]);
        let again = bench.call(&mut worker(false), one()).await;
        let expected = match crashed {
            OnCrash::Interrupt => (vec!["m-1".to_owned()], Vec::new()),
            _ => (Vec::new(), vec!["m-1".to_owned()]),
        };
        assert_eq!((again, effects.take()), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_when_it_is_ended_is_reported_alone() {
    /// Panics when its future is dropped.
    struct Brittle;
    impl Drop for Brittle {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
    let bench = Bench::new(OnCrash::RunAgain);
    let mut worker = bench.layer().handler(|message: Message<u64>| async move {
        if message.id() == "m-2" {
            let _brittle = Brittle;
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    assert_eq!(bench.call(&mut worker, three()).await, ["m-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_for_another_attempt_is_reported_before_the_deadline() {
    let bench = Bench::with(|once| once.in_flight(InFlight::WaitUpTo(Duration::from_hours(1))));
    let elsewhere = bench.once.begin(Key::new("charge", "m-2"), None).await;
    let Ok(Begun::Run(_elsewhere)) = elsewhere else {
        panic!("it is new");
    };
    let (reported, ran) = bench.deliver(false).await;
    assert_eq!(reported, ["m-2"]);
    assert_eq!(ran, ["m-1", "m-3"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_leaves_the_reserve_to_the_hooks() {
    let bench = Bench::with(|once| once.in_flight(InFlight::WaitUpTo(Duration::from_hours(1))));
    let elsewhere = bench.once.begin(Key::new("charge", "m-1"), None).await;
    let Ok(Begun::Run(_elsewhere)) = elsewhere else {
        panic!("it is new");
    };
    let layer = bench.layer().on_rejected(|_, _| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok::<_, Infallible>(())
    });
    let mut worker = layer.handler(|_| async { Ok(()) });
    let garbled = message("m-2", "garbled");
    let reported = bench.call(&mut worker, vec![message("m-1", "1"), garbled]);
    assert_eq!(reported.await, ["m-1"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_reserve_no_message_starts_when_handlers_are_ended() {
    let bench = Bench::new(OnCrash::Interrupt);
    let effects = Effects::default();
    let ran = effects.clone();
    let layer = bench.layer().settings(|settings| {
        settings.concurrency = 1;
        settings.reserve = Some(Duration::ZERO);
    });
    let mut worker = layer.handler(move |message: Message<u64>| {
        ran.of(&message);
        std::future::pending::<Result<(), Infallible>>()
    });
    // The first is ended before the deadline, and makes room for the second.
    let reported = bench.call(&mut worker, three()).await;
    assert_eq!(reported, ["m-1", "m-2", "m-3"]);
    assert_eq!(effects.take(), ["m-1"]);
    tokio::time::sleep(TIME).await;
    let mut again = bench.layer().handler(|_| async { Ok(()) });
    let reported = bench.call(&mut again, three()).await;
    assert_eq!(reported, ["m-1"], "an operator must look at what ran alone");
}

#[tokio::test(start_paused = true)]
async fn messages_that_outlive_their_deadline_take_effect_once_where_they_go_on() {
    let bench =
        Bench::with(|once| once.settings(|settings| settings.at_deadline = AtDeadline::GoOn));
    let effects = Effects::default();
    let worker = || {
        let ran = effects.clone();
        bench.layer().handler(move |message: Message<u64>| {
            let ran = ran.clone();
            async move {
                if message.id() == "m-2" {
                    tokio::time::sleep(2 * TIME).await;
                }
                ran.of(&message);
                Ok::<_, Infallible>(())
            }
        })
    };
    let first = async {
        let mut event = batch(three());
        event.context.deadline = VirtualClock::deadline(TIME);
        worker()
            .call(event)
            .await
            .unwrap()
            .batch_item_failures
            .len()
    };
    let again = async {
        // Lambda has told the queue that the invocation timed out.
        tokio::time::sleep(TIME * 3 / 2).await;
        bench.call(&mut worker(), three()).await
    };
    let (first, again) = tokio::join!(first, again);
    assert_eq!((first, again), (0, vec!["m-2".to_owned()]));
    assert_eq!(bench.call(&mut worker(), three()).await, NOTHING);
    assert_eq!(effects.take(), ["m-1", "m-2", "m-3"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_lease_is_not_renewed_is_reported_alone_and_has_no_effect() {
    let store = FaultyStore::new(MemoryStore::new());
    for _ in 0..100 {
        store.inject(Call::Renew, Fault::RequestLost);
    }
    let once =
        builder_on(store, "sqs").settings(|settings| settings.at_deadline = AtDeadline::GoOn);
    let layer = BatchLayer::new(once.build().unwrap()).operation("charge");
    let effects = Effects::default();
    let ran = effects.clone();
    let mut worker = layer.handler(move |message: Message<u64>| {
        let ran = ran.clone();
        async move {
            if message.id() == "m-2" {
                tokio::time::sleep(2 * TIME).await;
            }
            ran.of(&message);
            Ok::<_, Infallible>(())
        }
    });
    let mut event = batch(three());
    event.context.deadline = VirtualClock::deadline(TIME);
    let failures = worker.call(event).await.unwrap().batch_item_failures;
    let reported: Vec<_> = failures.iter().map(|one| &one.item_identifier).collect();
    assert_eq!(reported, ["m-2"]);
    assert_eq!(effects.take(), ["m-1", "m-3"]);
}

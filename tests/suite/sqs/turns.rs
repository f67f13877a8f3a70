//! A message is claimed when its turn has come, a place is free, and its handler is ready.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use lambda_idempotency::sqs::Order;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Begun, Disposition, InFlight, Key};
use tokio::time::{Instant, Sleep, sleep};
use tower::{Layer, ServiceBuilder};

use super::*;

/// The time that a claim lasts; its lease in the table is longer by the margin.
const LEASE: Duration = Duration::from_secs(10);
const MARGIN: Duration = Duration::from_secs(5);

/// A worker whose invocations have no deadline.
struct Bench {
    once: Idempotency,
    /// The messages that ran, each with the time that its claim had left.
    ran: Arc<Mutex<Vec<(String, Duration)>>>,
}

impl Bench {
    fn new() -> Self {
        Self::with(InFlight::FailFast)
    }

    fn with(in_flight: InFlight) -> Self {
        let once = builder_on(MemoryStore::new(), "sqs")
            .in_flight(in_flight)
            .lease(LEASE)
            .settings(|settings| settings.skew_margin = MARGIN)
            .build()
            .unwrap();
        Self {
            once,
            ran: Arc::default(),
        }
    }

    fn layer(&self) -> BatchLayer<u64, Infallible> {
        BatchLayer::new(self.once.clone()).operation("charge")
    }

    /// The handler takes as many seconds as the message says.
    fn handler(
        &self,
    ) -> impl FnMut(Message<u64>) -> BoxFuture<'static, Result<(), Infallible>> + Clone + Send + 'static
    {
        let ran = Arc::clone(&self.ran);
        move |message: Message<u64>| {
            let left = message.claim.remaining().unwrap();
            ran.lock().unwrap().push((message.id().to_owned(), left));
            Box::pin(async move {
                sleep(Duration::from_secs(message.body)).await;
                Ok(())
            })
        }
    }

    fn take(&self) -> Vec<(String, Duration)> {
        std::mem::take(&mut *self.ran.lock().unwrap())
    }
}

/// Messages `m-1` …, whose handlers take so many seconds.
fn messages(seconds: &[u64]) -> Vec<Value> {
    let numbered = (1..).zip(seconds);
    numbered
        .map(|(n, seconds)| message(&format!("m-{n}"), seconds.to_string()))
        .collect()
}

fn ran(expected: &[(&str, u64)]) -> Vec<(String, Duration)> {
    let left = |seconds: u64| Duration::from_secs(seconds);
    expected
        .iter()
        .map(|(id, seconds)| ((*id).to_owned(), left(*seconds)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_message_is_claimed_when_its_turn_has_come() {
    let bench = Bench::new();
    let ordered = bench
        .layer()
        .operation("ordered")
        .settings(|settings| settings.order = Order::Batch);
    for layer in [
        ordered,
        bench.layer().settings(|settings| settings.concurrency = 1),
    ] {
        let mut worker = layer.handler(bench.handler());
        assert_eq!(deliver(&mut worker, messages(&[6, 6, 1, 1])).await, NOTHING);
        let all = [("m-1", 10), ("m-2", 10), ("m-3", 10), ("m-4", 10)];
        assert_eq!(bench.take(), ran(&all));
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_leaves_no_claim_of_a_message_that_it_did_not_run() {
    let bench = Bench::new();
    let mut worker = bench
        .layer()
        .settings(|settings| settings.order = Order::Batch)
        .handler(bench.handler());
    let mut all = messages(&[5; 10]);
    let delivered = deliver(&mut worker, all.clone());
    let died = tokio::time::timeout(Duration::from_secs(1), delivered).await;
    assert!(died.is_err(), "in the first handler");
    assert_eq!(bench.take(), ran(&[("m-1", 10)]));

    let began = Instant::now();
    assert_eq!(deliver(&mut worker, all.split_off(1)).await, NOTHING);
    assert_eq!(bench.take().len(), 9);
    assert_eq!(began.elapsed(), Duration::from_secs(9 * 5));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_another_process_ran_meanwhile_does_not_run_again() {
    let bench = Bench::new();
    let handler = bench.handler();
    let successor = bench.layer().handler(bench.handler());
    let outer = move |message: Message<u64>| {
        let (mut handler, mut successor) = (handler.clone(), successor.clone());
        async move {
            let first = message.id() == "m-1";
            handler(message).await?;
            if first {
                // The same queue delivers the second message again, elsewhere.
                reports(&mut successor, messages(&[20, 1]).split_off(1), &[]).await;
            }
            Ok(())
        }
    };
    let mut worker = bench
        .layer()
        .settings(|settings| settings.order = Order::Batch)
        .handler(outer);
    assert_eq!(deliver(&mut worker, messages(&[20, 1])).await, NOTHING);
    assert_eq!(
        bench.take(),
        ran(&[("m-1", 10), ("m-2", 10)]),
        "once, by the other process"
    );
}

/// Messages of ordered groups, by name and number: all of the first, then all of the second.
fn in_groups(groups: &[(&str, usize)]) -> Vec<Value> {
    let of = |(group, count): &(&str, usize)| {
        let group = (*group).to_owned();
        (0..*count).map(move |number| {
            let mut message = message(&format!("{group}-{number}"), "1".to_owned());
            message["eventSourceARN"] = json!("arn:aws:sqs:eu-central-1:123456789012:orders.fifo");
            message["attributes"]["MessageGroupId"] = json!(group);
            message
        })
    };
    groups.iter().flat_map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn groups_run_side_by_side_wherever_they_stand_in_the_batch() {
    let bench = Bench::new();
    let mut worker = bench
        .layer()
        .settings(|settings| settings.concurrency = 10)
        .handler(bench.handler());
    let began = Instant::now();
    let partitions = in_groups(&[("a", 25), ("b", 25), ("c", 25), ("d", 25)]);
    assert_eq!(deliver(&mut worker, partitions).await, NOTHING);
    assert_eq!(began.elapsed(), Duration::from_secs(25));
    bench.take();

    let busy = in_groups(&[("busy", 50), ("other", 1)]);
    assert_eq!(deliver(&mut worker, busy).await, NOTHING);
    let ran = bench.take().into_iter().map(|(id, _)| id);
    assert_eq!(ran.take(2).collect::<Vec<_>>(), ["busy-0", "other-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_for_another_attempt_has_no_place() {
    let bench = Bench::with(InFlight::WaitUpTo(Duration::from_mins(1)));
    let mut elsewhere = bench.layer().handler(bench.handler());
    let mut worker = bench
        .layer()
        .settings(|settings| settings.concurrency = 1)
        .handler(bench.handler());
    let all = messages(&[8, 1, 1]);
    let second = async {
        sleep(Duration::from_secs(1)).await;
        deliver(&mut worker, all.clone()).await
    };
    let watch = async {
        sleep(Duration::from_secs(4)).await;
        bench.take().len()
    };
    let first = deliver(&mut elsewhere, [all[0].clone()]);
    let (first, second, ran) = tokio::join!(first, second, watch);
    assert_eq!((first, second), (vec![], vec![]));
    assert_eq!(ran, 3, "while the first one still ran elsewhere");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_has_its_place_again_claims_with_all_of_its_time() {
    let bench = Bench::with(InFlight::WaitUpTo(Duration::from_mins(1)));
    let elsewhere = bench.once.begin(Key::new("charge", "m-1"), None).await;
    let Ok(Begun::Run(elsewhere)) = elsewhere else {
        panic!("it is new");
    };
    let fails = async {
        sleep(Duration::from_secs(1)).await;
        let failed = Disposition::Release(Some("failed".into()));
        elsewhere.end(failed).await.unwrap();
    };
    // The first one must not be what keeps the second one's handler from being ready.
    let limited = ServiceBuilder::new().concurrency_limit(1);
    let mut worker = bench
        .layer()
        .settings(|settings| settings.concurrency = 1)
        .layer(limited.service_fn(bench.handler()));
    let delivered = deliver(&mut worker, messages(&[0, 15]));
    let (reported, ()) = tokio::join!(delivered, fails);
    assert_eq!(reported, NOTHING);
    let ran = bench.take();
    let names: Vec<_> = ran.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(names, ["m-2", "m-1"]);
    assert_eq!(ran[1].1, LEASE);
}

/// A service that becomes ready only after a while.
pub(super) struct Reluctant<H> {
    seconds: u64,
    waits: Option<Pin<Box<Sleep>>>,
    handler: H,
}

impl<H> Reluctant<H> {
    pub(super) fn new(seconds: u64, handler: H) -> Self {
        Self {
            seconds,
            waits: None,
            handler,
        }
    }
}

impl<H: Clone> Clone for Reluctant<H> {
    fn clone(&self) -> Self {
        Self::new(self.seconds, self.handler.clone())
    }
}

impl<H, F> Service<Message<u64>> for Reluctant<H>
where
    H: FnMut(Message<u64>) -> F,
    F: Future<Output = Result<(), Infallible>>,
{
    type Response = ();
    type Error = Infallible;
    type Future = F;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let pause = Duration::from_secs(self.seconds);
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(pause)));
        waits.as_mut().poll(context).map(Ok)
    }

    fn call(&mut self, message: Message<u64>) -> F {
        (self.handler)(message)
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_is_claimed_when_its_handler_is_ready() {
    let bench = Bench::new();
    let mut worker = bench.layer().layer(Reluctant::new(12, bench.handler()));
    let delivered = deliver(&mut worker, messages(&[0]));
    let died = tokio::time::timeout(Duration::from_secs(11), delivered).await;
    assert!(died.is_err(), "before the handler was ready");
    let id = bench.once.record_id(&Key::new("charge", "m-1")).unwrap();
    let found = bench.once.store().load(&id, Instant::now() + LEASE).await;
    assert!(found.unwrap().is_none());

    assert_eq!(deliver(&mut worker, messages(&[0])).await, NOTHING);
    assert_eq!(bench.take(), ran(&[("m-1", 10)]));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_started_counts_whatever_its_predecessor_left() {
    let bench = Bench::new();
    let handler =
        |claim: lambda_idempotency::Claim| async move { Ok::<_, Infallible>(claim.attempt()) };
    let release = |_: &Result<u32, Infallible>| lambda_idempotency::Verdict::Release;
    let key = || lambda_idempotency::Key::new("charge", "m-1");
    let run = async || {
        let ran = bench.once.run_with(key(), None, handler, release).await;
        ran.unwrap().into_inner()
    };
    let lambda_idempotency::Begun::Run(unstarted) = bench.once.begin(key(), None).await.unwrap()
    else {
        panic!("it is new")
    };
    let not_started = lambda_idempotency::Disposition::Release(Some("not started".into()));
    unstarted.end(not_started).await.unwrap();
    assert_eq!([run().await, run().await, run().await], [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_at_the_end_of_all_times_ends_nothing() {
    let bench = Bench::new();
    let mut worker = bench.layer().handler(bench.handler());
    let mut event = batch(messages(&[60, 1]));
    event.context.deadline = u64::MAX;
    let reply = worker.call(event).await.unwrap();
    assert!(reply.batch_item_failures.is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_all_messages_run_side_by_side() {
    let bench = Bench::new();
    for single in [false, true] {
        let layer = bench.layer().operation(format!("{single}"));
        let layer = layer.settings(|settings| settings.concurrency = usize::MAX);
        let layer = if single {
            layer.settings(|settings| settings.single_writes = true)
        } else {
            layer
        };
        let mut worker = layer.handler(bench.handler());
        let began = Instant::now();
        assert_eq!(deliver(&mut worker, messages(&[5; 60])).await, NOTHING);
        assert_eq!(bench.take().len(), 60);
        assert_eq!(began.elapsed(), Duration::from_secs(5));
    }
}

//! 64 identical requests at once: one runs, the others are refused, or wait without hurry. Their requests to the store, and their polls by
//! the executor, are counted.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{join_all, poll_fn};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::sqs::{BatchLayer, Message};
use lambda_idempotency::store::{MemoryStore, Store};
use lambda_idempotency::{Error, Idempotency, InFlight, Key, Outcome};
use serde_json::Value;
use tokio::time::Instant;
use tower::Service;

use crate::on_each_server;
use crate::support::Server;
use crate::support::events::{batch, message};
use crate::support::{Proxy, builder_on};

const CROWD: usize = 64;

const WAIT: InFlight = InFlight::WaitUpTo(Duration::from_mins(10));

/// The outcomes of a crowd, and their cost.
struct Crowd {
    runs: usize,
    outcomes: Vec<Result<Outcome<usize>, Error<Infallible>>>,
    polls: usize,
    elapsed: Duration,
}

/// The moment at which the running request is done.
#[derive(Clone, Copy)]
enum Done {
    After(Duration),
    WhenTheOthersWereAnswered,
}

/// Sends all requests at once.
async fn crowd(once: &Idempotency, done: Done) -> Crowd {
    let (runs, polls, began) = (AtomicUsize::new(0), AtomicUsize::new(0), Instant::now());
    let answered = AtomicUsize::new(0);
    let work = || async {
        match done {
            Done::After(time) => tokio::time::sleep(time).await,
            Done::WhenTheOthersWereAnswered => {
                while answered.load(Ordering::SeqCst) < CROWD - 1 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    };
    let requests = (0..CROWD).map(|_| {
        let request = once.run(Key::new("charge", "order-1"), None, |_| async {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            work().await;
            Ok::<_, Infallible>(run)
        });
        let (polls, answered) = (&polls, &answered);
        async move {
            let outcome = counted(request, polls).await;
            answered.fetch_add(1, Ordering::SeqCst);
            outcome
        }
    });
    let outcomes = join_all(requests).await;
    Crowd {
        runs: runs.load(Ordering::SeqCst),
        outcomes,
        polls: polls.load(Ordering::SeqCst),
        elapsed: began.elapsed(),
    }
}

async fn counted<F: Future>(future: F, polls: &AtomicUsize) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        polls.fetch_add(1, Ordering::SeqCst);
        future.as_mut().poll(context)
    })
    .await
}

impl Crowd {
    fn assert_one_ran_and_the_others_were_refused(&self) {
        let refused = |outcome: &&Result<_, _>| matches!(outcome, Err(Error::InFlight { .. }));
        assert_eq!(self.runs, 1);
        assert_eq!(self.outcomes.iter().filter(refused).count(), CROWD - 1);
    }

    fn assert_one_ran_and_the_others_were_given_its_outcome(&self) {
        assert_eq!(self.runs, 1);
        let outcomes: Vec<_> = self
            .outcomes
            .iter()
            .map(|outcome| outcome.as_ref().unwrap())
            .collect();
        assert_eq!(
            outcomes
                .iter()
                .filter(|outcome| outcome.is_replayed())
                .count(),
            CROWD - 1
        );
        assert!(outcomes.iter().all(|outcome| *outcome.get() == 1));
    }

    /// Returns the most reads of a waiting request: seven in the first 2.26 s, after pauses of 20 ms, 40 ms and so on up to a second,
    /// then one a second.
    fn looks(&self) -> usize {
        let seconds = usize::try_from(self.elapsed.as_secs()).unwrap();
        7 + seconds.saturating_sub(2)
    }
}

fn engine<S: Store>(store: S, in_flight: InFlight) -> Idempotency {
    let builder = builder_on(store, "crowd").in_flight(in_flight);
    builder.build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_woken_for_each_look_and_not_more() {
    let crowd = crowd(
        &engine(MemoryStore::new(), WAIT),
        Done::After(Duration::from_secs(10)),
    )
    .await;
    crowd.assert_one_ran_and_the_others_were_given_its_outcome();
    // Once to begin with, and once for each look.
    let most = CROWD * (1 + crowd.looks());
    assert!(
        (CROWD * 5..most).contains(&crowd.polls),
        "{} of {most}",
        crowd.polls
    );
}

on_each_server!(who_fails_fast_takes_one_request);
async fn who_fails_fast_takes_one_request(server: Server) {
    let proxy = Proxy::before(&server).await;
    let store = DynamoDbStore::new(proxy.server().client(), server.idempotency_table().await);
    let crowd = crowd(
        &engine(store, InFlight::FailFast),
        Done::WhenTheOthersWereAnswered,
    )
    .await;
    crowd.assert_one_ran_and_the_others_were_refused();
    let counts = proxy.take_counts();
    assert_eq!((counts["PutItem"], counts["UpdateItem"]), (CROWD, 1));
    assert_eq!(counts.len(), 2, "{counts:?}");
}

on_each_server!(who_waits_looks_ever_more_rarely);
async fn who_waits_looks_ever_more_rarely(server: Server) {
    let proxy = Proxy::before(&server).await;
    let store = DynamoDbStore::new(proxy.server().client(), server.idempotency_table().await);
    let crowd = crowd(&engine(store, WAIT), Done::After(Duration::from_secs(5))).await;
    crowd.assert_one_ran_and_the_others_were_given_its_outcome();
    let counts = proxy.take_counts();
    assert_eq!((counts["PutItem"], counts["UpdateItem"]), (CROWD, 1));
    let looks = (CROWD - 1) * 5..=(CROWD - 1) * crowd.looks();
    assert!(
        looks.contains(&counts["GetItem"]),
        "{} of {looks:?}",
        counts["GetItem"]
    );
}

on_each_server!(in_one_batch_they_are_one_claim);
async fn in_one_batch_they_are_one_claim(server: Server) {
    let proxy = Proxy::before(&server).await;
    let store = DynamoDbStore::new(proxy.server().client(), server.idempotency_table().await);
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let mut worker = BatchLayer::new(engine(store, InFlight::FailFast))
        .key(|_: &Value| "order-1".to_owned())
        .handler(move |_: Message<Value>| {
            counter.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Infallible>(()) }
        });
    let messages = (0..CROWD).map(|n| message(&format!("m-{n}"), "{}"));
    let reply = worker.call(batch(messages)).await.unwrap();
    assert!(reply.batch_item_failures.is_empty());
    assert_eq!((runs.load(Ordering::SeqCst), proxy.take_total()), (1, 2));
}

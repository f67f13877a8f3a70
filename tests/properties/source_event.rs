//! The reply to any event of a source names records of it; a record that is acknowledged was done; no key runs twice, in one delivery
//! or in the next. If a source reads no reply, nothing of a batch is acknowledged until all of it is done.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use lambda_idempotency::Idempotency;
use lambda_idempotency::batch::{BatchError, BatchLayer, Message, Source};
use lambda_idempotency::cloudwatch_logs::LogsEvent;
use lambda_idempotency::kafka::KafkaEvent;
use lambda_idempotency::mq::{activemq::ActiveMqEvent, rabbitmq::RabbitMqEvent};
use lambda_idempotency::pipes::ItemFailures;
use lambda_idempotency::s3_events::S3Event;
use lambda_idempotency::sqs::SqsMessage;
use lambda_runtime::{Context, LambdaEvent};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt;

use super::{block_on, empty};

/// The first byte chooses the source, the others are an event as Lambda delivers it.
///
/// # Panics
///
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    let Some((source, event)) = data.split_first() else {
        return;
    };
    match source % 6 {
        0 => judge::<KafkaEvent>(event, |reply: ItemFailures<Value>| {
            let places = reply.batch_item_failures.into_iter();
            places
                .map(|place| {
                    let partition = place["partition"].as_str().unwrap_or_default();
                    format!("{partition}-{}", place["offset"])
                })
                .collect()
        }),
        1 => judge::<LogsEvent>(event, |()| Vec::new()),
        2 => judge::<ActiveMqEvent>(event, |()| Vec::new()),
        3 => judge::<RabbitMqEvent>(event, |()| Vec::new()),
        4 => judge::<S3Event>(event, |()| Vec::new()),
        _ => judge::<Vec<SqsMessage>>(event, |reply: ItemFailures| reply.batch_item_failures),
    }
}

/// A handler that ran: on which record, under which key, and whether it succeeded.
#[derive(Clone, Debug)]
struct Run {
    token: Option<String>,
    key: String,
    ok: bool,
}

fn token<Src: Source>(record: &Src::Record) -> Option<String> {
    Src::token(record).map(std::borrow::Cow::into_owned)
}

fn judge<Src: Source + DeserializeOwned>(event: &[u8], named: fn(Src::Reply) -> Vec<String>) {
    let read = || serde_json::from_slice::<Src>(event).ok();
    let (Some(first), Some(second), Some(shown)) = (read(), read(), read()) else {
        return;
    };
    let records = Src::records(shown);
    let id = |record| Src::id(record).filter(|id| !id.is_empty());
    let ids: Option<Vec<_>> = records.iter().map(id).collect();
    let once = empty();
    let (reply, runs) = block_on(deliver::<Src>(&once, first));
    let Some(ids) = ids else {
        assert!(matches!(reply, Err(BatchError::MessageWithoutId { .. })));
        assert!(runs.is_empty(), "nothing may run that can't be reported");
        return;
    };
    let mut keys = HashSet::new();
    assert!(
        runs.iter().all(|run| keys.insert(&run.key)),
        "a key ran twice in one batch: {runs:?}"
    );
    let was_done = |record| {
        let token = token::<Src>(record);
        token.is_some() && runs.iter().any(|run| run.ok && run.token == token)
    };
    match reply {
        Ok(reply) => {
            let again = named(reply);
            assert!(
                again.iter().all(|id| ids.contains(&id.as_str())),
                "{again:?}"
            );
            for (record, id) in records.iter().zip(&ids) {
                let is_reported = again.iter().any(|again| again == id);
                assert!(is_reported || was_done(record), "{id} is lost");
            }
        }
        Err(error) => {
            assert!(!Src::READS_REPLY, "{error}");
            // A second message of one key that has another body, or none, is rightly reported.
            let is_same = |record| {
                let mut others = records
                    .iter()
                    .filter(|other| token::<Src>(other) == token::<Src>(record));
                others.all(|other| Src::body(other) == Src::body(record))
            };
            assert!(
                !records
                    .iter()
                    .all(|record| was_done(record) && is_same(record)),
                "all was done, and comes again"
            );
        }
    }
    let done: HashSet<_> = runs
        .iter()
        .filter(|run| run.ok)
        .map(|run| &run.key)
        .collect();
    let (_, more) = block_on(deliver::<Src>(&once, second));
    for run in &more {
        assert!(!done.contains(&run.key), "what was done ran again: {run:?}");
    }
}

async fn deliver<Src: Source>(
    once: &Idempotency,
    event: Src,
) -> (Result<Src::Reply, BatchError>, Vec<Run>) {
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&runs);
    let layer = BatchLayer::<Src, _, _>::new(once.clone());
    let worker = layer.handler(move |message: Message<Src, Value>| {
        let run = Run {
            token: token::<Src>(&message.metadata),
            key: message.claim.key_hash().to_owned(),
            ok: message.body["fail"] != true,
        };
        let ok = run.ok;
        seen.lock().expect("no panic while it is held").push(run);
        std::future::ready(if ok { Ok(()) } else { Err("it fails") })
    });
    let event = LambdaEvent::new(event, Context::default());
    let reply = worker.oneshot(event).await;
    let runs = std::mem::take(&mut *runs.lock().expect("no panic while it is held"));
    (reply, runs)
}

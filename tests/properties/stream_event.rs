//! The reply to any batch of a stream names at most one record, and one of the batch; the records before it were done; no key runs
//! twice, in one delivery or in the next.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use lambda_idempotency::batch::{BatchError, BatchLayer, Message, Order, Source};
use lambda_idempotency::dynamodb_streams::DynamoDbStreamEvent;
use lambda_idempotency::kinesis::{ItemFailures, KinesisEvent};
use lambda_idempotency::{Fingerprint, Idempotency};
use lambda_runtime::{Context, LambdaEvent};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt;

use super::{block_on, empty};

/// The first byte chooses the source and the layer's settings, the others are an event as Lambda delivers it.
///
/// # Panics
///
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    let Some((settings, event)) = data.split_first() else {
        return;
    };
    match settings & 1 {
        0 => block_on(judge::<KinesisEvent>(*settings, event)),
        _ => block_on(judge::<DynamoDbStreamEvent>(*settings, event)),
    }
}

/// A handler that ran: under which key, on which body, and whether it succeeded.
#[derive(Clone, Debug)]
struct Run {
    key: String,
    body: Vec<u8>,
    ok: bool,
}

async fn judge<S>(settings: u8, event: &[u8])
where
    S: Source<Reply = ItemFailures> + DeserializeOwned,
{
    let parse = || serde_json::from_slice::<S>(event);
    let (Ok(known), Ok(first), Ok(second)) = (parse(), parse(), parse()) else {
        return;
    };
    let records = S::records(known);
    let once = empty();
    let (reply, runs) = deliver::<S>(&once, settings, first).await;
    let id = |record| S::id(record).filter(|id| !id.is_empty());
    let ids: Option<Vec<&str>> = records.iter().map(id).collect();
    let (Ok(again), Some(ids)) = (&reply, &ids) else {
        assert!(ids.is_none(), "each record has an id: {reply:?}");
        assert!(
            matches!(reply, Err(BatchError::MessageWithoutId { position }) if id(&records[position]).is_none())
        );
        assert!(runs.is_empty(), "nothing may run that can't be reported");
        return;
    };
    let known = |id: &String| ids.contains(&id.as_str());
    assert!(again.iter().all(known), "{again:?} is not of {ids:?}");
    assert_done::<S>(&records, before(ids, again.as_deref()), &runs);
    let mut keys = HashSet::new();
    assert!(
        runs.iter().all(|run| keys.insert(&run.key)),
        "a key ran twice in one batch: {runs:?}"
    );

    let (reply, more) = deliver::<S>(&once, settings, second).await;
    let still = reply.expect("it was a batch before");
    assert!(still.iter().all(known), "{still:?} is not of {ids:?}");
    let done: HashSet<_> = runs
        .iter()
        .filter(|run| run.ok)
        .map(|run| &run.key)
        .collect();
    for run in &more {
        assert!(!done.contains(&run.key), "what was done ran again: {run:?}");
    }
    assert!(
        again.is_some() || still.is_none(),
        "all of it was acknowledged, and {still:?} is reported now"
    );
}

/// Returns the number of records that are acknowledged: all, or those before the checkpoint, where the numbers rise as a stream's do.
fn before(ids: &[&str], checkpoint: Option<&str>) -> usize {
    let Some(checkpoint) = checkpoint else {
        return ids.len();
    };
    let number = |id: &&str| id.parse::<u128>().ok();
    let numbers: Option<Vec<_>> = ids.iter().map(number).collect();
    let rises = numbers.is_some_and(|numbers| numbers.windows(2).all(|pair| pair[0] <= pair[1]));
    let place = ids.iter().position(|id| *id == checkpoint);
    place.filter(|_| rises).unwrap_or_default()
}

/// A handler succeeded with the body of each of the first records.
fn assert_done<S: Source>(records: &[S::Record], acknowledged: usize, runs: &[Run]) {
    for record in records.iter().take(acknowledged) {
        let body = S::body(record).expect("without a body nothing is done");
        let print = Fingerprint::json(body);
        let did = |run: &Run| run.ok && Fingerprint::json(&run.body) == print;
        assert!(
            runs.iter().any(did),
            "{:?} is acknowledged, and nothing was done: {runs:?}",
            S::id(record)
        );
    }
}

/// The checkpoint that the layer asks for, and what ran.
async fn deliver<S>(
    once: &Idempotency,
    settings: u8,
    event: S,
) -> (Result<Option<String>, BatchError>, Vec<Run>)
where
    S: Source<Reply = ItemFailures>,
{
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&runs);
    let layer = BatchLayer::<S, _, _>::new(once.clone());
    let concurrency = usize::from(settings >> 5) + 1;
    let layer = layer.settings(|settings| settings.concurrency = concurrency);
    let layer = match settings >> 1 & 1 {
        0 => layer,
        _ => layer.key(|body: &Value| body["id"].as_str().map(str::to_owned)),
    };
    let layer = match settings >> 2 & 3 {
        0 => layer,
        1 => layer.settings(|settings| settings.order = Order::Unordered),
        2 => layer.settings(|settings| settings.order = Order::Batch),
        _ => layer.settings(|settings| settings.single_writes = true),
    };
    let worker = layer.handler(move |message: Message<S, Value>| {
        let run = Run {
            key: message.claim.key_hash().to_owned(),
            body: S::body(&message.metadata)
                .map(<[u8]>::to_vec)
                .unwrap_or_default(),
            ok: message.body["fail"] != true && message.body["new"]["fail"] != true,
        };
        let ok = run.ok;
        seen.lock().expect("no panic while it is held").push(run);
        std::future::ready(if ok { Ok(()) } else { Err("it fails") })
    });
    let event = LambdaEvent::new(event, Context::default());
    let reply = worker.oneshot(event).await;
    let reply = reply.map(|reply| {
        let mut failures = reply.batch_item_failures.into_iter();
        let checkpoint = failures.next();
        assert_eq!(failures.next(), None, "one checkpoint");
        checkpoint
    });
    let runs = std::mem::take(&mut *runs.lock().expect("no panic while it is held"));
    (reply, runs)
}

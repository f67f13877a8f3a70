//! The reply to any batch names messages of it, each once and in order; a message that is acknowledged was done; no key runs twice, in
//! one delivery or in the next.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use lambda_idempotency::sqs::{BatchError, BatchLayer, Message, Order, SqsEvent};
use lambda_idempotency::{Fingerprint, Idempotency, Selector};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::Value;
use tower::ServiceExt;

use super::{block_on, empty};

/// The first byte chooses the layer's settings, the others are an event as Lambda delivers it.
///
/// # Panics
///
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    let Some((settings, event)) = data.split_first() else {
        return;
    };
    if let Ok(event) = serde_json::from_slice::<SqsEvent>(event) {
        block_on(judge(*settings, event));
    }
}

/// A handler that ran: for which message, under which key, on which body, and whether it succeeded.
#[derive(Clone, Debug)]
struct Run {
    message: String,
    key: String,
    body: String,
    ok: bool,
}

async fn judge(settings: u8, event: SqsEvent) {
    let once = empty();
    let (reply, runs) = deliver(&once, settings, event.clone()).await;
    let named = |position: usize| {
        let id = event.records[position]
            .message_id
            .as_deref()
            .unwrap_or_default();
        (!id.is_empty()).then_some(id)
    };
    let ids: Option<Vec<&str>> = (0..event.records.len()).map(named).collect();
    let (Ok(again), Some(ids)) = (&reply, &ids) else {
        assert!(ids.is_none(), "each message has an id: {reply:?}");
        assert!(
            matches!(reply, Err(BatchError::MessageWithoutId { position }) if named(position).is_none())
        );
        assert!(runs.is_empty(), "nothing may run that can't be reported");
        return;
    };
    assert_names_some_of(ids, again);
    assert_acknowledged_was_done(&event, again, &runs, settings);
    let mut keys = HashSet::new();
    assert!(
        runs.iter().all(|run| keys.insert(&run.key)),
        "a key ran twice in one batch: {runs:?}"
    );

    let (reply, more) = deliver(&once, settings, event.clone()).await;
    let still = reply.expect("it was a batch before");
    assert_names_some_of(ids, &still);
    let done: HashMap<_, _> = runs.iter().map(|run| (&run.key, run.ok)).collect();
    for run in &more {
        assert_ne!(
            done.get(&run.key),
            Some(&true),
            "what was done ran again: {run:?}"
        );
    }
    for id in &still {
        assert!(
            again.contains(id),
            "{id} was acknowledged, and is reported now"
        );
    }
}

/// Delivers a batch, and returns the ids of the messages that the layer asks for again, and the runs.
async fn deliver(
    once: &Idempotency,
    settings: u8,
    event: SqsEvent,
) -> (Result<Vec<String>, BatchError>, Vec<Run>) {
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&runs);
    let concurrency = usize::from(settings >> 5) + 1;
    let layer =
        BatchLayer::new(once.clone()).settings(|settings| settings.concurrency = concurrency);
    let layer = match settings % 4 {
        0 => layer,
        1 => layer.key(|body: &Value| body["id"].as_str().map(str::to_owned)),
        2 => layer.key_from(Selector::pointer("/id").expect("a pointer")),
        _ => layer.key_attribute("id"),
    };
    let layer = match settings >> 2 & 3 {
        0 => layer,
        1 => layer.settings(|settings| settings.order = Order::Groups),
        2 => layer.settings(|settings| settings.order = Order::Batch),
        _ => layer.settings(|settings| settings.single_writes = true),
    };
    let layer = if settings & 16 == 0 {
        layer
    } else {
        layer.scope(|_, message| message.event_source.clone())
    };
    let worker = layer.handler(move |message: Message<Value>| {
        assert_traceparent(message.traceparent());
        let run = Run {
            message: message.id().to_owned(),
            key: message.claim.key_hash().to_owned(),
            body: message.metadata.body.clone().unwrap_or_default(),
            ok: message.body["fail"] != true,
        };
        let ok = run.ok;
        seen.lock().expect("no panic while it is held").push(run);
        std::future::ready(if ok { Ok(()) } else { Err("it fails") })
    });
    let reply = worker
        .oneshot(LambdaEvent::new(event, Context::default()))
        .await;
    let reply = reply.map(|reply| {
        let failures = reply.batch_item_failures.into_iter();
        failures.map(|failure| failure.item_identifier).collect()
    });
    let runs = std::mem::take(&mut *runs.lock().expect("no panic while it is held"));
    (reply, runs)
}

/// The first place of each is after that of the one before.
fn assert_names_some_of(ids: &[&str], again: &[String]) {
    let unique: HashSet<_> = again.iter().collect();
    assert_eq!(unique.len(), again.len(), "an id twice: {again:?}");
    let known = |id: &String| ids.contains(&id.as_str());
    assert!(again.iter().all(known), "{again:?} is not of {ids:?}");
    let unique: HashSet<_> = ids.iter().collect();
    if unique.len() == ids.len() {
        let place = |id: &String| ids.iter().position(|known| known == id);
        assert!(
            again.iter().map(place).is_sorted(),
            "{again:?} is not in the order of {ids:?}"
        );
    }
}

/// A handler succeeded with each body whose message is not reported.
fn assert_acknowledged_was_done(event: &SqsEvent, again: &[String], runs: &[Run], settings: u8) {
    for message in &event.records {
        let id = message.message_id.as_deref().unwrap_or_default();
        if again.iter().any(|other| other == id) {
            continue;
        }
        let body = message
            .body
            .as_deref()
            .expect("without a body nothing is done");
        let print = Fingerprint::json(body.as_bytes());
        let by_message_id = settings.is_multiple_of(4);
        let did = |run: &&Run| {
            run.ok
                && Fingerprint::json(run.body.as_bytes()) == print
                && (!by_message_id || run.message == id)
        };
        assert!(
            runs.iter().any(|run| did(&run)),
            "{id} is acknowledged, and nothing was done: {runs:?}"
        );
    }
}

/// As W3C has it: four fields, in hex.
fn assert_traceparent(header: Option<String>) {
    let Some(header) = header else { return };
    let fields: Vec<_> = header.split('-').map(str::len).collect();
    assert_eq!(fields, [2, 32, 16, 2], "{header}");
    assert!(
        header
            .bytes()
            .all(|byte| matches!(byte, b'-' | b'0'..=b'9' | b'a'..=b'f')),
        "{header}"
    );
}

//! A table's stream: what the handler is given of each change, in which order, and under which key.

use lambda_idempotency::dynamodb_streams::{
    self, Change, ChangeKind, DynamoDbStreamEvent, ItemFailures,
};

use super::*;

const TABLE: &str =
    "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000";

fn number_of_change(n: usize) -> String {
    format!("44215845000000000174504{n:05}")
}

/// The n-th change of the stream: a new state of an item.
fn change(n: usize, item: &Value, state: &str) -> Value {
    json!({
        "eventID": format!("{n:032x}"),
        "eventName": "MODIFY",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "eu-central-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_795_176_000,
            "Keys": item,
            "NewImage": { "state": { "S": state } },
            "SequenceNumber": number_of_change(n),
            "SizeBytes": 26,
            "StreamViewType": "NEW_IMAGE"
        },
        "eventSourceARN": TABLE
    })
}

fn batch(records: impl IntoIterator<Item = Value>) -> LambdaEvent<DynamoDbStreamEvent> {
    let records: Vec<_> = records.into_iter().collect();
    let event = serde_json::from_value(json!({ "Records": records })).expect("a stream's event");
    LambdaEvent::new(event, Context::default())
}

#[derive(Deserialize)]
struct Order {
    state: String,
}

trait Listener:
    Service<LambdaEvent<DynamoDbStreamEvent>, Response = ItemFailures, Error = BatchError>
{
}
impl<W> Listener for W where
    W: Service<LambdaEvent<DynamoDbStreamEvent>, Response = ItemFailures, Error = BatchError>
{
}

fn listening(once: &Idempotency, ledger: &Ledger) -> impl Listener + use<> {
    let ledger = ledger.clone();
    let layer = dynamodb_streams::BatchLayer::new(once.clone());
    layer.handler(move |message: dynamodb_streams::Message<Change<Order>>| {
        let state = message
            .body
            .new
            .map_or("none".to_owned(), |order| order.state);
        let booked = ledger.book(&state);
        async move { booked }
    })
}

async fn hear(
    listener: &mut impl Listener,
    records: impl IntoIterator<Item = Value>,
) -> Option<String> {
    checkpoint(listener.call(batch(records)).await.unwrap())
}

on_each_store!(the_documented_event_is_given_as_plain_json);
async fn the_documented_event_is_given_as_plain_json(once: Idempotency) {
    let event = include_str!("../../fixtures/dynamodb-streams.json");
    let event: DynamoDbStreamEvent = serde_json::from_str(event).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let mut listener = dynamodb_streams::BatchLayer::new(once).handler(
        move |message: dynamodb_streams::Message<Change<Value>>| {
            let is_expiry = message.metadata.is_expiry;
            log.lock().unwrap().push((message.body, is_expiry));
            async { Ok::<_, Closed>(()) }
        },
    );
    for _ in 0..2 {
        let reply = listener.call(LambdaEvent::new(event.clone(), Context::default()));
        assert_eq!(checkpoint(reply.await.unwrap()), None);
    }
    let seen = seen.lock().unwrap();
    let events: Vec<_> = seen
        .iter()
        .map(|(change, expiry)| (change.event, *expiry))
        .collect();
    assert_eq!(
        events,
        [
            (ChangeKind::Insert, false),
            (ChangeKind::Modify, false),
            (ChangeKind::Remove, true)
        ]
    );
    let (first, _) = &seen[0];
    assert_eq!((&first.keys, &first.old), (&json!({ "id": 101 }), &None));
    let expected = json!({
        "id": 101, "state": "placed", "weights": [1.5, 2], "label": "AP8=",
        "lines": [{ "sku": "tea", "gift": false }], "note": null
    });
    assert_eq!(first.new.as_ref(), Some(&expected));
    let (last, _) = &seen[2];
    assert_eq!(
        (&last.old, &last.new),
        (&Some(json!({ "id": 101, "state": "paid" })), &None)
    );
}

on_each_store!(an_item_stops_at_its_first_failure_however_its_keys_are_written);
async fn an_item_stops_at_its_first_failure_however_its_keys_are_written(once: Idempotency) {
    let ledger = Ledger::default();
    let mut listener = listening(&once, &ledger);
    let first = json!({ "shop": { "S": "a" }, "id": { "N": "7" } });
    let same = json!({ "id": { "N": "7.0" }, "shop": { "S": "a" } });
    let other = json!({ "shop": { "S": "b" }, "id": { "N": "7" } });
    let records = [
        change(1, &other, "b-1"),
        change(2, &first, "a-1"),
        change(3, &same, "a-2"),
        change(4, &other, "b-2"),
    ];
    ledger.fail_only(["a-1"]);
    assert_eq!(
        hear(&mut listener, records.clone()).await,
        Some(number_of_change(2))
    );
    assert_eq!(ledger.take(), ["b-1", "b-2"]);

    ledger.fail_only([]);
    assert_eq!(hear(&mut listener, records[1..].to_vec()).await, None);
    assert_eq!(*ledger.booked.lock().unwrap(), ["a-1", "a-2"]);
}

on_each_store!(a_change_that_cannot_be_read_sets_the_checkpoint);
async fn a_change_that_cannot_be_read_sets_the_checkpoint(once: Idempotency) {
    let item = json!({ "id": { "N": "7" } });
    let with = |path: &str, value: Value| {
        let mut record = change(2, &item, "x");
        *record.pointer_mut(path).unwrap() = value;
        record
    };
    let cases = [
        with("/dynamodb", json!(null)),
        with("/dynamodb/Keys", json!(null)),
        with("/dynamodb/Keys", json!({ "id": { "N": "seven" } })),
        with("/dynamodb/NewImage/state", json!({ "B": "%%%" })),
        with("/eventName", json!(null)),
        with("/eventName", json!("UPSERT")),
        with("/eventID", json!(null)),
        with("/eventSourceARN", json!(null)),
    ];
    for (case, mut broken) in cases.into_iter().enumerate() {
        if broken["dynamodb"].is_null() {
            broken["dynamodb"] = json!({ "SequenceNumber": number_of_change(2) });
        }
        let ledger = Ledger::default();
        let mut listener = listening(&once, &ledger);
        let state = format!("c{case}");
        let mut good = change(1, &json!({ "id": { "N": "1" } }), &state);
        good["eventID"] = json!(state);
        let asked = hear(&mut listener, [good, broken]).await;
        assert_eq!(asked, Some(number_of_change(2)), "case {case}");
        assert_eq!(ledger.take(), [state], "case {case}");
    }
}

on_each_store!(a_change_without_a_sequence_number_fails_the_batch_before_anything_runs);
async fn a_change_without_a_sequence_number_fails_the_batch_before_anything_runs(
    once: Idempotency,
) {
    let ledger = Ledger::default();
    let item = json!({ "id": { "N": "7" } });
    let mut nameless = change(2, &item, "x");
    nameless["dynamodb"]["SequenceNumber"] = json!(null);
    let mut listener = listening(&once, &ledger);
    let error = listener.call(batch([change(1, &item, "y"), nameless]));
    let error = error.await.unwrap_err();
    assert_eq!(error, BatchError::MessageWithoutId { position: 1 });
    assert_eq!(ledger.take(), NOTHING);
}

//! Payloads that an extended client has put into S3: a producer that sends again makes another object for the same request.

use lambda_idempotency::batch::Settings;
use lambda_idempotency::sqs::{Envelope, S3Pointer};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Begun, Disposition, InFlight, Key, Selector};

use super::*;

fn pointer(key: &str) -> String {
    let place = json!({ "s3BucketName": "payloads", "s3Key": key });
    json!(["software.amazon.payloadoffloading.PayloadS3Pointer", place]).to_string()
}

/// The objects of the bucket are named by the payment that they ask for, and a number.
async fn object(pointer: S3Pointer) -> Result<String, &'static str> {
    assert_eq!(pointer.bucket, "payloads");
    tokio::task::yield_now().await;
    let (payment, amount) = pointer.key.split_once('/').ok_or("no such object")?;
    let (amount, _) = amount.split_once('#').ok_or("access denied")?;
    Ok(body(payment, amount.parse().unwrap()))
}

on_each_server!(a_producers_retry_with_another_object_is_one_request);
async fn a_producers_retry_with_another_object_is_one_request(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let layer = charge(&once).envelope(Envelope::S3Pointer).fetch(object);
    let mut worker = layer.handler(effects.handler());
    let first = [
        message("m-1", pointer("p-1/5#a")),
        message("m-2", pointer("p-1/5#b")),
        payment("m-3", "p-2", 5),
        message("m-4", pointer("gone")),
    ];
    assert_eq!(deliver(&mut worker, first).await, ["m-4"]);
    let ran = effects.take();
    assert_eq!(ran.len(), 2, "{ran:?}");
    assert!(ran.contains(&"m-3".to_owned()), "{ran:?}");
    let second = [
        message("m-5", pointer("p-1/5#c")),
        // A payload counts as a body does.
        payment("m-6", "p-1", 5),
        message("m-7", pointer("p-2/5#d")),
        message("m-8", pointer("p-1/6#e")),
    ];
    assert_eq!(deliver(&mut worker, second).await, ["m-8"]);
    assert_eq!(effects.take(), NOTHING);
}

on_each_server!(a_fetch_keeps_the_order_of_its_group);
async fn a_fetch_keeps_the_order_of_its_group(server: Server) {
    let once = engine(&server).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let layer = charge(&once).envelope(Envelope::S3Pointer).fetch(object);
    let mut worker = layer.handler(move |message| {
        seen.lock().unwrap().push(message.id().to_owned());
        async { Ok(()) }
    });
    let in_group = |id: &str, body: String| {
        let mut message = message(id, body);
        message["eventSourceARN"] = json!("arn:aws:sqs:eu-central-1:123456789012:payments.fifo");
        message["attributes"]["MessageGroupId"] = json!("shop-7");
        message
    };
    let messages = [
        in_group("m-1", pointer("p-1/5#a")),
        in_group("m-2", body("p-2", 5)),
        in_group("m-3", pointer("gone")),
        in_group("m-4", pointer("p-4/5#a")),
    ];
    assert_eq!(deliver(&mut worker, messages).await, ["m-3", "m-4"]);
    assert_eq!(*order.lock().unwrap(), ["m-1", "m-2"]);
}

on_each_server!(without_a_fetch_an_attribute_is_the_key_and_the_object_does_not_count);
async fn without_a_fetch_an_attribute_is_the_key_and_the_object_does_not_count(server: Server) {
    let selected = || Some(Selector::pointer("/s3Key").unwrap());
    for (selector, names) in [
        (None, vec![]),
        (selected(), vec![]),
        (selected(), vec!["payment".to_owned()]),
    ] {
        let (once, effects) = (engine(&server).await, Effects::default());
        let runs = effects.clone();
        let layer = BatchLayer::new(once)
            .operation("charge")
            .key_attribute("payment")
            .envelope(Envelope::S3Pointer)
            .settings(|settings| {
                settings.fingerprint_from = selector;
                settings.fingerprint_attributes = names;
            });
        let mut worker = layer.handler(move |message: Message<S3Pointer>| {
            assert!(message.body.key.starts_with("p-1"));
            runs.of(&message);
            async { Ok::<_, PaymentError>(()) }
        });
        let sent = |id: &str, key: &str| {
            let mut message = message(id, pointer(key));
            message["messageAttributes"] = json!({ "payment": {
                "stringValue": "p-1", "binaryValue": null, "dataType": "String",
            } });
            message
        };
        let both = [sent("m-1", "p-1/5#a"), sent("m-2", "p-1/5#b")];
        assert_eq!(deliver(&mut worker, both).await, NOTHING);
        reports(&mut worker, [sent("m-3", "p-1/5#c")], &[]).await;
        assert_eq!(effects.take(), ["m-1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_was_not_fetched_is_no_other_one_once_it_is() {
    let amount = Selector::pointer("/amount").unwrap();
    for (envelopes, selector) in [
        (&[Envelope::S3Pointer][..], None),
        (&[Envelope::S3Pointer][..], Some(&amount)),
        (&[Envelope::Sns, Envelope::S3Pointer][..], None),
    ] {
        let compared = |settings: &mut Settings| settings.fingerprint_from = selector.cloned();
        let server = Server::dynoxide().await;
        let once = engine(&server).await;
        let sent = |id: &str| {
            let topic = "arn:aws:sns:eu-central-1:123456789012:payments";
            let body = pointer("p-1/5#a");
            let body = match envelopes {
                [_] => body,
                _ => json!({ "Type": "Notification", "MessageId": "n-1", "TopicArn": topic,
                    "Message": body, "Timestamp": "2026-11-29T00:00:00.000Z" })
                .to_string(),
            };
            let mut message = message(id, body);
            message["messageAttributes"] = json!({ "payment": {
                "stringValue": "p-1", "binaryValue": null, "dataType": "String",
            } });
            message
        };
        let unfetched = BatchLayer::new(once.clone())
            .operation("charge")
            .key_attribute("payment");
        let unfetched = envelopes
            .iter()
            .copied()
            .fold(unfetched, BatchLayer::envelope);
        let mut before = unfetched
            .settings(compared)
            .handler(|_: Message<S3Pointer>| async { Ok::<_, PaymentError>(()) });
        assert_eq!(deliver(&mut before, [sent("m-1")]).await, NOTHING);
        let fetched = envelopes
            .iter()
            .copied()
            .fold(charge(&once), BatchLayer::envelope);
        let fetched = fetched.fetch(object).settings(compared);
        let mut after = fetched.handler::<_, _, (), _>(|_| async { panic!("it is done") });
        assert_eq!(deliver(&mut after, [sent("m-2")]).await, NOTHING);
    }
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_hold_no_more_objects_than_may_run_side_by_side() {
    let once = Idempotency::builder(MemoryStore::new()).namespace("sqs");
    let once = once.in_flight(InFlight::WaitUpTo(Duration::from_mins(1)));
    let once = once.build().unwrap();
    let keys = ["p-1", "p-2", "p-3", "p-4"];
    let mut elsewhere = Vec::new();
    for key in keys {
        let begun = once.begin(Key::new("charge", key), None).await.unwrap();
        elsewhere.push(begun);
    }
    let fetched = Arc::new(Mutex::new(0));
    let count = Arc::clone(&fetched);
    let layer = charge(&once)
        .envelope(Envelope::S3Pointer)
        .settings(|settings| settings.concurrency = 2);
    let layer = layer.fetch(move |pointer| {
        *count.lock().unwrap() += 1;
        object(pointer)
    });
    let mut worker = layer.handler(|_| async { Ok(()) });
    let messages = keys.map(|key| message(key, pointer(&format!("{key}/5#a"))));
    let watch = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let waiting = *fetched.lock().unwrap();
        for begun in elsewhere {
            let Begun::Run(run) = begun else {
                panic!("it is new")
            };
            run.end(Disposition::Release(None)).await.unwrap();
        }
        waiting
    };
    let (reported, waiting) = tokio::join!(deliver(&mut worker, messages), watch);
    assert_eq!((reported, waiting), (vec![], 2));
    assert_eq!(*fetched.lock().unwrap(), 4);
}

on_each_server!(an_event_in_an_object_is_opened);
async fn an_event_in_an_object_is_opened(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let event = |pointer: S3Pointer| async move {
        let detail: Value = serde_json::from_str(&object(pointer).await?).unwrap();
        let event =
            json!({ "id": "e-1", "source": "shop", "detail-type": "paid", "detail": detail });
        Ok::<_, &'static str>(event.to_string())
    };
    let layer = charge(&once)
        .envelope(Envelope::S3Pointer)
        .envelope(Envelope::EventBridge)
        .fetch(event);
    let mut worker = layer.handler(effects.handler());
    let messages = [
        message("m-1", pointer("p-1/5#a")),
        message("m-2", pointer("p-1/5#b")),
    ];
    assert_eq!(deliver(&mut worker, messages).await, NOTHING);
    assert_eq!(effects.take().len(), 1);
    let other = [message("m-3", pointer("p-1/6#c"))];
    assert_eq!(deliver(&mut worker, other).await, ["m-3"]);
    assert_eq!(effects.take(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_layer_without_the_envelope_or_before_its_time_says_that_the_body_is_a_pointer() {
    let server = Server::dynoxide().await;
    let once = engine(&server).await;
    let notification = json!({
        "Type": "Notification", "MessageId": "n-1", "TopicArn": "arn:aws:sns:eu-central-1:1:payments",
        "Message": pointer("p-1/5#a"),
    });
    let before_its_time = charge(&once)
        .envelope(Envelope::S3Pointer)
        .envelope(Envelope::Sns)
        .fetch(object);
    for (layer, body) in [
        (charge(&once), pointer("p-1/5#a")),
        (before_its_time, notification.to_string()),
    ] {
        let details = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&details);
        let layer = layer.on_rejected(move |_, why| {
            noted.lock().unwrap().push((why.reason, why.detail));
            async { Ok::<_, PaymentError>(()) }
        });
        let mut worker = layer.handler(|_| async { Ok(()) });
        assert_eq!(deliver(&mut worker, [message("m-1", body)]).await, NOTHING);
        let details = details.lock().unwrap();
        let [("bad_envelope", detail)] = details.as_slice() else {
            panic!("{details:?}")
        };
        let advice = "declare `Envelope::S3Pointer`, after the envelope that the pointer is in";
        assert!(detail.contains(advice), "{detail}");
    }
}

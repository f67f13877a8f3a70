//! Around each message, batch and request there is a span with the names of OpenTelemetry's conventions.

use std::io::Error as HandlerError;
use std::sync::{Arc, Mutex};

use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Idempotency, Key, sqs};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::json;
use tower::{Layer, Service, service_fn};
use tracing::Instrument;

use crate::secrets::Log;

fn engine() -> Idempotency {
    let builder = Idempotency::builder(MemoryStore::new()).namespace("shop");
    builder.build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_message_tells_its_queue_and_its_producers_trace() {
    let (log, _capture) = Log::capture();
    let seen = Arc::new(Mutex::new(None));
    let shown = Arc::clone(&seen);
    let mut worker = sqs::BatchLayer::new(engine()).handler(move |message: sqs::Message<u32>| {
        *shown.lock().unwrap() = message.traceparent();
        async { Err::<(), _>(HandlerError::other("secret")) }
    });
    let event = json!({"Records": [{
        "messageId": "m-1",
        "body": "7",
        "attributes": {
            "AWSTraceHeader": "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
        },
        "messageAttributes": {},
        "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:payments",
    }]});
    let mut context = Context::default();
    context.request_id = "invocation-1".to_owned();
    let event = LambdaEvent::new(serde_json::from_value(event).unwrap(), context);
    worker.call(event).await.unwrap();
    let expected = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01";
    assert_eq!(seen.lock().unwrap().as_deref(), Some(expected));

    let log = log.text();
    let line = log.lines().find(|line| line.contains("released")).unwrap();
    for field in [
        r#"faas.trigger="pubsub""#,
        r#"faas.invocation_id="invocation-1""#,
        r#"messaging.system="aws_sqs""#,
        r#"messaging.destination.name="payments""#,
        r#"messaging.operation.type="process""#,
        r#"messaging.message.id="m-1""#,
        "messaging.batch.message_count=1",
        "otel.name=process payments",
        r#"otel.kind="consumer""#,
        r#"link.traceparent="00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01""#,
    ] {
        assert!(line.contains(field), "{field} is not in {line}");
    }
}

/// Returns the log's line on a request whose handler fails.
async fn released_line(layer: IdempotencyLayer) -> String {
    let (log, _capture) = Log::capture();
    let mut api = layer.layer(service_fn(|_| async {
        Err::<http::Response<axum::body::Body>, _>(HandlerError::other("no"))
    }));
    let request = http::Request::post("/orders/secret")
        .header("idempotency-key", "key-1")
        .body(axum::body::Body::empty())
        .unwrap();
    api.call(request).await.unwrap_err();
    let log = log.text();
    let line = log.lines().find(|line| line.contains("released")).unwrap();
    line.to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_request_tells_its_route_and_never_its_path() {
    let undeclared = IdempotencyLayer::unscoped(engine());
    let declared = undeclared.clone();
    let declared = declared.route("POST /orders/{id}", RoutePolicy::required());
    let declared = declared.unwrap();
    for (layer, route) in [(undeclared, None), (declared, Some("/orders/{id}"))] {
        let line = released_line(layer).await;
        assert!(line.contains(r#"http.request.method="POST""#), "{line}");
        assert!(line.contains(r#"faas.trigger="http""#), "{line}");
        match route {
            Some(route) => assert!(line.contains(&format!("http.route={route:?}")), "{line}"),
            None => assert!(!line.contains("http.route"), "{line}"),
        }
        let span = line.split("idempotency event=").next().unwrap();
        assert!(!span.contains("secret"), "{span}");
    }
}

/// On another thread, where neither is the thread's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_detached_run_has_the_span_and_the_subscriber_of_its_caller() {
    let (log, _capture) = Log::capture();
    let once = engine();
    let handler = |_| async { Err::<u32, _>(HandlerError::other("no")) };
    let run = once.run_detached(Key::new("charge", "key-1"), None, handler);
    let span = tracing::info_span!(target: "lambda_idempotency", "checkout", till = 17);
    run.instrument(span).await.unwrap_err();

    let log = log.text();
    let line = log.lines().find(|line| line.contains("released")).unwrap();
    assert!(line.contains("checkout{till=17}"), "{line}");
}

//! S3 Batch Operations: what a task that comes again does to the world, and which result its job gets.

use lambda_idempotency::invoke::S3BatchTask;

use super::sources::parsed;
use super::*;

const V1: &str = include_str!("../../fixtures/s3-batch-v1.json");
const V2: &str = include_str!("../../fixtures/s3-batch-v2.json");

type Layer = InvokeLayer<S3BatchTask, SettleError>;

/// The event, with other values in these places.
fn with<const N: usize>(event: &str, changes: [(&str, Value); N]) -> Value {
    let mut event = parsed(event);
    for (pointer, value) in changes {
        *event.pointer_mut(pointer).unwrap() = value;
    }
    event
}

/// The event of another try: both of its ids are new.
fn tried_again(event: &str) -> Value {
    let ids = [
        ("/invocationId", json!("i-2")),
        ("/tasks/0/taskId", json!("t-2")),
    ];
    with(event, ids)
}

/// Runs a task; the reply must repeat the ids of its event. The task's code and text.
async fn result(function: &impl Function, event: &Value) -> (String, String) {
    let reply = parsed(&invoke(function, event).await.unwrap());
    assert_eq!(
        reply["invocationSchemaVersion"],
        event["invocationSchemaVersion"]
    );
    assert_eq!(reply["invocationId"], event["invocationId"]);
    assert_eq!(reply["treatMissingKeysAs"], "TemporaryFailure");
    let results = reply["results"].as_array().unwrap();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["taskId"], event["tasks"][0]["taskId"]);
    let text = |name: &str| results[0][name].as_str().unwrap().to_owned();
    (text("resultCode"), text("resultString"))
}

fn expected(code: &str, text: &str) -> (String, String) {
    (code.to_owned(), text.to_owned())
}

/// A function that names the object and counts its runs.
fn thumbnails(layer: Layer, runs: &Runs) -> impl Function + use<> {
    let runs = runs.clone();
    layer.handler(move |event: Invocation<S3BatchTask>| {
        let run = runs.count();
        let S3BatchTask { bucket, key, .. } = event.payload;
        async move { Ok(format!("{bucket}/{key} in run {run}")) }
    })
}

on_each_server!(a_task_that_is_tried_again_replays_its_result_under_the_new_ids);
async fn a_task_that_is_tried_again_replays_its_result_under_the_new_ids(server: Server) {
    let once = builder(server.store().await).build().unwrap();
    let runs = Runs::default();
    let function = thumbnails(InvokeLayer::s3_batch(once), &runs);
    for (event, text) in [
        (V1, "amzn-s3-demo-bucket/customerImage1.jpg in run 1"),
        (V2, "pictures/album/red flower.jpg in run 1"),
    ] {
        let first = result(&function, &parsed(event)).await;
        assert_eq!(first, expected("Succeeded", text));
        assert_eq!(result(&function, &tried_again(event)).await, first);
        assert_eq!(runs.take(), 1);
    }
    let other_job = with(V1, [("/job/id", json!("j-2"))]);
    result(&function, &other_job).await;
    assert_eq!(runs.take(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_the_object_survives_another_job_and_other_arguments_are_a_mismatch() {
    let runs = Runs::default();
    let layer = InvokeLayer::s3_batch(engine()).key(|task: &S3BatchTask| task.key.clone());
    let function = thumbnails(layer, &runs);
    let first = result(&function, &parsed(V2)).await;
    let other_job = with(V2, [("/job/id", json!("j-2"))]);
    assert_eq!(result(&function, &other_job).await, first);
    assert_eq!(runs.take(), 1);
    let large = with(V2, [("/job/userArguments/size", json!("large"))]);
    let (code, text) = result(&function, &large).await;
    assert_eq!(code, "PermanentFailure");
    assert!(text.starts_with("Idempotency.Mismatch: "), "{text}");
    assert_eq!(runs.take(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_handlers_error_is_temporary_unless_the_layer_calls_it_permanent() {
    let runs = Runs::default();
    let count = runs.clone();
    let function = InvokeLayer::s3_batch(engine())
        .permanent(|error| matches!(error, SettleError::Closed))
        .handler(move |event: Invocation<S3BatchTask>| {
            let run = count.count();
            let is_closed = event.payload.bucket == "pictures";
            async move {
                match run {
                    _ if is_closed => Err(SettleError::Closed),
                    1 => Err(SettleError::Unreachable),
                    run => Ok(json!({ "run": run })),
                }
            }
        });
    let first = result(&function, &parsed(V1)).await;
    assert_eq!(first, expected("TemporaryFailure", "bank unreachable"));
    let again = result(&function, &tried_again(V1)).await;
    assert_eq!(again, expected("Succeeded", r#"{"run":2}"#));
    runs.take();

    let closed = result(&function, &parsed(V2)).await;
    assert_eq!(closed, expected("PermanentFailure", "account closed"));
    let (code, text) = result(&function, &tried_again(V2)).await;
    assert_eq!((code.as_str(), runs.take()), ("PermanentFailure", 1));
    assert!(text.starts_with("Idempotency.Failed: "), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_task_in_flight_and_one_that_panics_come_again() {
    let runs = Runs::default();
    let count = runs.clone();
    let function = InvokeLayer::s3_batch(engine()).handler(move |_| {
        let run = count.count();
        async move {
            assert!(run > 1, "the first run panics");
            std::future::pending::<Result<(), SettleError>>().await
        }
    });
    let (code, text) = result(&function, &parsed(V1)).await;
    assert_eq!(code, "TemporaryFailure");
    assert!(text.starts_with("Idempotency.Panicked: "), "{text}");
    let first = tokio::spawn(function.clone().oneshot(event(&parsed(V1))));
    while runs.0.load(Ordering::Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    let (code, text) = result(&function, &tried_again(V1)).await;
    assert_eq!(code, "TemporaryFailure");
    assert!(text.starts_with("Idempotency.InFlight: "), "{text}");
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_time_is_over_comes_again_before_lambda_ends_it() {
    let function = InvokeLayer::s3_batch(engine())
        .handler(|_: Invocation<S3BatchTask>| std::future::pending::<Result<(), SettleError>>());
    let event = TestInvocation::new(V1).unwrap();
    let event = event.timeout(Duration::from_millis(500)).event();
    let reply = parsed(function.oneshot(event).await.unwrap().get());
    assert_eq!(reply["results"][0]["resultCode"], "TemporaryFailure");
    let text = reply["results"][0]["resultString"].as_str().unwrap();
    assert!(text.starts_with("Idempotency.TimedOut: "), "{text}");
}

#[tokio::test(start_paused = true)]
async fn work_that_is_done_succeeds_where_its_answer_was_not_kept_or_not_asked_for() {
    let once = engine();
    let unwritable = || HashMap::from([((1_u8, 2_u8), 3_u8)]);
    let function = InvokeLayer::s3_batch(once.clone())
        .handler(move |_: Invocation<S3BatchTask>| async move { Ok(unwritable()) });
    for event in [parsed(V1), tried_again(V1)] {
        let (code, text) = result(&function, &event).await;
        assert_eq!(code, "Succeeded");
        assert!(text.starts_with("Idempotency.OutcomeOmitted: "), "{text}");
    }
    let runs = Runs::default();
    let silent = thumbnails(
        InvokeLayer::s3_batch(once).settings(|settings| settings.without_answer = true),
        &runs,
    );
    for event in [parsed(V2), tried_again(V2)] {
        assert_eq!(result(&silent, &event).await, expected("Succeeded", ""));
    }
    assert_eq!(runs.take(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_key_that_does_not_decode_is_permanent_and_a_hook_may_answer_it() {
    let runs = Runs::default();
    let undecodable = with(V1, [("/tasks/0/s3Key", json!("hunter2%FF"))]);
    let function = thumbnails(InvokeLayer::s3_batch(engine()), &runs);
    let (code, text) = result(&function, &undecodable).await;
    assert_eq!(code, "PermanentFailure");
    assert!(text.starts_with("Idempotency.WrongEvent: "), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    let layer = InvokeLayer::s3_batch(engine())
        .on_rejected(|_, why| async move { Ok::<_, SettleError>(why.to_string()) });
    let answered = result(&thumbnails(layer, &runs), &undecodable).await;
    assert_eq!(answered, expected("Succeeded", "undecodable"));
    assert_eq!(runs.take(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_without_the_ids_of_one_task_fails_its_invocation() {
    let runs = Runs::default();
    let function = thumbnails(InvokeLayer::s3_batch(engine()), &runs);
    let task = &parsed(V1)["tasks"][0];
    for event in [
        parsed(sources::SNS),
        parsed(sources::BUS),
        json!({}),
        json!(null),
        json!("hunter2"),
        with(V1, [("/tasks", json!([]))]),
        with(V1, [("/tasks", json!([task, task]))]),
        with(V1, [("/invocationId", json!(7))]),
    ] {
        let refused = failure(&function, &event).await;
        assert_eq!(refused.error_type, "Idempotency.WrongEvent", "{event}");
        assert!(!refused.error_message.contains("hunter2"));
    }
    assert_eq!(runs.take(), 0);
}

//! The ready-made sources: which events are one, and which are refused.

use lambda_idempotency::Selector;

use super::*;

pub(super) const SNS: &str = include_str!("../../fixtures/invoke-sns.json");
pub(super) const BUS: &str = include_str!("../../fixtures/eventbridge-event.json");

pub(super) fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[derive(Clone, Deserialize)]
struct Payment {
    payment_id: String,
    amount: u64,
}

/// A function whose handler notes the payments that it gets.
fn paying(layer: InvokeLayer<Payment, SettleError>, runs: &Runs) -> impl Function + use<> {
    let runs = runs.clone();
    layer.handler(move |event: Invocation<Payment>| {
        runs.count();
        let Payment { payment_id, amount } = event.payload;
        async move { Ok(format!("{payment_id}: {amount}")) }
    })
}

/// The payload with another value in this place.
fn with(payload: &str, pointer: &str, value: Value) -> Value {
    let mut payload = parsed(payload);
    *payload.pointer_mut(pointer).unwrap() = value;
    payload
}

#[tokio::test(start_paused = true)]
async fn an_sns_message_that_is_delivered_again_runs_once_and_a_new_one_runs() {
    let runs = Runs::default();
    let function = paying(InvokeLayer::sns(engine()), &runs);
    for _ in 0..2 {
        assert_eq!(invoke(&function, &parsed(SNS)).await.unwrap(), "null");
    }
    assert_eq!(runs.take(), 1);
    let published_again = with(SNS, "/Records/0/Sns/MessageId", json!("another"));
    invoke(&function, &published_again).await.unwrap();
    assert_eq!(runs.take(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_the_message_survives_that_it_is_published_again() {
    let runs = Runs::default();
    let layer = InvokeLayer::sns(engine()).key(|payment: &Payment| payment.payment_id.clone());
    let function = paying(layer, &runs);
    invoke(&function, &parsed(SNS)).await.unwrap();
    let published_again = with(SNS, "/Records/0/Sns/MessageId", json!("another"));
    invoke(&function, &published_again).await.unwrap();
    assert_eq!(runs.take(), 1);
    // The same key in a message of another topic asks for other work.
    let other = with(SNS, "/Records/0/Sns/TopicArn", json!("arn:aws:sns:::other"));
    let mismatch = error_type(&function, &other).await;
    assert_eq!(mismatch, "Idempotency.Mismatch");
}

#[tokio::test(start_paused = true)]
async fn a_bus_event_that_is_delivered_again_runs_once() {
    let runs = Runs::default();
    let function = paying(InvokeLayer::event_bridge(engine()), &runs);
    for _ in 0..2 {
        assert_eq!(invoke(&function, &parsed(BUS)).await.unwrap(), "null");
    }
    assert_eq!(runs.take(), 1);
    let put_again = with(BUS, "/id", json!("another"));
    invoke(&function, &put_again).await.unwrap();
    assert_eq!(runs.take(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_operations_of_one_engine_handle_the_same_bus_event_once_each() {
    let (once, runs) = (engine(), Runs::default());
    for operation in ["first rule", "second rule", "first rule"] {
        let layer = InvokeLayer::event_bridge(once.clone()).operation(operation);
        invoke(&paying(layer, &runs), &parsed(BUS)).await.unwrap();
    }
    assert_eq!(runs.take(), 2);
}

const ARN: &str = "arn:aws:scheduler:eu-central-1:123456789012:schedule/default/nightly";

fn schedule(arn: &str, time: &str, attempt: u32) -> Value {
    json!({
        "schedule_arn": arn,
        "scheduled_time": time,
        "execution_id": format!("e-{attempt}"),
        "attempt_number": attempt.to_string(),
        "payment_id": "p-1",
        "amount": 5,
    })
}

#[tokio::test(start_paused = true)]
async fn each_time_of_a_schedule_runs_once_however_often_it_is_tried() {
    let runs = Runs::default();
    let left_out = vec!["/sent_at".parse().unwrap()];
    let less = InvokeLayer::scheduler(engine())
        .settings(|settings| settings.fingerprint_without = left_out);
    let function = paying(less, &runs);
    for attempt in 1..=3 {
        let mut event = schedule(ARN, "2026-11-23T00:00:00Z", attempt);
        event["sent_at"] = json!(attempt);
        assert_eq!(invoke(&function, &event).await.unwrap(), "null");
    }
    assert_eq!(runs.take(), 1);
    let function = paying(InvokeLayer::scheduler(engine()), &runs);
    for attempt in 1..=3 {
        let event = schedule(ARN, "2026-11-23T00:00:00Z", attempt);
        assert_eq!(invoke(&function, &event).await.unwrap(), "null");
    }
    assert_eq!(runs.take(), 1);
    let next = schedule(ARN, "2026-11-24T00:00:00Z", 1);
    invoke(&function, &next).await.unwrap();
    assert_eq!(runs.take(), 1);

    for wrong in [
        json!({ "payment_id": "p-1", "amount": 5 }),
        schedule("<aws.scheduler.schedule-arn>", "2026-11-24T00:00:00Z", 1),
        schedule(ARN, "<aws.scheduler.scheduled-time>", 1),
    ] {
        let refused = failure(&function, &wrong).await;
        assert_eq!(refused.error_type, "Idempotency.WrongEvent");
        let words = refused.error_message;
        assert!(words.contains("<aws.scheduler.schedule-arn>"), "{words}");
    }
    assert_eq!(runs.take(), 0);
}

fn task(state: &str, index: Option<u32>, amount: u64) -> Value {
    let execution = "arn:aws:states:eu-central-1:123456789012:execution:settle:e-1";
    json!({
        "idempotency": { "execution": execution, "state": state, "index": index },
        "payment_id": "p-1",
        "amount": amount,
    })
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_retried_gets_the_answer_of_the_first_try() {
    let runs = Runs::default();
    let function = paying(InvokeLayer::step_functions(engine()), &runs);
    for _ in 0..2 {
        let answer = invoke(&function, &task("Pay", None, 5)).await.unwrap();
        assert_eq!(answer, r#""p-1: 5""#);
    }
    assert_eq!(runs.take(), 1);
    for index in [0, 1] {
        invoke(&function, &task("Pay", Some(index), 5))
            .await
            .unwrap();
    }
    invoke(&function, &task("Refund", None, 5)).await.unwrap();
    assert_eq!(runs.take(), 3);
    // A loop without an iteration, which visits the state again with other work.
    let mismatch = error_type(&function, &task("Pay", None, 6)).await;
    assert_eq!(mismatch, "Idempotency.Mismatch");
    let payment = json!({ "payment_id": "p-1", "amount": 5 });
    let refused = error_type(&function, &payment).await;
    assert_eq!(refused, "Idempotency.WrongEvent");
}

#[tokio::test(start_paused = true)]
async fn a_key_of_the_work_gives_another_execution_the_answer_and_another_state_none() {
    let runs = Runs::default();
    let layer = InvokeLayer::step_functions(engine());
    let function = paying(
        layer.key(|payment: &Payment| payment.payment_id.clone()),
        &runs,
    );
    for execution in ["express:settle:e-1:a", "express:settle:e-2:b"] {
        let mut task = task("Pay", None, 5);
        task["idempotency"]["execution"] = execution.into();
        assert_eq!(invoke(&function, &task).await.unwrap(), r#""p-1: 5""#);
    }
    assert_eq!(runs.take(), 1);
    let mismatch = error_type(&function, &task("Refund", None, 5)).await;
    assert_eq!(mismatch, "Idempotency.Mismatch");
}

#[tokio::test(start_paused = true)]
async fn the_event_of_another_source_is_refused_in_words_and_not_quoted() {
    let events = [
        parsed(SNS),
        parsed(BUS),
        json!({}),
        json!([]),
        json!(null),
        json!("hunter2"),
    ];
    let runs = Runs::default();
    for (layer, own) in [
        (InvokeLayer::sns(engine()), Some(0)),
        (InvokeLayer::event_bridge(engine()), Some(1)),
        (InvokeLayer::scheduler(engine()), None),
        (InvokeLayer::step_functions(engine()), None),
    ] {
        let function = paying(layer, &runs);
        for (position, event) in events.iter().enumerate() {
            if own == Some(position) {
                continue;
            }
            let Diagnostic {
                error_type,
                error_message,
                ..
            } = failure(&function, event).await;
            let words = ["Idempotency.WrongEvent", "Idempotency.Undecodable"];
            assert!(
                words.contains(&error_type.as_str()),
                "{error_type}: {event}"
            );
            assert!(!error_message.contains("hunter2"), "{error_message}");
        }
    }
    assert_eq!(runs.take(), 0);
}

/// Returns the payload that a durable function gets in an invocation.
fn durable(token: &str) -> Value {
    json!({
        "DurableExecutionArn": "arn:aws:lambda:eu-central-1:123456789012:function:orders:1/durable-execution/o-1/e-1",
        "CheckpointToken": token,
        "InitialExecutionState": { "Operations": [], "NextMarker": "" },
    })
}

/// A durable function in a layer that keys it by its execution, and answers rejected events: it suspends, and ends in the next
/// invocation.
fn suspending(once: &Idempotency, runs: &Runs) -> impl Function + use<> {
    let runs = runs.clone();
    let execution = Selector::pointer("/DurableExecutionArn").unwrap();
    let layer = InvokeLayer::new(once.clone()).key_from(execution);
    let layer = layer.on_rejected(|_, _| async { Ok::<_, SettleError>("for a person") });
    let token = "/CheckpointToken".parse().unwrap();
    let layer = layer.settings(|settings| settings.fingerprint_without = vec![token]);
    layer.handler(move |_: Invocation<Value>| {
        let status = ["PENDING", "SUCCEEDED"][usize::from(runs.count() > 1)];
        async move { Ok(json!({ "Status": status })) }
    })
}

#[tokio::test(start_paused = true)]
async fn an_invocation_of_a_durable_execution_is_refused_before_its_answer_could_be_stored() {
    let runs = Runs::default();
    let function = suspending(&engine(), &runs);
    for token in ["t-1", "t-2", "t-2"] {
        let refused = failure(&function, &durable(token)).await;
        assert_eq!(refused.error_type, "Idempotency.WrongEvent");
        for advice in ["take the layer off", "inside `ctx.step`", "`derive_key`"] {
            assert!(refused.error_message.contains(advice), "{refused:?}");
        }
    }
    // Where the layer has no key, the advice is not to set one.
    let unkeyed = paying(InvokeLayer::new(engine()), &runs);
    let refused = error_type(&unkeyed, &durable("t-1")).await;
    assert_eq!(refused, "Idempotency.WrongEvent");
    assert_eq!(runs.take(), 0);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_protected_a_durable_execution_goes_on() {
    let once = builder(MemoryStore::new()).disabled(true).build().unwrap();
    let function = suspending(&once, &Runs::default());
    for status in ["PENDING", "SUCCEEDED"] {
        let answer = invoke(&function, &durable("t")).await.unwrap();
        assert_eq!(answer, json!({ "Status": status }).to_string());
    }
}

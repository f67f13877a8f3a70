//! FIFO queues: the messages of a group run in order, and a failure stops its group.

use lambda_idempotency::sqs::Order;
use tokio::sync::Notify;

use super::*;

/// A message of a FIFO queue; an amount of 13 fails.
fn fifo(id: &str, group: &str, amount: u64) -> Value {
    let mut message = payment(id, &format!("p-{id}"), amount);
    message["eventSourceARN"] = json!("arn:aws:sqs:eu-central-1:123456789012:payments.fifo");
    message["attributes"]["MessageGroupId"] = json!(group);
    message
}

/// The ids of the messages that ran, in the order in which they ran.
#[derive(Clone, Default)]
struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// In order, of one group.
    fn of(&self, group: &str) -> Vec<String> {
        let ran = self.0.lock().unwrap();
        ran.iter()
            .filter(|id| id.starts_with(group))
            .cloned()
            .collect()
    }
}

fn worker(once: &Idempotency, trace: &Trace, order: Order) -> impl Worker + use<> {
    let layer = charge(once).settings(|settings| settings.order = order);
    traced(layer, trace)
}

fn traced(layer: BatchLayer<Payment, PaymentError>, trace: &Trace) -> impl Worker + use<> {
    let trace = trace.clone();
    layer.handler(move |message| {
        let trace = trace.clone();
        async move {
            // Later messages are quicker: only an order that is kept keeps them in order.
            tokio::time::sleep(Duration::from_millis(
                20_u64.saturating_sub(message.body.amount),
            ))
            .await;
            trace.0.lock().unwrap().push(message.id().to_owned());
            if message.body.amount == 13 {
                Err(PaymentError::Unreachable)
            } else {
                Ok(())
            }
        }
    })
}

on_each_server!(a_groups_messages_run_in_order_and_groups_side_by_side);
async fn a_groups_messages_run_in_order_and_groups_side_by_side(server: Server) {
    let (once, trace) = (engine(&server).await, Trace::default());
    let b_is_done = Arc::new(Notify::new());
    let (noted, waited_for) = (trace.clone(), Arc::clone(&b_is_done));
    let mut worker = charge(&once).handler(move |message: Message<Payment>| {
        let (trace, b_is_done) = (noted.clone(), Arc::clone(&waited_for));
        async move {
            // The first group is held up until the second has run to its end.
            if message.id() == "a1" {
                b_is_done.notified().await;
            }
            trace.0.lock().unwrap().push(message.id().to_owned());
            if message.id() == "b2" {
                b_is_done.notify_one();
            }
            Ok(())
        }
    });
    let messages = ["a1", "b1", "a2", "b2", "a3"].map(|id| fifo(id, &id[..1], 1));
    let delivered = deliver(&mut worker, messages);
    let reported = tokio::time::timeout(Duration::from_mins(1), delivered).await;
    assert_eq!(reported.expect("b waited for a"), NOTHING);
    assert_eq!(trace.take(), ["b1", "b2", "a1", "a2", "a3"]);
}

on_each_server!(after_a_failure_nothing_later_of_its_group_runs_and_all_of_it_is_reported);
async fn after_a_failure_nothing_later_of_its_group_runs_and_all_of_it_is_reported(server: Server) {
    let (once, trace) = (engine(&server).await, Trace::default());
    let mut worker = worker(&once, &trace, Order::BySource);
    let messages = || {
        [
            fifo("a1", "a", 1),
            fifo("a2", "a", 13),
            fifo("b1", "b", 1),
            fifo("a3", "a", 2),
            fifo("b2", "b", 2),
        ]
    };
    assert_eq!(deliver(&mut worker, messages()).await, ["a2", "a3"]);
    assert_eq!(trace.of("a"), ["a1", "a2"]);
    assert_eq!(trace.of("b"), ["b1", "b2"]);

    // The claim of the one that didn't run was released: its next delivery runs at once.
    trace.take();
    assert_eq!(deliver(&mut worker, [fifo("a3", "a", 2)]).await, NOTHING);
    assert_eq!(trace.take(), ["a3"]);
}

on_each_server!(a_message_that_cannot_run_stops_its_group_before_anything_later_is_claimed);
async fn a_message_that_cannot_run_stops_its_group_before_anything_later_is_claimed(
    server: Server,
) {
    let (once, trace) = (engine(&server).await, Trace::default());
    let mut worker = worker(&once, &trace, Order::BySource);
    let mut broken = fifo("a1", "a", 1);
    broken["body"] = json!("not JSON");
    let messages = [broken, fifo("a2", "a", 1), fifo("b1", "b", 1)];
    assert_eq!(deliver(&mut worker, messages).await, ["a1", "a2"]);
    assert_eq!(trace.take(), ["b1"]);
}

on_each_server!(a_duplicate_behind_a_failure_of_its_group_is_reported_though_its_first_was_done);
async fn a_duplicate_behind_a_failure_of_its_group_is_reported_though_its_first_was_done(
    server: Server,
) {
    let (once, trace) = (engine(&server).await, Trace::default());
    let mut worker = worker(&once, &trace, Order::BySource);
    let mut again = fifo("a3", "a", 1);
    again["body"] = json!(body("p-a1", 1));
    let messages = [
        fifo("a1", "a", 1),
        fifo("a2", "a", 13),
        again,
        fifo("a4", "a", 1),
    ];
    assert_eq!(deliver(&mut worker, messages).await, ["a2", "a3", "a4"]);
    assert_eq!(trace.take(), ["a1", "a2"]);
}

on_each_server!(a_message_waits_for_a_duplicate_before_it_whose_first_is_of_another_group);
async fn a_message_waits_for_a_duplicate_before_it_whose_first_is_of_another_group(server: Server) {
    let (once, trace) = (engine(&server).await, Trace::default());
    let mut worker = worker(&once, &trace, Order::BySource);
    let mut duplicate = fifo("a1", "a", 13);
    duplicate["body"] = json!(body("p-b1", 13));
    // The longer group begins first.
    let behind = [fifo("b2", "b", 1), fifo("b3", "b", 1)];
    let messages = [fifo("b1", "b", 13), duplicate, fifo("a2", "a", 19)];
    let messages = messages.into_iter().chain(behind);
    let reported = ["b1", "a1", "a2", "b2", "b3"];
    assert_eq!(deliver(&mut worker, messages).await, reported);
    assert_eq!(trace.take(), ["b1"]);
}

on_each_server!(a_message_that_differs_from_one_of_another_group_stops_its_own_until_it_is_taken);
async fn a_message_that_differs_from_one_of_another_group_stops_its_own_until_it_is_taken(
    server: Server,
) {
    let trace = Trace::default();
    let messages = || {
        let mut differs = fifo("b1", "b", 6);
        differs["body"] = json!(body("p-a1", 6));
        // Of two groups of one length, the one that is first in the batch begins first.
        let behind = [fifo("b2", "b", 1), fifo("a2", "a", 1)];
        [fifo("a1", "a", 5), differs].into_iter().chain(behind)
    };
    let once = engine(&server).await;
    let mut reporting = worker(&once, &trace, Order::BySource);
    assert_eq!(deliver(&mut reporting, messages()).await, ["b1", "b2"]);
    assert_eq!(trace.take(), ["a1", "a2"]);

    let parked = trace.clone();
    let layer = charge(&engine(&server).await).on_rejected(move |_, why| {
        parked.0.lock().unwrap().push(why.rejection.to_string());
        async { Ok::<_, PaymentError>(()) }
    });
    let mut parking = traced(layer, &trace);
    assert_eq!(deliver(&mut parking, messages()).await, NOTHING);
    assert_eq!(trace.take(), ["a1", "a2", "mismatch", "b2"]);
}

on_each_server!(the_strict_setting_stops_the_batch_at_the_first_failure);
async fn the_strict_setting_stops_the_batch_at_the_first_failure(server: Server) {
    let (once, trace) = (engine(&server).await, Trace::default());
    let mut worker = worker(&once, &trace, Order::Batch);
    let messages = [
        fifo("a1", "a", 1),
        fifo("b1", "b", 13),
        fifo("a2", "a", 2),
        fifo("c1", "c", 2),
    ];
    assert_eq!(deliver(&mut worker, messages).await, ["b1", "a2", "c1"]);
    assert_eq!(trace.take(), ["a1", "b1"]);
}

on_each_server!(a_standard_queue_is_not_ordered_even_with_group_ids);
async fn a_standard_queue_is_not_ordered_even_with_group_ids(server: Server) {
    let (once, trace) = (engine(&server).await, Trace::default());
    let mut worker = worker(&once, &trace, Order::BySource);
    let mut fair = fifo("a1", "a", 13);
    fair["eventSourceARN"] = json!("arn:aws:sqs:eu-central-1:123456789012:payments");
    let mut other = fair.clone();
    (other["messageId"], other["body"]) = (json!("a2"), json!(body("p-a2", 1)));
    assert_eq!(deliver(&mut worker, [fair, other]).await, ["a1"]);
    assert_eq!(trace.take().len(), 2);
}

on_each_server!(an_order_that_holds_with_single_writes_too);
async fn an_order_that_holds_with_single_writes_too(server: Server) {
    let (once, trace) = (engine(&server).await, Trace::default());
    let done = trace.clone();
    let mut worker = charge(&once)
        .settings(|settings| settings.single_writes = true)
        .handler(move |message| {
            done.0.lock().unwrap().push(message.id().to_owned());
            async move {
                if message.body.amount == 13 {
                    Err(PaymentError::Unreachable)
                } else {
                    Ok(())
                }
            }
        });
    let messages = [fifo("a1", "a", 1), fifo("a2", "a", 13), fifo("a3", "a", 2)];
    assert_eq!(deliver(&mut worker, messages).await, ["a2", "a3"]);
    assert_eq!(trace.take(), ["a1", "a2"]);
}

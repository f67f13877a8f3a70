//! Makes the layers of the ready-made sources.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::idempotency::Idempotency;
use crate::invoke::kind::Kind;
use crate::invoke::{InvokeLayer, S3BatchTask};
use crate::protocol::pointer::Pointer;

/// SNS tries for 23 days, so outcomes of its events are kept for longer.
pub(super) const SNS_RETENTION: Duration = Duration::from_hours(30 * 24);

/// Placeholders of a schedule's input that differ between two tries of one execution.
const OF_A_TRY: [&str; 2] = ["/execution_id", "/attempt_number"];

impl<T: DeserializeOwned, E> InvokeLayer<T, E> {
    /// Makes a layer for a function that is subscribed to an SNS topic.
    ///
    /// The payload is the message, a JSON text. The key is the `MessageId` unless one is set: it is
    /// the same in each try of a delivery, and new where the publisher sends the message again.
    /// Two messages are compared by the topic and the text. Outcomes are kept for 30 days, because
    /// [SNS tries a delivery for 23 days][tries]; a retention of the engine's own counts before.
    /// [No answer](Self::without_answer) is asked for.
    ///
    /// ```
    /// use lambda_idempotency::invoke::{InvokeLayer, Invocation};
    /// # use lambda_idempotency::{Idempotency, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Payment { payment_id: String }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let function = InvokeLayer::sns(once)
    ///     .key(|payment: &Payment| payment.payment_id.clone()) // better than the message's id
    ///     .handler(|event: Invocation<Payment>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    ///
    /// [tries]: https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html
    pub fn sns(once: Idempotency) -> Self {
        let once = once.default_retention(SNS_RETENTION);
        Self::of(once, Kind::Sns).without_answer()
    }

    /// Makes a layer for a function that is the target of a rule of an EventBridge bus.
    ///
    /// The payload is the event's `detail`. The key is the event's `id` unless one is set:
    /// EventBridge makes it once for an event, and a new one where the producer puts the event
    /// again. Two events are compared by `source`, `detail-type` and `detail`. Outcomes are kept for
    /// 7 days: by default [EventBridge tries a delivery for 24 hours][tries].
    /// [No answer](Self::without_answer) is asked for.
    ///
    /// A function that two rules send the same event to runs once for both, unless each of them has
    /// a function, or an [operation](Self::operation), of its own.
    ///
    /// [tries]: https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rule-retry-policy.html
    pub fn event_bridge(once: Idempotency) -> Self {
        Self::of(once, Kind::EventBridge).without_answer()
    }

    /// Makes a layer for a function that is the target of an EventBridge Scheduler schedule.
    ///
    /// The schedule's input is a JSON object with two [placeholders][placeholders], and an event
    /// without them is refused, unless a key is set:
    ///
    /// ```json
    /// {"schedule_arn": "<aws.scheduler.schedule-arn>", "scheduled_time": "<aws.scheduler.scheduled-time>"}
    /// ```
    ///
    /// Both together are the key. They are the same in each try; the execution's id isn't. The
    /// members `execution_id` and `attempt_number`, for the placeholders that change with each try,
    /// are not compared. Outcomes are kept for 7 days: [Scheduler tries for up to 24 hours][tries].
    /// [No answer](Self::without_answer) is asked for.
    ///
    /// [placeholders]: https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-context-attributes.html
    /// [tries]: https://docs.aws.amazon.com/scheduler/latest/APIReference/API_RetryPolicy.html
    pub fn scheduler(once: Idempotency) -> Self {
        let fields = OF_A_TRY
            .iter()
            .filter_map(|field| field.parse::<Pointer>().ok());
        let layer = Self::of(once, Kind::Scheduler).without_answer();
        layer.fingerprint_without(fields)
    }

    /// Makes a layer for a function that a task state of Step Functions calls and waits for.
    ///
    /// The key is the member `idempotency` of the payload, and a payload without it is refused,
    /// unless a key is set. `execution` and `state` are required; `index` belongs to a task inside
    /// of a `Map` state, and `iteration`, a counter of your own, to a state that a loop visits
    /// again:
    ///
    /// ```json
    /// {"idempotency": {"execution": "arn:aws:states:…", "state": "Pay", "index": 0, "iteration": 2}, "amount": 5}
    /// ```
    ///
    /// `docs/sources/invoke.md` in the repository wires it, in JSONPath and in JSONata. The key is the same
    /// in each `Retry` of the state and in a redrive of the execution. Outcomes are kept for 7 days,
    /// and the caller gets the handler's answer.
    ///
    /// Two nested `Map` states have two indexes: put both into `index`, as one text.
    pub fn step_functions(once: Idempotency) -> Self {
        Self::of(once, Kind::StepFunctions)
    }
}

impl<E> InvokeLayer<S3BatchTask, E> {
    /// Makes a layer for a function that an [S3 Batch Operations][page] job calls for each object of
    /// its manifest, in both versions of the invocation schema.
    ///
    /// The payload is the [task](S3BatchTask). The key is the job, the bucket, the object's key and
    /// its version, unless one is set: it is the same in each try of the job, and new in another
    /// job. An object that a manifest lists twice runs once. AWS doesn't document whether a task
    /// keeps its `taskId` when it is tried again, so the key is made without it. Two tasks of one
    /// key are compared by `/bucket`, `/key`, `/version_id` and `/user_arguments`, which
    /// [`fingerprint_without`](Self::fingerprint_without) may leave out. Outcomes are kept for 7
    /// days: set a longer [retention](crate::Builder::retention) for a job that runs longer.
    ///
    /// The job gets a reply with the task's result:
    ///
    /// | what happened | `resultCode` | `resultString` |
    /// |---|---|---|
    /// | the handler answered, now or in an earlier try | `Succeeded` | the answer: a text as it is, other JSON as JSON, nothing for `null` |
    /// | [`on_rejected`](Self::on_rejected) answered | `Succeeded` | the hook's answer |
    /// | the work is done, and its answer was not kept | `Succeeded` | `Idempotency.OutcomeOmitted: …` |
    /// | the handler failed | `TemporaryFailure` | its error |
    /// | the handler failed with a [permanent](Self::permanent) error | `PermanentFailure` | its error |
    /// | the event is [rejected](super::Rejection): a mismatch, an unusable key, an object's key that doesn't decode, an earlier permanent failure | `PermanentFailure` | `Idempotency.Mismatch: …` and so on |
    /// | a person must look, or a write's condition didn't hold: `Interrupted`, `Exhausted`, `Unreadable`, `ConditionFailed` | `PermanentFailure` | the word and the reason |
    /// | each other obstacle, such as `InFlight`, `TimedOut` and `StoreUnavailable` | `TemporaryFailure` | the word and the reason |
    ///
    /// S3 tries a task with a temporary failure again [before the job completes][page]. An event
    /// without the ids of one task gets no reply: its invocation fails.
    ///
    /// ```
    /// use lambda_idempotency::invoke::{InvokeLayer, Invocation, S3BatchTask};
    /// # use lambda_idempotency::{Idempotency, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("thumbnails").build()?;
    /// let function = InvokeLayer::s3_batch(once)
    ///     .permanent(|error: &std::io::Error| error.kind() == std::io::ErrorKind::InvalidData)
    ///     .handler(|event: Invocation<S3BatchTask>| async move {
    ///         Ok(format!("made a thumbnail of {}", event.payload.key))
    ///     });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    ///
    /// [page]: https://docs.aws.amazon.com/AmazonS3/latest/userguide/batch-ops-invoke-lambda.html
    pub fn s3_batch(once: Idempotency) -> Self {
        Self::of(once, Kind::S3Batch)
    }
}

//! Configures the layer that makes a handler of Lambda's events of a handler of one invocation.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tower::Layer;
use tower::util::{ServiceFn, service_fn};

use crate::engine::Replay;
use crate::engine::rejection::Rejection;
use crate::idempotency::Idempotency;
use crate::idempotency::source_retention::SourceRetention;
use crate::invoke::S3BatchTask;
use crate::invoke::hook::answering;
use crate::invoke::kind::Kind;
use crate::invoke::reader::{Place, Reader};
use crate::invoke::run::{Config, Invocation, InvokeService};
use crate::invoke::settings::Settings;
use crate::protocol::causes::{HandlerError, name_causes_of};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::IntoToken;
use crate::protocol::key_source::KeySource;
use crate::protocol::selector::Selector;

/// Makes a handler of Lambda's events of a handler of one [`Invocation`]: an event that comes twice
/// takes effect once, and gets the same answer.
///
/// `T` is the payload's type and `E` the handler's error; both are inferred. [The module](super)
/// has an example.
#[must_use = "a layer does nothing until it wraps a handler"]
pub struct InvokeLayer<T, E> {
    config: Config<T, E>,
}

impl<T: DeserializeOwned, E> InvokeLayer<T, E> {
    /// Makes a layer over an engine, for a function that its callers invoke directly. It needs a
    /// key: [`key`](Self::key), [`key_from`](Self::key_from) or [`raw_id`](Self::raw_id). The
    /// operation is the function's name.
    pub fn new(once: Idempotency) -> Self {
        Self::of(once, Kind::Direct)
    }

    fn of(once: Idempotency, kind: Kind) -> Self {
        let reader = Reader {
            kind,
            key: KeySource::of_source(),
            fingerprint: None,
            left_out: kind.left_out().collect(),
            retention: None,
            quotes_errors: once.logs_errors(),
        };
        Self {
            config: Config {
                once,
                operation: None,
                reader,
                permanent: None,
                settings: Settings::default(),
                source_retention: None,
                on_rejected: None,
                on_replay: None,
                on_error: None,
            },
        }
    }

    /// Makes a layer whose caller reads no answer.
    fn silent(once: Idempotency, kind: Kind) -> Self {
        Self::of(once, kind).settings(|settings| settings.without_answer = true)
    }
}

impl<T, E> InvokeLayer<T, E> {
    /// Names the operation. Default: the name of the function.
    ///
    /// Set it when the same work arrives through several functions, or when one may be renamed: an
    /// event that was done under one operation is new under another, and refused under a
    /// [raw id](Self::raw_id).
    pub fn operation(mut self, name: impl Into<String>) -> Self {
        self.config.operation = Some(name.into().into());
        self
    }

    /// Takes the key from the decoded payload: any [text](IntoToken), or an `Option` of it where it
    /// may be missing. Default: the source's own, which [`new`](Self::new) doesn't have.
    ///
    /// An empty key is a missing one, and a missing one meets the engine's
    /// [policy](crate::Builder::on_missing_key).
    pub fn key<V: IntoToken>(mut self, token: impl Fn(&T) -> V + Send + Sync + 'static) -> Self {
        self.config.reader.key = self.config.reader.key.body(token);
        self
    }

    /// Takes the key from the event as it was received, where a JSON pointer or a JMESPath
    /// expression finds it. It replaces [`key`](Self::key): the last call counts.
    ///
    /// ```
    /// use lambda_idempotency::{Selector, invoke::{InvokeLayer, Invocation}};
    /// # use lambda_idempotency::{Idempotency, store::MemoryStore};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let function = InvokeLayer::new(once)
    ///     .key_from(Selector::pointer("/settlement/id")?)
    ///     .handler(|event: Invocation<serde_json::Value>| async move { Ok::<_, std::io::Error>("paid") });
    /// # Ok(()) }
    /// ```
    pub fn key_from(mut self, selector: Selector) -> Self {
        self.config.reader.key = self.config.reader.key.selected(Place(selector));
        self
    }

    /// Takes the whole id of the record from the decoded payload, whatever the namespace and the
    /// operation: to share records with another library, as [`Key::raw`](crate::Key::raw) does; the
    /// feature `powertools` makes the ids of Powertools for AWS Lambda. It replaces
    /// [`key`](Self::key): the last call counts. With a [`scope`](Self::scope), and in a function
    /// with Lambda's [tenant isolation][isolation], each event fails, because the id has no room for
    /// a tenant.
    ///
    /// [isolation]: https://docs.aws.amazon.com/lambda/latest/dg/tenant-isolation.html
    pub fn raw_id<V: IntoToken>(mut self, id: impl Fn(&T) -> V + Send + Sync + 'static) -> Self {
        let id = move |payload: &T, (): &()| id(payload);
        self.config.reader.key = self.config.reader.key.raw_id(id);
        self
    }

    /// Takes the tenant from the decoded payload: any [text](IntoToken), or an `Option` of it. Two
    /// tenants that choose the same token then have two records. Default: none, which is right
    /// where the tokens are your own.
    ///
    /// All events for which it gives `None` share their tokens. An event for which it gives a blank
    /// text fails with `Idempotency.UnusableKey`.
    ///
    /// In a function with Lambda's [tenant isolation][isolation], the tenant that Lambda names is
    /// part of each key without this method. With it, the scope is the JSON list of both:
    /// `["tenant","scope"]`.
    ///
    /// [isolation]: https://docs.aws.amazon.com/lambda/latest/dg/tenant-isolation.html
    pub fn scope<V: IntoToken>(mut self, tenant: impl Fn(&T) -> V + Send + Sync + 'static) -> Self {
        let tenant = move |payload: &T, (): &()| tenant(payload);
        self.config.reader.key = self.config.reader.key.scope(tenant);
        self
    }

    /// Sets how long the outcome of an event is kept, by its decoded payload; `None` for the
    /// engine's [`retention`](crate::Builder::retention), which is the default. For one retention of
    /// all events, make the layer of [`Idempotency::retention`](crate::Idempotency::retention).
    ///
    /// Permanent failures are kept for the
    /// [failure's retention](crate::Settings::failure_retention).
    pub fn retention<V: Into<Option<Duration>>>(
        mut self,
        retention: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> Self {
        let retention = move |payload: &T| retention(payload).into();
        self.config.reader.retention = Some(Arc::new(retention));
        self
    }

    /// Changes the [settings](Settings) that few functions change.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.config.settings);
        let declared = self.config.settings.source_retention;
        self.config.source_retention = declared.map(SourceRetention::new);
        let left_out = self.config.settings.fingerprint_without.iter().cloned();
        let of_source = self.config.reader.kind.left_out();
        self.config.reader.left_out = of_source.chain(left_out).collect();
        self
    }

    /// Selects the handler's errors that no retry will fix. Default: none.
    ///
    /// Such a failure is stored, and a retry fails with `Idempotency.Failed` without a run, until
    /// the [failure's retention](crate::Settings::failure_retention) is over.
    pub fn permanent(mut self, is_permanent: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        self.config.permanent = Some(Arc::new(is_permanent));
        self
    }

    /// Answers rejected events: those that no retry will fix, as [`Rejection`] lists them.
    /// Default: their invocation fails.
    ///
    /// The function gets the event as it was received, and keeps it somewhere. Its `Ok` is the
    /// answer that the caller gets. After an error, a panic, or no answer shortly before the
    /// invocation ends, the invocation fails as it would without the hook. The function may get an
    /// event twice.
    ///
    /// ```
    /// use lambda_idempotency::invoke::{InvokeLayer, Invocation};
    /// # use lambda_idempotency::{Idempotency, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Payment { id: String }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// # async fn park(why: &str, event: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// let function = InvokeLayer::sns(once)
    ///     .key(|payment: &Payment| payment.id.clone())
    ///     .on_rejected(|event, why| async move { park(&why.to_string(), event.get()).await })
    ///     .handler(|event: Invocation<Payment>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn on_rejected<F, Fut, R, HookError, M>(mut self, hook: F) -> Self
    where
        F: Fn(Box<RawValue>, Rejection) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HookError>> + Send + 'static,
        R: Serialize,
        HookError: HandlerError<M>,
    {
        let quotes = self.config.once.logs_errors();
        let hook = move |(event, why)| hook(event, why);
        self.config.on_rejected = Some(answering(hook, quotes));
        self
    }

    /// Sets the hook that changes a replayed answer before the caller gets it, for example to renew a
    /// signed address that has expired, or to add a field that marks a replay. Default: a replay is
    /// the stored answer, byte for byte.
    ///
    /// The hook gets the event of the retry, as it was received, the answer as it is stored, and the
    /// attempt that the answer comes from.
    /// It runs for replays only, never for a first answer, and the record stays as it is.
    /// After an error, a panic, or no answer shortly before the invocation ends, the caller gets the
    /// stored answer, and the event `hook_failed` is logged. The hook must have no effect that may not
    /// be repeated. With [`without_answer`](Settings::without_answer) it doesn't run.
    ///
    /// ```
    /// use lambda_idempotency::invoke::{InvokeLayer, Invocation};
    /// # use lambda_idempotency::{Idempotency, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("files").build()?;
    /// let function = InvokeLayer::new(once)
    ///     .key(|file: &String| file.clone())
    ///     .on_replay(|_event, answer, replay| async move {
    ///         let mut answer: serde_json::Value = serde_json::from_str(answer.get())?;
    ///         answer["attempt"] = replay.attempt.into();
    ///         Ok::<_, serde_json::Error>(answer)
    ///     })
    ///     .handler(|event: Invocation<String>| async move {
    ///         Ok::<_, std::io::Error>(serde_json::json!({ "stored": event.payload }))
    ///     });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn on_replay<F, Fut, R, HookError, M>(mut self, hook: F) -> Self
    where
        F: Fn(Box<RawValue>, Box<RawValue>, Replay) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HookError>> + Send + 'static,
        R: Serialize,
        HookError: HandlerError<M>,
    {
        let quotes = self.config.once.logs_errors();
        let hook = move |(event, answer, replay)| hook(event, answer, replay);
        self.config.on_replay = Some(answering(hook, quotes));
        self
    }

    /// Shows each error of the handler to this function, with the event as it was received: to log
    /// it, to count it. Default: none.
    ///
    /// The function changes nothing: the caller gets the error. It is not called for a panic, for
    /// an obstacle of the engine's, or for the error that a write's
    /// [condition](crate::store::transaction::Write::or_else) answers with.
    pub fn on_error(mut self, hook: impl Fn(&RawValue, &E) + Send + Sync + 'static) -> Self {
        self.config.on_error = Some(Arc::new(hook));
        self
    }

    /// Wraps a function: a shorter form of a `tower::ServiceBuilder` with this layer alone and
    /// `service_fn`.
    pub fn handler<F, Fut, R, M>(self, handler: F) -> InvokeService<T, E, ServiceFn<F>>
    where
        F: FnMut(Invocation<T>) -> Fut,
        Fut: Future<Output = Result<R, E>>,
        E: HandlerError<M>,
    {
        name_causes_of::<E, M>();
        InvokeService {
            config: self.config,
            handler: service_fn(handler),
        }
    }
}

impl<T, E, Svc> Layer<Svc> for InvokeLayer<T, E> {
    type Service = InvokeService<T, E, Svc>;

    fn layer(&self, handler: Svc) -> Self::Service {
        InvokeService {
            config: self.config.clone(),
            handler,
        }
    }
}

clone_fields!([T, E] InvokeLayer<T, E> { config });

debug_fields!([T, E] InvokeLayer<T, E> { config });

impl<T, E> InvokeLayer<T, E> {
    /// Takes the fingerprint from the decoded payload; `None` for an event that is not compared.
    /// Default: the fingerprint of the whole payload, as text.
    ///
    /// Take it from fields that say what the event asks for, not from the whole decoded value: a
    /// field that the type gains would make another request of each event that is delivered again. The
    /// closure takes precedence over [`fingerprint_without`](Settings::fingerprint_without).
    ///
    /// Set it before the function goes live, or with another key: a record that was written without it
    /// is a mismatch for the same event, delivered again.
    ///
    /// `|_| None` compares events by their key alone: every event of a key that was done gets its
    /// answer, whatever it says. That is for keys that name one piece of work for ever. A key that is
    /// used again by mistake gets another request's answer: there is no mismatch to report.
    pub fn fingerprint<V: Into<Option<Fingerprint>>>(
        mut self,
        fingerprint: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> Self {
        let fingerprint = move |payload: &T| fingerprint(payload).into();
        self.config.reader.fingerprint = Some(Arc::new(fingerprint));
        self
    }
}

/// SNS tries for 23 days, so outcomes of its events are kept for longer.
const SNS_RETENTION: Duration = Duration::from_hours(30 * 24);

impl<T: DeserializeOwned, E> InvokeLayer<T, E> {
    /// Makes a layer for a function that is subscribed to an SNS topic.
    ///
    /// The payload is the message, a JSON text. The key is the `MessageId` unless one is set: it is
    /// the same in each try of a delivery, and new where the publisher sends the message again.
    /// Two messages are compared by the topic and the text. Outcomes are kept for 30 days, because
    /// [SNS tries a delivery for 23 days][tries]; a retention of the engine's own counts before.
    /// [No answer](Settings::without_answer) is asked for.
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
        Self::silent(once, Kind::Sns)
    }

    /// Makes a layer for a function that is the target of a rule of an EventBridge bus.
    ///
    /// The payload is the event's `detail`. The key is the event's `id` unless one is set: it is new
    /// where the producer puts the event again, and AWS doesn't promise the same one in each try. Two
    /// events are compared by `source`, `detail-type`, `account` and `detail`. Outcomes are kept for
    /// 7 days: by default [EventBridge tries a delivery for 24 hours][tries].
    /// [No answer](Settings::without_answer) is asked for.
    ///
    /// A function that two rules send the same event to runs once for both, unless each of them has
    /// a function, or an [operation](Self::operation), of its own.
    ///
    /// [tries]: https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rule-retry-policy.html
    pub fn event_bridge(once: Idempotency) -> Self {
        Self::silent(once, Kind::EventBridge)
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
    /// [No answer](Settings::without_answer) is asked for.
    ///
    /// [placeholders]: https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-context-attributes.html
    /// [tries]: https://docs.aws.amazon.com/scheduler/latest/APIReference/API_RetryPolicy.html
    pub fn scheduler(once: Idempotency) -> Self {
        Self::silent(once, Kind::Scheduler)
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
    /// `docs/sources/step-functions.md` in the repository wires it, in JSONPath and in JSONata. The key is the same
    /// in each `Retry` of the state and in a redrive of the execution, but for Express children of a
    /// Distributed Map, which a redrive starts as new executions: set [`key`](Self::key) to an identity
    /// of the state's work. Outcomes are kept for 7 days, and the caller gets the handler's answer.
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
    /// [`fingerprint_without`](Settings::fingerprint_without) may leave out. Outcomes are kept for 7
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
    /// | the event is [rejected](Rejection): a mismatch, an unusable key, an object's key that doesn't decode, an earlier permanent failure | `PermanentFailure` | `Idempotency.Mismatch: …` and so on |
    /// | an operator must look, or a write's condition didn't hold: `Interrupted`, `Exhausted`, `Unreadable`, `ConditionFailed` | `PermanentFailure` | the word and the reason |
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

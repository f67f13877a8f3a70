//! Executions that are started once, against services that keep the rules of names that AWS documents.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{
    HttpRequest as Request, HttpResponse as Response,
};
use aws_smithy_types::body::SdkBody;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, FaultyStore, ManualClock};
use lambda_idempotency::{
    Claim, Error, Fingerprint, HandlerError, Idempotency, Key, Outcome, Verdict,
};
use serde_json::{Value, json};

use crate::{execution, state_machine};

const MACHINE: &str = "arn:aws:states:eu-central-1:123456789012:stateMachine:orders";

/// The executions of a service: the payload of each, by its name.
#[derive(Clone)]
struct Service {
    executions: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    requests: Arc<Mutex<u32>>,
    /// Its function is a durable one.
    is_durable: bool,
    /// The executions have ended.
    closed: bool,
}

impl Service {
    fn new(is_durable: bool, closed: bool) -> Self {
        Self {
            executions: Arc::default(),
            requests: Arc::default(),
            is_durable,
            closed,
        }
    }

    /// Returns whether an execution of this name is new, and whether it has this payload.
    fn started(&self, name: &str, payload: &[u8]) -> (bool, bool) {
        *self.requests.lock().unwrap() += 1;
        let mut executions = self.executions.lock().unwrap();
        let is_new = !executions.contains_key(name);
        let kept = executions
            .entry(name.to_owned())
            .or_insert_with(|| payload.to_vec());
        (is_new, *kept == payload)
    }

    fn counts(&self) -> (u32, usize) {
        (
            *self.requests.lock().unwrap(),
            self.executions.lock().unwrap().len(),
        )
    }

    /// Lambda answers a name whose payload is the same with its execution, whether it runs or has ended.
    fn invoke(&self, request: &Request) -> Response {
        let name = request
            .headers()
            .get("x-amz-durable-execution-name")
            .unwrap();
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        assert!(name.len() <= 64 && name.bytes().all(is_allowed), "{name}");
        let mut answer = answered(202, SdkBody::empty());
        if !self.is_durable {
            // A plain function runs with each request, whatever the name.
            *self.requests.lock().unwrap() += 1;
            return answer;
        }
        // A durable function is invoked with its version or alias.
        let (_, function) = request.uri().split_once("/functions/").unwrap();
        let (function, _) = function.split_once("/invocations").unwrap();
        let function = function.replace("%3A", ":");
        let (_, qualified) = function.split_once(":function:").unwrap_or(("", &function));
        if !qualified.contains(':') {
            return refused(400, "InvalidParameterValueException");
        }
        let (_, is_same) = self.started(name, request.body().bytes().unwrap());
        if !is_same {
            return refused(409, "DurableExecutionAlreadyStartedException");
        }
        let function = "arn:aws:lambda:eu-central-1:123456789012:function:orders:1";
        let arn = format!("{function}/durable-execution/{name}/e-1");
        answer
            .headers_mut()
            .insert("x-amz-durable-execution-arn", arn);
        answer
    }

    /// Step Functions does so while it runs; afterwards the name is taken, whatever the input.
    fn start_execution(&self, request: &Request) -> Response {
        let asked: Value = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
        let (name, input) = (
            asked["name"].as_str().unwrap(),
            asked["input"].as_str().unwrap(),
        );
        assert!(name.len() <= 80, "{name}");
        let (is_new, is_same) = self.started(name, input.as_bytes());
        if !is_same || (self.closed && !is_new) {
            return refused(400, "ExecutionAlreadyExists");
        }
        let machine = asked["stateMachineArn"].as_str().unwrap();
        let arn = machine.replace(":stateMachine:", ":execution:");
        let arn = arn.trim_end_matches(":live").to_owned() + ":" + name;
        let answer = json!({ "executionArn": arn, "startDate": 1_700_000_000 });
        answered(200, SdkBody::from(answer.to_string()))
    }

    fn lambda(&self) -> aws_sdk_lambda::Client {
        use aws_sdk_lambda::config::{BehaviorVersion, Config, Credentials, Region};
        let service = self.clone();
        let config = Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("id", "secret", None, None, "test"))
            .http_client(Wire::to(move |request| service.invoke(request)));
        aws_sdk_lambda::Client::from_conf(config.build())
    }

    fn states(&self) -> aws_sdk_sfn::Client {
        use aws_sdk_sfn::config::{BehaviorVersion, Config, Credentials, Region};
        let service = self.clone();
        let config = Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("id", "secret", None, None, "test"))
            .http_client(Wire::to(move |request| service.start_execution(request)));
        aws_sdk_sfn::Client::from_conf(config.build())
    }
}

/// Hands requests over to a service in the same process.
#[derive(Clone)]
struct Wire(Arc<dyn Fn(&Request) -> Response + Send + Sync>);

impl Wire {
    fn to(serve: impl Fn(&Request) -> Response + Send + Sync + 'static) -> SharedHttpClient {
        let wire = Self(Arc::new(serve));
        http_client_fn(move |_, _| SharedHttpConnector::new(wire.clone()))
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: Request) -> HttpConnectorFuture {
        HttpConnectorFuture::ready(Ok((self.0)(&request)))
    }
}

fn answered(status: u16, body: SdkBody) -> Response {
    Response::new(status.try_into().unwrap(), body)
}

fn refused(status: u16, kind: &'static str) -> Response {
    let body = json!({ "__type": kind, "message": "no" });
    let mut answer = answered(status, SdkBody::from(body.to_string()));
    answer.headers_mut().insert("x-amzn-errortype", kind);
    answer
}

/// The payload of order `o-1`.
fn order(amount: u64) -> String {
    json!({ "id": "o-1", "amount": amount }).to_string()
}

/// A worker that starts an execution for each order, which may come again.
struct Worker {
    clock: ManualClock,
    table: FaultyStore,
    once: Idempotency,
}

impl Worker {
    fn new() -> Self {
        let (clock, table) = (ManualClock::default(), FaultyStore::new(MemoryStore::new()));
        let builder = Idempotency::builder(table.clone()).namespace("orders");
        let once = builder.clock(clock.clone()).build().unwrap();
        Self { clock, table, once }
    }

    async fn deliver<E, M, F: Future<Output = Result<String, E>>>(
        &self,
        payload: &str,
        start: impl FnOnce(Claim, String) -> F,
    ) -> Result<Outcome<String>, Error<E>>
    where
        E: HandlerError<M>,
    {
        let request = Fingerprint::json(payload.as_bytes());
        let key = Key::new("start", "o-1");
        self.once
            .run(key, request, |claim| start(claim, payload.to_owned()))
            .await
    }

    /// Delivers an order that a durable function carries out.
    async fn start(
        &self,
        lambda: &aws_sdk_lambda::Client,
        function: &str,
    ) -> Result<Outcome<String>, Error<execution::StartError>> {
        let start =
            async |claim: Claim, payload| execution::start(lambda, function, &claim, payload).await;
        self.deliver(&order(5), start).await
    }
}

/// Delivers an order that crashes between the start and its outcome, then the same again twice, then another one under its key.
async fn is_started_once<
    E: HandlerError<M> + std::fmt::Debug,
    M,
    F: Future<Output = Result<String, E>>,
>(
    service: &Service,
    start: impl Fn(Claim, String) -> F,
) -> String {
    let worker = Worker::new();
    let crash = worker.table.crash_before(Call::Complete);
    crash
        .cut_off(worker.deliver(&order(5), &start))
        .await
        .unwrap();
    assert_eq!(service.counts(), (1, 1));
    worker.clock.pass_lease(&worker.once);
    let started = worker
        .deliver(&order(5), &start)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(service.counts(), (2, 1));
    let again = worker.deliver(&order(5), &start).await.unwrap();
    assert_eq!(
        (again.into_inner(), service.counts()),
        (started.clone(), (2, 1))
    );
    let other = worker.deliver(&order(6), &start).await;
    assert!(matches!(other, Err(Error::Mismatch)), "{other:?}");
    assert_eq!(service.counts(), (2, 1));
    started
}

#[tokio::test]
async fn a_crash_between_invoke_and_completion_starts_no_second_durable_execution() {
    let service = Service::new(true, false);
    let lambda = service.lambda();
    let start = |claim: Claim, payload| {
        let lambda = lambda.clone();
        async move { execution::start(&lambda, "orders:live", &claim, payload).await }
    };
    let arn = is_started_once(&service, start).await;
    assert!(arn.contains("/durable-execution/"), "{arn}");
}

#[tokio::test]
async fn a_deployment_after_a_crash_starts_no_second_durable_execution() {
    for (before, after) in [
        ("orders:7", "orders:8"),
        (
            "orders:7",
            "arn:aws:lambda:eu-central-1:123456789012:function:orders:live",
        ),
        // A function may have this name, too.
        (
            "function:7",
            "arn:aws:lambda:eu-central-1:123456789012:function:function:live",
        ),
    ] {
        let service = Service::new(true, false);
        let lambda = service.lambda();
        let worker = Worker::new();
        let crash = worker.table.crash_before(Call::Complete);
        let attempt = worker.start(&lambda, before);
        crash.cut_off(attempt).await.unwrap();
        worker.clock.pass_lease(&worker.once);
        worker.start(&lambda, after).await.unwrap();
        assert_eq!(service.counts(), (2, 1), "{after}");
    }
}

#[tokio::test]
async fn a_crash_after_start_execution_starts_no_second_one_whether_the_first_runs_or_has_ended() {
    for (closed, qualifier) in [(false, ""), (true, ""), (false, ":live"), (true, ":live")] {
        let service = Service::new(true, closed);
        let states = service.states();
        let machine = format!("{MACHINE}{qualifier}");
        let start = |claim: Claim, input| {
            let (states, machine) = (states.clone(), machine.clone());
            async move { state_machine::start(&states, &machine, &claim, input).await }
        };
        let arn = is_started_once(&service, start).await;
        let (execution, name) = arn.rsplit_once(':').unwrap();
        let wanted = "arn:aws:states:eu-central-1:123456789012:execution:orders";
        assert_eq!((execution, name.len()), (wanted, 64), "{arn}");
    }
}

#[tokio::test]
async fn one_request_starts_an_execution_of_each_of_two_functions() {
    let service = Service::new(true, false);
    let lambda = service.lambda();
    let worker = Worker::new();
    let start = |claim: Claim, payload: String| {
        let lambda = lambda.clone();
        async move {
            let first = execution::start(&lambda, "orders:live", &claim, payload).await?;
            let other = "{}".to_owned();
            let second = execution::start(&lambda, "mails:live", &claim, other).await?;
            Ok::<_, execution::StartError>(format!("{first} {second}"))
        }
    };
    worker.deliver(&order(5), start).await.unwrap();
    assert_eq!(service.counts(), (2, 2));
}

/// It has run by then: a retry would have it run again.
#[tokio::test]
async fn a_function_that_is_not_durable_runs_once_where_that_is_a_permanent_failure() {
    let service = Service::new(false, false);
    let lambda = service.lambda();
    let worker = Worker::new();
    let deliver = |is_permanent: bool, token: &'static str| {
        let lambda = lambda.clone();
        let start =
            async move |claim: Claim| execution::start(&lambda, "orders", &claim, order(5)).await;
        let verdict = move |result: &Result<String, execution::StartError>| match result {
            Err(execution::StartError::NotDurable) if is_permanent => Verdict::Fail,
            other => other.into(),
        };
        let key = Key::new("start", token);
        worker.once.run_with(key, None, start, verdict)
    };
    for runs in 1..=2 {
        let refused = deliver(false, "retried").await.unwrap_err();
        let is_told = matches!(refused, Error::Handler(execution::StartError::NotDurable));
        assert!(is_told, "{refused:?}");
        assert_eq!(service.counts(), (runs, 0));
    }
    let refused = deliver(true, "permanent").await.unwrap_err();
    let is_told = matches!(refused, Error::Handler(execution::StartError::NotDurable));
    assert!(is_told, "{refused:?}");
    let again = deliver(true, "permanent").await.unwrap_err();
    assert!(matches!(again, Error::Failed(_)), "{again:?}");
    assert_eq!(service.counts(), (3, 0));
}

#[tokio::test]
async fn a_durable_function_without_its_version_is_refused_and_leaves_its_key_to_a_retry() {
    let service = Service::new(true, false);
    let lambda = service.lambda();
    let worker = Worker::new();
    let deliver = |function: &'static str| worker.start(&lambda, function);
    for function in [
        "orders",
        "arn:aws:lambda:eu-central-1:123456789012:function:orders",
    ] {
        let refused = deliver(function).await.unwrap_err().to_string();
        let says = "InvalidParameterValueException";
        assert!(refused.contains(says), "{refused}");
        assert_eq!(service.counts(), (0, 0));
    }
    deliver("orders:1").await.unwrap();
    assert_eq!(service.counts(), (1, 1));
}

#[tokio::test]
async fn a_payload_that_the_fingerprint_left_out_is_refused_by_the_service() {
    let service = Service::new(true, false);
    let lambda = service.lambda();
    let worker = Worker::new();
    let start = |payload: &str| {
        let (lambda, payload) = (lambda.clone(), payload.to_owned());
        let key = Key::new("start", "o-1");
        worker.once.run(key, None, |claim| async move {
            execution::start(&lambda, "orders:live", &claim, payload).await
        })
    };
    worker
        .table
        .crash_before(Call::Complete)
        .cut_off(start(&order(5)))
        .await
        .unwrap();
    worker.clock.pass_lease(&worker.once);
    let refused = start(&order(6)).await.unwrap_err().to_string();
    assert!(
        refused.contains("DurableExecutionAlreadyStartedException"),
        "{refused}"
    );
    assert_eq!(service.counts(), (2, 1));
}

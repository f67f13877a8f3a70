//! Makes the clients of a function: their credentials are kept until they expire, their throttled
//! writes are left to the engine. Tells a request that was sent from one that waited in this process.

use std::borrow::Cow;
use std::cell::Cell;
use std::error::Error as StdError;
use std::ffi::OsString;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::ecs::EcsCredentialsProvider;
use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::environment::region::EnvironmentVariableRegionProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_dynamodb::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{
    ConfigBag, IdentityCache, Intercept, RuntimeComponents, SharedHttpClient, SharedIdentityCache,
    SharedInterceptor,
};
use aws_sdk_dynamodb::error::{BoxError, SdkError};
use aws_sdk_dynamodb::{Client, config};
use aws_smithy_runtime_api::client::identity::{
    IdentityFuture, ResolveCachedIdentity, SharedIdentityResolver,
};
use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::retries::classifiers::{
    ClassifyRetry, RetryAction, RetryClassifierPriority,
};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use crate::dynamodb::error::{EXPIRED, unsent};
use crate::protocol::causes::in_words;
use crate::protocol::lock::lock;
use crate::store::StoreError;
use crate::store::grouped::Way;

mod roots;
#[cfg(test)]
mod tests;

/// Makes the configuration that [`DynamoDbStore::from_env`](super::DynamoDbStore::from_env) uses,
/// for your own clients in a function.
///
/// ```no_run
/// use aws_sdk_dynamodb::Client;
/// use lambda_idempotency::dynamodb::{DynamoDbStore, sdk_config};
///
/// # async fn start() {
/// let config = sdk_config().await;
/// let client = Client::new(&config);
/// let store = DynamoDbStore::new(client.clone(), "idempotency");
/// # }
/// ```
///
/// Clients of one configuration share connections. `aws_sdk_sqs::Client::new(&config)` and its like
/// take it, too.
///
/// **Timeouts and retries.** A client connects within 3.1 seconds (one lost SYN and its
/// repetition), gives an attempt 4 and an operation 10 seconds, and tries three times with small
/// pauses. Stalled-stream protection is off, which small replies don't need.
///
/// **In a Lambda function** the SDK has nothing to look for: region and credentials are in the
/// environment. They are taken from there, without the chain of providers, and the certificates to
/// trust are Mozilla's, compiled in. To read the system's takes up to half of a cold start
/// (`docs/internals/performance.md` in the repository). Keys in the environment are those of the
/// start: in every function where `AWS_CONTAINER_CREDENTIALS_FULL_URI` or its like names an endpoint
/// that renews credentials, they are taken from there.
///
/// **The SDK's own defaults** hold in any other process, and where one of these variables is set:
///
/// - `SSL_CERT_FILE`, `SSL_CERT_DIR`, `AWS_CA_BUNDLE`: you trust certificates of your own. The SDK
///   reads the first two;
/// - `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_DYNAMODB` and its like, with `https`;
/// - `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`;
/// - `AWS_PROFILE`, `AWS_CONFIG_FILE`, `AWS_SHARED_CREDENTIALS_FILE`.
///
/// A function in a network that opens TLS with its own certificate, installed in the image,
/// needs `SSL_CERT_FILE`.
pub async fn sdk_config() -> SdkConfig {
    let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .timeout_config(timeouts())
        .retry_config(retries())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    let environment = Environment::of(std::env::vars_os());
    let client = environment.is_complete.then(roots::compiled_in).flatten();
    let config = match &client {
        None => config,
        Some(client) => config
            .http_client(client.clone())
            .region(EnvironmentVariableRegionProvider::new())
            .credentials_provider(EnvironmentVariableCredentialsProvider::new()),
    };
    // The SDK's chain would take keys in the environment first, which are those of the start.
    let config = if environment.is_renewed {
        config.credentials_provider(endpoint(client))
    } else {
        config
    };
    config.load().await
}

/// Makes the provider that asks the endpoint in the environment.
fn endpoint(client: Option<SharedHttpClient>) -> EcsCredentialsProvider {
    let mut config = ProviderConfig::default();
    if let Some(client) = client {
        config = config.with_http_client(client);
    }
    EcsCredentialsProvider::builder().configure(&config).build()
}

/// Makes the client of [`DynamoDbStore::from_env`](super::DynamoDbStore::from_env).
pub(super) async fn from_env() -> Client {
    let renewed = Renewed(Arc::new(Mutex::new(empty())));
    let config = config::Builder::from(&sdk_config().await);
    let config = config.identity_cache(renewed.clone()).interceptor(renewed);
    Client::from_conf(config.build())
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(Duration::from_millis(3_100))
        .operation_attempt_timeout(Duration::from_secs(4))
        .operation_timeout(Duration::from_secs(10))
        .build()
}

fn retries() -> RetryConfig {
    RetryConfig::standard()
        .with_max_attempts(3)
        .with_initial_backoff(Duration::from_millis(50))
        .with_max_backoff(Duration::from_secs(1))
}

/// The configuration of a call that the SDK sends once, whatever its client's retries are; all
/// else is the client's.
pub(super) fn sent_once(client: &Client) -> config::Builder {
    let retries = client.config().retry_config().cloned();
    let retries = retries.unwrap_or_else(RetryConfig::standard);
    config::Builder::new().retry_config(retries.with_max_attempts(1))
}

/// The SDK's cache, which is emptied when AWS refuses credentials as expired: their provider is
/// asked anew then, whatever time it gave them. Clones are one cache.
#[derive(Clone, Debug)]
struct Renewed(Arc<Mutex<SharedIdentityCache>>);

fn empty() -> SharedIdentityCache {
    IdentityCache::lazy().build()
}

impl ResolveCachedIdentity for Renewed {
    fn resolve_cached_identity<'a>(
        &'a self,
        resolver: SharedIdentityResolver,
        components: &'a RuntimeComponents,
        config: &'a ConfigBag,
    ) -> IdentityFuture<'a> {
        let cache = lock(&self.0).clone();
        IdentityFuture::new(async move {
            cache
                .resolve_cached_identity(resolver, components, config)
                .await
        })
    }
}

impl Intercept for Renewed {
    fn name(&self) -> &'static str {
        "Renewed"
    }

    /// The reply's body was read by then.
    fn read_after_deserialization(
        &self,
        reply: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let reply = reply.response();
        let is_refusal = reply.status().is_client_error();
        let body = reply.body().bytes().filter(|_| is_refusal);
        if body.is_some_and(|body| has_code(body, &EXPIRED)) {
            *lock(&self.0) = empty();
        }
        Ok(())
    }
}

tokio::task_local! {
    /// The sends of the request under way.
    static SENDS: Sends;
}

/// The sends of one request. The SDK sends it again where it had no answer.
#[derive(Debug, Default)]
pub(super) struct Sends {
    made: Cell<u32>,
    answered: Cell<u32>,
}

impl Sends {
    /// Returns whether one of the sends of this request got no answer: it may have applied, or may still
    /// arrive and apply.
    pub(super) fn is_silent(&self) -> bool {
        self.made.get() > self.answered.get()
    }
}

/// The same client, which notes each send for [`in_time`].
pub(super) fn noting_sends(client: &Client) -> Client {
    let mut config = client.config().to_builder();
    // One that can't be switched off isn't looked up in each of the SDK's steps.
    config.push_interceptor(SharedInterceptor::permanent(Noted));
    Client::from_conf(config.build())
}

/// Counts the sends of the request under way, and their answers.
#[derive(Debug)]
pub(super) struct Noted;

impl Intercept for Noted {
    fn name(&self) -> &'static str {
        "sends are noted"
    }

    /// The SDK has its credentials by then, and connects next.
    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // A handler's own request isn't asked about.
        let _ = SENDS.try_with(|sends| sends.made.update(|made| made + 1));
        Way::note_send();
        Ok(())
    }

    fn read_after_deserialization(
        &self,
        reply: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if is_answer(reply) {
            let _ = SENDS.try_with(|sends| sends.answered.update(|answered| answered + 1));
        }
        Ok(())
    }
}

/// Returns whether a reply says what became of its send: it applied, or the service refused it. A 5xx,
/// the page of a proxy and a body that can't be read say nothing. A send that times out or loses its
/// connection has no reply.
fn is_answer(reply: &AfterDeserializationInterceptorContextRef<'_>) -> bool {
    let http = reply.response();
    reply.output_or_error().is_ok()
        || (http.status().is_client_error() && http.body().bytes().is_some_and(is_refusal))
}

/// Returns whether the service refused the request: each of its refusals has a code, which the JSON of a
/// proxy lacks, and one says that it waited in vain for the rest of the request.
fn is_refusal(body: &[u8]) -> bool {
    const CODE: &[u8] = br#""__type""#;
    body.windows(CODE.len()).any(|part| part == CODE) && !has_code(body, &["RequestTimeout"])
}

/// Returns whether the code of a refusal is one of these, with or without `Exception`. The item that a
/// condition met may have any text, so that the code alone counts; hardly any reply needs to be parsed for
/// it.
fn has_code(body: &[u8], codes: &[&str]) -> bool {
    #[derive(Deserialize)]
    struct Refusal<'a> {
        #[serde(rename = "__type", borrow)]
        code: Cow<'a, str>,
    }
    let is_in = |text: &str| codes.iter().any(|code| text.contains(code));
    if !str::from_utf8(body).is_ok_and(is_in) {
        return false;
    }
    let refusal = serde_json::from_slice::<Refusal<'_>>(body);
    let code = refusal
        .as_ref()
        .ok()
        .and_then(|refusal| refusal.code.rsplit('#').next());
    code.is_some_and(|code| codes.contains(&code.trim_end_matches("Exception")))
}

/// Returns the reply to a request that [`Noted`] watches, and its sends.
pub(super) async fn noted<T>(request: impl Future<Output = T>) -> (T, Sends) {
    let mut noted = pin!(SENDS.scope(Sends::default(), request));
    let reply = noted.as_mut().await;
    (reply, noted.take_value().unwrap_or_default())
}

/// Returns the reply to a request of such a client, and whether an earlier send of it had no answer. One
/// that was not sent says nothing of the store.
pub(super) async fn in_time<T, E: StdError + 'static>(
    deadline: Instant,
    request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
) -> Result<(Result<T, SdkError<E, HttpResponse>>, bool), StoreError> {
    if Instant::now() >= deadline {
        return Err(StoreError::NotSent);
    }
    Way::note_request();
    let (reply, sends) = noted(timeout_at(deadline, request)).await;
    let reply = match reply {
        Ok(Err(SdkError::TimeoutError(_))) | Err(_) => Err(StoreError::Timeout),
        Ok(reply) => Ok(reply),
    };
    let is_sent = sends.made.get() > 0;
    match reply {
        Err(_) if !is_sent => Err(StoreError::NotSent),
        Ok(Err(error @ SdkError::DispatchFailure(_))) if !is_sent => Err(unsent(in_words(&error))),
        reply => reply.map(|reply| (reply, sends.is_silent())),
    }
}

/// The same client, which sends no throttled request again: each call of the SDK would, three
/// times, without knowing of the others.
pub(super) fn without_repeats(client: &Client) -> Client {
    let config = client.config().to_builder();
    Client::from_conf(config.retry_classifier(Forbidden).build())
}

#[derive(Debug)]
struct Forbidden;

impl ClassifyRetry for Forbidden {
    fn classify_retry(&self, _: &InterceptorContext) -> RetryAction {
        RetryAction::NoActionIndicated
    }

    fn classify_retry_v2(&self, _: &InterceptorContext, previous: &RetryAction) -> RetryAction {
        if *previous == RetryAction::throttling_error() {
            return RetryAction::RetryForbidden;
        }
        RetryAction::NoActionIndicated
    }

    fn name(&self) -> &'static str {
        "throttled writes are left to the engine"
    }

    /// After those that tell what the answer means.
    fn priority(&self) -> RetryClassifierPriority {
        RetryClassifierPriority::run_after(RetryClassifierPriority::transient_error_classifier())
    }
}

const FUNCTION_NAME: &str = "AWS_LAMBDA_FUNCTION_NAME";

/// The variables that Lambda gives to every function with a role and no file of settings.
const GIVEN: [&str; 4] = [
    FUNCTION_NAME,
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
];

/// The variables that make the SDK look: for certificates of one's own, on the way to a proxy that
/// may have such, or in files.
const LOOKED_UP: [&str; 13] = [
    "AWS_CA_BUNDLE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
];

/// The variables that name an endpoint for credentials, which gives new ones before those expire.
const RENEWED_AT: [&str; 2] = [
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
];

/// `AWS_ENDPOINT_URL`, and `AWS_ENDPOINT_URL_DYNAMODB` and its like.
const ENDPOINT: &str = "AWS_ENDPOINT_URL";

/// The facts in the environment variables.
#[derive(Debug, PartialEq, Eq)]
struct Environment {
    /// Region and credentials are in the environment itself, and only AWS's own servers, or servers
    /// without TLS, are called.
    is_complete: bool,
    /// This is a function, and an endpoint is named that renews its credentials.
    is_renewed: bool,
}

impl Environment {
    fn of(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let (mut given, mut looks_up) = (0, false);
        let (mut is_function, mut has_endpoint) = (false, false);
        for (name, value) in variables.filter(|(_, value)| !value.is_empty()) {
            let Some(name) = name.to_str() else { continue };
            let has_tls = || !value.to_string_lossy().trim_start().starts_with("http://");
            looks_up |= LOOKED_UP.contains(&name) || (name.starts_with(ENDPOINT) && has_tls());
            given += usize::from(GIVEN.contains(&name));
            is_function |= name == FUNCTION_NAME;
            has_endpoint |= RENEWED_AT.contains(&name);
        }
        Self {
            is_complete: given == GIVEN.len() && !looks_up,
            is_renewed: is_function && has_endpoint,
        }
    }
}

//! An API under test: requests as each of Lambda's doors delivers them, a handler that counts its runs, answers read whole.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::types::Update;
use bytes::Bytes;
use data_encoding::BASE64;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use lambda_http::{Body, Request, RequestExt};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::store::transaction::WriteError;
use lambda_idempotency::{Builder, Claim, Idempotency};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Begun, Server, builder_on};

/// The source of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// API Gateway, REST API: events of version 1.0.
    Rest,
    /// API Gateway, HTTP API: events of version 2.0.
    Http,
    /// An Application Load Balancer, with multi-value headers switched on.
    Alb,
    /// A function URL, with IAM as its authorizer.
    Url,
    /// A VPC Lattice service: events of version 2.0.
    Lattice,
}

impl Door {
    pub const ALL: [Self; 5] = [Self::Rest, Self::Http, Self::Alb, Self::Url, Self::Lattice];

    /// `POST /shops/7/orders` with this key, if any.
    pub fn post(self, key: impl Into<Option<&'static str>>) -> Call {
        let event = match self {
            Self::Rest => include_str!("../../fixtures/apigw-v1.json"),
            Self::Http => include_str!("../../fixtures/apigw-v2.json"),
            Self::Alb => include_str!("../../fixtures/alb.json"),
            Self::Url => include_str!("../../fixtures/function-url.json"),
            Self::Lattice => include_str!("../../fixtures/vpc-lattice.json"),
        };
        let call = Call {
            door: self,
            event: serde_json::from_str(event).unwrap(),
            context: None,
        };
        match key.into() {
            Some(key) => call.header("Idempotency-Key", key),
            None => call,
        }
    }
}

/// A request to be sent, any number of times.
#[derive(Clone)]
pub struct Call {
    door: Door,
    event: Value,
    context: Option<lambda_http::Context>,
}

impl Call {
    pub fn header(self, name: &str, value: &str) -> Self {
        self.headers(name, &[value])
    }

    /// The same header, several times.
    pub fn headers(mut self, name: &str, values: &[&str]) -> Self {
        match self.door {
            Door::Rest => {
                self.event["headers"][name] = json!(values.last());
                self.event["multiValueHeaders"][name] = json!(values);
            }
            Door::Http | Door::Url => {
                self.event["headers"][name.to_lowercase()] = json!(values.join(","));
            }
            Door::Lattice => self.event["headers"][name.to_lowercase()] = json!(values),
            Door::Alb => self.event["multiValueHeaders"][name.to_lowercase()] = json!(values),
        }
        self
    }

    pub fn method(mut self, method: &str) -> Self {
        match self.door {
            Door::Rest | Door::Alb => self.event["httpMethod"] = json!(method),
            Door::Http | Door::Url => {
                self.event["requestContext"]["http"]["method"] = json!(method);
            }
            Door::Lattice => self.event["method"] = json!(method),
        }
        self
    }

    /// The route's template stays what it is.
    pub fn path(mut self, path: &str) -> Self {
        let name = match self.door {
            Door::Rest | Door::Alb | Door::Lattice => "path",
            Door::Http | Door::Url => "rawPath",
        };
        self.event[name] = json!(path);
        self
    }

    /// A route that takes everything.
    pub fn catch_all(mut self) -> Self {
        match self.door {
            Door::Rest => self.event["requestContext"]["resourcePath"] = json!("/{proxy+}"),
            Door::Http => self.event["requestContext"]["routeKey"] = json!("$default"),
            Door::Alb | Door::Url | Door::Lattice => {}
        }
        self
    }

    /// A gateway's route that takes everything and has a template, behind a custom domain's base path.
    pub fn behind_base_path(self, base: &str, path: &str) -> Self {
        let mut call = self.catch_all().path(&format!("{base}{path}"));
        if call.door == Door::Http {
            call = call.request_context("routeKey", json!("ANY /{proxy+}"));
        }
        call.event["pathParameters"] = json!({ "proxy": path.trim_start_matches('/') });
        call
    }

    /// The stage of the API that was called.
    pub fn stage(self, name: &str) -> Self {
        self.request_context("stage", json!(name))
    }

    /// A member of what the door says about the request.
    pub fn request_context(mut self, name: &str, value: Value) -> Self {
        self.event["requestContext"][name] = value;
        self
    }

    pub fn query(mut self, pairs: &[(&str, &str)]) -> Self {
        if matches!(self.door, Door::Http | Door::Url) {
            let pairs: Vec<String> = pairs.iter().map(|(n, v)| format!("{n}={v}")).collect();
            self.event["rawQueryString"] = json!(pairs.join("&"));
            return self;
        }
        let mut values = json!({});
        for (name, value) in pairs {
            match values[name].as_array_mut() {
                Some(more) => more.push(json!(value)),
                None => values[name] = json!([value]),
            }
        }
        let name = match self.door {
            Door::Lattice => "queryStringParameters",
            _ => "multiValueQueryStringParameters",
        };
        self.event[name] = values;
        self
    }

    pub fn json(self, body: &str) -> Self {
        self.header("Content-Type", "application/json").text(body)
    }

    pub fn text(mut self, body: &str) -> Self {
        self.event["body"] = json!(body);
        self.event["isBase64Encoded"] = json!(false);
        self
    }

    pub fn binary(mut self, body: &[u8]) -> Self {
        self.event["body"] = json!(BASE64.encode(body));
        self.event["isBase64Encoded"] = json!(true);
        self
    }

    /// Sets the runtime's context of the invocation.
    pub fn context(mut self, context: lambda_http::Context) -> Self {
        self.context = Some(context);
        self
    }

    /// As Lambda delivers it.
    pub fn event(&self) -> &Value {
        &self.event
    }

    /// As `lambda_http` makes it of the event.
    pub fn request(&self) -> Request {
        let request = lambda_http::request::from_str(&self.event.to_string()).unwrap();
        match &self.context {
            Some(context) => request.with_lambda_context(context.clone()),
            None => request,
        }
    }
}

/// An answer, read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// In whole seconds.
    pub fn retry_after(&self) -> Option<u64> {
        self.header("retry-after")
            .map(|value| value.parse().unwrap())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        let problem: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["code"], code);
        assert_eq!(problem["status"], status);
        let kind = problem["type"].as_str().unwrap();
        assert!(kind.ends_with(&format!("http/index.html#{code}")), "{kind}");
        assert!(!problem["title"].as_str().unwrap().is_empty());
        assert!(!problem["detail"].as_str().unwrap().is_empty());
    }
}

/// A handler's own failure, as the caller gets it.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A handler under the layer.
#[derive(Clone)]
pub struct Api {
    service: BoxCloneSyncService<Request, Answer, Failure>,
    runs: Arc<AtomicUsize>,
}

impl Api {
    /// With the engine's and the layer's defaults.
    pub async fn new<H, Fut, B>(server: &Server, handler: H) -> Self
    where
        H: Fn(usize, Request) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<B>, Failure>> + Send + 'static,
        B: http_body::Body<Data = Bytes, Error: Into<Failure> + Send> + Send + 'static,
    {
        Self::configured(server, |once| once, |layer| layer, handler).await
    }

    pub async fn configured<H, Fut, B>(
        server: &Server,
        engine: impl FnOnce(Builder) -> Builder,
        layer: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer,
        handler: H,
    ) -> Self
    where
        H: Fn(usize, Request) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<B>, Failure>> + Send + 'static,
        B: http_body::Body<Data = Bytes, Error: Into<Failure> + Send> + Send + 'static,
    {
        let store = server.store().await;
        Self::on(store, engine, layer, handler)
    }

    /// With the engine's defaults, and a layer of the caller's.
    pub async fn layered<H, Fut, B>(
        server: &Server,
        layer: impl FnOnce(Idempotency) -> IdempotencyLayer,
        handler: H,
    ) -> Self
    where
        H: Fn(usize, Request) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<B>, Failure>> + Send + 'static,
        B: http_body::Body<Data = Bytes, Error: Into<Failure> + Send> + Send + 'static,
    {
        let once = builder_on(server.store().await, "shop");
        Self::under(&layer(once.build().unwrap()), handler)
    }

    /// On a store that is there already.
    pub fn on<H, Fut, B>(
        store: DynamoDbStore,
        engine: impl FnOnce(Builder) -> Builder,
        layer: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer,
        handler: H,
    ) -> Self
    where
        H: Fn(usize, Request) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<B>, Failure>> + Send + 'static,
        B: http_body::Body<Data = Bytes, Error: Into<Failure> + Send> + Send + 'static,
    {
        let once = engine(builder_on(store, "shop"));
        let layer = layer(IdempotencyLayer::unscoped(once.build().unwrap()));
        Self::under(&layer, handler)
    }

    /// Under a layer of the caller's. The handler is told which of its runs this is, from 1.
    pub fn under<H, Fut, B>(layer: &IdempotencyLayer, handler: H) -> Self
    where
        H: Fn(usize, Request) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<B>, Failure>> + Send + 'static,
        B: http_body::Body<Data = Bytes, Error: Into<Failure> + Send> + Send + 'static,
    {
        let runs = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&runs);
        let service = layer.layer(service_fn(move |request: Request| {
            handler(counter.fetch_add(1, Ordering::SeqCst) + 1, request)
        }));
        let whole = service.and_then(|response: Response<_>| async {
            let (parts, body) = response.into_parts();
            Ok(Answer {
                status: parts.status,
                headers: parts.headers,
                body: BodyExt::collect(body).await.map_err(Into::into)?.to_bytes(),
            })
        });
        Self {
            service: BoxCloneSyncService::new(whole),
            runs,
        }
    }

    pub async fn send(&self, call: &Call) -> Answer {
        self.try_send(call).await.unwrap()
    }

    pub async fn try_send(&self, call: &Call) -> Result<Answer, Failure> {
        self.service.clone().oneshot(call.request()).await
    }

    /// Beside whatever else is going on.
    pub fn spawn(&self, call: &Call) -> JoinHandle<Answer> {
        let (api, call) = (self.clone(), call.clone());
        tokio::spawn(async move { api.send(&call).await })
    }

    /// Returns the number of times that the handler ran.
    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

/// A request whose one run is dropped in its handler, as when the process dies.
pub async fn cut_off_at_work(
    store: DynamoDbStore,
    engine: impl FnOnce(Builder) -> Builder,
    call: &Call,
) {
    let begun = Arc::new(Begun::default());
    let working = Arc::clone(&begun);
    let handler = move |_, _| {
        let working = Arc::clone(&working);
        async move {
            working
                .then_never::<Result<Response<Body>, Failure>>()
                .await
        }
    };
    let api = Api::on(store, engine, |layer| layer, handler);
    begun.cut_off(api.send(call)).await;
    assert_eq!(api.runs(), 1);
}

/// A handler that says which of its runs made the answer: `201`, `order 1`.
pub async fn place_order(run: usize, _: Request) -> Result<Response<Body>, Failure> {
    Ok(answer(201, format!("order {run}")))
}

pub fn answer(status: u16, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// Hands a deposit over to the claim of a request: not idempotent, so that a second one shows.
pub fn deposit(request: &Request, table: &str) -> Result<(), WriteError> {
    let deposit = Update::builder()
        .table_name(table)
        .key("id", S("account".into()))
        .update_expression("ADD balance :one")
        .expression_attribute_values(":one", N("1".into()));
    request.extensions().get::<Claim>().unwrap().write(deposit)
}

/// Counts the deposits that were made.
pub async fn deposits(server: &Server, table: &str) -> usize {
    let account = server.client().get_item().table_name(table);
    let account = account.key("id", S("account".into())).consistent_read(true);
    let item = account.send().await.unwrap().item.unwrap_or_default();
    let balance = item.get("balance");
    balance.map_or(0, |balance| balance.as_n().unwrap().parse().unwrap())
}

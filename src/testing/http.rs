//! Makes HTTP requests as Lambda delivers them.

use std::fmt::Write;

use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use lambda_http::request::LambdaRequest;
use serde::Serialize;
use serde::de::Error as _;
use serde_json::{Map, Value, json};

use super::TestError;

/// Makes an HTTP request as Lambda delivers it: the event of an API Gateway HTTP API, or the request
/// that `lambda_http` makes of it.
///
/// ```
/// use lambda_http::{Body, Request, Response};
/// use lambda_idempotency::http::IdempotencyLayer;
/// use lambda_idempotency::testing::TestRequest;
/// use lambda_idempotency::{Idempotency, store::MemoryStore};
/// use tower::{ServiceBuilder, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_http::Error> {
/// let once = Idempotency::builder(MemoryStore::new()).namespace("orders").build()?;
/// let api = ServiceBuilder::new()
///     .layer(IdempotencyLayer::unscoped(once))
///     .service_fn(async |_: Request| Ok::<_, lambda_http::Error>(Response::new(Body::from("placed"))));
///
/// let order = TestRequest::post("/orders").key("cart-17").json(&serde_json::json!({"sku": "tea"}))?;
/// for is_replayed in [false, true] {
///     let answer = api.clone().oneshot(order.request()?).await?;
///     assert_eq!(answer.headers().contains_key("idempotent-replayed"), is_replayed);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is the description of a request"]
pub struct TestRequest {
    method: String,
    path: String,
    route: Option<String>,
    parameters: Map<String, Value>,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    claims: Map<String, Value>,
    body: Option<String>,
}

impl TestRequest {
    /// Makes a request of this method and path, with no body.
    pub fn new(method: impl Into<String>, path: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            path: path.into(),
            route: None,
            parameters: Map::new(),
            query: Vec::new(),
            headers: Vec::new(),
            claims: Map::new(),
            body: None,
        }
    }

    /// Makes a POST request.
    pub fn post(path: impl Into<String>) -> Self {
        Self::new("POST", path)
    }

    /// Sets the route that API Gateway matched, such as `/shops/{shop}/orders`. The path itself
    /// unless set.
    pub fn route(mut self, template: impl Into<String>) -> Self {
        self.route = Some(template.into());
        self
    }

    /// Adds a parameter of the route.
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parameters.insert(name.into(), json!(value.into()));
        self
    }

    /// Adds a query parameter.
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into().to_ascii_lowercase();
        self.headers.push((name, value.into()));
        self
    }

    /// Adds the header `Idempotency-Key`.
    pub fn key(self, key: impl Into<String>) -> Self {
        self.header("idempotency-key", key)
    }

    /// Adds a claim of the client's token, as the API's JWT authorizer has verified it: what
    /// [`scope::jwt_claim`](crate::http::scope::jwt_claim) reads.
    ///
    /// ```
    /// use lambda_idempotency::http::scope;
    /// use lambda_idempotency::testing::TestRequest;
    ///
    /// let order = TestRequest::post("/orders").jwt_claim("sub", "client-7").request()?;
    /// let (parts, _) = order.into_parts();
    /// assert_eq!(scope::jwt_claim("sub")(&parts).as_deref(), Some("client-7"));
    /// # Ok::<(), lambda_idempotency::testing::TestError>(())
    /// ```
    pub fn jwt_claim(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.claims.insert(name.into(), json!(value.into()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, text: impl Into<String>) -> Self {
        self.body = Some(text.into());
        self
    }

    /// Sets the body to this value as JSON, and adds a `Content-Type` where there is none.
    ///
    /// # Errors
    ///
    /// When the value can't be written as JSON.
    pub fn json<T: Serialize + ?Sized>(self, body: &T) -> Result<Self, TestError> {
        let body = serde_json::to_string(body)?;
        let mut names = self.headers.iter().map(|(name, _)| name);
        let typed = if names.any(|name| name == "content-type") {
            self
        } else {
            self.header("content-type", "application/json")
        };
        Ok(typed.body(body))
    }

    /// Makes the event of an HTTP API, in the payload format 2.0.
    ///
    /// # Errors
    ///
    /// When the request is none that API Gateway sends: its method, its path or a header isn't valid.
    pub fn http_api(&self) -> Result<ApiGatewayV2httpRequest, TestError> {
        let Self { method, path, .. } = self;
        // An event takes any text, of which `lambda_http` would make another request, or panic.
        if method.is_empty() || !path.starts_with('/') || path.contains(['?', '#']) {
            let words = format!(
                "no client sends `{method} {path}`: give a method, a path that begins with `/`, and its query by `TestRequest::query`"
            );
            return Err(serde_json::Error::custom(words).into());
        }
        let route = self.route.as_ref().unwrap_or(path);
        let route_key = format!("{} {route}", self.method);
        let jwt = json!({ "claims": self.claims, "scopes": null });
        let authorizer = (!self.claims.is_empty()).then(|| json!({ "jwt": jwt }));
        let event = json!({
            "version": "2.0",
            "routeKey": route_key,
            "rawPath": self.path,
            "rawQueryString": raw_query(&self.query),
            "headers": joined(&self.headers),
            "queryStringParameters": joined(&self.query),
            "pathParameters": self.parameters,
            "requestContext": {
                "authorizer": authorizer,
                "accountId": "123456789012",
                "apiId": "y6u7i8o9p0",
                "http": {
                    "method": self.method,
                    "path": self.path,
                    "protocol": "HTTP/1.1",
                    "sourceIp": "203.0.113.9",
                    "userAgent": "tests"
                },
                "requestId": "Zk3vTgX4liAEJ8Q=",
                "routeKey": route_key,
                "stage": "$default",
                "time": "20/Nov/2026:12:00:00 +0000",
                "timeEpoch": 1_795_176_000_000_i64
            },
            "body": self.body,
            "isBase64Encoded": false
        });
        Ok(serde_json::from_value(event)?)
    }

    /// Makes the request that `lambda_http` makes of the event of an [HTTP API](Self::http_api).
    ///
    /// # Errors
    ///
    /// When the request is none that API Gateway sends: its method, its path or a header isn't valid.
    pub fn request(&self) -> Result<lambda_http::Request, TestError> {
        Ok(LambdaRequest::ApiGatewayV2(self.http_api()?).into())
    }
}

/// Returns the values of each name with commas between them, as an HTTP API does.
fn joined(pairs: &[(String, String)]) -> Map<String, Value> {
    let mut all: Map<String, Value> = Map::new();
    for (name, value) in pairs {
        let joined = match all.get(name).and_then(Value::as_str) {
            Some(before) => format!("{before},{value}"),
            None => value.clone(),
        };
        all.insert(name.clone(), Value::String(joined));
    }
    all
}

fn raw_query(pairs: &[(String, String)]) -> String {
    let pairs = pairs.iter();
    let encoded = pairs.map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    encoded.collect::<Vec<_>>().join("&")
}

/// Percent-encodes what RFC 3986 doesn't call unreserved.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string doesn't fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

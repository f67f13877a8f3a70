//! Converts events to HTTP requests. The request that `lambda_http` makes of the same event has the
//! same key and fingerprint where its address is [plain](super). Pure, but for `lambda_http`'s
//! variable of the environment.

use aws_lambda_events::alb::{AlbTargetGroupRequest, AlbTargetGroupResponse};
use aws_lambda_events::apigw::{
    ApiGatewayProxyRequest, ApiGatewayProxyResponse, ApiGatewayV2httpRequest,
    ApiGatewayV2httpResponse,
};
use aws_lambda_events::encodings::Body;
use aws_lambda_events::lambda_function_urls::{
    LambdaFunctionUrlRequest, LambdaFunctionUrlResponse,
};
use aws_lambda_events::query_map::QueryMap;
use bytes::Bytes;
use data_encoding::{BASE64, HEXUPPER};
use http::header::{COOKIE, HeaderName, HeaderValue, SET_COOKIE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use lambda_http::RequestExt;
use lambda_http::request::RequestContext;

use crate::http::events::{HttpEvent, merged, sealed};
use crate::protocol::hash::digest;

impl sealed::Request for ApiGatewayProxyRequest {
    fn head(&self) -> Request<()> {
        let path = self.path.as_deref().unwrap_or_default();
        let query = either(
            &self.multi_value_query_string_parameters,
            &self.query_string_parameters,
        );
        // These were decoded on the way; encoding them again keeps a separator inside a value from
        // splitting it.
        let address = address(
            &with_stage(self.request_context.stage.as_deref(), path),
            &query.to_query_string(),
        );
        let headers = merged(&self.multi_value_headers, &self.headers);
        head(self.http_method.clone(), address, headers, path)
            .with_query_string_parameters(query.clone())
            .with_path_parameters(self.path_parameters.clone())
            .with_stage_variables(self.stage_variables.clone())
            .with_request_context(RequestContext::ApiGatewayV1(self.request_context.clone()))
    }
}

impl sealed::Request for ApiGatewayV2httpRequest {
    fn head(&self) -> Request<()> {
        let path = self.raw_path.as_deref().unwrap_or_default();
        let query = self.raw_query_string.as_deref().unwrap_or_default();
        let address = address(
            &with_stage(self.request_context.stage.as_deref(), path),
            query,
        );
        let method = self.request_context.http.method.clone();
        let headers = with_cookies(&self.headers, self.cookies.as_deref());
        head(method, address, headers, path)
            .with_query_string_parameters(self.query_string_parameters.clone())
            .with_path_parameters(self.path_parameters.clone())
            .with_stage_variables(self.stage_variables.clone())
            .with_request_context(RequestContext::ApiGatewayV2(self.request_context.clone()))
    }
}

impl sealed::Request for AlbTargetGroupRequest {
    fn head(&self) -> Request<()> {
        let path = self.path.as_deref().unwrap_or_default();
        let query = either(
            &self.multi_value_query_string_parameters,
            &self.query_string_parameters,
        );
        // A load balancer hands them on as they came, encoded.
        let pairs: Vec<String> = query
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let headers = merged(&self.multi_value_headers, &self.headers);
        head(
            self.http_method.clone(),
            address(path, &pairs.join("&")),
            headers,
            path,
        )
        .with_query_string_parameters(query.clone())
        .with_request_context(RequestContext::Alb(self.request_context.clone()))
    }
}

impl sealed::Request for LambdaFunctionUrlRequest {
    fn head(&self) -> Request<()> {
        let path = self.raw_path.as_deref().unwrap_or_default();
        let query = self.raw_query_string.as_deref().unwrap_or_default();
        let method = self
            .request_context
            .http
            .method
            .as_deref()
            .unwrap_or_default();
        // A method that can't be read is none that is safe: it must not pass for a GET.
        let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::POST);
        let headers = with_cookies(&self.headers, self.cookies.as_deref());
        let head = head(method, address(path, query), headers, path)
            .with_query_string_parameters(self.query_string_parameters.clone());
        // A function URL says who called in the form of an HTTP API.
        let context = serde_json::to_value(&self.request_context).and_then(serde_json::from_value);
        match context {
            Ok(context) => head.with_request_context(RequestContext::ApiGatewayV2(context)),
            Err(_) => head,
        }
    }
}

/// Implements what all of the events have in the same shape.
macro_rules! events {
    ($($event:ty => $response:ty,)+) => {$(
        impl HttpEvent for $event {
            type Response = $response;
        }

        impl sealed::Body for $event {
            fn transported(&self) -> (Option<&String>, bool) {
                (self.body.as_ref(), self.is_base64_encoded)
            }
        }
    )+};
}

events! {
    ApiGatewayProxyRequest => ApiGatewayProxyResponse,
    ApiGatewayV2httpRequest => ApiGatewayV2httpResponse,
    AlbTargetGroupRequest => AlbTargetGroupResponse,
    LambdaFunctionUrlRequest => LambdaFunctionUrlResponse,
}

fn head(method: Method, uri: Uri, headers: HeaderMap, path: &str) -> Request<()> {
    let mut request = Request::new(()).with_raw_http_path(path);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
}

/// Selects the multi-value parameters, where they are switched on: they hold the others, too.
fn either<'a>(multi: &'a QueryMap, single: &'a QueryMap) -> &'a QueryMap {
    if multi.is_empty() { single } else { multi }
}

fn with_cookies(headers: &HeaderMap, cookies: Option<&[String]>) -> HeaderMap {
    let mut headers = headers.clone();
    let cookies = cookies.map(|cookies| HeaderValue::try_from(cookies.join("; ")));
    if let Some(Ok(cookies)) = cookies {
        headers.insert(COOKIE, cookies);
    }
    headers
}

/// Makes the path that the client asked for at the API's own address; without the stage where
/// `lambda_http` is told to leave it out.
fn with_stage(stage: Option<&str>, path: &str) -> String {
    match stage {
        _ if std::env::var("AWS_LAMBDA_HTTP_IGNORE_STAGE_IN_PATH").is_ok() => path.to_owned(),
        Some(stage) if stage != "$default" && !path.starts_with(&format!("/{stage}/")) => {
            format!("/{stage}{path}")
        }
        _ => path.to_owned(),
    }
}

/// Builds the address of a request. Some sources decode paths, so characters that an address can't
/// contain are encoded again.
fn address(path: &str, query: &str) -> Uri {
    let mut text = encoded(path, true);
    if !text.starts_with('/') {
        text.insert(0, '/');
    }
    if !query.is_empty() {
        text.push('?');
        text.push_str(&encoded(query, false));
    }
    text.parse().unwrap_or_else(|_| {
        // Longer than any source lets through. It must still not meet another.
        let name = digest("lambda-idempotency/address/1", [text.as_bytes()]);
        format!("/{name}").parse().unwrap_or_default()
    })
}

fn encoded(text: &str, is_path: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let stays = byte.is_ascii_graphic()
            && !matches!(
                byte,
                b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | b'#'
            )
            && !(is_path && byte == b'?');
        if stays {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push_str(&HEXUPPER.encode(&[byte]));
        }
    }
    out
}

impl sealed::Answer for ApiGatewayProxyResponse {
    fn to_http(&self) -> Response<Bytes> {
        let headers = merged(&self.multi_value_headers, &self.headers);
        let body = decoded(self.body.as_ref(), self.is_base64_encoded);
        response(self.status_code, headers, body)
    }

    fn of_http(response: Response<Bytes>) -> Self {
        let (parts, body) = response.into_parts();
        let mut answer = Self::default();
        answer.status_code = parts.status.as_u16().into();
        // API Gateway sends a header that is in both maps twice.
        answer.multi_value_headers = parts.headers;
        (answer.body, answer.is_base64_encoded) = base64_body(body);
        answer
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        self.multi_value_headers.insert(name, value);
    }
}

impl sealed::Answer for ApiGatewayV2httpResponse {
    fn to_http(&self) -> Response<Bytes> {
        // Format 2.0 has no other map: API Gateway sends no header of `multi_value_headers`.
        let mut headers = self.headers.clone();
        add_cookies(&mut headers, &self.cookies);
        let body = decoded(self.body.as_ref(), self.is_base64_encoded);
        response(self.status_code, headers, body)
    }

    fn of_http(response: Response<Bytes>) -> Self {
        let (mut parts, body) = response.into_parts();
        let mut answer = Self::default();
        answer.status_code = parts.status.as_u16().into();
        answer.cookies = take_cookies(&mut parts.headers);
        answer.headers = parts.headers;
        (answer.body, answer.is_base64_encoded) = base64_body(body);
        answer
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }
}

impl sealed::Answer for AlbTargetGroupResponse {
    fn to_http(&self) -> Response<Bytes> {
        let headers = merged(&self.multi_value_headers, &self.headers);
        let body = decoded(self.body.as_ref(), self.is_base64_encoded);
        response(self.status_code, headers, body)
    }

    fn of_http(response: Response<Bytes>) -> Self {
        let (parts, body) = response.into_parts();
        let mut answer = Self::default();
        answer.status_code = parts.status.as_u16().into();
        answer.status_description = Some(parts.status.to_string());
        // The target group's setting says which of the two counts.
        answer.headers = parts.headers.clone();
        answer.multi_value_headers = parts.headers;
        (answer.body, answer.is_base64_encoded) = base64_body(body);
        answer
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name.clone(), value.clone());
        self.multi_value_headers.insert(name, value);
    }
}

impl sealed::Answer for LambdaFunctionUrlResponse {
    fn to_http(&self) -> Response<Bytes> {
        let mut headers = self.headers.clone();
        add_cookies(&mut headers, &self.cookies);
        let body = self.body.clone().map(Body::Text);
        let body = decoded(body.as_ref(), self.is_base64_encoded);
        response(self.status_code, headers, body)
    }

    fn of_http(response: Response<Bytes>) -> Self {
        let (mut parts, body) = response.into_parts();
        let mut answer = Self::default();
        answer.status_code = parts.status.as_u16().into();
        answer.cookies = take_cookies(&mut parts.headers);
        answer.headers = parts.headers;
        (answer.body, answer.is_base64_encoded) = match base64_body(body) {
            (Some(Body::Text(text)), flag) => (Some(text), flag),
            (Some(Body::Binary(bytes)), flag) => (Some(BASE64.encode(&bytes)), flag),
            (_, flag) => (None, flag),
        };
        answer
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }
}

/// Makes a response. An invalid status is a mistake of the handler's and becomes a 500.
fn response(status: i64, headers: HeaderMap, body: Bytes) -> Response<Bytes> {
    let status = u16::try_from(status)
        .ok()
        .and_then(|status| StatusCode::from_u16(status).ok());
    let mut response = Response::new(body);
    *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

fn add_cookies(headers: &mut HeaderMap, cookies: &[String]) {
    for cookie in cookies {
        if let Ok(cookie) = HeaderValue::from_str(cookie) {
            headers.append(SET_COOKIE, cookie);
        }
    }
}

fn take_cookies(headers: &mut HeaderMap) -> Vec<String> {
    let cookies = headers.get_all(SET_COOKIE).iter();
    let cookies = cookies.filter_map(|cookie| cookie.to_str().ok().map(str::to_owned));
    let cookies = cookies.collect();
    headers.remove(SET_COOKIE);
    cookies
}

fn decoded(body: Option<&Body>, is_base64: bool) -> Bytes {
    match body {
        Some(Body::Text(text)) if is_base64 => match BASE64.decode(text.as_bytes()) {
            Ok(bytes) => bytes.into(),
            Err(_) => Bytes::copy_from_slice(text.as_bytes()),
        },
        Some(body) => Bytes::copy_from_slice(body),
        None => Bytes::new(),
    }
}

/// Encodes a body: as text where it is text. No text has a NUL, which takes six bytes in JSON.
fn base64_body(body: Bytes) -> (Option<Body>, bool) {
    if body.is_empty() {
        return (None, false);
    }
    if body.contains(&0) {
        return (Some(Body::Binary(body.into())), true);
    }
    match String::from_utf8(body.into()) {
        Ok(text) => (Some(Body::Text(text)), false),
        Err(error) => (Some(Body::Binary(error.into_bytes())), true),
    }
}

#[cfg(test)]
mod tests {
    use sealed::Answer;

    use super::*;

    #[test]
    fn an_address_holds_whatever_a_door_hands_on() {
        for (path, query, expected) in [
            ("/orders", "", "/orders"),
            ("/a b/ü?x#y", "q=a b", "/a%20b/%C3%BC%3Fx%23y?q=a%20b"),
            ("/a%20b", "q=%26", "/a%20b?q=%26"),
            ("/a?b", "next=/c?d", "/a%3Fb?next=/c?d"),
            ("/orders/", "", "/orders/"),
            ("orders/", "", "/orders/"),
            ("", "", "/"),
            ("orders", "", "/orders"),
        ] {
            assert_eq!(address(path, query).to_string(), expected);
        }
        let (long, longer) = ("/".repeat(70_000), "/".repeat(70_001));
        assert_ne!(address(&long, ""), address(&longer, ""));
    }

    #[test]
    fn parameters_are_at_hand_as_under_lambda_http() {
        let parameter = || [("id".to_owned(), "7".to_owned())].into();
        let mut rest = ApiGatewayProxyRequest::default();
        rest.path_parameters = parameter();
        let mut http = ApiGatewayV2httpRequest::default();
        http.path_parameters = parameter();
        for head in [sealed::Request::head(&rest), sealed::Request::head(&http)] {
            assert_eq!(head.path_parameters().first("id"), Some("7"));
        }
    }

    #[test]
    fn cookies_are_one_header_beside_the_others() {
        let headers: HeaderMap = [("x-order".parse().unwrap(), HeaderValue::from_static("17"))]
            .into_iter()
            .collect();
        assert_eq!(with_cookies(&headers, None), headers);
        let cookies = ["session=1".to_owned(), "theme=dark".to_owned()];
        let with = with_cookies(&headers, Some(&cookies));
        assert_eq!(with["x-order"], "17");
        assert_eq!(with[COOKIE], "session=1; theme=dark");
    }

    #[test]
    fn a_stage_stands_before_the_path_once() {
        assert_eq!(with_stage(Some("live"), "/orders"), "/live/orders");
        assert_eq!(with_stage(Some("live"), "/live/orders"), "/live/orders");
        assert_eq!(with_stage(Some("$default"), "/orders"), "/orders");
        assert_eq!(with_stage(None, "/orders"), "/orders");
    }

    #[test]
    fn each_cookie_leaves_beside_the_headers_and_comes_back_as_one() {
        let response = || {
            Response::builder()
                .header("x-order", "17")
                .header(SET_COOKIE, "session=1")
                .header(SET_COOKIE, "theme=dark")
                .body(Bytes::new())
                .unwrap()
        };
        let url = LambdaFunctionUrlResponse::of_http(response());
        let http = ApiGatewayV2httpResponse::of_http(response());
        for (cookies, headers) in [(&url.cookies, &url.headers), (&http.cookies, &http.headers)] {
            assert_eq!(cookies, &["session=1", "theme=dark"]);
            assert_eq!(headers.len(), 1);
            assert_eq!(headers["x-order"], "17");
        }
        for back in [url.to_http(), http.to_http()] {
            assert_eq!(back.headers(), response().headers());
        }
    }

    #[test]
    fn a_header_that_format_2_0_does_not_send_is_not_stored() {
        let mut answer = ApiGatewayV2httpResponse::default();
        let values = [("vary", "origin"), ("vary", "accept"), ("x-order", "17")];
        let [sent, other, unsent] = values.map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        answer.headers.extend([sent]);
        answer.multi_value_headers.extend([other, unsent]);
        assert_eq!(answer.to_http().headers(), &answer.headers);
    }

    #[test]
    fn a_body_that_is_no_text_leaves_in_base64() {
        let bytes = Bytes::from_static(&[0, 0xFF]);
        let url = LambdaFunctionUrlResponse::of_http(Response::new(bytes.clone()));
        assert_eq!(
            (url.body.as_deref(), url.is_base64_encoded),
            (Some("AP8="), true)
        );
        assert_eq!(url.to_http().into_body(), bytes);
        let rest = ApiGatewayProxyResponse::of_http(Response::new(bytes.clone()));
        assert!(rest.is_base64_encoded);
        assert_eq!(rest.body.as_deref(), Some(&bytes[..]));
        let padded = LambdaFunctionUrlResponse::of_http(Response::new(Bytes::from("tea\0")));
        assert_eq!(
            (padded.body.as_deref(), padded.is_base64_encoded),
            (Some("dGVhAA=="), true)
        );

        let text = LambdaFunctionUrlResponse::of_http(Response::new(Bytes::from("tea")));
        assert_eq!(
            (text.body.as_deref(), text.is_base64_encoded),
            (Some("tea"), false)
        );
        let empty = LambdaFunctionUrlResponse::of_http(Response::new(Bytes::new()));
        assert_eq!((empty.body, empty.is_base64_encoded), (None, false));
    }

    #[test]
    fn a_status_that_is_none_is_an_error_of_the_handler() {
        for (status, expected) in [(201, 201), (99, 500), (-1, 500), (70_000, 500)] {
            let mut answer = ApiGatewayV2httpResponse::default();
            answer.status_code = status;
            assert_eq!(answer.to_http().status().as_u16(), expected, "{status}");
        }
    }

    #[test]
    fn a_load_balancer_gets_the_headers_in_both_places() {
        let response = Response::builder()
            .header("x-order", "17")
            .body(Bytes::new())
            .unwrap();
        let mut answer = AlbTargetGroupResponse::of_http(response);
        let (name, value) = ("x-more", "1");
        answer.add(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        assert_eq!(answer.status_description.as_deref(), Some("200 OK"));
        for headers in [&answer.headers, &answer.multi_value_headers] {
            assert_eq!(headers["x-order"], "17");
            assert_eq!(headers[name], value);
        }
    }
}

//! Answers to events as HTTP responses, and back. Pure.

use aws_lambda_events::alb::AlbTargetGroupResponse;
use aws_lambda_events::apigw::{ApiGatewayProxyResponse, ApiGatewayV2httpResponse};
use aws_lambda_events::encodings::Body;
use aws_lambda_events::lambda_function_urls::LambdaFunctionUrlResponse;
use bytes::Bytes;
use data_encoding::BASE64;
use http::header::{HeaderName, HeaderValue, SET_COOKIE};
use http::{HeaderMap, Response, StatusCode};

use super::{HttpAnswer, sealed};

impl HttpAnswer for ApiGatewayProxyResponse {}
impl HttpAnswer for ApiGatewayV2httpResponse {}
impl HttpAnswer for AlbTargetGroupResponse {}
impl HttpAnswer for LambdaFunctionUrlResponse {}

impl sealed::Answer for ApiGatewayProxyResponse {
    fn to_http(&self) -> Response<Bytes> {
        let headers = union(&self.multi_value_headers, &self.headers);
        response(
            self.status_code,
            headers,
            decoded(self.body.as_ref(), self.is_base64_encoded),
        )
    }

    fn of_http(response: Response<Bytes>) -> Self {
        let (parts, body) = response.into_parts();
        let mut answer = Self::default();
        answer.status_code = parts.status.as_u16().into();
        // API Gateway sends what stands in both maps twice.
        answer.multi_value_headers = parts.headers;
        (answer.body, answer.is_base64_encoded) = encoded(body);
        answer
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        self.multi_value_headers.insert(name, value);
    }
}

impl sealed::Answer for ApiGatewayV2httpResponse {
    fn to_http(&self) -> Response<Bytes> {
        let mut headers = union(&self.multi_value_headers, &self.headers);
        add_cookies(&mut headers, &self.cookies);
        response(
            self.status_code,
            headers,
            decoded(self.body.as_ref(), self.is_base64_encoded),
        )
    }

    fn of_http(response: Response<Bytes>) -> Self {
        let (mut parts, body) = response.into_parts();
        let mut answer = Self::default();
        answer.status_code = parts.status.as_u16().into();
        answer.cookies = take_cookies(&mut parts.headers);
        answer.headers = parts.headers;
        (answer.body, answer.is_base64_encoded) = encoded(body);
        answer
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }
}

impl sealed::Answer for AlbTargetGroupResponse {
    fn to_http(&self) -> Response<Bytes> {
        let headers = union(&self.multi_value_headers, &self.headers);
        response(
            self.status_code,
            headers,
            decoded(self.body.as_ref(), self.is_base64_encoded),
        )
    }

    fn of_http(response: Response<Bytes>) -> Self {
        let (parts, body) = response.into_parts();
        let mut answer = Self::default();
        answer.status_code = parts.status.as_u16().into();
        answer.status_description = Some(parts.status.to_string());
        // The target group's setting says which of the two counts.
        answer.headers = parts.headers.clone();
        answer.multi_value_headers = parts.headers;
        (answer.body, answer.is_base64_encoded) = encoded(body);
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
        response(
            self.status_code,
            headers,
            decoded(body.as_ref(), self.is_base64_encoded),
        )
    }

    fn of_http(response: Response<Bytes>) -> Self {
        let (mut parts, body) = response.into_parts();
        let mut answer = Self::default();
        answer.status_code = parts.status.as_u16().into();
        answer.cookies = take_cookies(&mut parts.headers);
        answer.headers = parts.headers;
        (answer.body, answer.is_base64_encoded) = match encoded(body) {
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

/// A status that is none is a mistake of the handler's: nothing to be stored.
fn response(status: i64, headers: HeaderMap, body: Bytes) -> Response<Bytes> {
    let status = u16::try_from(status)
        .ok()
        .and_then(|status| StatusCode::from_u16(status).ok());
    let mut response = Response::new(body);
    *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

/// Where both maps name a header, the one with many values counts.
fn union(multi: &HeaderMap, single: &HeaderMap) -> HeaderMap {
    let mut headers = multi.clone();
    for (name, value) in single {
        if !multi.contains_key(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
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

/// Text where it is text.
fn encoded(body: Bytes) -> (Option<Body>, bool) {
    if body.is_empty() {
        return (None, false);
    }
    match String::from_utf8(body.into()) {
        Ok(text) => (Some(Body::Text(text)), false),
        Err(error) => (Some(Body::Binary(error.into_bytes())), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealed::Answer;

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
        for headers in [&answer.headers, &answer.multi_value_headers] {
            assert_eq!(headers["x-order"], "17");
            assert_eq!(headers[name], value);
        }
    }
}

//! Converts the responses of events to HTTP responses, and back. Pure.

use aws_lambda_events::alb::AlbTargetGroupResponse;
use aws_lambda_events::apigw::{ApiGatewayProxyResponse, ApiGatewayV2httpResponse};
use aws_lambda_events::encodings::Body;
use aws_lambda_events::lambda_function_urls::LambdaFunctionUrlResponse;
use bytes::Bytes;
use data_encoding::BASE64;
use http::header::{HeaderName, HeaderValue, SET_COOKIE};
use http::{HeaderMap, Response, StatusCode};

use super::{HttpEventResponse, merged, sealed};

impl HttpEventResponse for ApiGatewayProxyResponse {}
impl HttpEventResponse for ApiGatewayV2httpResponse {}
impl HttpEventResponse for AlbTargetGroupResponse {}
impl HttpEventResponse for LambdaFunctionUrlResponse {}

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
        (answer.body, answer.is_base64_encoded) = encoded(body);
        answer
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        self.multi_value_headers.insert(name, value);
    }
}

impl sealed::Answer for ApiGatewayV2httpResponse {
    fn to_http(&self) -> Response<Bytes> {
        let mut headers = merged(&self.multi_value_headers, &self.headers);
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
        (answer.body, answer.is_base64_encoded) = encoded(body);
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
        let body = decoded(body.as_ref(), self.is_base64_encoded);
        response(self.status_code, headers, body)
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

/// Encodes a body: as text where it is text.
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

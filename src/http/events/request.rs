//! Converts events to HTTP requests. Pure. What `lambda_http` makes of the same event has the same
//! key and fingerprint.

use aws_lambda_events::alb::AlbTargetGroupRequest;
use aws_lambda_events::apigw::{ApiGatewayProxyRequest, ApiGatewayV2httpRequest};
use aws_lambda_events::lambda_function_urls::LambdaFunctionUrlRequest;
use aws_lambda_events::query_map::QueryMap;
use data_encoding::HEXUPPER;
use http::header::{COOKIE, HeaderValue};
use http::{HeaderMap, Method, Request, Uri};
use lambda_http::RequestExt;
use lambda_http::request::RequestContext;

use super::{HttpEvent, merged, sealed};
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
            .with_request_context(RequestContext::ApiGatewayV1(self.request_context.clone()))
    }

    fn transported(&self) -> (Option<&String>, bool) {
        (self.body.as_ref(), self.is_base64_encoded)
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
            .with_request_context(RequestContext::ApiGatewayV2(self.request_context.clone()))
    }

    fn transported(&self) -> (Option<&String>, bool) {
        (self.body.as_ref(), self.is_base64_encoded)
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
        .with_request_context(RequestContext::Alb(self.request_context.clone()))
    }

    fn transported(&self) -> (Option<&String>, bool) {
        (self.body.as_ref(), self.is_base64_encoded)
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
        let head = head(method, address(path, query), headers, path);
        // A function URL says who called in the form of an HTTP API.
        let context = serde_json::to_value(&self.request_context).and_then(serde_json::from_value);
        match context {
            Ok(context) => head.with_request_context(RequestContext::ApiGatewayV2(context)),
            Err(_) => head,
        }
    }

    fn transported(&self) -> (Option<&String>, bool) {
        (self.body.as_ref(), self.is_base64_encoded)
    }
}

impl HttpEvent for ApiGatewayProxyRequest {
    type Response = aws_lambda_events::apigw::ApiGatewayProxyResponse;
}

impl HttpEvent for ApiGatewayV2httpRequest {
    type Response = aws_lambda_events::apigw::ApiGatewayV2httpResponse;
}

impl HttpEvent for AlbTargetGroupRequest {
    type Response = aws_lambda_events::alb::AlbTargetGroupResponse;
}

impl HttpEvent for LambdaFunctionUrlRequest {
    type Response = aws_lambda_events::lambda_function_urls::LambdaFunctionUrlResponse;
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

/// Makes the path that the client asked for at the API's own address.
fn with_stage(stage: Option<&str>, path: &str) -> String {
    match stage {
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

#[cfg(test)]
mod tests {
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
}

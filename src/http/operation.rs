//! Finds where a request goes: its address, its route template, its operation. Pure.

use std::borrow::Cow;

use http::Uri;
use http::request::Parts;
use percent_encoding::{CONTROLS, utf8_percent_encode};

#[cfg(feature = "lambda-http")]
use crate::http::gateway;
use crate::http::route::is_template;

/// Names the operation: method and route template, where one is known; else method and path.
pub(super) fn operation(parts: &Parts, template: Option<&str>) -> String {
    let path = template.unwrap_or_else(|| whole_path(parts));
    // A gateway that decodes paths hands on control characters, which no key takes.
    if path.contains(char::is_control) {
        return format!("{} {}", parts.method, utf8_percent_encode(path, CONTROLS));
    }
    format!("{} {path}", parts.method)
}

/// Labels the operation for the metrics where its own name has values of the path, which are too many:
/// by the route inside of a nest, or else by the method alone.
pub(super) fn label(parts: &Parts, template: Option<&str>, inside: Option<&str>) -> Option<String> {
    let path = inside.or(template.is_none().then_some("*"))?;
    Some(format!("{} {path}", parts.method))
}

/// Returns the path as the API's author knows it: without the stage that an HTTP API puts before it, or
/// the base path that a custom domain does, where the feature `lambda-http` reads their events. Of an
/// HTTP API's route `$default`, the base path isn't known and stays.
///
/// ```
/// # #[cfg(feature = "lambda-http")] {
/// use lambda_http::Request;
///
/// # let event = r#"{"version": "2.0", "routeKey": "$default", "rawPath": "/prod/orders", "rawQueryString": "", "headers": {},
/// #   "requestContext": {"stage": "prod", "http": {"method": "POST", "path": "/prod/orders"}}, "isBase64Encoded": false}"#;
/// // An event of the stage `prod`, with `"rawPath": "/prod/orders"`.
/// let request: Request = lambda_http::request::from_str(event)?;
/// let (parts, _body) = request.into_parts();
/// assert_eq!(lambda_idempotency::http::path(&parts), "/orders");
/// # }
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn path(parts: &Parts) -> &str {
    #[cfg(feature = "lambda-http")]
    if let Some(path) = gateway::path(parts) {
        return path;
    }
    uri(parts).path()
}

/// Returns the path that tells requests apart: the event's own where no address can hold it.
pub(super) fn whole_path(parts: &Parts) -> &str {
    #[cfg(feature = "lambda-http")]
    if let Some(path) = gateway::decoded_path(parts) {
        return path;
    }
    uri(parts).path()
}

/// Returns whether the path of [`path`] is decoded already.
pub(super) fn is_decoded(parts: &Parts) -> bool {
    #[cfg(feature = "lambda-http")]
    let is_decoded = gateway::decodes_paths(parts);
    #[cfg(not(feature = "lambda-http"))]
    let is_decoded = {
        let _ = parts;
        false
    };
    is_decoded
}

/// Returns the query, encoded as the client sent it, or again where the event's path is decoded.
pub(super) fn query(parts: &Parts) -> Option<Cow<'_, str>> {
    #[cfg(feature = "lambda-http")]
    if let Some(query) = gateway::lost_query(parts, uri(parts)) {
        return Some(Cow::Owned(query));
    }
    uri(parts).query().map(Cow::Borrowed)
}

/// Returns the address that the client asked for. A nested axum router hands on what is left of it.
pub(super) fn uri(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return &original.0;
    }
    &parts.uri
}

/// Returns what a nested axum router has left of the path; `None` outside of one.
pub(super) fn nested_path(parts: &Parts) -> Option<&str> {
    Some(parts.uri.path()).filter(|path| *path != uri(parts).path())
}

/// Returns the beginning of the path, which nested axum routers have taken off; the whole path, where a
/// layer inside has changed the rest.
pub(super) fn nest(parts: &Parts) -> &str {
    let whole = uri(parts).path();
    whole.strip_suffix(parts.uri.path()).unwrap_or(whole)
}

/// Returns the template that the gateway or axum matched. Where the gateway's route covers many
/// operations, the router behind it may have the template of one operation.
pub(super) fn matched_template(parts: &Parts) -> Option<&str> {
    #[cfg(feature = "lambda-http")]
    if let Some(template) = gateway::route(parts).filter(|route| is_template(route)) {
        return Some(template);
    }
    router_path(parts).filter(|path| is_template(path))
}

#[cfg(feature = "axum")]
fn router_path(parts: &Parts) -> Option<&str> {
    let matched = parts.extensions.get::<axum::extract::MatchedPath>();
    matched.map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn router_path(_: &Parts) -> Option<&str> {
    None
}

#[cfg(test)]
mod tests {
    use lambda_http::RequestExt;
    use lambda_http::aws_lambda_events::alb::AlbTargetGroupRequestContext;
    use lambda_http::aws_lambda_events::apigw::{
        ApiGatewayProxyRequestContext, ApiGatewayV2httpRequestContext,
    };
    use lambda_http::request::RequestContext;

    use super::*;

    /// As the layer names it, where this template was declared.
    fn named(parts: &Parts, declared: Option<&str>) -> String {
        operation(parts, matched_template(parts).or(declared))
    }

    fn request(context: Option<RequestContext>) -> Parts {
        let request = http::Request::post("https://api.example.com/prod/orders/17?x=1")
            .body(())
            .unwrap();
        let request = match context {
            Some(context) => request.with_request_context(context),
            None => request,
        };
        request.into_parts().0
    }

    fn v1(resource_path: &str) -> RequestContext {
        let mut context = ApiGatewayProxyRequestContext::default();
        context.resource_path = Some(resource_path.to_owned());
        RequestContext::ApiGatewayV1(context)
    }

    fn v2(route_key: &str) -> RequestContext {
        let mut context = ApiGatewayV2httpRequestContext::default();
        context.route_key = Some(route_key.to_owned());
        RequestContext::ApiGatewayV2(context)
    }

    #[test]
    fn a_known_template_names_the_operation() {
        for context in [
            v1("/orders/{id}"),
            v2("POST /orders/{id}"),
            v2("ANY /orders/{id}"),
        ] {
            let request = request(Some(context));
            assert_eq!(named(&request, None), "POST /orders/{id}");
            assert_eq!(named(&request, Some("/other")), "POST /orders/{id}");
        }
    }

    #[test]
    fn no_control_character_of_a_path_is_in_the_operation() {
        let request = request(None);
        for (path, expected) in [
            ("/a\r\nb\u{7f}", "POST /a%0D%0Ab%7F"),
            ("/\u{e9}\u{85}", "POST /%C3%A9%C2%85"),
            ("/\u{e9} %0A", "POST /\u{e9} %0A"),
        ] {
            assert_eq!(operation(&request, Some(path)), expected);
        }
    }

    #[test]
    fn otherwise_a_declared_one_does_or_the_path() {
        for context in [
            None,
            Some(RequestContext::Alb(AlbTargetGroupRequestContext::default())),
            Some(v1("/{proxy+}")),
            Some(v1("/orders/{rest+}")),
            Some(v2("$default")),
            Some(v2("ANY /{proxy+}")),
            Some(v2("")),
        ] {
            let request = request(context);
            assert_eq!(named(&request, None), "POST /prod/orders/17");
            assert_eq!(named(&request, Some("/orders/{id}")), "POST /orders/{id}");
        }
    }
}

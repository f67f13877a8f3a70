//! Reads what `lambda_http` knows of a request: the gateway's route, the path without its stage or its
//! base path, the invocation's deadline. Pure.

use std::borrow::Cow;
use std::time::SystemTime;

use aws_lambda_events::query_map::QueryMap;
use http::Uri;
use http::request::Parts;
use lambda_http::request::RequestContext;
use lambda_http::{Context, RequestExt as _};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::http::route::filled;

/// Returns the end of the invocation.
pub(super) fn deadline(parts: &Parts) -> Option<SystemTime> {
    parts.extensions.get().map(Context::deadline)
}

/// Returns the path of the event, without the stage that an HTTP API puts before it, or the base path that
/// a custom domain does. Of the latter, a route `$default` tells nothing.
pub(super) fn path(parts: &Parts) -> Option<&str> {
    let path = Some(parts.raw_http_path()).filter(|path| !path.is_empty())?;
    let template = route(parts);
    let path = match parts.extensions.get::<RequestContext>() {
        // No REST API has such a route: this is an HTTP API's event of format 1.0.
        Some(RequestContext::ApiGatewayV1(context)) if template == Some("$default") => {
            without_stage(path, context.stage.as_deref())
        }
        Some(RequestContext::ApiGatewayV2(context)) => {
            without_stage(path, context.stage.as_deref())
        }
        _ => path,
    };
    let parameters = parts.path_parameters_ref();
    let inside = template.and_then(|template| without_base_path(path, template, parameters));
    Some(inside.unwrap_or(path))
}

/// Returns the event's path, where it has a character that no address has: its source has decoded it, as
/// HTTP APIs do, and `lambda_http` cuts an address with it at a `#`.
pub(super) fn decoded_path(parts: &Parts) -> Option<&str> {
    let path = Some(parts.raw_http_path()).filter(|_| decodes_paths(parts))?;
    let in_address = |b: u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&b);
    (!path.bytes().all(in_address)).then_some(path)
}

/// Returns the query by the event's parameters, in no order of their names, where the address lost it with
/// the end of a decoded path.
pub(super) fn lost_query(parts: &Parts, uri: &Uri) -> Option<String> {
    let path = decoded_path(parts)?;
    let address: Cow<'_, [u8]> = percent_decode_str(uri.path()).into();
    if address.ends_with(path.as_bytes()) {
        return None;
    }
    let pairs = parts.query_string_parameters_ref()?.iter();
    let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    let pairs = pairs.map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    Some(pairs.collect::<Vec<_>>().join("&"))
}

/// Returns whether the path of the event is decoded: HTTP APIs do that, function URLs, whose events have
/// the same form, and the other sources don't.
pub(super) fn decodes_paths(parts: &Parts) -> bool {
    match parts.extensions.get::<RequestContext>() {
        Some(RequestContext::ApiGatewayV1(context)) => {
            context.resource_path.as_deref() == Some("$default")
        }
        Some(RequestContext::ApiGatewayV2(context)) => {
            let domain = context.domain_name.as_deref().unwrap_or_default();
            !domain.contains(".lambda-url.")
        }
        _ => false,
    }
}

fn without_stage<'a>(path: &'a str, stage: Option<&str>) -> &'a str {
    let rest = stage.and_then(|stage| path.strip_prefix('/')?.strip_prefix(stage));
    match rest {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

/// Returns the end of a path that the gateway matched with this template and found these parameters in;
/// `None` where they don't tell. The event doesn't say what the base path is.
fn without_base_path<'a>(
    path: &'a str,
    template: &str,
    parameters: Option<&QueryMap>,
) -> Option<&'a str> {
    let matched = filled(template, |name| parameters?.first(name))?;
    // The gateway may decode either, and ignores a slash at the end.
    let decoded =
        |text: &'a str| -> Cow<'a, [u8]> { percent_decode_str(text.trim_end_matches('/')).into() };
    let all = decoded(path);
    let matched: Cow<'_, [u8]> = percent_decode_str(matched.trim_end_matches('/')).into();
    // A base path has no character that is encoded.
    let base = std::str::from_utf8(all.strip_suffix(&*matched)?).ok()?;
    let rest = path.strip_prefix(base)?;
    Some(if rest.is_empty() { "/" } else { rest })
}

/// Returns the route that API Gateway matched: a template of one operation, or of many, or `None`.
pub(super) fn route(parts: &Parts) -> Option<&str> {
    match parts.extensions.get::<RequestContext>()? {
        RequestContext::ApiGatewayV1(context) => context.resource_path.as_deref(),
        // `POST /orders/{id}`, `ANY /orders/{id}` or `$default`.
        RequestContext::ApiGatewayV2(context) => {
            Some(context.route_key.as_deref()?.split_once(' ')?.1)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_stage_is_taken_off_where_it_is_one() {
        for (path, stage, expected) in [
            ("/prod/orders", Some("prod"), "/orders"),
            ("/prod", Some("prod"), "/"),
            ("/prod/", Some("prod"), "/"),
            ("/production/orders", Some("prod"), "/production/orders"),
            ("/orders", Some("prod"), "/orders"),
            ("/orders", Some("$default"), "/orders"),
            ("/orders", None, "/orders"),
        ] {
            assert_eq!(without_stage(path, stage), expected, "{path}");
        }
    }

    #[test]
    fn a_base_path_is_taken_off_where_the_rest_is_what_was_matched() {
        let proxy = |value: &str| {
            let pair = ("proxy".to_owned(), value.to_owned());
            QueryMap::from(HashMap::from([pair]))
        };
        for (path, template, parameter, expected) in [
            (
                "/shop/orders/17",
                "/{proxy+}",
                "orders/17",
                Some("/orders/17"),
            ),
            ("/orders/17", "/{proxy+}", "orders/17", Some("/orders/17")),
            ("/a/b/orders", "/{proxy+}", "orders", Some("/orders")),
            ("/orders/orders", "/{proxy+}", "orders", Some("/orders")),
            (
                "/shop/v1/orders",
                "/v1/{proxy+}",
                "orders",
                Some("/v1/orders"),
            ),
            (
                "/shop/v1/o/17/x",
                "/v1/o/{proxy}/x",
                "17",
                Some("/v1/o/17/x"),
            ),
            ("/shop/a%20b/%2F", "/{proxy+}", "a b//", None),
            (
                "/shop/a%20b/c%2Fd",
                "/{proxy+}",
                "a b/c/d",
                Some("/a%20b/c%2Fd"),
            ),
            ("/shop/a b", "/{proxy+}", "a%20b", Some("/a b")),
            ("/shop/orders/", "/orders", "", Some("/orders/")),
            ("/shop", "/", "", Some("/")),
            ("/shop/", "/", "", Some("/")),
            ("/shop/orders", "/{proxy+}", "bills", None),
            ("/shop/orders", "/{other+}", "orders", None),
            ("/shop/orders", "$default", "orders", None),
        ] {
            let parameters = proxy(parameter);
            let found = without_base_path(path, template, Some(&parameters));
            assert_eq!(found, expected, "{path} of {template}");
        }
        assert_eq!(without_base_path("/shop/orders", "/{proxy+}", None), None);
    }
}

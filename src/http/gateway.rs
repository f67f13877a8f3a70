//! Reads what `lambda_http` knows of a request: the gateway's route, the path without its stage,
//! the invocation's deadline. Pure.

use std::time::SystemTime;

use http::request::Parts;
use lambda_http::request::RequestContext;
use lambda_http::{Context, RequestExt as _};

/// Gives the end of the invocation.
pub(super) fn deadline(parts: &Parts) -> Option<SystemTime> {
    parts.extensions.get().map(Context::deadline)
}

/// Gives the path of the event, without the stage that an HTTP API puts before it.
pub(super) fn path(parts: &Parts) -> Option<&str> {
    let path = Some(parts.raw_http_path()).filter(|path| !path.is_empty())?;
    Some(match parts.extensions.get::<RequestContext>() {
        Some(RequestContext::ApiGatewayV2(context)) => {
            without_stage(path, context.stage.as_deref())
        }
        _ => path,
    })
}

fn without_stage<'a>(path: &'a str, stage: Option<&str>) -> &'a str {
    let rest = stage.and_then(|stage| path.strip_prefix('/')?.strip_prefix(stage));
    match rest {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

/// Gives the route that API Gateway matched: a template of one operation, or of many, or `None`.
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
}

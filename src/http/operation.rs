//! Where a request goes: its address, its route, its operation. Pure.

use http::Uri;
use http::request::Parts;
use lambda_http::RequestExt as _;
use lambda_http::request::RequestContext;

/// Method and route template, where the gateway, axum or a declared route knows one; else method and path.
pub(super) fn operation(parts: &Parts, declared: Option<&str>) -> String {
    let route = template(parts)
        .or(declared)
        .unwrap_or_else(|| uri(parts).path());
    format!("{} {route}", parts.method)
}

/// What the metrics call the operation where no template is known: paths are too many, so the method alone.
pub(super) fn label(parts: &Parts, declared: Option<&str>) -> Option<String> {
    let is_known = template(parts).or(declared).is_some();
    (!is_known).then(|| format!("{} *", parts.method))
}

/// The path as the API's author knows it: without the stage that an HTTP API puts before it.
///
/// ```
/// use lambda_http::Request;
///
/// # let event = r#"{"version": "2.0", "routeKey": "$default", "rawPath": "/prod/orders", "rawQueryString": "", "headers": {},
/// #   "requestContext": {"stage": "prod", "http": {"method": "POST", "path": "/prod/orders"}}, "isBase64Encoded": false}"#;
/// // An event of the stage `prod`, with `"rawPath": "/prod/orders"`.
/// let request: Request = lambda_http::request::from_str(event)?;
/// let (parts, _body) = request.into_parts();
/// assert_eq!(lambda_idempotency::http::path(&parts), "/orders");
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn path(parts: &Parts) -> &str {
    let path = match parts.raw_http_path() {
        "" => return uri(parts).path(),
        path => path,
    };
    match parts.extensions.get::<RequestContext>() {
        Some(RequestContext::ApiGatewayV2(context)) => {
            without_stage(path, context.stage.as_deref())
        }
        _ => path,
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

/// The address that the client asked for. A nested axum router hands on what is left of it.
pub(super) fn uri(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return &original.0;
    }
    &parts.uri
}

/// What the gateway or axum matched; `None` where that stands for many operations.
pub(super) fn template(parts: &Parts) -> Option<&str> {
    let route = of_gateway(parts).or_else(|| of_axum(parts))?;
    let is_greedy = route.contains("+}") || route.contains("{*");
    (route.starts_with('/') && !is_greedy).then_some(route)
}

fn of_gateway(parts: &Parts) -> Option<&str> {
    match parts.extensions.get::<RequestContext>()? {
        RequestContext::ApiGatewayV1(context) => context.resource_path.as_deref(),
        // `POST /orders/{id}`, `ANY /orders/{id}` or `$default`.
        RequestContext::ApiGatewayV2(context) => {
            Some(context.route_key.as_deref()?.split_once(' ')?.1)
        }
        _ => None,
    }
    // A greedy parameter, `/{proxy+}`, stands for many operations; a router behind it may know better.
    .filter(|route| !route.contains("+}"))
}

#[cfg(feature = "axum")]
fn of_axum(parts: &Parts) -> Option<&str> {
    let matched = parts.extensions.get::<axum::extract::MatchedPath>();
    matched.map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn of_axum(_: &Parts) -> Option<&str> {
    None
}

#[cfg(test)]
mod tests {
    use lambda_http::RequestExt;
    use lambda_http::aws_lambda_events::alb::AlbTargetGroupRequestContext;
    use lambda_http::aws_lambda_events::apigw::{
        ApiGatewayProxyRequestContext, ApiGatewayV2httpRequestContext,
    };

    use super::*;

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
            assert_eq!(operation(&request, None), "POST /orders/{id}");
            assert_eq!(operation(&request, Some("/other")), "POST /orders/{id}");
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
            assert_eq!(operation(&request, None), "POST /prod/orders/17");
            assert_eq!(
                operation(&request, Some("/orders/{id}")),
                "POST /orders/{id}"
            );
        }
    }

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

//! Which operation a request asks for. Pure.

use http::request::Parts;
use lambda_http::request::RequestContext;

/// Method and route template, where API Gateway tells one that is of use; else method and path.
pub(super) fn operation(parts: &Parts) -> String {
    let route = template(parts).unwrap_or_else(|| parts.uri.path());
    format!("{} {route}", parts.method)
}

fn template(parts: &Parts) -> Option<&str> {
    let route = match parts.extensions.get::<RequestContext>()? {
        RequestContext::ApiGatewayV1(context) => context.resource_path.as_deref()?,
        // `POST /orders/{id}`, `ANY /orders/{id}` or `$default`.
        RequestContext::ApiGatewayV2(context) => context.route_key.as_deref()?.split_once(' ')?.1,
        _ => return None,
    };
    // A greedy parameter, `/{proxy+}`, stands for many operations.
    (route.starts_with('/') && !route.contains("+}")).then_some(route)
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
            assert_eq!(operation(&request(Some(context))), "POST /orders/{id}");
        }
    }

    #[test]
    fn otherwise_the_path_does() {
        for context in [
            None,
            Some(RequestContext::Alb(AlbTargetGroupRequestContext::default())),
            Some(v1("/{proxy+}")),
            Some(v1("/orders/{rest+}")),
            Some(v2("$default")),
            Some(v2("ANY /{proxy+}")),
            Some(v2("")),
        ] {
            assert_eq!(operation(&request(context)), "POST /prod/orders/17");
        }
    }
}

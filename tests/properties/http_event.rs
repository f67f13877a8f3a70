//! Every event of an HTTP door runs once, a duplicate gets the answer again, and an event has the same key and fingerprint with
//! `lambda_http` and without.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use aws_lambda_events::alb::{AlbTargetGroupRequest, AlbTargetGroupResponse};
use aws_lambda_events::apigw::{
    ApiGatewayProxyRequest, ApiGatewayProxyResponse, ApiGatewayV2httpRequest,
    ApiGatewayV2httpResponse,
};
use aws_lambda_events::lambda_function_urls::{
    LambdaFunctionUrlRequest, LambdaFunctionUrlResponse,
};
use http::Response;
use lambda_http::request::RequestContext;
use lambda_http::{Body, Context, LambdaEvent, Request, RequestExt};
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::http::events::{HttpEvent, Incoming};
use lambda_idempotency::{Claim, Idempotency};
use serde::de::DeserializeOwned;
use tower::{Layer, ServiceExt, service_fn};

use super::{block_on, empty};

mod plain;

/// The first byte chooses the door, the others are an event as Lambda delivers it.
///
/// # Panics
///
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    let Some((door, event)) = data.split_first() else {
        return;
    };
    let Ok(event) = std::str::from_utf8(event) else {
        return;
    };
    match door % 5 {
        0 => block_on(both::<ApiGatewayProxyRequest>(event, created_v1)),
        1 => block_on(both::<ApiGatewayV2httpRequest>(event, created_v2)),
        2 => block_on(both::<AlbTargetGroupRequest>(event, created_alb)),
        3 => block_on(both::<LambdaFunctionUrlRequest>(event, created_url)),
        _ => {
            if plain::is_plain(event) {
                let _ = block_on(through_lambda_http(event));
            }
        }
    }
}

/// The result of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// The hashes of the keys that a handler ran under; `None` where it ran without a claim.
    runs: Vec<Option<String>>,
    status: u16,
}

/// Handles an event without `lambda_http` and with it, on one store: the second finds the record that the first one left.
async fn both<E>(event: &str, created: fn() -> E::Response)
where
    E: HttpEvent + DeserializeOwned + Clone + Debug + Door,
    E::Response: Debug,
{
    let Ok(parsed) = serde_json::from_str::<E>(event) else {
        return;
    };
    let once = empty();
    let first = raw(&once, parsed.clone(), created).await;
    let second = raw(&once, parsed.clone(), created).await;
    assert_is_once(&first, &second);

    if !plain::is_plain(event) {
        return;
    }
    let Some(through) = through_lambda_http(event).await else {
        return;
    };
    // Events that fit several doors are taken for the first. A function URL has no stages and no routes.
    let is_possible = E::HAS_STAGES || plain::is_without_stage_and_route(event);
    if !E::is(through.context.as_ref()) || !is_possible {
        return;
    }
    assert_eq!(
        through.seen, first,
        "another key, or another answer, through lambda_http"
    );
    let request = lambda_http::request::from_str(event).expect("it was read before");
    let third = adapted(&once, request).await;
    let is_guarded = first.runs.iter().any(Option::is_some);
    if is_guarded {
        assert_eq!(third, second, "lambda_http's is not the same request");
    }
}

/// A guarded request runs once.
fn assert_is_once(first: &Seen, second: &Seen) {
    match &first.runs[..] {
        [Some(_)] => {
            assert_eq!((first.status, second.status), (201, 201));
            assert!(second.runs.is_empty(), "a duplicate ran");
        }
        [None] => assert_eq!(second, first, "what passes through passes again"),
        [] => {
            assert!(
                (400..500).contains(&first.status),
                "a refusal is the client's to fix: {first:?}"
            );
            assert_eq!(second, first, "a refusal is the same again");
        }
        more => panic!("one event, several runs: {more:?}"),
    }
}

/// Without `lambda_http`.
async fn raw<E>(once: &Idempotency, event: E, created: fn() -> E::Response) -> Seen
where
    E: HttpEvent + Debug + Door,
    E::Response: Debug,
{
    let runs = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&runs);
    let service =
        IdempotencyLayer::unscoped(once.clone()).layer(service_fn(move |event: Incoming<E>| {
            note(&noted, event.claim.as_ref());
            std::future::ready(Ok::<_, Infallible>(created()))
        }));
    let answer = service
        .oneshot(LambdaEvent::new(event, Context::default()))
        .await
        .expect("an answer");
    let runs = runs.lock().expect("no panic while it is held").clone();
    Seen {
        runs,
        status: E::status(&answer),
    }
}

fn note(runs: &Mutex<Vec<Option<String>>>, claim: Option<&Claim>) {
    let hash = claim.map(|claim| claim.key_hash().to_owned());
    runs.lock().expect("no panic while it is held").push(hash);
}

struct Through {
    seen: Seen,
    context: Option<RequestContext>,
}

/// On its own store, twice; `None` where `lambda_http` doesn't take the event.
async fn through_lambda_http(event: &str) -> Option<Through> {
    let once = empty();
    let request = || lambda_http::request::from_str(event).ok();
    let context = request()?.request_context_ref().cloned();
    let first = adapted(&once, request()?).await;
    let second = adapted(&once, request()?).await;
    assert_is_once(&first, &second);
    Some(Through {
        seen: first,
        context,
    })
}

async fn adapted(once: &Idempotency, request: Request) -> Seen {
    let runs = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&runs);
    let service =
        IdempotencyLayer::unscoped(once.clone()).layer(service_fn(move |request: Request| {
            note(&noted, request.extensions().get::<Claim>());
            let response = Response::builder()
                .status(201)
                .body(Body::Empty)
                .expect("a response");
            std::future::ready(Ok::<_, Infallible>(response))
        }));
    let answer = service.oneshot(request).await.expect("an answer");
    let runs = runs.lock().expect("no panic while it is held").clone();
    Seen {
        runs,
        status: answer.status().as_u16(),
    }
}

/// The common properties of the doors' types that no trait of theirs has.
trait Door: HttpEvent {
    const HAS_STAGES: bool;

    fn is(context: Option<&RequestContext>) -> bool;
    fn status(answer: &Self::Response) -> u16;
}

macro_rules! door {
    ($event:ty, $context:pat, $response:ty, $created:ident, $has_stages:literal) => {
        impl Door for $event {
            const HAS_STAGES: bool = $has_stages;

            fn is(context: Option<&RequestContext>) -> bool {
                matches!(context, Some($context))
            }

            fn status(answer: &$response) -> u16 {
                u16::try_from(answer.status_code).expect("a status")
            }
        }

        fn $created() -> $response {
            let mut response = <$response>::default();
            response.status_code = 201;
            response
        }
    };
}

door!(
    ApiGatewayProxyRequest,
    RequestContext::ApiGatewayV1(_),
    ApiGatewayProxyResponse,
    created_v1,
    true
);
door!(
    ApiGatewayV2httpRequest,
    RequestContext::ApiGatewayV2(_),
    ApiGatewayV2httpResponse,
    created_v2,
    true
);
door!(
    AlbTargetGroupRequest,
    RequestContext::Alb(_),
    AlbTargetGroupResponse,
    created_alb,
    true
);
door!(
    LambdaFunctionUrlRequest,
    RequestContext::ApiGatewayV2(_),
    LambdaFunctionUrlResponse,
    created_url,
    false
);

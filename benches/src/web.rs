//! The library's HTTP layer around a handler of API Gateway's events, and the same handler without it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lambda_http::aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use lambda_idempotency::Idempotency;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::http::events::{EventLayer, Incoming};
use lambda_idempotency::store::Store;
use lambda_runtime::LambdaEvent;
use tower::{Layer, Service, service_fn};

use crate::Error;
use crate::layer::context;
use crate::messages::Payment;

const TEMPLATE: &str = include_str!("../request.json");

type Reply = Pin<Box<dyn Future<Output = Result<ApiGatewayV2httpResponse, Error>> + Send>>;
type Function = Box<dyn FnMut(LambdaEvent<ApiGatewayV2httpRequest>) -> Reply>;

/// A function behind an HTTP API, whose handler looks at the body and answers.
pub struct Web {
    function: Function,
    runs: Arc<AtomicUsize>,
}

impl Web {
    /// The handler, and nothing else.
    pub fn bare() -> Self {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let function = Box::new(move |event: LambdaEvent<_>| -> Reply {
            Box::pin(std::future::ready(pay(&counted, &event.payload)))
        });
        Self { function, runs }
    }

    /// With the layer's own settings.
    pub fn guarded(store: impl Store) -> Result<Self, Error> {
        let once = Idempotency::builder(store).namespace("bench").build()?;
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let handler = service_fn(move |event: Incoming<ApiGatewayV2httpRequest>| {
            std::future::ready(pay(&counted, &event.payload))
        });
        let mut service = EventLayer::new(IdempotencyLayer::unscoped(once)).layer(handler);
        let function = Box::new(move |event| -> Reply { Box::pin(service.call(event)) });
        Ok(Self { function, runs })
    }

    /// Answers requests one after the other; how many of them ran. All must have got the handler's answer.
    pub async fn requests(
        &mut self,
        requests: Vec<ApiGatewayV2httpRequest>,
    ) -> Result<usize, Error> {
        for request in requests {
            let answer = (self.function)(LambdaEvent::new(request, context()?)).await?;
            if answer.status_code != 201 {
                return Err(format!("answered with {}", answer.status_code).into());
            }
        }
        Ok(self.runs.swap(0, Ordering::Relaxed))
    }
}

fn pay(
    runs: &AtomicUsize,
    request: &ApiGatewayV2httpRequest,
) -> Result<ApiGatewayV2httpResponse, Error> {
    runs.fetch_add(1, Ordering::Relaxed);
    let payment: Payment = serde_json::from_str(request.body.as_deref().unwrap_or_default())?;
    std::hint::black_box(payment.amount);
    let mut response = ApiGatewayV2httpResponse::default();
    response.status_code = 201;
    response
        .headers
        .insert("content-type", "application/json".parse()?);
    response.body = Some(format!(r#"{{"receipt": "{}"}}"#, payment.payment_id).into());
    Ok(response)
}

/// A request as API Gateway delivers it, its id in the header `idempotency-key`.
pub fn request(id: &str) -> Result<ApiGatewayV2httpRequest, Error> {
    Ok(serde_json::from_str(&TEMPLATE.replace("{id}", id))?)
}

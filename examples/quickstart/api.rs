//! An HTTP API, and clients that send too often.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use lambda_http::Body;
use lambda_idempotency::http::IdempotencyLayer;
use tokio::sync::Semaphore;
use tower::{ServiceBuilder, ServiceExt};

use crate::database::Database;
use crate::table::{Figures, Table};

const CLIENTS: usize = 8;

pub async fn scenes(
    database: &Database,
    table: &mut Table,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let runs = Arc::new(AtomicUsize::new(0));
    // The handler waits until all other clients have been refused, so that they really come at the same time.
    let refused = Arc::new(Semaphore::new(0));
    let (counted, gate) = (Arc::clone(&runs), Arc::clone(&refused));
    let api = ServiceBuilder::new()
        .layer(IdempotencyLayer::new(database.engine("orders-api")?))
        .service_fn(move |_: Request<Body>| {
            let gate = Arc::clone(&gate);
            let order = counted.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                let others = u32::try_from(CLIENTS - 1)?;
                gate.acquire_many(others).await?.forget();
                let created = Response::builder().status(StatusCode::CREATED);
                Ok::<_, Box<dyn Error + Send + Sync>>(
                    created.body(Body::from(format!("order {order}")))?,
                )
            }
        });

    let send = async |body: &'static str| -> Result<StatusCode, Box<dyn Error + Send + Sync>> {
        let request = Request::post("https://shop.example/orders")
            .header("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
            .header("content-type", "application/json")
            .body(Body::from(body))?;
        let response = api.clone().oneshot(request).await?;
        if response.status() == StatusCode::CONFLICT {
            refused.add_permits(1);
        }
        Ok(response.status())
    };
    let count = |statuses: &[StatusCode]| {
        let ran = runs.swap(0, Ordering::SeqCst);
        let created = statuses.iter().filter(|status| status.is_success()).count();
        Figures {
            deliveries: statuses.len(),
            runs: ran,
            replays: created - ran,
            refusals: statuses.len() - created,
            requests: database.take_requests(),
        }
    };

    let answers = join_all((0..CLIENTS).map(|_| send(r#"{"sku": "A-17", "quantity": 1}"#))).await;
    let figures = count(&answers.into_iter().collect::<Result<Vec<_>, _>>()?);
    let expected = Figures {
        deliveries: CLIENTS,
        runs: 1,
        replays: 0,
        refusals: CLIENTS - 1,
        requests: CLIENTS + 1,
    };
    table.add("HTTP: 8 clients at once with one key", figures, expected);

    let figures = count(&[send(r#"{"quantity":1,"sku":"A-17"}"#).await?]);
    let expected = Figures {
        deliveries: 1,
        runs: 0,
        replays: 1,
        refusals: 0,
        requests: 1,
    };
    table.add("HTTP: a retry after the answer was lost", figures, expected);

    let figures = count(&[send(r#"{"sku": "B-42", "quantity": 1}"#).await?]);
    let expected = Figures {
        replays: 0,
        refusals: 1,
        ..expected
    };
    table.add(
        "HTTP: the key reused with another payload",
        figures,
        expected,
    );
    Ok(())
}

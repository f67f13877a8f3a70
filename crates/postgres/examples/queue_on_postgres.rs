//! A Lambda function whose messages come from SQS, each in a PostgreSQL transaction with its key.
//!
//! ```sh
//! scripts/with postgres -- cargo lambda watch --example queue_on_postgres
//! ```

use deadpool_postgres::{Manager, Pool, Runtime, Timeouts};
use lambda_idempotency::{Idempotency, InFlight, sqs};
use lambda_idempotency_postgres::guard::{Guard, Guarded};
use lambda_idempotency_postgres::{PostgresError, PostgresStore, TransactionError};
use serde::Deserialize;
use std::time::Duration;
use tokio_postgres::NoTls;

type Store = PostgresStore<Pool>;

#[derive(Deserialize)]
struct Payment {
    id: String,
    order: i64,
    cents: i64,
}

#[derive(Debug, thiserror::Error)]
enum PaymentError {
    #[error("the order can't be paid")]
    NotPayable,
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    #[error(transparent)]
    Guard(#[from] PostgresError),
    #[error(transparent)]
    Sql(#[from] tokio_postgres::Error),
}

async fn pay(store: Store, message: sqs::Message<Payment>) -> Result<(), PaymentError> {
    let payment = message.body;
    let mut tx = store.transaction(&message.claim).await?;
    let paid = Guard::transition("orders", [("number", payment.order)], ["placed"], "paid");
    if paid.apply(&mut tx).await? != Guarded::Applied {
        return Err(PaymentError::NotPayable);
    }
    let insert = "INSERT INTO payments (id, cents) VALUES ($1, $2)";
    tx.execute(insert, &[&payment.id, &payment.cents]).await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    tracing_subscriber::fmt().json().with_ansi(false).init();
    let manager = Manager::new(std::env::var("POSTGRES_URL")?.parse()?, NoTls);
    // The layer runs up to ten messages at once, unless it is told another number.
    let timeouts = Timeouts {
        wait: Some(Duration::from_secs(5)),
        ..Timeouts::default()
    };
    let pool = Pool::builder(manager)
        .max_size(10)
        .runtime(Runtime::Tokio1)
        .timeouts(timeouts)
        .build()?;
    let store = Store::new(pool);
    // The transactions are short: a duplicate waits for the end of one, instead of coming again.
    let once = Idempotency::builder(store.clone())
        .namespace("shop")
        .in_flight(InFlight::WaitUpTo(Duration::from_mins(1)))
        .build()?;
    let worker = sqs::BatchLayer::new(once.claimless())
        .operation("pay")
        .key(|payment: &Payment| payment.id.clone())
        .permanent(|error| matches!(error, PaymentError::NotPayable))
        .handler(move |message| pay(store.clone(), message));
    lambda_runtime::run(worker).await
}

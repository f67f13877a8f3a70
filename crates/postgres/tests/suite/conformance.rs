//! The contract of `Store`, by the library's own suite.

use lambda_idempotency::testing::conformance;

use crate::support::{sqlx_store, store};

#[tokio::test(flavor = "multi_thread")]
async fn it_keeps_the_contract_on_tokio_postgres() {
    conformance(&store().await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn it_keeps_the_contract_on_sqlx() {
    conformance(&sqlx_store().await).await.unwrap();
}

//! The contract of `Store`, by the library's own suite.

use std::time::Duration;

use lambda_idempotency::testing::conformance;
use lambda_idempotency_redis::{Durability, RedisStore};

use crate::cluster::Cluster;
use crate::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn one_server_keeps_the_contract() {
    let server = Server::start(&[]).await;
    conformance(&server.store().await).await.unwrap();
    let plain = RedisStore::new(server.connection().await).prefix("plain");
    conformance(&plain).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_three_keeps_the_contract() {
    let cluster = Cluster::with_replicas().await;
    conformance(&cluster.store().await).await.unwrap();
    let durability = Durability::Replicas(1, Duration::from_secs(20));
    let store = cluster.store().await.durability(durability);
    conformance(&store).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_with_a_replica_keeps_the_contract() {
    let (primary, _replica) = Server::pair().await;
    let durability = Durability::Replicas(1, Duration::from_secs(20));
    let store = primary.store().await.durability(durability);
    conformance(&store).await.unwrap();
}

//! A primary that dies between an acknowledged claim and its replication.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lambda_idempotency::{Error, Idempotency, Key, StoreError};
use lambda_idempotency_redis::{Durability, RedisStore};

use crate::server::Server;

/// A primary and its replica, up to date.
async fn pair() -> (Server, Server) {
    let primary = Server::start(&[]).await;
    let port = primary.port.to_string();
    let replica = Server::start(&["--replicaof", "127.0.0.1", &port]).await;
    replica
        .until(&["INFO", "replication"], "master_link_status:up")
        .await;
    (primary, replica)
}

fn engine(store: RedisStore) -> Idempotency {
    let builder = Idempotency::builder(store).namespace("failover");
    builder
        .store_timeout(Duration::from_secs(2))
        .build()
        .unwrap()
}

/// Delivers a message whose effect is counted; the primary dies before its replica has heard of the claim, the replica becomes primary, and
/// the message is delivered again.
async fn effects(durability: Durability) -> usize {
    let (mut primary, replica) = pair().await;
    let effects = AtomicUsize::new(0);
    let handler = async |_| {
        effects.fetch_add(1, Ordering::Relaxed);
        Ok::<_, std::io::Error>(())
    };
    let key = || Key::new("mail", "1");
    // The connection between them is cut, and stopped as it is the replica doesn't make another.
    replica.signal("-STOP");
    primary
        .ask::<i64>(&["CLIENT", "KILL", "TYPE", "REPLICA"])
        .await;
    let store = primary.store().await.durability(durability);
    let first = engine(store).run(key(), None, handler).await;
    match durability {
        Durability::Primary => assert!(first.is_ok(), "{first:?}"),
        _ => assert!(
            matches!(&first, Err(Error::Store(StoreError::Unavailable(why))) if why.to_string().contains("0 replicas")),
            "{first:?}"
        ),
    }
    primary.kill();
    replica.signal("-CONT");
    replica.ask::<String>(&["REPLICAOF", "NO", "ONE"]).await;
    let again = engine(replica.store().await)
        .run(key(), None, handler)
        .await;
    assert!(again.is_ok(), "{again:?}");
    effects.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_loses_what_the_primary_alone_has_acknowledged() {
    assert_eq!(effects(Durability::Primary).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_before_a_replica_has_the_claim() {
    let durability = Durability::Replicas(1, Duration::from_millis(200));
    assert_eq!(effects(durability).await, 1);
}

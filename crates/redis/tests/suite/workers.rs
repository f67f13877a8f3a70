//! Workers that are killed at any moment: this program itself, run again. Each message is delivered until it is done; effects are recognised by
//! their key. `DELIVERIES=5000` delivers so often.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lambda_idempotency::{Idempotency, InFlight, Key};
use lambda_idempotency_redis::RedisStore;
use tokio::time::{Instant, sleep};

use crate::server::{MINUTE, Server, connect};

/// The variable that makes `a_worker` one: the server's address.
const WORKER: &str = "REDIS_TESTS_WORKER";

/// A worker takes messages off a list, and puts those that it can't finish back, as a queue does after its visibility timeout.
async fn work(address: &str) {
    let store = RedisStore::connect(address).await.unwrap();
    let once = Idempotency::builder(store)
        .namespace("workers")
        .lease(Duration::from_millis(500))
        .settings(|settings| settings.skew_margin = Duration::ZERO)
        .in_flight(InFlight::FailFast)
        .build()
        .unwrap();
    let mut provider = connect(address).await.unwrap();
    loop {
        let taken: Option<String> = redis::cmd("SRANDMEMBER")
            .arg("queue")
            .query_async(&mut provider)
            .await
            .unwrap();
        let Some(message) = taken else {
            return;
        };
        let effects = provider.clone();
        let done = once.run(Key::new("pay", message.as_str()), None, |claim| {
            let mut effects = effects.clone();
            let message = message.clone();
            async move {
                // A provider that honours keys.
                let key = claim.derive_key("charge");
                redis::cmd("HSETNX")
                    .arg("effects")
                    .arg(&key)
                    .arg(&message)
                    .query_async::<i64>(&mut effects)
                    .await?;
                Ok::<_, redis::RedisError>(key)
            }
        });
        if done.await.is_ok() {
            redis::cmd("SREM")
                .arg("queue")
                .arg(&message)
                .query_async::<i64>(&mut provider)
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn a_worker() {
    if let Ok(address) = std::env::var(WORKER) {
        work(&address).await;
    }
}

fn worker(address: &str) -> Child {
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "workers::a_worker"])
        .env(WORKER, address)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The least number of kills: where the workers are done before, all messages are delivered again.
const KILLS: u32 = 10;

#[tokio::test(flavor = "multi_thread")]
async fn no_message_is_lost_and_no_effect_is_doubled_when_workers_are_killed() {
    let deliveries = std::env::var("DELIVERIES").map_or(500, |count| count.parse().unwrap());
    let server = Server::start(&[]).await;
    let deliver_all = async || {
        for message in 0..deliveries {
            let id = format!("m-{message}");
            server.ask::<i64>(&["SADD", "queue", &id]).await;
        }
    };
    deliver_all().await;
    let mut workers: Vec<_> = (0..3).map(|_| worker(&server.address())).collect();
    let mut kills = 0;
    let patience = Instant::now() + 5 * MINUTE;
    loop {
        if server.ask::<i64>(&["SCARD", "queue"]).await == 0 {
            if kills >= KILLS {
                break;
            }
            deliver_all().await;
        }
        assert!(Instant::now() < patience, "messages are left");
        sleep(Duration::from_millis(fastrand::u64(20..150))).await;
        let doomed = &mut workers[fastrand::usize(..3)];
        doomed.kill().unwrap();
        doomed.wait().unwrap();
        *doomed = worker(&server.address());
        kills += 1;
    }
    for mut worker in workers {
        let _ = worker.kill();
        worker.wait().unwrap();
    }
    println!("{deliveries} messages, {kills} kills");
    let effects: HashMap<String, String> = server.ask(&["HGETALL", "effects"]).await;
    assert_eq!(effects.len(), deliveries, "one key for each message");
    let mut messages: Vec<_> = effects.into_values().collect();
    messages.sort();
    messages.dedup();
    assert_eq!(messages.len(), deliveries);
}

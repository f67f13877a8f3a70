//! A primary that dies between an acknowledged claim and its replication, and one that becomes a replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lambda_idempotency::protocol::record::{NewClaim, Owner, RecordWrite};
use lambda_idempotency::store::{Answer, MemoryStore, Store};
use lambda_idempotency::{
    EpochMillis, EpochSeconds, Error, Idempotency, Key, OnStoreUnavailable, Outcome, StoreError,
};
use lambda_idempotency_redis::{Durability, RedisStore};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::server::{MINUTE, Server};

fn engine(store: RedisStore) -> Idempotency {
    let builder = Idempotency::builder(store).namespace("failover");
    builder
        .settings(|settings| settings.store_timeout = Duration::from_secs(2))
        .build()
        .unwrap()
}

/// Delivers a message whose effect is counted; the primary dies before its replica has heard of the claim, the replica becomes primary, and
/// the message is delivered again.
async fn effects(durability: Durability) -> usize {
    let (mut primary, replica) = Server::pair().await;
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
        _ => assert_matches!(
            &first,
            Err(Error::Store(StoreError::Unavailable(why)))
                if why.to_string().contains("0 replicas")
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

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_wait_for_replicas_one_after_another_are_all_answered() {
    let server = Server::start(&[]).await;
    let durability = Durability::Replicas(1, Duration::from_millis(600));
    let store = server.store().await.durability(durability);
    let once = engine(store.clone());
    let claims = ["1", "2"].map(|key| {
        let id = once.record_id(&Key::new("mail", key)).unwrap();
        let (owner, later) = (Owner::from_stored("me"), EpochSeconds(4_102_444_800));
        let claim = NewClaim::new(id, owner, EpochMillis(1), EpochMillis(9), later);
        RecordWrite::from(claim)
    });
    for answer in store.write_all(&claims, Instant::now() + MINUTE).await {
        assert_matches!(
            &answer,
            Err(StoreError::Unavailable(why)) if why.to_string().contains("0 replicas")
        );
    }
}

/// An address of which new connections lead to another server from now on, as the name of a primary's endpoint does.
struct Endpoint {
    address: String,
    leads_to: Arc<AtomicU16>,
}

impl Endpoint {
    async fn of(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("redis://{}", listener.local_addr().unwrap());
        let leads_to = Arc::new(AtomicU16::new(server.port));
        let place = Arc::clone(&leads_to);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let port = place.load(Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self { address, leads_to }
    }
}

/// Lets the replica become primary, and the primary its replica, which keeps its clients.
async fn switch(primary: &Server, replica: &Server) {
    replica.ask::<String>(&["REPLICAOF", "NO", "ONE"]).await;
    let port = replica.port.to_string();
    primary
        .ask::<String>(&["REPLICAOF", "127.0.0.1", &port])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_becomes_a_replica_is_left_for_the_new_one() {
    for durability in [
        Durability::Primary,
        Durability::Replicas(1, Duration::from_secs(20)),
    ] {
        let (primary, replica) = Server::pair().await;
        let endpoint = Endpoint::of(&primary).await;
        let store = RedisStore::connect(&endpoint.address).await.unwrap();
        let builder = Idempotency::builder(store.durability(durability)).namespace("failover");
        let once = builder
            .settings(|settings| settings.store_timeout = MINUTE)
            .build()
            .unwrap();
        let run = async |token: &str| {
            let key = Key::new("mail", token);
            let done = once.run(key, None, async |_| Ok::<_, std::io::Error>(1_u32));
            done.await.map(|outcome| outcome.is_replayed())
        };
        assert_matches!(run("before").await, Ok(false));
        let has = async |server: &Server, offset: &str| {
            let info: String = server.ask(&["INFO", "replication"]).await;
            let mut lines = info.lines();
            let found = lines.find_map(|line| line.strip_prefix(offset).map(str::to_owned));
            found.unwrap()
        };
        let patience = Instant::now() + MINUTE;
        while has(&primary, "master_repl_offset:").await
            != has(&replica, "slave_repl_offset:").await
        {
            assert!(Instant::now() < patience, "it is never up to date");
        }
        switch(&primary, &replica).await;
        endpoint.leads_to.store(replica.port, Ordering::Relaxed);
        let (a, b, c) = tokio::join!(run("a"), run("b"), run("c"));
        for done in [a, b, c] {
            assert_matches!(done, Ok(false));
        }
        assert_matches!(run("before").await, Ok(true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_waits_for_replicas_when_its_server_becomes_one_may_have_applied() {
    let (primary, other) = (Server::start(&[]).await, Server::start(&[]).await);
    // The server knows the script, so that the write itself is sent once.
    let loading = primary.store().await;
    let loaded = loading.write(&claim(), Instant::now() + MINUTE).await;
    assert!(loaded.is_ok(), "{loaded:?}");
    let durability = Durability::Replicas(1, MINUTE);
    let builder = Idempotency::builder(primary.store().await.durability(durability));
    let once = builder
        .namespace("failover")
        .settings(|settings| settings.store_timeout = MINUTE);
    let once = once.build().unwrap();
    let run = once.run(Key::new("mail", "2"), None, async |_| {
        Ok::<_, std::io::Error>(())
    });
    let demote = async {
        primary
            .until(&["INFO", "clients"], "blocked_clients:1")
            .await;
        switch(&primary, &other).await;
    };
    let (done, ()) = tokio::join!(run, demote);
    assert_matches!(done, Err(Error::Store(StoreError::Unavailable(_))));
}

/// A claim, of which a client that got no answer sends the same again.
fn claim() -> RecordWrite {
    let once = Idempotency::builder(MemoryStore::new()).namespace("failover");
    let id = once.build().unwrap().record_id(&Key::new("mail", "1"));
    let (now, later) = (EpochMillis(1), EpochSeconds(4_102_444_800));
    let owner = Owner::from_stored("me");
    NewClaim::new(id.unwrap(), owner, now, EpochMillis(9), later).into()
}

/// The number of times that a server has written fields, its primary's writes among them.
async fn times_written(server: &Server) -> u32 {
    let stats: String = server.ask(&["INFO", "commandstats"]).await;
    let calls = stats.lines().find_map(|line| {
        let calls = line.strip_prefix("cmdstat_hset:calls=")?;
        calls.split(',').next()?.parse().ok()
    });
    calls.unwrap_or(0)
}

/// `WAIT` waits for the last write of its connection, and another connection has none.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_sent_again_goes_to_the_replicas_again() {
    let (primary, replica) = Server::pair().await;
    for times in 1..=3 {
        let store = primary.store().await;
        let store = store.durability(Durability::Replicas(1, MINUTE));
        let answer = store.write(&claim(), Instant::now() + MINUTE * 2).await;
        assert_eq!(answer.unwrap().is_applied(), times == 1, "{times}");
        assert_eq!(times_written(&replica).await, times);
    }
    // Without replicas to wait for, nothing is written.
    let again = primary.store().await;
    let again = again.write(&claim(), Instant::now() + MINUTE).await;
    assert_matches!(again, Ok(Answer::Refused(Some(_))));
    assert_eq!(times_written(&primary).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_a_full_memory_keeps_from_the_replicas_may_have_applied() {
    let (primary, _replica) = Server::pair().await;
    let store = primary.store().await;
    let soon = Instant::now() + MINUTE;
    assert!(store.write(&claim(), soon).await.unwrap().is_applied());
    primary.set("maxmemory", "1").await;
    let store = primary.store().await;
    let store = store.durability(Durability::Replicas(1, MINUTE));
    let again = store.write(&claim(), Instant::now() + MINUTE).await;
    let error = again.unwrap_err();
    assert_matches!(error, StoreError::Unavailable(_));
    assert!(error.may_have_applied(), "{error:?}");
    assert!(error.to_string().contains("0 replicas"), "{error}");
}

/// The claim has applied when its connection is lost, and its answer with that.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_connection_is_lost_is_sent_again_and_is_its_runs_own() {
    let (primary, replica) = Server::pair().await;
    // The server knows the script, so that the first `WAIT` is that of the claim.
    let loading = primary.store().await;
    let loaded = loading.write(&claim(), Instant::now() + MINUTE).await;
    assert!(loaded.is_ok(), "{loaded:?}");
    let store = primary.store().await;
    let once = fail_open(
        &store.durability(Durability::Replicas(1, MINUTE)),
        MINUTE * 3,
    );
    replica.signal("-STOP");
    let run = once.run(Key::new("mail", "2"), None, async |claim| {
        Ok::<_, std::io::Error>((claim.is_protected(), claim.attempt()))
    });
    let lose = async {
        primary
            .until(&["INFO", "clients"], "blocked_clients:1")
            .await;
        let lost = ["CLIENT", "KILL", "TYPE", "NORMAL"];
        primary.ask::<i64>(&lost).await;
        replica.signal("-CONT");
    };
    let (done, ()) = tokio::join!(run, lose);
    assert_eq!(done.unwrap().into_inner(), (true, 1));
}

/// An engine whose runs may go on without a claim, where the store gives no answer for this time.
fn fail_open(store: &RedisStore, patience: Duration) -> Idempotency {
    let builder = Idempotency::builder(store.clone()).namespace("failover");
    builder
        .on_store_unavailable(OnStoreUnavailable::FailOpen)
        .settings(|settings| settings.store_timeout = patience)
        .build()
        .unwrap()
}

/// The store has answered, so that a run which may go on without it does not.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_replica_a_finished_key_is_replayed_and_another_does_not_run() {
    let (primary, mut replica) = Server::pair().await;
    let effects = AtomicUsize::new(0);
    let run = async |token: &str, patience: Duration| {
        let durability = Durability::Replicas(1, patience);
        let once = fail_open(&primary.store().await.durability(durability), MINUTE);
        let run = once.run(Key::new("mail", token), None, async |_| {
            effects.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(())
        });
        run.await
    };
    assert!(run("1", MINUTE).await.is_ok());
    replica.kill();
    let moment = Duration::from_millis(200);
    let again = run("1", moment).await;
    assert_matches!(again, Ok(Outcome::Replayed(..)));
    let other = run("2", moment).await;
    assert_matches!(other, Err(Error::Store(_)));
    assert_eq!(effects.into_inner(), 1);
}

/// Runs five keys at once over one connection, whose writes must wait for a replica, and returns how many ran, and how many writes had an
/// answer of their own.
async fn at_once(primary: &Server, round: usize) -> (usize, usize) {
    let store = primary.store().await;
    let store = store.durability(Durability::Replicas(1, MINUTE));
    // Each `WAIT` takes half of it.
    let once = fail_open(&store, Duration::from_secs(2));
    let runs = (0..5).map(async |number| {
        let key = Key::new("mail", format!("{round}-{number}"));
        let run = once.run(key, None, async |_| Ok::<_, std::io::Error>(()));
        run.await
    });
    let (mut ran, mut answered) = (0, 0);
    for done in join_all(runs).await {
        match done {
            Ok(_) => ran += 1,
            Err(Error::Store(StoreError::Unavailable(why))) => {
                let why = why.to_string();
                assert!(why.contains("0 replicas"), "{why}");
                answered += usize::from(!why.contains("writes before it may"));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    (ran, answered)
}

/// The server answers one after the other, and most have no time left by then.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_replica_keys_that_come_at_once_do_not_run_either() {
    let (primary, mut replica) = Server::pair().await;
    let known = engine(primary.store().await);
    let known = known.run(Key::new("mail", "1"), None, async |_| {
        Ok::<_, std::io::Error>(())
    });
    assert!(known.await.is_ok());
    replica.kill();
    for round in 0..10 {
        let (ran, answered) = at_once(&primary, round).await;
        // A machine that is too slow for one answer in time makes the server a silent one.
        if answered > 0 {
            assert_eq!(ran, 0);
            return;
        }
    }
    panic!("each of ten times, no answer came in time");
}

/// As a completion does, which has all that is left of its lease.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_replica_a_key_does_not_run_behind_a_longer_wait() {
    let (primary, mut replica) = Server::pair().await;
    let store = primary.store().await;
    let store = store.durability(Durability::Replicas(1, MINUTE));
    replica.kill();
    let (longer, once) = (claim(), fail_open(&store, Duration::from_secs(2)));
    let run = async {
        primary
            .until(&["INFO", "clients"], "blocked_clients:1")
            .await;
        let handler = async |_| Ok::<_, std::io::Error>(());
        once.run(Key::new("mail", "2"), None, handler).await
    };
    tokio::select! {
        done = run => assert_matches!(done, Err(Error::Store(_))),
        answer = store.write(&longer, Instant::now() + MINUTE * 3) => panic!("{answer:?}"),
    }
}

/// The `WAIT`s before it were answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_runs_where_its_server_is_silent_and_waits_for_nothing() {
    let (primary, _replica) = Server::pair().await;
    let store = primary.store().await;
    let store = store.durability(Durability::Replicas(1, MINUTE));
    let run = async |token: &str, patience: Duration| {
        let handler = async |_| Ok::<_, std::io::Error>(());
        let once = fail_open(&store, patience);
        once.run(Key::new("mail", token), None, handler).await
    };
    let answered = run("1", MINUTE * 3).await;
    assert!(answered.is_ok(), "{answered:?}");
    primary.signal("-STOP");
    let unanswered = run("2", Duration::from_secs(2)).await;
    assert!(unanswered.is_ok(), "{unanswered:?}");
}

/// The timers of this process's connections to a port, as the system lists them.
#[cfg(target_os = "linux")]
fn timers(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().map(|row| row.split_whitespace().collect());
    let to_port = format!(":{port:04X}");
    let established = |row: &Vec<&str>| row[2].ends_with(&to_port) && row[3] == "01";
    let timers = rows.filter(established).map(|row| row[5].to_owned());
    timers.collect()
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_asked_whether_it_is_there() {
    let server = Server::start(&[]).await;
    let _store = server.store().await;
    // `02` is the timer of keepalive, which starts again with each acknowledgement.
    let patience = Instant::now() + MINUTE;
    while !timers(server.port)
        .iter()
        .any(|timer| timer.starts_with("02:"))
    {
        assert!(Instant::now() < patience, "it is never asked");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

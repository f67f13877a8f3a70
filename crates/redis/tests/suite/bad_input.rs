//! Servers that are not there, or not as they must be, and keys that hold something else.

use std::time::Duration;

use lambda_idempotency::protocol::record::{
    Completion, NewClaim, Owner, RecordWrite, StoredOutcome,
};
use lambda_idempotency::store::Store;
use lambda_idempotency::{
    EpochMillis, EpochSeconds, Error, Idempotency, Key, RecordId, StoreError,
};
use lambda_idempotency_redis::{Connection, Problem, RedisStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::server::{MINUTE, Server, free_port};

fn engine<C: Connection>(store: RedisStore<C>) -> Idempotency {
    let builder = Idempotency::builder(store).namespace("tests");
    builder
        .settings(|settings| settings.store_timeout = Duration::from_secs(3))
        .build()
        .unwrap()
}

async fn run(once: &Idempotency) -> Result<bool, Error<std::io::Error>> {
    let done = once
        .run(Key::new("mail", "1"), None, async |_| Ok(1_u32))
        .await?;
    Ok(done.is_replayed())
}

/// Makes the id of a record, its first claim and its completion.
fn claim_and_completion(store: &RedisStore) -> (RecordId, RecordWrite, RecordWrite) {
    let id = engine(store.clone())
        .record_id(&Key::new("mail", "1"))
        .unwrap();
    let (owner, outcome) = (
        Owner::from_stored("me"),
        StoredOutcome::Inline("1".to_owned()),
    );
    let (now, later) = (EpochMillis(1), EpochSeconds(4_102_444_800));
    let claim = NewClaim::new(id.clone(), owner.clone(), now, EpochMillis(9), later);
    let completion = Completion::new(id.clone(), owner, outcome, now, later);
    (id, claim.into(), completion.into())
}

fn assert_throttled(refused: &Error<std::io::Error>, says: &str) {
    assert_matches!(refused, Error::Store(StoreError::Throttled(_)));
    assert!(refused.to_string().contains(says), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_server_a_wrong_password_tls_and_what_is_no_address_are_named() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let error = RedisStore::connect(&nobody).await.unwrap_err();
    assert_eq!(*error.problem(), Problem::Unreachable, "{error}");

    let server = Server::start(&[]).await;
    server.set("requirepass", "right").await;
    for address in [
        server.address(),
        format!("{}/1", server.address()),
        format!("redis://:wrong@127.0.0.1:{}", server.port),
    ] {
        let error = match RedisStore::connect(&address).await {
            Ok(store) => store.verify().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(*error.problem(), Problem::NotLetIn, "{error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
    let right = format!("redis://:right@127.0.0.1:{}", server.port);
    RedisStore::connect(&right)
        .await
        .unwrap()
        .verify()
        .await
        .unwrap();
    let encrypted = format!("rediss://127.0.0.1:{}", server.port);
    let error = RedisStore::connect(&encrypted).await.unwrap_err();
    // The server waits for more of what it takes for a command.
    assert_eq!(*error.problem(), Problem::Unreachable, "{error}");
    assert!(error.to_string().contains("agree about TLS"), "{error}");
    for address in [
        "http://127.0.0.1",
        "localhost:6379",
        "redis://",
        "redis://127.0.0.1/first",
    ] {
        let error = RedisStore::connect(address).await.unwrap_err();
        assert_eq!(*error.problem(), Problem::Address, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_and_a_server_that_evicts_are_refused() {
    let (primary, replica) = Server::pair().await;
    let error = replica.store().await.verify().await.unwrap_err();
    assert_eq!(*error.problem(), Problem::Replica, "{error}");
    let refused = run(&engine(replica.store().await)).await.unwrap_err();
    assert_throttled(&refused, "connect to the primary");

    let verified = primary.store().await.verify().await.unwrap();
    assert_eq!(
        (verified.eviction.as_deref(), verified.replicas),
        (Some("noeviction"), 1)
    );
    primary.set("maxmemory-policy", "allkeys-lru").await;
    // A service may hide its configuration.
    primary
        .ask::<String>(&["ACL", "SETUSER", "default", "-config"])
        .await;
    // By the newer protocol, and by the older one.
    let older = RedisStore::new(primary.connection().await);
    for verified in [primary.store().await.verify().await, older.verify().await] {
        let error = verified.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("`allkeys-lru`): set it to `noeviction`"),
            "{error}"
        );
    }
}

/// Makes a user who may do this, and returns the address for it.
async fn user(server: &Server, may: &[&str]) -> String {
    let rules = ["ACL", "SETUSER", "app", "reset", "on", ">secret", "~*"];
    server.ask::<String>(&[&rules[..], may].concat()).await;
    format!("redis://app:secret@127.0.0.1:{}", server.port)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_named() {
    let server = Server::start(&[]).await;
    let address = user(&server, &["+info", "+ping", "+client"]).await;
    let refused = run(&engine(RedisStore::connect(&address).await.unwrap()))
        .await
        .unwrap_err();
    assert_matches!(refused, Error::Store(StoreError::Denied(_)));
    assert!(
        refused.to_string().contains("allow it EVALSHA"),
        "{refused}"
    );
    let other = RedisStore::connect(&format!("{address}/1")).await;
    let error = other.unwrap_err();
    assert_eq!(*error.problem(), Problem::NoPermission, "{error}");
}

/// As a proxy may.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_older_protocol_is_one_too() {
    let server = Server::start(&["--rename-command", "HELLO", ""]).await;
    assert!(!run(&engine(server.store().await)).await.unwrap());
}

/// As a proxy does that knows `AUTH` alone before the password.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_asks_for_the_password_first_gets_it() {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = proxy.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = proxy.accept().await {
            let mut words = vec![0; 1_024];
            while let Ok(1..) = client.read(&mut words).await {
                let is_auth = words.starts_with(b"*2\r\n$4\r\nAUTH\r\n");
                let answer: &[u8] = if is_auth {
                    b"+OK\r\n"
                } else {
                    b"-NOAUTH Authentication required.\r\n"
                };
                client.write_all(answer).await.unwrap();
            }
        }
    });
    let connected = RedisStore::connect(&format!("redis://:secret@127.0.0.1:{port}")).await;
    assert!(connected.is_ok(), "{connected:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_room_for_a_client_has_answered() {
    let server = Server::start(&[]).await;
    let mut operator = server.connection().await;
    let mut tell = async |words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.exec_async(&mut operator).await.unwrap();
    };
    let with_password = user(&server, &["+@all"]).await;
    let mut stores = Vec::new();
    for address in [server.address(), with_password] {
        stores.push((RedisStore::connect(&address).await.unwrap(), address));
    }
    tell(&["CONFIG", "SET", "maxclients", "1"]).await;
    tell(&["CLIENT", "KILL", "TYPE", "NORMAL"]).await;
    for (store, address) in stores {
        let error = RedisStore::connect(&address).await.unwrap_err();
        assert_eq!(*error.problem(), Problem::NotReady, "{error}");
        // `FailOpen` opens for `Unavailable` alone.
        let (id, ..) = claim_and_completion(&store);
        let refused = store.load(&id, Instant::now() + MINUTE).await.unwrap_err();
        assert_matches!(refused, StoreError::Throttled(_));
    }
}

/// A store of a user who may do all but this.
async fn without(command: &str, server: &Server) -> RedisStore {
    let address = user(server, &["+@all", &format!("-{command}")]).await;
    RedisStore::connect(&address).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_a_script_lacks_is_named_and_leaves_no_record_without_an_end() {
    let server = Server::start(&[]).await;
    let store = server.store().await;
    let (id, claim, completion) = claim_and_completion(&store);
    let soon = Instant::now() + MINUTE;
    let refused = async |command: &str, write: &RecordWrite| {
        let store = without(command, &server).await;
        let error = store.write(write, soon).await.unwrap_err();
        assert_matches!(error, StoreError::Denied(_));
        assert!(error.to_string().contains("allow it EVALSHA"), "{error}");
        error.may_have_applied()
    };

    assert!(!refused("pexpireat", &claim).await);
    assert_eq!(store.load(&id, soon).await.unwrap(), None);
    assert!(store.write(&claim, soon).await.unwrap().is_applied());
    let claimed = store.load(&id, soon).await.unwrap();
    assert!(!refused("hmget", &completion).await);
    assert_eq!(store.load(&id, soon).await.unwrap(), claimed);
    // It was written after the fields.
    assert!(refused("pexpireat", &completion).await);
    assert_ne!(store.load(&id, soon).await.unwrap(), claimed);
    let keys: Vec<String> = server.ask(&["KEYS", "*"]).await;
    assert!(server.ask::<i64>(&["PTTL", &keys[0]]).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_without_its_replicas_takes_no_claim_for_now() {
    let server = Server::start(&["--min-replicas-to-write", "1"]).await;
    let once = engine(server.store().await);
    let refused = run(&once).await.unwrap_err();
    assert_throttled(&refused, "NOREPLICAS");
    server.set("min-replicas-to-write", "0").await;
    assert!(!run(&once).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_was_refused_for_a_while_is_let_in_again() {
    let server = Server::start(&[]).await;
    let mut operator = server.connection().await;
    let mut set = async |password: &str| {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("requirepass").arg(password);
        set.exec_async(&mut operator).await.unwrap();
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("NORMAL");
        kill.exec_async(&mut operator).await.unwrap();
    };
    set("right").await;
    let address = format!("redis://:right@127.0.0.1:{}", server.port);
    let once = engine(RedisStore::connect(&address).await.unwrap());
    assert!(!run(&once).await.unwrap());
    set("other").await;
    let is_refused = |done: &Result<bool, Error<_>>| {
        matches!(done, Err(Error::Store(StoreError::Unauthenticated(_))))
    };
    let patience = Instant::now() + MINUTE;
    while !is_refused(&run(&once).await) {
        assert!(Instant::now() < patience, "it is never refused");
    }
    set("right").await;
    while run(&once).await.is_err() {
        assert!(Instant::now() < patience, "it is never let in");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_refuses_claims_and_keeps_what_is_there() {
    let server = Server::start(&[]).await;
    let once = engine(server.store().await);
    assert!(!run(&once).await.unwrap());
    server.set("maxmemory", "1").await;
    let other = once
        .run(Key::new("mail", "2"), None, async |_| {
            Ok::<_, std::io::Error>(1_u32)
        })
        .await;
    assert_throttled(&other.unwrap_err(), "memory is full");
    server.set("maxmemory", "0").await;
    assert!(run(&once).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_that_fills_before_the_completion_leaves_the_claim_as_it_was() {
    let server = Server::start(&[]).await;
    let store = server.store().await;
    let (id, claim, completion) = claim_and_completion(&store);
    let soon = Instant::now() + MINUTE;
    assert!(store.write(&claim, soon).await.unwrap().is_applied());
    let claimed = store.load(&id, soon).await.unwrap();
    server.set("maxmemory", "1").await;
    let refused = store.write(&completion, soon).await;
    assert_matches!(refused, Err(StoreError::Throttled(_)));
    assert_eq!(store.load(&id, soon).await.unwrap(), claimed);
    server.set("maxmemory", "0").await;
    assert!(store.write(&completion, soon).await.unwrap().is_applied());
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_a_restarted_server_has_lost_are_sent_again() {
    let mut server = Server::start(&[]).await;
    let once = engine(server.store().await);
    assert!(!run(&once).await.unwrap());
    server.ask::<String>(&["SCRIPT", "FLUSH"]).await;
    assert!(run(&once).await.unwrap());
    server.kill();
    let away = run(&once).await.unwrap_err();
    assert_matches!(
        away,
        Error::Store(StoreError::Unavailable(_) | StoreError::Timeout)
    );
    let _again = server.again().await;
    let patience = Instant::now() + MINUTE;
    // All is lost: without a file, a server that restarts is empty.
    while !matches!(run(&once).await, Ok(false)) {
        assert!(Instant::now() < patience, "it never runs again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_and_a_hash_that_is_no_record_are_left_alone() {
    let server = Server::start(&[]).await;
    let once = engine(server.store().await);
    let id = once.record_id(&Key::new("mail", "1")).unwrap();
    let key = format!("idempotency:{{{}}}", id.as_str());
    let refused = async || run(&once).await.unwrap_err().to_string();

    server.ask::<i64>(&["RPUSH", &key, "a"]).await;
    assert!(
        refused().await.contains("holds a list"),
        "{}",
        refused().await
    );
    assert_eq!(server.ask::<i64>(&["LLEN", &key]).await, 1);

    // Its own id may be a secret.
    let raw = || Key::raw("mail", "ada@example.org");
    let own = once.record_id(&raw()).unwrap();
    let list = format!("idempotency:{{{}}}", own.as_str());
    server.ask::<i64>(&["RPUSH", &list, "a"]).await;
    let done = once.run(raw(), None, async |_| Ok::<_, std::io::Error>(1_u32));
    let said = done.await.unwrap_err().to_string();
    assert!(said.contains(own.hash()), "{own}: {said}");
    assert!(!said.contains("ada@"), "{said}");

    server.ask::<i64>(&["DEL", &key]).await;
    server.ask::<i64>(&["HSET", &key, "name", "Ada"]).await;
    assert!(
        refused().await.contains("`status` is missing"),
        "{}",
        refused().await
    );

    server.ask::<i64>(&["DEL", &key]).await;
    assert!(!run(&once).await.unwrap());
    for (field, value, reason) in [
        ("v", "2", "layout version 2"),
        ("v", "one", "`v` is no number"),
        ("status", "DONE", "`status` is unknown"),
        ("step:charge", "{}", "a step"),
        ("owner", "\u{0}", ""),
    ] {
        let before: Option<String> = server.ask(&["HGET", &key, field]).await;
        server.ask::<i64>(&["HSET", &key, field, value]).await;
        if reason.is_empty() {
            assert!(run(&once).await.unwrap());
        } else {
            let said = refused().await;
            assert!(said.contains(reason), "{said}");
        }
        match before {
            Some(before) => server.ask::<i64>(&["HSET", &key, field, &before]).await,
            None => server.ask::<i64>(&["HDEL", &key, field]).await,
        };
    }
    assert!(run(&once).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_record_counts_as_absent_also_where_it_cannot_be_read() {
    let server = Server::start(&[]).await;
    let once = engine(server.store().await);
    assert!(!run(&once).await.unwrap());
    let keys: Vec<String> = server.ask(&["KEYS", "*"]).await;
    let set = async |field: &str, value: &str| {
        server
            .ask::<i64>(&["HSET", &keys[0], "expiration", "1", field, value])
            .await;
    };
    for (field, value) in [
        ("v", "2"),
        ("step:charge", "{}"),
        ("attempt", "many"),
        ("omitted", "for no reason"),
    ] {
        set(field, value).await;
        assert!(!run(&once).await.unwrap(), "{field}");
        assert!(run(&once).await.unwrap(), "{field}");
    }
    // What a takeover compares must be there, as it spells it: it would be refused each time.
    for (field, value) in [("expiration", "01"), ("lease", "+1"), ("lease", "soon")] {
        set(field, value).await;
        let refused = run(&once).await.unwrap_err();
        assert_matches!(refused, Error::Unreadable(_));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_whose_name_is_no_text_is_none_of_the_record() {
    let server = Server::start(&[]).await;
    let once = engine(server.store().await);
    assert!(!run(&once).await.unwrap());
    let keys: Vec<String> = server.ask(&["KEYS", "*"]).await;
    let mut set = redis::cmd("HSET");
    set.arg(&keys[0]).arg(b"\xff").arg("1");
    set.exec_async(&mut server.connection().await)
        .await
        .unwrap();
    assert!(run(&once).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_outlives_its_retention_by_more_than_clocks_differ() {
    let server = Server::start(&[]).await;
    let builder = Idempotency::builder(server.store().await).namespace("tests");
    let hour = Duration::from_hours(1);
    let once = builder.retention(hour).build().unwrap();
    assert!(!run(&once).await.unwrap());
    let keys: Vec<String> = server.ask(&["KEYS", "*"]).await;
    assert_eq!(keys.len(), 1);
    let left = server.ask::<u64>(&["TTL", &keys[0]]).await;
    assert!((2 * 3_600..=3 * 3_600 + 60).contains(&left), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_left_at_the_deadline() {
    let server = Server::start(&[]).await;
    let store = server.store().await;
    let once = engine(store.clone());
    assert!(!run(&once).await.unwrap());
    let id = once.record_id(&Key::new("mail", "1")).unwrap();
    server.signal("-STOP");
    let late = store
        .load(&id, Instant::now() + Duration::from_millis(100))
        .await;
    assert_matches!(late, Err(StoreError::Timeout));
    let passed = store.load(&id, Instant::now()).await;
    assert_matches!(passed, Err(StoreError::NotSent));
    let error = store.verify().await.unwrap_err();
    assert_eq!(*error.problem(), Problem::Unreachable, "{error}");
    server.signal("-CONT");
    assert!(run(&once).await.unwrap());
}

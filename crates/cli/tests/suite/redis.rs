//! The same commands on records in Redis.

use std::time::{Duration, SystemTime};

use lambda_idempotency::testing::{Crash, ManualClock};
use lambda_idempotency::{Claim, Error, Idempotency, Key, OnCrash, Step, StepError};
use lambda_idempotency_redis::RedisStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::audit::COUNTS_ONE;
use crate::redis_server::Server;
use crate::support::{PATIENCE, Said, run};

async fn on(server: &Server, arguments: &[&str]) -> Said {
    run(&[arguments, &["--store", &server.address()]].concat()).await
}

const WHY: [&str; 3] = ["--yes", "--reason", "ticket 17"];

fn engine(store: RedisStore, age: Duration) -> Idempotency {
    let engine = Idempotency::builder(store).namespace("payments");
    let clock = ManualClock::at((SystemTime::now() - age).into());
    engine
        .settings(|settings| settings.store_timeout = PATIENCE)
        .clock(clock)
        .build()
        .unwrap()
}

/// Leaves the record of an attempt that died an hour ago, and returns its id.
async fn dead(server: &Server, token: &str) -> String {
    let once = engine(server.store().await, Duration::from_hours(1));
    let (key, crash) = (Key::new("charge", token), Crash::new());
    let id = once.record_id(&key).unwrap();
    let attempt = once.run(key, None, async |_claim: Claim| {
        crash.here::<Result<String, std::io::Error>>().await
    });
    crash.cut_off(attempt).await.unwrap();
    id.as_str().to_owned()
}

async fn deliver(server: &Server, token: &str) -> Result<(bool, String), Error<std::io::Error>> {
    let once = engine(server.store().await, Duration::ZERO);
    let handler = async |claim: Claim| Ok(format!("attempt {}", claim.attempt()));
    let outcome = once.run(Key::new("charge", token), None, handler).await?;
    Ok((outcome.is_replayed(), outcome.into_inner()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_explained_released_completed_failed_redacted_and_run_again() {
    let server = Server::start(&[]).await;
    let ids = [
        dead(&server, "A").await,
        dead(&server, "B").await,
        dead(&server, "C").await,
    ];
    let [one, other, third] = &ids;
    let words = "explain --operation charge --token A --namespace payments --json";
    let words: Vec<_> = words.split(' ').collect();
    let explained = on(&server, &words).await.ended_with(0).json();
    assert_eq!(explained["answer"], "runs_again", "{explained}");
    on(&server, &[&["release", one][..], &WHY].concat())
        .await
        .ended_with(0);
    assert_eq!(
        deliver(&server, "A").await.unwrap(),
        (false, "attempt 2".to_owned())
    );
    let complete = ["complete", other, "--outcome", "\"by hand\""];
    on(&server, &[&complete[..], &WHY].concat())
        .await
        .ended_with(0);
    assert_eq!(
        deliver(&server, "B").await.unwrap(),
        (true, "by hand".to_owned())
    );
    on(&server, &[&["redact", other][..], &WHY].concat())
        .await
        .ended_with(0);
    let shown = on(&server, &["get", other, "--json"]).await.json();
    assert_eq!(shown["outcome"]["reason"], "redacted");
    assert_eq!(shown["acts"].as_array().map(Vec::len), Some(2), "{shown}");
    let fail = ["fail", third, "--message", "no such card"];
    on(&server, &[&fail[..], &WHY].concat()).await.ended_with(0);
    let failed = deliver(&server, "C").await.unwrap_err();
    assert!(failed.to_string().contains("no such card"), "{failed}");
    on(
        &server,
        &[&["rerun", one, "--keys", "new"][..], &WHY].concat(),
    )
    .await
    .ended_with(0);
    assert_eq!(
        deliver(&server, "A").await.unwrap(),
        (false, "attempt 3".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_waits_is_settled() {
    let server = Server::start(&[]).await;
    let key = || Key::new("charge", "A");
    let charge = || Step::named("charge").on_crash(OnCrash::Interrupt);
    let (once, crash) = (
        engine(server.store().await, Duration::from_hours(1)),
        Crash::new(),
    );
    let attempt = once.run(key(), None, async |claim: Claim| {
        let effect = async |_| crash.here::<Result<String, std::io::Error>>().await;
        claim.step(charge(), effect).await
    });
    crash.cut_off(attempt).await.unwrap();
    let once = engine(server.store().await, Duration::ZERO);
    let again = async || {
        let never = async |_| panic!("it is not fired again");
        once.run(key(), None, async |claim: Claim| {
            claim.step(charge(), never).await
        })
        .await
        .map(lambda_idempotency::Outcome::<String>::into_inner)
    };
    let waits: Result<String, Error<StepError<std::io::Error>>> = again().await;
    assert!(matches!(waits, Err(Error::Interrupted { .. })), "{waits:?}");
    let id = once.record_id(&key()).unwrap();
    let settle = [
        "settle-step",
        id.as_str(),
        "--confirmed",
        "charge",
        "--result",
        "\"r-1\"",
    ];
    on(&server, &[&settle[..], &WHY].concat())
        .await
        .ended_with(0);
    assert_eq!(again().await.unwrap(), "r-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_records_are_listed_and_nothing_else() {
    let server = Server::start(&[]).await;
    for number in 0..1_500 {
        deliver(&server, &number.to_string()).await.unwrap();
    }
    let stuck = dead(&server, "A").await;
    server
        .ask::<i64>(&["RPUSH", "idempotency-queue", "a"])
        .await;
    let listed = async |words: &[&str]| {
        let said = on(&server, &[&["list", "--yes", "--json"][..], words].concat()).await;
        assert!(said.code < 2, "{said:?}");
        let mut ids: Vec<_> = said
            .out
            .lines()
            .map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                line["id"].as_str().unwrap().to_owned()
            })
            .collect();
        ids.sort();
        ids
    };
    assert_eq!(listed(&["--stuck"]).await, std::slice::from_ref(&stuck));
    let all = listed(&["--limit", "5000"]).await;
    assert_eq!(all.len(), 1_501);
    // By the hash of a log line, as well.
    let hash = &stuck[stuck.len() - 64..][..12];
    let found = on(&server, &["get", "--hash", hash, "--yes", "--json"])
        .await
        .ended_with(0)
        .json();
    assert_eq!(found["id"], stuck);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_no_record_can_have_are_skipped_and_counted() {
    let server = Server::start(&[]).await;
    deliver(&server, "A").await.unwrap();
    let once = engine(server.store().await, Duration::ZERO);
    let id = once.record_id(&Key::new("charge", "A")).unwrap();
    let long = format!("idempotency:{{{}}}", "x".repeat(2_049));
    for key in [
        &b"idempotency:{}"[..],
        long.as_bytes(),
        b"idempotency:{\xff}",
    ] {
        let mut set = redis::cmd("HSET");
        set.arg(key).arg("status").arg("COMPLETED");
        let set = set.exec_async(&mut server.connection().await).await;
        set.unwrap();
    }
    let audit = ["audit", "--effect-key", "hash", "--settled-for", "0s"];
    let rerun = ["rerun", "--keys", "new", "--yes", "--yes"];
    let times = [
        "--completed-since",
        "2020-01-01T00:00:00Z",
        "--completed-before",
        "2100-01-01T00:00:00Z",
    ];
    let which = ["--operation", "charge", "--namespace", "payments"];
    for (words, code, found) in [
        (&["list", "--yes"][..], 1, id.as_str()),
        (
            &[&audit[..], &["--effects-command", COUNTS_ONE]].concat(),
            0,
            "compared with their effects",
        ),
        (
            &["get", "--hash", &id.hash()[..12], "--yes"],
            0,
            id.as_str(),
        ),
        (
            &[&rerun[..], &times, &which, &WHY[1..]].concat(),
            0,
            id.as_str(),
        ),
    ] {
        let said = on(&server, words).await.ended_with(code);
        assert!(said.out.contains(found), "{said:?}");
        let notes = said.err.matches("3 keys skipped: no record has");
        assert_eq!(notes.count(), 1, "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_is_not_taken_for_its_cluster() {
    let server = Server::node().await;
    // Others may have the slots.
    server.until(&["CLUSTER", "INFO"], "cluster_size:0").await;
    let (list, audit) = (
        "list --yes",
        "audit --effect-key hash --effects-command true",
    );
    let rerun = "rerun --keys new --operation charge --namespace payments --reason r --completed-since 2020-01-01T00:00:00Z \
                 --completed-before 2100-01-01T00:00:00Z";
    let acl = "ACL SETUSER operator on >pass allkeys +@all -info";
    let acl: Vec<_> = acl.split(' ').collect();
    server.ask::<String>(&acl).await;
    let (all, of_operator) = (
        server.address(),
        format!("redis://operator:pass@127.0.0.1:{}", server.port),
    );
    for (address, words, code, said) in [
        (&all, list, 0, "is one node of a cluster"),
        // There is no record.
        (&all, audit, 1, "is one node of a cluster"),
        (&all, rerun, 2, "is one node of a cluster"),
        (&of_operator, list, 0, "may be one node of a cluster"),
        (&of_operator, rerun, 3, "which a user with `+info`"),
    ] {
        let words = words.split_whitespace().chain(["--store", address]);
        let words: Vec<_> = words.collect();
        run(&words).await.refused(code, said);
    }
    server
        .ask::<String>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])
        .await;
    server.until(&["CLUSTER", "INFO"], "cluster_size:1").await;
    let listed = on(&server, &["list", "--yes"]).await.ended_with(0);
    assert!(!listed.err.contains("cluster"), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_or_refuses_is_named_without_its_password() {
    let server = Server::start(&[]).await;
    server.set("requirepass", "right").await;
    for (address, words) in [
        (
            format!("redis://:wrong@127.0.0.1:{}", server.port),
            "the password",
        ),
        (
            "redis://:wrong@127.0.0.1:9".to_owned(),
            "could not be reached",
        ),
    ] {
        let said = run(&["get", "x", "--store", &address]).await;
        assert!(!format!("{said:?}").contains("wrong@"), "{said:?}");
        said.refused(3, words);
    }
}

/// The address of a proxy that lets each `SCAN` wait for a second.
async fn slow(server: &Server) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, port) = (listener.local_addr().unwrap(), server.port);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (mut asked, mut told) = client.into_split();
            let (mut answers, mut server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut answers, &mut told).await });
            tokio::spawn(async move {
                let mut bytes = [0; 4_096];
                while let Ok(read @ 1..) = asked.read(&mut bytes).await {
                    if bytes[..read].windows(4).any(|word| word == b"SCAN") {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                    server.write_all(&bytes[..read]).await.unwrap();
                }
            });
        }
    });
    format!("redis://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_answer_is_waited_for() {
    let server = Server::start(&[]).await;
    deliver(&server, "A").await.unwrap();
    let address = slow(&server).await;
    let listed = run(&["list", "--yes", "--store", &address]).await;
    assert!(listed.ended_with(1).out.contains("payments#charge#"));
}

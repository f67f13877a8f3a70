//! The same commands on records in Redis.

use std::time::Duration;

use lambda_idempotency::testing::Crash;
use lambda_idempotency::{Claim, Error, Idempotency, Key, OnCrash, Outcome, Step, StepError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::audit::COUNTS_ONE;
use crate::records::{EVER, WHY};
use crate::redis_server::Server;
use crate::support::{self, Said, cut_off, engine_an_hour_ago, key, receipt, refused, run};

async fn on(server: &Server, line: &str) -> Said {
    run(&format!("{line} --store {}", server.address())).await
}

async fn engine(server: &Server) -> Idempotency {
    support::engine(server.store().await).build().unwrap()
}

/// Leaves the record of an attempt that died an hour ago, and returns its id.
async fn dead(server: &Server, token: &str) -> String {
    cut_off(&engine_an_hour_ago(server.store().await), token).await
}

async fn deliver(server: &Server, token: &str) -> Result<Outcome<String>, Error<std::io::Error>> {
    support::deliver(&engine(server).await, token).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_explained_released_completed_failed_redacted_and_run_again() {
    let server = Server::start(&[]).await;
    let (one, other) = (dead(&server, "A").await, dead(&server, "B").await);
    let third = dead(&server, "C").await;
    let explain = "explain --operation charge --token A --namespace payments --json";
    let explained = on(&server, explain).await.ended_with(0).json();
    assert_eq!(explained["answer"], "runs_again", "{explained}");
    // Each question names the place.
    let place = format!("the keys idempotency of 127.0.0.1:{}/0", server.port);
    let release = format!("release {one} --reason why");
    for (line, asked) in [
        ("list", format!("the whole of {place}: ")),
        (&release, format!("in {place} is stuck. Release?")),
    ] {
        on(&server, line).await.refused(2, &asked);
    }
    let order = async |words: &str| on(&server, &format!("{words} {WHY}")).await.ended_with(0);
    order(&format!("release {one}")).await;
    let ran = deliver(&server, "A").await.unwrap();
    assert_eq!(ran, Outcome::Executed(receipt(2)));
    order(&format!("complete {other} --outcome '\"by hand\"'")).await;
    let replayed = deliver(&server, "B").await.unwrap();
    assert!(replayed.is_replayed());
    assert_eq!(replayed.into_inner(), "by hand");
    order(&format!("redact {other}")).await;
    let shown = on(&server, &format!("get {other} --json")).await.json();
    assert_eq!(shown["outcome"]["reason"], "redacted");
    assert_eq!(shown["acts"].as_array().map(Vec::len), Some(2), "{shown}");
    order(&format!("fail {third} --message 'no such card'")).await;
    let failed = deliver(&server, "C").await.unwrap_err();
    assert!(failed.to_string().contains("no such card"), "{failed}");
    order(&format!("rerun {one} --keys new")).await;
    let ran = deliver(&server, "A").await.unwrap();
    assert_eq!(ran, Outcome::Executed(receipt(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_waits_is_settled() {
    let server = Server::start(&[]).await;
    let charge = || Step::named("charge").on_crash(OnCrash::Interrupt);
    let (once, crash) = (engine_an_hour_ago(server.store().await), Crash::new());
    let attempt = once.run(key("A"), None, async |claim: Claim| {
        let effect = async |_| crash.here::<Result<String, std::io::Error>>().await;
        claim.step(charge(), effect).await
    });
    crash.cut_off(attempt).await.unwrap();
    let once = engine(&server).await;
    let again = async || {
        let never = async |_| panic!("it is not fired again");
        once.run(key("A"), None, async |claim: Claim| {
            claim.step(charge(), never).await
        })
        .await
        .map(Outcome::<String>::into_inner)
    };
    let waits: Result<String, Error<StepError<std::io::Error>>> = again().await;
    assert_matches!(waits, Err(Error::Interrupted { .. }));
    let id = once.record_id(&key("A")).unwrap();
    let settle = format!("settle-step {} --confirmed charge", id.as_str());
    on(&server, &format!("{settle} --result '\"r-1\"' {WHY}"))
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
    let said = on(&server, "list --yes --json --stuck").await;
    let listed = said.ended_with(1).listed();
    assert_eq!(listed, std::slice::from_ref(&stuck));
    let said = on(&server, "list --yes --json --limit 5000").await;
    assert_eq!(said.ended_with(1).listed().len(), 1_501);
    // By the hash of a log line, as well.
    let hash = &stuck[stuck.len() - 64..][..12];
    let found = on(&server, &format!("get --hash {hash} --yes --json")).await;
    assert_eq!(found.ended_with(0).json()["id"], stuck);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_with_braces_is_that_of_its_own_record() {
    let server = Server::start(&[]).await;
    let once = engine(&server).await;
    let raw = ["}", "%7D", "%257D", "{}"].map(|id| Key::raw("charge", id));
    let mut ids = Vec::new();
    for key in raw.into_iter().chain([Key::new("PUT /orders/{id}", "A")]) {
        ids.push(once.record_id(&key).unwrap().as_str().to_owned());
        let handler = async |_| Ok::<_, std::io::Error>(());
        assert!(!once.run(key, None, handler).await.unwrap().is_replayed());
    }
    ids.sort();
    let said = on(&server, "list --yes --json").await;
    assert_eq!(said.ended_with(1).listed(), ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_no_record_can_have_are_skipped_and_counted() {
    let server = Server::start(&[]).await;
    deliver(&server, "A").await.unwrap();
    let id = engine(&server).await.record_id(&key("A")).unwrap();
    let long = format!("idempotency:{{{}}}", "x".repeat(2_049));
    for key in [
        &b"idempotency:{}"[..],
        long.as_bytes(),
        b"idempotency:{\xff}",
        b"idempotency:{a}b}",
        b"idempotency:{a%}",
    ] {
        let mut set = redis::cmd("HSET");
        set.arg(key).arg("status").arg("COMPLETED");
        let set = set.exec_async(&mut server.connection().await).await;
        set.unwrap();
    }
    let audit = "audit --effect-key hash --settled-for 0s --effects-command";
    let rerun = "rerun --keys new --yes --operation charge --namespace payments";
    for (line, code, found) in [
        ("list --yes".to_owned(), 1, id.as_str()),
        (
            format!("{audit} '{COUNTS_ONE}'"),
            0,
            "compared with their effects",
        ),
        (
            format!("get --hash {} --yes", &id.hash()[..12]),
            0,
            id.as_str(),
        ),
        (format!("{rerun} {EVER} {WHY}"), 0, id.as_str()),
    ] {
        let said = on(&server, &line).await.ended_with(code);
        assert!(said.out.contains(found), "{said:?}");
        let notes = said.err.matches("5 keys skipped: no record has");
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
    let rerun =
        &format!("rerun --keys new --operation charge --namespace payments --reason r {EVER}");
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
        refused(run(&format!("{words} --store {address}")), code, said).await;
    }
    server
        .ask::<String>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])
        .await;
    server.until(&["CLUSTER", "INFO"], "cluster_size:1").await;
    let listed = on(&server, "list --yes").await.ended_with(0);
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
        let said = run(&format!("get x --store {address}")).await;
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
    run(&format!("list --yes --store {address}"))
        .await
        .refused(1, "payments#charge#");
}

/// Passes on what is sent; once the second of these texts where the first is sent.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, [sent, passed]: [&str; 2]) {
    let (mut bytes, mut is_changed) = ([0; 4_096], false);
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let mut text = String::from_utf8_lossy(&bytes[..read]).into_owned();
        if !is_changed && text.contains(sent) {
            is_changed = true;
            text = text.replacen(sent, passed, 1);
        }
        to.write_all(text.as_bytes()).await.unwrap();
    }
}

/// The address of a proxy that gives the only page of a scan twice.
async fn repeating(server: &Server) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, port) = (listener.local_addr().unwrap(), server.port);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (asked, told) = client.into_split();
            let (answers, server) = server.into_split();
            let more = ["*2\r\n$1\r\n0\r\n", "*2\r\n$1\r\n7\r\n"];
            tokio::spawn(pass(answers, told, more));
            let again = ["SCAN\r\n$1\r\n7\r\n", "SCAN\r\n$1\r\n0\r\n"];
            tokio::spawn(pass(asked, server, again));
        }
    });
    format!("redis://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_the_server_names_twice_is_one() {
    let server = Server::start(&[]).await;
    deliver(&server, "A").await.unwrap();
    let id = engine(&server).await.record_id(&key("A")).unwrap();
    let address = repeating(&server).await;
    let on = async |line: &str| run(&format!("{line} --store {address}")).await;
    let listed = on("list --yes").await.ended_with(1);
    assert_eq!(listed.out.matches(id.as_str()).count(), 2, "{listed:?}");
    let get = format!("get --hash {} --yes", &id.hash()[..12]);
    on(&get).await.refused(0, id.as_str());
    let rerun = "rerun --keys new --yes --operation charge --namespace payments";
    refused(on(&format!("{rerun} {EVER} {WHY}")), 0, "1 of 1 given back").await;
}

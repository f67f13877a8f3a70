//! Commands that are cut off between any two of their requests: the same command goes on, and nothing
//! runs that wasn't to run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lambda_idempotency::testing::Crash;
use lambda_idempotency::{Claim, Error, Fingerprint, Outcome};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, LocalSet};

use super::{EVER, WHY, dead, deliver, deliver_in_steps, engine, engine_an_hour_ago, id, store};
use crate::support::{
    self, Item, Said, Scratch, dynamodb, dynamodb_endpoint, ended_with, get, key, number, on,
    receipt, refused, run, table, text,
};

/// The part that is lost of the request at which the network goes down, and of each later one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lost {
    Request,
    Reply,
    /// The reply's own time: it has this one.
    Time(&'static str),
}

/// Starts a proxy that answers so many requests, and returns its address.
pub(crate) async fn proxy(answers: usize, lost: Lost) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move { one(client, &seen, answers, lost).await });
        }
    });
    address
}

/// One request on each connection.
async fn one(mut client: TcpStream, seen: &AtomicUsize, answers: usize, lost: Lost) -> Option<()> {
    let mut request = Vec::new();
    let head = loop {
        if let Some(head) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            break head + 4;
        }
        if client.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    };
    let headers = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
    let length = headers.split("content-length:").nth(1)?.lines().next()?;
    let length: usize = length.trim().parse().ok()?;
    while request.len() < head + length {
        client.read_buf(&mut request).await.ok()?;
    }
    let is_cut = seen.fetch_add(1, Ordering::SeqCst) >= answers;
    if is_cut && lost == Lost::Request {
        return None;
    }
    let mut server = TcpStream::connect(dynamodb_endpoint().trim_start_matches("http://"))
        .await
        .ok()?;
    server.write_all(&request[..head - 2]).await.ok()?;
    server.write_all(b"connection: close\r\n\r\n").await.ok()?;
    server.write_all(&request[head..]).await.ok()?;
    let mut reply = Vec::new();
    server.read_to_end(&mut reply).await.ok()?;
    if let Lost::Time(date) = lost {
        let name = b"\r\ndate: ";
        let mut at = reply.windows(name.len());
        let at = at.position(|part| part.eq_ignore_ascii_case(name))? + name.len();
        reply.splice(at..at + date.len(), date.bytes());
    }
    if !is_cut {
        client.write_all(&reply).await.ok()?;
    }
    None
}

async fn through(address: &str, table: &str, line: &str) -> Said {
    run(&format!("{line} --endpoint-url {address} --table {table}")).await
}

/// Leaves a record whose step waits for an operator.
async fn waiting(table: &str) {
    let (past, crash) = (engine_an_hour_ago(table), Crash::new());
    let attempt = deliver_in_steps(&past, "A-17", async || crash.here().await);
    crash.cut_off(attempt).await.unwrap();
    let now = engine(table);
    assert!(
        deliver_in_steps(&now, "A-17", async || Ok(String::new()))
            .await
            .is_err()
    );
}

/// Leaves a completed record, whose outcome is in its own item.
async fn large(table: &str) {
    let mut random = fastrand::Rng::with_seed(17);
    let text: String = (0..60_000).map(|_| random.alphanumeric()).collect();
    let handler = async |_claim: Claim| Ok::<_, std::io::Error>(text.clone());
    let payload = Fingerprint::json(b"{}");
    engine(table)
        .run(key("A-17"), payload, handler)
        .await
        .unwrap();
}

#[derive(Clone, Copy, Debug)]
enum Left {
    Dead,
    Waiting,
    Completed,
    Large,
}

#[tokio::test]
async fn a_command_that_is_cut_off_anywhere_goes_on_and_offers_no_second_effect() {
    let (thread, mut commands) = (LocalSet::new(), JoinSet::new());
    for (left, words, state) in [
        (Left::Dead, "release", "released"),
        (Left::Dead, "complete --outcome '\"by hand\"'", "completed"),
        (Left::Dead, "fail --message no", "failed"),
        (Left::Waiting, "settle-step --failed charge", "released"),
        (Left::Completed, "redact", "completed"),
        (Left::Large, "redact", "completed"),
        (Left::Completed, "rerun --keys same", "released"),
    ] {
        // Most of the time they wait to ask again.
        let all_cuts = async move {
            for lost in [Lost::Request, Lost::Reply] {
                let mut answers = 0;
                while is_cut_off(left, words, state, lost, answers).await {
                    answers += 1;
                }
                assert!(answers > 0, "{words}");
            }
        };
        commands.spawn_local_on(all_cuts, &thread);
    }
    thread.run_until(commands.join_all()).await;
}

/// Cuts the command off after so many answers, and runs it again. Returns `false` where it needs no
/// more answers.
async fn is_cut_off(left: Left, words: &str, state: &str, lost: Lost, answers: usize) -> bool {
    let table = table().await;
    match left {
        Left::Dead => drop(dead(&table, "A-17").await),
        Left::Waiting => waiting(&table).await,
        Left::Completed => drop(deliver(&table, "A-17").await.unwrap()),
        Left::Large => large(&table).await,
    }
    let id = id(&table, "A-17");
    let line = format!("{words} {id} {WHY} --json");
    let before = get(&table, &id).await;
    let address = proxy(answers, lost).await;
    let cut = through(&address, &table, &line).await;
    let between = get(&table, &id).await;
    let case = format!("{words}, {lost:?} after {answers}: {cut:?}\n{between}");
    // As it was, or as it is to be.
    let states = [before["state"].clone(), Value::from(state)];
    assert!(states.contains(&between["state"]), "{case}");
    if words == "redact" {
        // Its effect has happened.
        let release = format!("release {id} --while-live --reason other --yes --yes");
        refused(on(&table, &release), 2, "its effect has happened").await;
        let again = deliver(&table, "A-17").await;
        assert!(
            !matches!(again, Ok(Outcome::Executed(_))),
            "{case}: {again:?}"
        );
    }
    let said = on(&table, &line).await.ended_with(0);
    let after = get(&table, &id).await;
    assert_eq!(after["state"], state, "{case}\n{said:?}");
    assert_eq!(after["acts"].as_array().map(Vec::len), Some(1), "{after}");
    assert!([0, 3].contains(&cut.code), "{case}");
    cut.code != 0
}

/// Returns the size in bytes of each large outcome that the table keeps.
async fn kept(table: &str) -> Vec<usize> {
    let scan = dynamodb().client().scan().table_name(table);
    let items = scan.send().await.unwrap().items.unwrap();
    let content = |item: &Item| {
        let content = item.get("content")?;
        Some(content.as_b().unwrap().as_ref().len())
    };
    items.iter().filter_map(content).collect()
}

#[tokio::test]
async fn a_redaction_erases_the_outcomes_of_all_attempts() {
    let table = table().await;
    large(&table).await;
    let id = id(&table, "A-17");
    for why in ["one", "two"] {
        let rerun = format!("rerun {id} --keys same --yes --reason {why}");
        on(&table, &rerun).await.ended_with(0);
        if why == "one" {
            large(&table).await;
        }
    }
    deliver(&table, "A-17").await.unwrap();
    let left = kept(&table).await;
    assert!(left.len() == 2 && !left.contains(&0), "{left:?}");
    ended_with(on(&table, &format!("redact {id} {WHY}")), 0).await;
    assert_eq!(kept(&table).await, [0, 0]);
}

/// Leaves a record that has failed permanently behind a step whose result was erased.
async fn erased_step(table: &str) -> String {
    let (past, crash) = (engine_an_hour_ago(table), Crash::new());
    let attempt = past.run(
        key("A-17"),
        Fingerprint::json(b"{}"),
        async |claim: Claim| {
            let charge = claim.step("charge", async |_key| {
                Ok::<_, std::io::Error>("a secret".to_owned())
            });
            charge.await.unwrap();
            crash.here::<Result<String, std::io::Error>>().await
        },
    );
    crash.cut_off(attempt).await.unwrap();
    let id = id(table, "A-17");
    for words in ["fail --message no", "redact"] {
        ended_with(on(table, &format!("{words} {id} {WHY}")), 0).await;
    }
    id
}

#[tokio::test]
async fn a_step_whose_result_was_erased_is_not_skipped() {
    let table = table().await;
    let id = erased_step(&table).await;
    let rerun = format!("rerun {id} --keys new --steps");
    for line in [format!("release {id}"), format!("{rerun} keep")] {
        on(&table, &format!("{line} {WHY}"))
            .await
            .refused(2, "`rerun --steps repeat` fires them again");
    }
    ended_with(on(&table, &format!("{rerun} repeat {WHY}")), 0).await;
    let charge = async || Ok("charged again".to_owned());
    let ran = deliver_in_steps(&engine(&table), "A-17", charge).await;
    assert_eq!(ran.unwrap(), Outcome::Executed("charged again".to_owned()));
}

#[tokio::test]
async fn a_redaction_erases_large_outcomes_and_the_results_of_steps() {
    let large_table = table().await;
    large(&large_table).await;
    let id_of_large = id(&large_table, "A-17");
    ended_with(on(&large_table, &format!("redact {id_of_large} {WHY}")), 0).await;
    assert_eq!(kept(&large_table).await, [0]);
    let again = deliver(&large_table, "A-17").await;
    assert_matches!(again, Err(Error::OutcomeOmitted { .. }));

    let steps = table().await;
    let charge = async || Ok("a secret".to_owned());
    deliver_in_steps(&engine(&steps), "A-17", charge)
        .await
        .unwrap();
    let id = id(&steps, "A-17");
    ended_with(on(&steps, &format!("redact {id} {WHY}")), 0).await;
    let left = get(&steps, &id).await;
    assert!(!left.to_string().contains("a secret"), "{left}");
    assert_eq!(left["steps"][0]["state"], "confirmed");
}

#[tokio::test]
async fn a_rerun_is_the_next_attempt_once_for_each_reason() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    let rerun = async |why: &str| {
        let rerun = format!("rerun {id} --keys new --reason '{why}' --yes");
        on(&table, &rerun).await
    };
    rerun("charged 0")
        .await
        .refused(0, "rerun --keys new by alice: charged 0");
    let ran = deliver(&table, "A-17").await.unwrap();
    assert_eq!(ran, Outcome::Executed(receipt(2)));
    // The same command again has no second effect.
    rerun("charged 0").await.ended_with(0);
    assert!(deliver(&table, "A-17").await.unwrap().is_replayed());
    rerun("charged 1").await.ended_with(0);
    let ran = deliver(&table, "A-17").await.unwrap();
    assert_eq!(ran, Outcome::Executed(receipt(3)));
    let acts = get(&table, &id).await["acts"].take();
    let acts = acts.as_array().unwrap().iter();
    let reasons: Vec<_> = acts.map(|act| &act["reason"]).collect();
    assert_eq!(reasons, ["charged 0", "charged 1"]);
}

#[tokio::test]
async fn a_record_that_waits_for_its_delivery_is_not_given_back_again() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    let file = Scratch::with(&id);
    let rerun = async |which: &str, keys: &str, why: &str| {
        let rerun = format!("rerun {which} --keys {keys} --reason '{why}' --yes");
        on(&table, &rerun).await
    };
    let one = async |keys: &str, why: &str| rerun(&id, keys, why).await;
    let from = format!("--from {file}");
    let listed = async |keys: &str, why: &str| rerun(&from, keys, why).await;
    one("same", "charged 0").await.ended_with(0);
    let given = get(&table, &id).await;
    refused(one("same", "Charged 0."), 0, "was done before").await;
    refused(listed("same", "it charged 0"), 0, "done before").await;
    assert_eq!(get(&table, &id).await, given);
    // Nothing has run under the old keys since.
    one("new", "charged 0").await.ended_with(0);
    let given = get(&table, &id).await;
    assert_eq!(given["key_generation"], 1, "{given}");
    for why in ["charged 0", "another"] {
        refused(one("same", why), 2, "no attempt has left a trace since").await;
        refused(listed("same", why), 1, "no attempt has left a trace since").await;
        one("new", why).await.refused(0, "was done before");
        assert_eq!(get(&table, &id).await, given);
    }
    let ran = deliver(&table, "A-17").await.unwrap();
    assert_eq!(ran, Outcome::Executed(receipt(2)));
    // It has run since: the same reason is no order to have it run in another way.
    refused(one("same", "charged 0"), 2, "give another reason").await;
    refused(listed("same", "charged 0"), 1, "give another reason").await;
    one("new", "charged 0").await.refused(0, "was done before");
    assert!(deliver(&table, "A-17").await.unwrap().is_replayed());
}

#[tokio::test]
async fn an_attempt_that_did_not_begin_leaves_a_rerun_waiting() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    let rerun = async |why: &str| {
        let rerun = format!("rerun {id} --keys new --reason '{why}' --yes");
        on(&table, &rerun).await
    };
    rerun("one").await.ended_with(0);
    let ended = |how: &str| {
        let update = dynamodb().client().update_item().table_name(&table);
        update
            .key("id", text(&id))
            .update_expression("SET attempt = :number, last_error = :how")
            .expression_attribute_values(":number", number(2))
            .expression_attribute_values(":how", text(how))
            .send()
    };
    for how in ["not started", "claim without a reply"] {
        ended(how).await.unwrap();
        rerun(how).await.refused(0, "was done before");
    }
    ended("panic").await.unwrap();
    rerun("three").await.refused(0, "released before");
}

#[tokio::test]
async fn a_rerun_of_steps_is_not_said_to_be_one_that_keeps_them() {
    let (table, charges) = (table().await, AtomicUsize::new(0));
    let once = engine(&table);
    let charge = async || Ok(format!("charge {}", charges.fetch_add(1, Ordering::SeqCst)));
    deliver_in_steps(&once, "A-17", charge).await.unwrap();
    let id = id(&table, "A-17");
    let rerun = async |steps: &str| {
        let rerun = format!("rerun {id} --keys same --steps {steps} {WHY}");
        on(&table, &rerun).await
    };
    rerun("keep").await.ended_with(0);
    // A correction, before anything has run.
    rerun("repeat").await.refused(0, "released before");
    refused(rerun("keep"), 2, "no attempt has left a trace since").await;
    let ran = deliver_in_steps(&once, "A-17", charge).await.unwrap();
    assert_eq!(ran, Outcome::Executed("charge 1".to_owned()));
    rerun("keep").await.refused(2, "give another reason");
}

#[tokio::test]
async fn a_rerun_asks_what_becomes_of_confirmed_steps_and_keeps_the_record() {
    let (table, charges) = (table().await, AtomicUsize::new(0));
    let once = support::engine(store(&table)).retention(Duration::from_hours(1));
    let once = once.build().unwrap();
    let charge = async || Ok(format!("charge {}", charges.fetch_add(1, Ordering::SeqCst)));
    let deliver = async || deliver_in_steps(&once, "A-17", charge).await.unwrap();
    assert_eq!(deliver().await, Outcome::Executed("charge 0".to_owned()));
    let id = id(&table, "A-17");
    let kept = get(&table, &id).await["expires_at"].to_string();
    let rerun = format!("rerun {id} --keys same --yes --reason");
    on(&table, &format!("{rerun} why"))
        .await
        .refused(2, "1 of its steps are confirmed: say whether");
    assert!(deliver().await.is_replayed());
    ended_with(on(&table, &format!("{rerun} 'a reason' --steps keep")), 0).await;
    // A retry may come long after the record would have expired.
    let now_kept = get(&table, &id).await["expires_at"].to_string();
    assert!(kept[..11] < now_kept[..11], "{kept}, then {now_kept}");
    assert_eq!(deliver().await, Outcome::Executed("charge 0".to_owned()));
    on(&table, &format!("{rerun} 'charged 0' --steps repeat"))
        .await
        .ended_with(0);
    assert_eq!(deliver().await, Outcome::Executed("charge 1".to_owned()));
    assert_eq!(charges.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_list_and_a_filter_are_run_again_and_gone_on_with() {
    let table = table().await;
    for number in 0..12 {
        deliver(&table, &format!("A-{number}")).await.unwrap();
    }
    let stuck = dead(&table, "stuck").await;
    let mut ids: Vec<String> = (0..3)
        .map(|number| id(&table, &format!("A-{number}")))
        .collect();
    ids.push(stuck);
    let file = Scratch::with(ids.join("\n"));
    let from = format!("rerun --from {file} --keys new --json {WHY}");
    let dry = on(&table, &format!("{from} --dry-run")).await.ended_with(1);
    assert_eq!(dry.out.matches("would_be_given").count(), 3, "{dry:?}");
    assert!(deliver(&table, "A-0").await.unwrap().is_replayed());
    let said = on(&table, &from).await.ended_with(1);
    assert_eq!(said.out.matches("\"given\"").count(), 3, "{said:?}");
    let words = "3 of 4 given back, 0 done before, 1 left alone";
    assert!(said.err.contains(words), "{said:?}");
    assert!(!deliver(&table, "A-0").await.unwrap().is_replayed());
    let dry = on(&table, &format!("{from} --dry-run")).await.ended_with(1);
    let words = "0 of 4 would be given back, 3 done before, 1 left alone";
    assert!(dry.err.contains(words), "{dry:?}");

    // A filter, cut off on its way.
    let filter = &format!(
        "rerun --operation charge --namespace payments {EVER} --keys same --reason all --yes --yes --json"
    );
    let cut = through(&proxy(15, Lost::Reply).await, &table, filter).await;
    assert_eq!(cut.code, 3, "{cut:?}");
    assert!(
        cut.err.contains("with the same reason, and it goes on"),
        "{cut:?}"
    );
    on(&table, filter).await.ended_with(0);
    for number in 0..12 {
        let ran = deliver(&table, &format!("A-{number}")).await.unwrap();
        assert!(!ran.is_replayed(), "A-{number}");
    }
    on(&table, filter).await.ended_with(0);
    assert!(deliver(&table, "A-7").await.unwrap().is_replayed());
}

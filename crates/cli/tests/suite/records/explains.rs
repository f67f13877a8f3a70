//! `explain` says what a delivery is told, and a delivery is told so.

use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use lambda_idempotency::testing::Crash;
use lambda_idempotency::{
    Claim, Error, Fingerprint, Key, OnCrash, Outcome, SagaError, Step, StepError,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{WHY, alive, dead, deliver, engine, engine_an_hour_ago, id, store};
use crate::support::{
    self, Said, command, command_of, dynamodb, dynamodb_endpoint, ended_with, get, item, key,
    number, on, place, put, receipt, record, refused, run, step, table, text,
};

async fn explain(table: &str, words: &str) -> Value {
    let said = on(table, &format!("explain --json {words}")).await;
    let explained = said.json();
    let code = i32::from(explained["needs_person"].as_bool().unwrap());
    said.ended_with(code);
    explained
}

fn assert_said(explained: &Value, said: &str) {
    let words = explained["words"].as_str().unwrap();
    assert!(words.contains(said), "{said:?} is not in {words}");
}

#[tokio::test]
async fn a_delivery_is_told_what_was_explained() {
    let table = table().await;
    let done = id(&table, "done");
    assert_eq!(explain(&table, &done).await["answer"], "runs");
    assert_matches!(deliver(&table, "done").await, Ok(Outcome::Executed(_)));
    assert_eq!(explain(&table, &done).await["answer"], "replayed");
    assert!(deliver(&table, "done").await.unwrap().is_replayed());
    ended_with(on(&table, &format!("redact {done} {WHY}")), 0).await;
    let explained = explain(&table, &done).await;
    assert_eq!(explained["answer"], "outcome_omitted");
    assert_eq!(explained["safe"], json!([]));
    assert_matches!(
        deliver(&table, "done").await,
        Err(Error::OutcomeOmitted { .. })
    );

    let alive = alive(&table, "alive").await;
    let explained = explain(&table, &alive).await;
    assert_eq!(explained["answer"], "in_flight");
    assert_said(&explained, "*in flight* until 20");
    assert_matches!(deliver(&table, "alive").await, Err(Error::InFlight { .. }));

    let dead = dead(&table, "dead").await;
    for (words, answer) in [
        ("--crashed interrupt", "interrupted"),
        ("--max-attempts 1", "exhausted"),
    ] {
        let explained = explain(&table, &format!("{dead} {words}")).await;
        assert_eq!(explained["answer"], answer);
    }
    let explained = explain(&table, &dead).await;
    assert_eq!(explained["answer"], "runs_again");
    assert_said(&explained, "as attempt 2");
    assert_eq!(
        deliver(&table, "dead").await.unwrap(),
        Outcome::Executed(receipt(2))
    );
}

#[tokio::test]
async fn the_keys_of_an_effect_are_those_that_the_handler_derives() {
    let table = table().await;
    let id = id(&table, "A-17");
    let asked = &format!("{id} --derive charge --derive ship");
    let mut derived = Vec::new();
    for keys in ["same", "new", "new"] {
        let handler = async |claim: Claim| {
            let step = claim.step("ship", async |key| Ok::<_, std::io::Error>(key));
            Ok::<_, StepError<std::io::Error>>([
                claim.derive_key("charge"),
                step.await?,
                claim.derive_uuid("ship"),
            ])
        };
        let payload = Fingerprint::json(b"{}");
        let ran = engine(&table).run(key("A-17"), payload, handler).await;
        derived.push(ran.unwrap().into_inner());
        let explained = explain(&table, asked).await["derived"].take();
        let explained = explained.as_array().unwrap();
        let (charges, ships) = explained.split_at(explained.len() / 2);
        let newest = [
            &charges.last().unwrap()["key"],
            &ships.last().unwrap()["key"],
            &ships.last().unwrap()["uuid"],
        ];
        assert_eq!(json!(newest), json!(derived.last()));
        assert_eq!(
            charges[0]["key"], derived[0][0],
            "the first keys are shown, too"
        );
        let why = format!("--reason 'the last of {}' --yes", derived.len());
        let rerun = format!("rerun {id} --keys {keys} --steps repeat {why}");
        on(&table, &rerun).await.ended_with(0);
    }
    assert_eq!(derived[0], derived[1]);
    assert_ne!(derived[1], derived[2]);
    let text = on(&table, &format!("explain {asked}")).await.out;
    assert!(
        text.contains(&derived[0][2]) && text.contains(&derived[2][2]),
        "{text}"
    );
    assert!(text.contains("Keys of ship, generation 1"), "{text}");
}

/// Its handlers derive from the id that protection will give, which the record's own doesn't tell.
#[tokio::test]
async fn of_an_engine_that_observes_the_keys_are_those_of_its_own_namespace() {
    let table = table().await;
    let engine = support::engine(store(&table)).observe(true);
    let engine = engine.build().unwrap();
    let raw = Key::raw("charge", "an id of ours");
    for (key, which) in [
        (key("A-17"), "--operation charge --token A-17"),
        (raw, "'an id of ours'"),
    ] {
        let handler = async |claim: Claim| Ok::<_, std::io::Error>(claim.derive_key("gateway"));
        let given = engine.run(key.clone(), None, handler).await.unwrap();
        let listed = on(&table, "list --yes --json").await.ended_with(1);
        let shadow = listed.listed().remove(0);
        assert!(shadow.starts_with("payments.observed#"), "{shadow}");
        on(&table, &format!("explain '{shadow}' --derive gateway"))
            .await
            .refused(2, "Give --namespace payments with --operation and --token");
        let words = format!("{which} --namespace payments --derive gateway");
        let explained = explain(&table, &words).await;
        assert_eq!(explained["derived"][0]["key"], *given.get());
        let explained = explain(&table, &format!("'{shadow}'")).await;
        assert_said(&explained, "only observes");
        let delete = dynamodb().client().delete_item().table_name(&table);
        delete.key("id", text(shadow)).send().await.unwrap();
    }
    let words = "--operation charge --token A-17 --namespace payments.observed";
    on(&table, &format!("explain {words} --derive gateway"))
        .await
        .refused(2, "only observes");
}

#[tokio::test]
async fn of_an_unreadable_record_the_first_keys_are_shown_and_said_to_be_so() {
    let table = table().await;
    let id = id(&table, "A-17");
    let odd = item([("id", text(&id)), ("status", text("ODD"))]);
    put(&table, odd).await;
    let explained = explain(&table, &format!("{id} --derive charge")).await;
    assert_eq!(explained["answer"], "unreadable");
    assert_said(&explained, "the first ones alone");
    assert_eq!(explained["derived"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn another_time_may_be_asked_for() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let words = format!("{} --at 2090-01-01T00:00:00Z", id(&table, "A-17"));
    let explained = explain(&table, &words).await;
    assert_eq!(explained["answer"], "runs");
    assert_eq!(explained["record"]["state"], "expired");
    assert_eq!(explained["at"], "2090-01-01T00:00:00Z");
}

#[tokio::test]
async fn the_commands_that_are_named_do_what_is_said() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let words = format!("{id} --crashed interrupt --attribute data=outcome");
    let explained = explain(&table, &words).await;
    let commands = explained["safe"].as_array().unwrap();
    assert_eq!(commands.len(), 3, "{explained}");
    let release = commands[0]["command"].as_str().unwrap();
    assert!(release.contains("--attribute 'data=outcome'"), "{release}");
    let release = release.strip_prefix("idempotency ").unwrap();
    // It names its place.
    ended_with(run(&release.replace("WHY", "'ticket 17' --yes")), 0).await;
}

/// Each name is one word, whatever it has in it.
#[tokio::test]
async fn a_shell_takes_the_commands_that_are_named_as_they_are_meant() {
    let table = table().await;
    let names = [
        "charge",
        "it's",
        "a  b",
        "-x",
        "--yes",
        "$(date)`date`\\",
        "a\nb\u{1b}[31m\u{9b}'",
        "a\u{202e}b\u{2028}'",
    ];
    for name in names {
        for id in [format!("payments#charge {name}#0f"), format!("{name}#0f")] {
            advised(&table, &id, name).await;
        }
    }
}

async fn advised(table: &str, id: &str, name: &str) {
    let (then, charge) = (1_700_000_000_000, format!("step:{name}"));
    let own = [
        ("in_progress_expiration", number(0)),
        ("last_error", text("interrupted step")),
        ("started_at", number(then)),
        (&charge, step("PENDING", then, &[])),
    ];
    put(table, record(id, "INPROGRESS", own)).await;
    let endpoint = dynamodb_endpoint();
    let place = ["--endpoint-url", &endpoint, "--table", table, "--json"];
    let on = async |words: &[&str]| {
        let mut command = command_of(&[&place[..], words].concat());
        Said::of(&command.output().await.unwrap())
    };
    let said = on(&["explain", "--crashed", "interrupt", "--", id]).await;
    let explained = said.ended_with(1).json();
    let commands = explained["safe"].as_array().unwrap();
    assert_eq!(commands.len(), 2, "{explained}");
    for (command, state) in commands.iter().zip(["confirmed", "failed"]) {
        let command = command["command"].as_str().unwrap();
        let obeyed = |char: char| char.is_control() || "\u{202e}\u{2028}".contains(char);
        assert!(!command.contains(obeyed), "{command:?}");
        let line = format!("idempotency() {{ printf '%s\\0' \"$@\"; }}\n{command}");
        let mut shell = tokio::process::Command::new("bash");
        let taken = shell.args(["-c", &line]).output().await.unwrap();
        let taken = String::from_utf8(taken.stdout).unwrap();
        let words = taken.trim_end_matches('\0').split('\0');
        let words = words.map(|word| if word == "JSON" { "17" } else { word });
        let mut words: Vec<&str> = words.collect();
        words.insert(1, "--dry-run");
        let report = on(&words).await.ended_with(0).json();
        assert_eq!(report["before"]["id"], id, "{command}");
        let act = format!("settle-step {name} {state}");
        assert_eq!(report["act"]["act"], act, "{command}");
    }
}

/// Runs the binary with a clock that is off by this from the table's, which is the true one.
async fn off(table: &str, by: &str, line: &str) -> Said {
    let library =
        std::env::var("FAKETIME_LIBRARY").expect("run it by `scripts/with faketime -- …`");
    let mut tool = command(&format!("{line} {}", place(table)));
    tool.env("LD_PRELOAD", &library)
        .env("FAKETIME", by)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Said::of(&tool.output().await.unwrap())
}

#[tokio::test]
async fn a_clock_that_is_ahead_makes_no_attempt_look_dead() {
    let table = table().await;
    let id = alive(&table, "A-17").await;
    for (line, code, expected) in [
        (format!("release {id} {WHY}"), 2, "an attempt may still run"),
        (format!("explain {id}"), 0, "*in flight*"),
    ] {
        let said = off(&table, "+20m", &line).await;
        assert!(said.err.contains("ahead of the store's"), "{said:?}");
        said.refused(code, expected);
    }
    // A lease's margin doesn't allow for it.
    let said = off(&table, "+1.1", &format!("explain {id} --json")).await;
    let at = said.json()["at"].as_str().unwrap().parse::<Timestamp>();
    assert!(at.unwrap() <= Timestamp::now(), "{said:?}");
}

/// By its own time, what it stores would be over before.
#[tokio::test]
async fn a_clock_that_is_behind_makes_no_time_of_the_past() {
    let table = table().await;
    let id = alive(&table, "A-17").await;
    let began = Timestamp::now().as_second();
    let said = off(&table, "-2d", &format!("explain {id} --json")).await;
    assert!(said.err.contains("behind the store's"), "{said:?}");
    let at = said.json()["at"].as_str().unwrap().parse::<Timestamp>();
    assert!(at.unwrap().as_second() > began - 3_600, "{said:?}");
}

#[tokio::test]
async fn the_rules_are_said_and_those_that_are_assumed() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    on(&table, &format!("explain {id}"))
        .await
        .refused(0, "--crashed run-again (assumed)")
        .refused(0, "wait for an operator: give --crashed");
    on(&table, &format!("explain {id} --crashed interrupt"))
        .await
        .refused(1, "--crashed interrupt, no --max-attempts");
}

#[tokio::test]
async fn each_step_that_waits_is_settled_and_the_record_is_listed_until_none_does() {
    let table = table().await;
    let interrupt = |name: &str| Step::named(name).on_crash(OnCrash::Interrupt);
    let (past, crash) = (engine_an_hour_ago(&table), Crash::new());
    let begun = Notify::new();
    let attempt = past.run(key("A-17"), None, async |claim: Claim| {
        let charge = claim.step(interrupt("charge"), async |_key| {
            begun.notified().await;
            crash.here::<Result<u32, std::io::Error>>().await
        });
        let mail = claim.step(interrupt("mail"), async |_key| {
            begun.notify_one();
            std::future::pending::<Result<u32, std::io::Error>>().await
        });
        let (charge, mail) = tokio::join!(charge, mail);
        charge.and(mail)
    });
    crash.cut_off(attempt).await.unwrap();
    let id = id(&table, "A-17");
    let handler = async |claim: Claim| {
        let charge = async |_key| Ok::<_, std::io::Error>(1);
        claim.step(interrupt("charge"), charge).await
    };
    let once = engine(&table);
    assert!(once.run(key("A-17"), None, handler).await.is_err());
    let listed = async || on(&table, "list --interrupted --yes").await.out;
    for (step, commands) in [("charge", 4), ("mail", 2)] {
        let explained = explain(&table, &id).await;
        assert_eq!(explained["answer"], "interrupted", "{explained}");
        assert_eq!(explained["safe"].as_array().unwrap().len(), commands);
        assert_said(&explained, step);
        assert!(listed().await.contains(&id));
        on(&table, &format!("settle-step {id} --failed {step} {WHY}"))
            .await
            .ended_with(0);
    }
    assert_eq!(explain(&table, &id).await["answer"], "runs_again");
    assert!(!listed().await.contains(&id));
}

#[tokio::test]
async fn a_saga_that_is_stuck_is_listed_settled_and_undone_and_its_failure_can_be_erased() {
    let table = table().await;
    let once = engine(&table);
    let refunds = AtomicUsize::new(0);
    let deliver = async || {
        let checkout = async |claim: Claim| {
            let mut saga = claim.saga()?.permanent(|_: &std::io::Error| true);
            let refund = |_, _: u32| async {
                refunds.fetch_add(1, Ordering::Relaxed);
                Err(std::io::Error::other("no refund"))
            };
            saga.step("charge", async |_| Ok(1), refund).await?;
            let declined = async |_| Err(std::io::Error::other("secret of the carrier"));
            saga.step("ship", declined, |_, _: u32| async { Ok(()) })
                .await
        };
        once.run(key("A-17"), None, checkout).await.unwrap_err()
    };
    for _ in 0..2 {
        assert_matches!(deliver().await, Error::Interrupted { .. });
    }
    assert_eq!(refunds.load(Ordering::Relaxed), 1);
    let id = id(&table, "A-17");
    let saga = async || {
        let shown = get(&table, &id).await;
        shown["saga"].as_str().unwrap().to_owned()
    };
    let listed = async || on(&table, "list --saga-stuck --yes").await.out;
    assert_eq!(saga().await, "stuck");
    assert!(listed().await.contains(&id));
    assert_said(&explain(&table, &id).await, "its saga is stuck");

    let settle = format!("settle-step {id} --confirmed charge/undo --result null {WHY}");
    on(&table, &settle).await.ended_with(0);
    assert_eq!(saga().await, "compensating");
    assert!(!listed().await.contains(&id));
    let ended = deliver().await;
    assert!(ended.to_string().contains("undone: charge"), "{ended}");
    assert_eq!(
        (saga().await.as_str(), refunds.load(Ordering::Relaxed)),
        ("compensated", 1)
    );

    ended_with(on(&table, &format!("redact {id} {WHY}")), 0).await;
    let scan = dynamodb().client().scan().table_name(&table);
    let items = scan.send().await.unwrap();
    let items = format!("{:?}", items.items());
    assert!(!items.contains("secret of the carrier"), "{items}");
    assert_eq!(saga().await, "compensated");
}

/// The engine writes a word for it, by which `explain` knows it.
#[tokio::test]
async fn a_compensation_that_no_delivery_can_fire_is_told_from_others() {
    let table = table().await;
    let once = engine(&table);
    let deliver = async |aborts: bool| {
        let checkout = async |claim: Claim| {
            let mut saga = claim.saga::<std::io::Error>()?;
            if aborts {
                return Err(saga.abort(&std::io::Error::other("no")).await);
            }
            let undo = |_, _: u32| async { Ok(()) };
            saga.step("charge", async |_| Ok(1), undo).await?;
            let down = std::io::Error::other("down");
            Err::<u32, _>(SagaError::Step(StepError::Effect(down)))
        };
        once.run(key("A-17"), None, checkout).await.unwrap_err()
    };
    deliver(false).await;
    assert_matches!(deliver(true).await, Error::Interrupted { .. });
    let explained = explain(&table, &id(&table, "A-17")).await;
    let when = explained["safe"][0]["when"].as_str().unwrap();
    let by_hand = "no delivery can fire `charge/undo`";
    assert!(when.starts_with(by_hand), "{explained}");
}

#[tokio::test]
async fn a_saga_that_was_undone_begins_anew_by_a_rerun_that_repeats_its_steps_alone() {
    let table = table().await;
    let once = engine(&table);
    let deliver = async |ships: bool| {
        let checkout = async |claim: Claim| {
            let mut saga = claim.saga()?.permanent(|_: &std::io::Error| true);
            let undo = |_, _: u32| async { Ok(()) };
            saga.step("reserve", async |_| Ok(1), undo).await?;
            let ship = async |_| {
                if ships {
                    Ok(2)
                } else {
                    Err(std::io::Error::other("no carrier"))
                }
            };
            saga.step("ship", ship, undo).await
        };
        once.run(key("A-17"), None, checkout).await
    };
    deliver(false).await.unwrap_err();
    let id = id(&table, "A-17");
    let explained = explain(&table, &id).await;
    let command = explained["safe"][0]["command"].as_str().unwrap();
    assert!(
        command.contains("rerun") && command.contains("--steps repeat"),
        "{explained}"
    );
    let rerun = format!("rerun {id} --keys new --steps");
    for line in [
        format!("release {id}"),
        format!("{rerun} keep"),
        // A provider would answer with the reservation that was undone.
        format!("rerun {id} --keys same --steps repeat"),
    ] {
        refused(on(&table, &format!("{line} {WHY}")), 2, "--keys new").await;
    }
    ended_with(on(&table, &format!("{rerun} repeat {WHY}")), 0).await;
    assert_eq!(deliver(true).await.unwrap(), Outcome::Executed(2));
}

#[tokio::test]
async fn of_a_failure_that_was_erased_no_words_are_promised() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    for order in [format!("fail {id} --message no"), format!("redact {id}")] {
        on(&table, &format!("{order} {WHY}")).await.ended_with(0);
    }
    let explained = explain(&table, &id).await;
    assert_eq!(explained["answer"], "failure_replayed");
    assert_said(
        &explained,
        "a failure without words (it was erased on request)",
    );
    let told = deliver(&table, "A-17").await.unwrap_err();
    assert_matches!(&told, Error::Failed(failure) if failure.message != "no");
}

//! The outbox, its relays, and what they do when one of them dies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use deadpool_postgres::{ClientWrapper, Hook, HookError, Manager, Metrics, Pool};
use lambda_idempotency::store::transaction::WriteError;
use lambda_idempotency::{EpochMillis, Key};
use lambda_idempotency_postgres::outbox::{Event, Outbox, Relayed, StoredEvent};
use lambda_idempotency_postgres::{PostgresError, PostgresStore, Problem, TransactionError};
use serde_json::json;
use tokio::sync::Notify;
use tokio_postgres::NoTls;

use crate::support::{
    MINUTE, Store, count, engine, eventually, name, once_there_is, pool_of, sql, store, store_of,
    url, url_with, waiting_for,
};

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("no")]
    Own,
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    #[error(transparent)]
    Postgres(#[from] PostgresError),
}

async fn outbox(store: &Store) -> (Outbox, String) {
    let table = name("outbox");
    let outbox = Outbox::new(&table).unwrap();
    lay(store, &outbox).await;
    (outbox, table)
}

async fn lay(store: &Store, outbox: &Outbox) {
    let client = store.pool().get().await.unwrap();
    client.batch_execute(&outbox.statements()).await.unwrap();
}

/// Emits events of one transaction: for each aggregate the number that it is to have.
async fn emit(store: &Store, outbox: &Outbox, token: &str, events: &[(&str, u32)], fails: bool) {
    let claimless = engine(store.clone()).claimless();
    let emitted = claimless.run(Key::new("emit", token), None, |claim| async move {
        let mut tx = store.transaction(&claim).await?;
        for (aggregate, number) in events {
            let event = Event::new("counted", *aggregate).name(number.to_string());
            let event = outbox
                .event(&claim, &event, &json!({ "number": number }))
                .unwrap();
            tx.apply(&event).await?;
        }
        if fails { Err(Failed::Own) } else { Ok(()) }
    });
    assert_eq!(emitted.await.is_err(), fails);
}

fn number(event: &StoredEvent) -> u32 {
    let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
    data["number"].as_u64().unwrap().try_into().unwrap()
}

#[tokio::test]
async fn an_event_is_published_if_and_only_if_its_transaction_commits() {
    let store = store().await;
    let (outbox, table) = outbox(&store).await;
    emit(&store, &outbox, "fails", &[("a", 9)], true).await;
    emit(&store, &outbox, "commits", &[("a", 1)], false).await;
    emit(&store, &outbox, "commits", &[("a", 1)], false).await;
    let seen = Mutex::new(Vec::new());
    let publish = async |event: &StoredEvent| {
        let shown = format!("{event:?}");
        assert!(!shown.contains("number"), "{shown}");
        seen.lock()
            .unwrap()
            .push((event.kind.clone(), number(event)));
        Ok::<_, Failed>(())
    };
    while outbox.relay(&store, 10, publish).await.unwrap().published > 0 {}
    assert_eq!(*seen.lock().unwrap(), [("counted".to_owned(), 1)]);
    assert_eq!(
        outbox
            .sweep(&store, EpochMillis(i64::MAX), 10)
            .await
            .unwrap(),
        1
    );
    assert_eq!(count(&store, &table).await, 0);
}

#[tokio::test]
async fn a_claim_emits_with_its_writes() {
    let store = store().await;
    let (outbox, table) = outbox(&store).await;
    let engine = engine(store.clone());
    let outbox = &outbox;
    for _ in 0..2 {
        let done = engine.run(Key::new("op", "a"), None, |claim| async move {
            let event = Event::new("order.created", "1");
            let refused = outbox.emit(&claim, &event, &BTreeMap::from([((1, 2), 3)]));
            assert_matches!(refused, Err(WriteError::Data(_)));
            outbox.emit(&claim, &event, &json!({})).unwrap();
            Ok::<_, Failed>(())
        });
        done.await.unwrap();
    }
    assert_eq!(count(&store, &table).await, 1);
}

#[tokio::test]
async fn a_second_event_without_a_name_is_refused_at_once() {
    let store = store().await;
    let (outbox, table) = outbox(&store).await;
    let engine = engine(store.clone());
    let outbox = &outbox;
    let done = engine.run(Key::new("op", "a"), None, |claim| async move {
        let event = Event::new("order.changed", "1");
        outbox.emit(&claim, &event, &1).unwrap();
        let again = outbox.emit(&claim, &event, &2);
        assert_eq!(again, Err(WriteError::SameTarget { first: 0 }));
        let named = event.name("second");
        outbox.emit(&claim, &named, &2).unwrap();
        let again = outbox.emit(&claim, &named, &3);
        assert_eq!(again, Err(WriteError::SameTarget { first: 1 }));
        Ok::<_, Failed>(())
    });
    done.await.unwrap();
    assert_eq!(count(&store, &table).await, 2);
}

/// The loop of the module's example, with the number of its error.
async fn relay_all(
    store: &Store,
    outbox: &Outbox,
    publish: impl AsyncFn(&StoredEvent) -> Result<(), Failed>,
) -> Result<(), usize> {
    loop {
        match outbox.relay(store, 100, &publish).await.unwrap() {
            Relayed {
                published: 0,
                failed: 0,
                ..
            } => return Ok(()),
            Relayed {
                published: 0,
                failed,
                ..
            } => return Err(failed),
            Relayed { .. } => {}
        }
    }
}

#[tokio::test]
async fn a_loop_whose_target_refuses_all_ends_with_an_error() {
    let store = store().await;
    let (outbox, _) = outbox(&store).await;
    emit(&store, &outbox, "1", &[("a", 1), ("b", 1)], false).await;
    emit(&store, &outbox, "2", &[("a", 2), ("b", 2)], false).await;
    let refuses = async |_: &StoredEvent| Err::<(), _>(Failed::Own);
    assert_eq!(relay_all(&store, &outbox, refuses).await, Err(2));
    let takes = async |_: &StoredEvent| Ok::<_, Failed>(());
    assert_eq!(relay_all(&store, &outbox, takes).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn relays_side_by_side_that_die_lose_nothing_and_keep_the_order_of_an_aggregate() {
    const AGGREGATES: usize = 5;
    const EVENTS: u32 = 20;
    let store = store().await;
    let (outbox, table) = outbox(&store).await;
    let names: Vec<String> = (0..AGGREGATES).map(|n| format!("aggregate-{n}")).collect();
    for number in 0..EVENTS {
        let events: Vec<_> = names.iter().map(|name| (name.as_str(), number)).collect();
        emit(&store, &outbox, &number.to_string(), &events, false).await;
    }
    let published: Mutex<BTreeMap<String, Vec<(u32, String)>>> = Mutex::default();
    let publish = async |event: &StoredEvent| {
        let entry = (number(event), event.id.clone());
        published
            .lock()
            .unwrap()
            .entry(event.aggregate.clone())
            .or_default()
            .push(entry);
        tokio::task::yield_now().await;
        if fastrand::u8(..) < 20 {
            Err(Failed::Own)
        } else {
            Ok(())
        }
    };
    let relay = async || {
        loop {
            let relaying = outbox.relay(&store, 3, publish);
            // One in four dies somewhere between its first statement and its commit.
            if fastrand::u8(..) < 64 {
                let after = std::time::Duration::from_micros(fastrand::u64(..3_000));
                let _ = tokio::time::timeout(after, relaying).await;
                continue;
            }
            let relayed = relaying.await.unwrap();
            if relayed.published + relayed.failed == 0 {
                // Events that another relay holds aren't seen.
                break;
            }
        }
    };
    tokio::join!(relay(), relay(), relay());
    let pending = format!("SELECT count(*) FROM {table} WHERE published_at IS NULL");
    let all_published = async || {
        relay().await;
        let client = store.pool().get().await.unwrap();
        let left: i64 = client.query_one(&pending, &[]).await.unwrap().get(0);
        (left == 0).then_some(())
    };
    // The server notices after a moment that a relay is dead, and lets go of what that one held.
    eventually("all is published", all_published).await;
    let published = published.into_inner().unwrap();
    assert_eq!(published.len(), AGGREGATES);
    for (aggregate, events) in published {
        let numbers: BTreeSet<u32> = events.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers.len(), EVENTS as usize, "{aggregate} lost events");
        let ids: BTreeSet<&String> = events.iter().map(|(_, id)| id).collect();
        assert_eq!(
            ids.len(),
            EVENTS as usize,
            "{aggregate}: a repetition has another id"
        );
        // A repetition comes again before any that is behind it.
        let mut last = 0;
        for (number, _) in &events {
            assert!(
                *number == last || *number == last + 1,
                "{aggregate}: {events:?}"
            );
            last = *number;
        }
    }
}

#[tokio::test]
async fn an_event_that_is_not_published_holds_up_its_aggregate_alone() {
    let store = store().await;
    let (outbox, _) = outbox(&store).await;
    emit(&store, &outbox, "1", &[("stuck", 1), ("free", 1)], false).await;
    emit(&store, &outbox, "2", &[("stuck", 2), ("free", 2)], false).await;
    let publish = async |event: &StoredEvent| {
        if event.aggregate == "stuck" {
            Err(Failed::Own)
        } else {
            Ok(())
        }
    };
    let mut counts = Vec::new();
    for _ in 0..3 {
        let relayed = outbox.relay(&store, 10, publish).await.unwrap();
        counts.push((relayed.published, relayed.failed));
    }
    assert_eq!(counts, [(1, 1), (1, 1), (0, 1)]);
}

#[tokio::test]
async fn aggregates_that_always_fail_starve_no_other() {
    let store = store().await;
    let (outbox, _) = outbox(&store).await;
    for number in 0..10 {
        let poison = format!("poison-{number}");
        emit(&store, &outbox, &poison, &[(poison.as_str(), 1)], false).await;
    }
    for number in 1..=3 {
        emit(
            &store,
            &outbox,
            &number.to_string(),
            &[("free", number)],
            false,
        )
        .await;
    }
    let seen = Mutex::new(Vec::new());
    let publish = async |event: &StoredEvent| {
        if event.aggregate == "free" {
            seen.lock().unwrap().push(number(event));
            Ok(())
        } else {
            Err(Failed::Own)
        }
    };
    for _ in 0..6 {
        let relayed = outbox.relay(&store, 5, publish).await.unwrap();
        assert!(relayed.failed > 0, "{relayed:?}");
    }
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3]);
}

#[tokio::test]
async fn a_publication_may_outlast_its_own_connection() {
    let (store, keys) = store_of(&url(), 4).await;
    let (outbox, table) = outbox(&store).await;
    emit(&store, &outbox, "1", &[("a", 1), ("b", 1)], false).await;
    let application = name("relay");
    let parameters = format!("application_name={application}");
    let relaying = pool_of(&url_with("postgres", "postgres", &parameters), 2);
    let relaying = PostgresStore::with_table(relaying, &keys).unwrap();
    let times = Mutex::new(BTreeMap::<String, u32>::new());
    let publish = async |event: &StoredEvent| {
        *times
            .lock()
            .unwrap()
            .entry(event.aggregate.clone())
            .or_default() += 1;
        if event.aggregate == "a" {
            // As the server does where its `idle_in_transaction_session_timeout` has passed.
            let own = format!("pg_stat_activity WHERE application_name = '{application}'");
            sql(&format!("SELECT pg_terminate_backend(pid) FROM {own}")).await;
            let are_over = async || (count(&store, &own).await == 0).then_some(());
            eventually("the server ends the sessions", are_over).await;
        }
        Ok::<_, Failed>(())
    };
    let relayed = outbox.relay(&relaying, 10, publish).await.unwrap();
    assert_eq!(relayed.published, 2);
    let again = outbox.relay(&relaying, 10, publish).await.unwrap();
    assert_eq!(again.published, 0);
    assert!(
        times
            .into_inner()
            .unwrap()
            .values()
            .all(|times| *times == 1)
    );
    let pending = format!("{table} WHERE published_at IS NULL");
    assert_eq!(count(&store, &pending).await, 0);
}

#[tokio::test]
async fn an_outbox_whose_table_is_missing_is_named() {
    let (store, table) = (store().await, name("outbox"));
    let outbox = Outbox::new(&table).unwrap();
    let publish = async |_: &StoredEvent| Ok::<_, Failed>(());
    let relayed = outbox.relay(&store, 1, publish).await;
    let swept = outbox.sweep(&store, EpochMillis(0), 1).await;
    for error in [relayed.unwrap_err(), swept.unwrap_err()] {
        assert_eq!(error.problem(), Problem::Statement, "{error}");
        assert!(error.to_string().contains(&table), "{error}");
    }
}

#[tokio::test]
async fn a_role_that_may_not_use_an_outbox_is_told_of_its_table() {
    let (store, keys) = store_of(&url(), 4).await;
    let (outbox, table) = outbox(&store).await;
    emit(&store, &outbox, "1", &[("a", 1)], false).await;
    let role = name("role");
    sql(&format!("CREATE ROLE {role} LOGIN")).await;
    let pool = pool_of(&url_with(&role, "postgres", ""), 2);
    let own = PostgresStore::with_table(pool, &keys).unwrap();
    let own = own.timeout(MINUTE);
    let publish = async |_: &StoredEvent| Ok::<_, Failed>(());
    // It may see the event, and not lock it; then lock it, and not mark it.
    for may in ["SELECT", "UPDATE (aggregate)"] {
        sql(&format!("GRANT {may} ON {table} TO {role}")).await;
        let refused = outbox.relay(&own, 1, publish).await.unwrap_err();
        assert_eq!(refused.problem(), Problem::Statement, "{may}: {refused}");
        assert!(refused.to_string().contains(&table), "{may}: {refused}");
    }
}

/// Two transactions add an event of one aggregate each. The first one commits once the second waits for it.
async fn keep_their_order(first: &Store, second: &Store, outbox: &Outbox, table: &str) {
    let claimless = engine(first.clone()).claimless();
    let has_added = &Notify::new();
    let held = claimless.run(Key::new("emit", "1"), None, |claim| async move {
        let mut tx = first.transaction(&claim).await?;
        let event = Event::new("counted", "a").name("1");
        let event = outbox.event(&claim, &event, &json!({ "number": 1 }));
        tx.apply(&event.unwrap()).await?;
        has_added.notify_one();
        // The second would else commit now, and its event would be published first.
        once_there_is(&waiting_for(table), "1").await;
        Ok::<_, Failed>(())
    });
    let behind = async {
        has_added.notified().await;
        emit(second, outbox, "2", &[("a", 2)], false).await;
    };
    let (held, ()) = tokio::join!(held, behind);
    held.unwrap();
    let seen = Mutex::new(Vec::new());
    let publish = async |event: &StoredEvent| {
        seen.lock().unwrap().push(number(event));
        Ok::<_, Failed>(())
    };
    while outbox.relay(first, 10, &publish).await.unwrap().published > 0 {}
    assert_eq!(*seen.lock().unwrap(), [1, 2]);
}

#[tokio::test]
async fn two_transactions_of_one_aggregate_commit_in_the_order_of_their_events() {
    let store = store().await;
    let (outbox, table) = outbox(&store).await;
    keep_their_order(&store, &store, &outbox, &table).await;
}

#[tokio::test]
async fn stores_that_name_one_outbox_differently_keep_the_order_of_an_aggregate() {
    let (schema, outbox) = (name("own"), Outbox::new("outbox").unwrap());
    sql(&format!("CREATE SCHEMA {schema}")).await;
    let keys = format!("{schema}.keys");
    let path = format!("options=-c%20search_path%3D{schema}");
    let finding = pool_of(&url_with("postgres", "postgres", &path), 2);
    let finding = PostgresStore::with_table(finding, &keys).unwrap();
    finding.create_tables().await.unwrap();
    lay(&finding, &outbox).await;
    let setting = PostgresStore::with_table(setting_the_path(&schema), &keys).unwrap();
    keep_their_order(&setting, &finding, &outbox, &schema).await;
}

#[tokio::test]
async fn an_outbox_of_several_stores_is_in_the_schema_that_each_finds() {
    let outbox = Outbox::new("outbox").unwrap();
    let mut stores = Vec::new();
    for schema in [name("a"), format!("\"{}\"", name("o'b"))] {
        sql(&format!("CREATE SCHEMA {schema}")).await;
        let path = format!("options=-c%20search_path%3D{schema}");
        let path = path.replace('"', "%22");
        let pool = pool_of(&url_with("postgres", "postgres", &path), 2);
        let store = PostgresStore::new(pool);
        store.create_tables().await.unwrap();
        lay(&store, &outbox).await;
        stores.push((store, format!("{schema}.outbox")));
    }
    for (store, table) in &stores {
        emit(store, &outbox, "open", &[("x", 1)], false).await;
        let claimed = engine(store.clone());
        let emitted = claimed.run(Key::new("emit", "claimed"), None, async |claim| {
            let event = Event::new("counted", "x").name("2");
            outbox
                .emit(&claim, &event, &json!({ "number": 2 }))
                .unwrap();
            Ok::<_, Failed>(())
        });
        emitted.await.unwrap();
        assert_eq!(count(store, table).await, 2, "{table}");
    }
    for (store, table) in &stores {
        let publish = async |_: &StoredEvent| Ok::<_, Failed>(());
        let mut published = 0;
        while let relayed @ 1.. = outbox.relay(store, 10, &publish).await.unwrap().published {
            published += relayed;
        }
        assert_eq!(published, 2);
        let swept = outbox.sweep(store, EpochMillis(i64::MAX), 10).await;
        assert_eq!(swept.unwrap(), 2, "{table}");
        assert_eq!(count(store, table).await, 0, "{table}");
    }
}

/// A pool that sets the `search_path` of each of its sessions.
fn setting_the_path(schema: &str) -> Pool {
    let path = format!("SET search_path = {schema}");
    let hook = Hook::async_fn(move |client: &mut ClientWrapper, _: &Metrics| {
        let path = path.clone();
        Box::pin(async move {
            let set = client.batch_execute(&path).await;
            set.map_err(HookError::Backend)
        })
    });
    let manager = Manager::new(url().parse().unwrap(), NoTls);
    let pool = Pool::builder(manager).max_size(2).post_create(hook);
    pool.build().unwrap()
}

/// A store can't look for it there: its name is left to the session.
#[tokio::test]
async fn an_outbox_in_a_schema_that_the_pool_sets_is_relayed_and_swept() {
    let (schema, outbox) = (name("own"), Outbox::new("outbox").unwrap());
    sql(&format!("CREATE SCHEMA {schema}")).await;
    let keys = format!("{schema}.keys");
    let store = PostgresStore::with_table(setting_the_path(&schema), &keys).unwrap();
    store.create_tables().await.unwrap();
    lay(&store, &outbox).await;
    emit(&store, &outbox, "open", &[("x", 1)], false).await;
    emit(&store, &outbox, "more", &[("y", 1)], false).await;
    let fails = async |event: &StoredEvent| {
        let fails = event.aggregate == "y";
        if fails { Err(Failed::Own) } else { Ok(()) }
    };
    let relayed = outbox.relay(&store, 10, &fails).await.unwrap();
    assert_eq!((relayed.published, relayed.failed), (1, 1));
    let publish = async |_: &StoredEvent| Ok::<_, Failed>(());
    let relayed = outbox.relay(&store, 10, &publish).await.unwrap();
    assert_eq!(relayed.published, 1);
    let swept = outbox.sweep(&store, EpochMillis(i64::MAX), 10).await;
    assert_eq!(swept.unwrap(), 2);
}

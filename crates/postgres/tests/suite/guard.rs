//! Guards, in an open transaction and as writes of a claim.

use lambda_idempotency::{Error, Key, Outcome};
use lambda_idempotency_postgres::guard::{Guard, Guarded, Version};
use lambda_idempotency_postgres::{PostgresError, Problem, Sql, Transaction, TransactionError};
use tokio::sync::Notify;

use crate::support::{
    Store, engine, name, once_there_is, sql, store, table, transact, waiting_for,
};

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    #[error(transparent)]
    Postgres(#[from] PostgresError),
}

type Tx = Transaction<deadpool_postgres::Pool>;

/// Runs in its own transaction.
async fn within<T: serde::Serialize + serde::de::DeserializeOwned>(
    store: &Store,
    work: impl AsyncFnOnce(&mut Tx) -> Result<T, PostgresError>,
) -> T {
    let work = async |tx: &mut Tx| work(tx).await.map_err(Failed::Postgres);
    let done = transact(
        &engine(store.clone()),
        Key::new("op", name("t")),
        None,
        work,
    )
    .await;
    done.unwrap().into_inner()
}

async fn row(store: &Store, query: &str) -> Option<tokio_postgres::Row> {
    let client = store.pool().get().await.unwrap();
    client.query_opt(query, &[]).await.unwrap()
}

async fn orders(store: &Store) -> String {
    let orders = table(store, "id text PRIMARY KEY, status text, paid_by text").await;
    let client = store.pool().get().await.unwrap();
    let insert = format!("INSERT INTO {orders} VALUES ('1', 'pending'), ('2', 'cancelled')");
    client.batch_execute(&insert).await.unwrap();
    orders
}

#[tokio::test]
async fn a_state_moves_one_way_and_tells_what_it_found() {
    let store = store().await;
    let orders = orders(&store).await;
    let paid = |id: &str, by: &str| {
        let from = ["pending", "late"];
        Guard::transition(orders.as_str(), [("id", id)], from, "paid").set("paid_by", by)
    };
    for (id, by, expected) in [
        ("1", "p-1", "Applied"),
        ("1", "p-1", "AlreadyApplied"),
        ("1", "p-2", "Refused"),
        ("2", "p-1", "Refused"),
        ("3", "p-1", "Refused"),
    ] {
        let guarded = within(&store, async |tx| {
            paid(id, by)
                .apply(tx)
                .await
                .map(|guarded| format!("{guarded:?}"))
        });
        assert_eq!(guarded.await, expected, "{id} {by}");
    }
    let found = row(
        &store,
        &format!("SELECT status, paid_by FROM {orders} WHERE id = '1'"),
    )
    .await
    .unwrap();
    assert_eq!(
        (found.get::<_, &str>(0), found.get::<_, &str>(1)),
        ("paid", "p-1")
    );
}

#[tokio::test]
async fn a_payment_whose_order_has_moved_on_is_told_from_anothers() {
    let store = store().await;
    let orders = orders(&store).await;
    // The example of `Guard::transition`.
    let pay = async |payment: &str| {
        let pays = within(&store, async |tx| {
            let paid = Guard::transition(orders.as_str(), [("id", "1")], ["pending"], "paid");
            if paid.set("paid_by", payment).apply(tx).await? != Guarded::Refused {
                return Ok(true);
            }
            let select = format!("SELECT 1 FROM {orders} WHERE id = $1 AND paid_by = $2");
            let found = tx.query_opt(&select, &[&"1", &payment]).await.unwrap();
            Ok(found.is_some())
        });
        pays.await
    };
    assert!(pay("p-1").await);
    sql(&format!("UPDATE {orders} SET status = 'shipped'")).await;
    assert!(pay("p-1").await);
    assert!(!pay("p-2").await);
}

#[tokio::test]
async fn a_transition_that_sets_a_null_recognises_its_own_move() {
    let store = store().await;
    let orders = orders(&store).await;
    for expected in ["Applied", "AlreadyApplied"] {
        let guarded = within(&store, async |tx| {
            let paid = Guard::transition(orders.as_str(), [("id", "1")], ["pending"], "paid");
            let paid = paid.set("paid_by", None::<&str>);
            Ok(format!("{:?}", paid.apply(tx).await?))
        });
        assert_eq!(guarded.await, expected);
    }
}

#[tokio::test]
async fn a_state_that_is_null_moves_as_any_other() {
    let store = store().await;
    let orders = orders(&store).await;
    sql(&format!("UPDATE {orders} SET status = NULL WHERE id = '1'")).await;
    for (id, expected) in [("1", "Applied"), ("1", "AlreadyApplied"), ("2", "Refused")] {
        let guarded = within(&store, async |tx| {
            let paid = Guard::transition(orders.as_str(), [("id", id)], [None::<&str>], "paid");
            Ok(format!("{:?}", paid.apply(tx).await?))
        });
        assert_eq!(guarded.await, expected, "{id}");
    }
}

#[tokio::test]
async fn a_transition_that_does_not_apply_refuses_the_writes_of_a_claim() {
    let store = store().await;
    let orders = orders(&store).await;
    let engine = engine(store.clone());
    let log = table(&store, "n bigint").await;
    let pay = |token: &'static str, id: &'static str| {
        let (orders, log) = (orders.clone(), log.clone());
        engine.run(Key::new("pay", token), None, move |claim| async move {
            claim
                .write(Sql::new(format!("INSERT INTO {log} VALUES (1)")))
                .unwrap();
            let paid = Guard::transition(orders, [("id", id)], ["pending"], "paid");
            claim.write(Sql::from(paid)).unwrap();
            Ok::<_, std::io::Error>(1)
        })
    };
    assert_matches!(pay("a", "1").await.unwrap(), Outcome::Executed(1));
    let refused = pay("b", "2").await;
    assert_matches!(&refused, Err(Error::Refused(refusal)) if refusal.index == 1);
    assert_eq!(crate::support::count(&store, &log).await, 1);
}

#[tokio::test]
async fn an_event_passes_once_for_each_consumer() {
    let store = store().await;
    let events = name("events");
    store
        .pool()
        .get()
        .await
        .unwrap()
        .batch_execute(&Guard::table(&events))
        .await
        .unwrap();
    for (consumer, event, applies) in [
        ("a", "1", true),
        ("a", "1", false),
        ("b", "1", true),
        ("a", "2", true),
    ] {
        let guarded = within(&store, async |tx| {
            let guarded = Guard::once(events.as_str(), consumer, event)
                .apply(tx)
                .await?;
            assert_ne!(guarded, Guarded::Refused);
            Ok(guarded == Guarded::Applied)
        });
        assert_eq!(guarded.await, applies, "{consumer} {event}");
    }
}

#[tokio::test]
async fn an_event_stands_in_the_column_that_is_named_beside_what_is_set() {
    let store = store().await;
    let columns = "consumer text, id text, cents bigint, PRIMARY KEY (consumer, id)";
    let events = table(&store, columns).await;
    for expected in ["Applied", "AlreadyApplied"] {
        let guarded = within(&store, async |tx| {
            let once = Guard::once(events.as_str(), "a", "1")
                .column("id")
                .set("cents", 5);
            Ok(format!("{:?}", once.apply(tx).await?))
        });
        assert_eq!(guarded.await, expected);
    }
    let found = row(&store, &format!("SELECT id, cents FROM {events}")).await;
    let found = found.unwrap();
    assert_eq!((found.get::<_, &str>(0), found.get::<_, i64>(1)), ("1", 5));
}

#[tokio::test]
async fn the_newest_version_stays_in_whatever_order_versions_come() {
    let store = store().await;
    let stock = table(
        &store,
        "sku text PRIMARY KEY, version bigint, pieces bigint",
    )
    .await;
    for (version, applies) in [(3, true), (1, false), (3, false), (7, true), (5, false)] {
        let guarded = within(&store, async |tx| {
            let latest =
                Guard::latest(stock.as_str(), [("sku", "s")], version).set("pieces", version * 10);
            Ok(latest.apply(tx).await? == Guarded::Applied)
        });
        assert_eq!(guarded.await, applies, "{version}");
    }
    let found = row(&store, &format!("SELECT version, pieces FROM {stock}"))
        .await
        .unwrap();
    assert_eq!((found.get::<_, i64>(0), found.get::<_, i64>(1)), (7, 70));
}

#[tokio::test]
async fn a_newer_text_replaces_an_older_one_of_its_kind() {
    let store = store().await;
    let stock = table(&store, "sku text PRIMARY KEY, version text, pieces bigint").await;
    let sequence = |digits| Version::sequence(digits).unwrap();
    let client = store.pool().get().await.unwrap();
    let unversioned = format!("INSERT INTO {stock} (sku, pieces) VALUES ('s', 0)");
    client.batch_execute(&unversioned).await.unwrap();
    drop(client);
    for (version, expected) in [
        (sequence("9"), "Applied"),
        (sequence("10"), "Applied"),
        (sequence("9"), "AlreadyApplied"),
        (sequence("10"), "AlreadyApplied"),
    ] {
        let guarded = within(&store, async |tx| {
            let latest = Guard::latest(stock.as_str(), [("sku", "s")], version.clone());
            let guarded = latest.set("pieces", 1).apply(tx).await?;
            Ok(format!("{guarded:?}"))
        });
        assert_eq!(guarded.await, expected, "{version:?}");
    }
}

fn is_incomparable(guarded: &Result<Guarded, PostgresError>) -> bool {
    let problem = guarded.as_ref().map_err(PostgresError::problem);
    problem == Err(Problem::Version)
}

#[tokio::test]
async fn versions_of_two_kinds_are_never_compared() {
    let store = store().await;
    let stock = table(&store, "sku text PRIMARY KEY, version text").await;
    let sequencer = Version::sequencer("FF").unwrap();
    for (version, fails) in [
        (sequencer.clone(), false),
        (Version::sequence("9").unwrap(), true),
        (sequencer, false),
    ] {
        let failed = within(&store, async |tx| {
            let latest = Guard::latest(stock.as_str(), [("sku", "s")], version.clone());
            Ok(is_incomparable(&latest.apply(tx).await))
        });
        assert_eq!(failed.await, fails, "{version:?}");
    }
}

/// A statement doesn't read a row that was inserted after it had begun.
#[tokio::test]
async fn a_version_is_compared_with_one_that_was_inserted_after_its_statement_had_begun() {
    let store = store().await;
    let stock = table(&store, "sku text PRIMARY KEY, version text").await;
    let latest = |version: Version| Guard::latest(stock.as_str(), [("sku", "s")], version);
    let is_there = Notify::new();
    let first = within(&store, async |tx| {
        let first = latest(Version::sequencer("FF").unwrap()).apply(tx).await?;
        is_there.notify_one();
        once_there_is(&waiting_for(&stock), "1").await;
        Ok(first == Guarded::Applied)
    });
    let second = within(&store, async |tx| {
        is_there.notified().await;
        let second = latest(Version::sequence("9").unwrap()).apply(tx).await;
        Ok(is_incomparable(&second))
    });
    let (first, second) = tokio::join!(first, second);
    assert!(first && second);
}

#[tokio::test]
async fn a_name_with_a_quote_is_a_name() {
    let store = store().await;
    let client = store.pool().get().await.unwrap();
    let odd = name("odd\"; DROP TABLE x; --");
    let quoted = odd.replace('"', "\"\"");
    client
        .batch_execute(&format!(
            "CREATE TABLE \"{quoted}\" (id text PRIMARY KEY, version bigint)"
        ))
        .await
        .unwrap();
    drop(client);
    let applies = within(&store, async |tx| {
        Ok(Guard::latest(odd.as_str(), [("id", "1")], 1)
            .apply(tx)
            .await?
            == Guarded::Applied)
    });
    assert!(applies.await);
}

//! Statements, constraints, keys and outcomes that PostgreSQL takes in no form, or in a large one.

use lambda_idempotency::protocol::record::{NewClaim, Owner, RecordWrite};
use lambda_idempotency::store::Store as _;
use lambda_idempotency::store::transaction::{Commit, Committed, Write};
use lambda_idempotency::{EpochMillis, EpochSeconds, Error, Key, Outcome, RecordId, StoreError};
use lambda_idempotency_postgres::{Met, Pool, PostgresStore, Problem, Sql};

use super::{claimed, says, store_error};
use crate::support::bouncer::bouncer;
use crate::support::{
    Failed, MINUTE, Store, count, engine, pool_of, problem, sql, sqlx_store, store, store_of,
    table, transact, url,
};

async fn written(store: &Store, token: &str, write: impl Into<Write>) -> super::Done {
    let once = engine(store.clone());
    let done = once.run(Key::new("op", token), None, async |claim| {
        claim.write(write)?;
        Ok(1)
    });
    done.await
}

#[tokio::test]
async fn a_statement_that_fails_writes_nothing_and_says_what_is_wrong_with_it() {
    let store = store().await;
    let rows = table(&store, "n bigint, m bigint").await;
    let insert = || Sql::new(format!("INSERT INTO {rows} VALUES ($1, $2)"));
    let two = Sql::new(format!("INSERT INTO {rows} VALUES (1, 1); SELECT 1"));
    for (write, words) in [
        (insert().bind(1), "08P01: bind message"),
        (insert().bind("text").bind(2), "is of type bigint"),
        (Sql::new("INSERT INTO nowhere VALUES (1)"), "\"nowhere\""),
        (Sql::new("no SQL"), "near \"no\""),
        (two, "42601"),
    ] {
        let statement = format!("{write:?}");
        let done = claimed(&engine(store.clone()), "a", write).await;
        assert_matches!(done, Err(Error::NotCommitted(_)), "{statement}");
        let error = store_error(done);
        assert_matches!(error, StoreError::Rejected(_));
        assert_eq!(problem(&error), Problem::Statement, "{statement}");
        says(&error, "a statement of the transaction failed: SQLSTATE ");
        says(&error, words);
    }
    assert_eq!(count(&store, &rows).await, 0);
    // The key is free for the statement that was fixed.
    let done = claimed(&engine(store.clone()), "a", insert().bind(1).bind(2)).await;
    assert_matches!(done, Ok(Outcome::Executed(1)));
    assert_eq!(count(&store, &rows).await, 1);
}

/// The server waits for rows, or sends some, which the driver doesn't expect.
#[tokio::test]
async fn a_copy_among_the_writes_is_no_lost_server_and_says_whose_call_it_is() {
    let (store, on_sqlx) = (store().await, engine(sqlx_store().await));
    let rows = table(&store, "n bigint").await;
    let once = engine(store.clone());
    for copy in ["FROM STDIN", "TO STDOUT"] {
        let write = Sql::new(format!("COPY {rows} {copy}"));
        let done = claimed(&once, "a", write.clone()).await;
        for done in [done, claimed(&on_sqlx, "a", write).await] {
            assert_matches!(done, Err(Error::NotCommitted(_)), "{copy}");
            let error = store_error(done);
            assert_matches!(error, StoreError::Rejected(_), "{copy}");
            assert_eq!(problem(&error), Problem::Statement, "{copy}");
            says(
                &error,
                "`COPY` from or to the client is a call of the driver's",
            );
        }
    }
    let insert = Sql::new(format!("INSERT INTO {rows} VALUES (1)"));
    for once in [&*once, &*on_sqlx] {
        let done = claimed(once, "a", insert.clone()).await;
        assert_matches!(done, Ok(Outcome::Executed(1)));
    }
    assert_eq!(count(&store, &rows).await, 2);
}

#[tokio::test]
async fn an_empty_statement_never_reaches_the_server() {
    let done = written(&store().await, "a", Sql::new(" \n ")).await;
    let Err(Error::Handler(Failed::Write(error))) = done else {
        panic!("{done:?}");
    };
    assert!(error.to_string().contains("no statement"), "{error}");
}

#[tokio::test]
async fn a_nul_in_a_write_never_reaches_the_server() {
    let store = store().await;
    let with_nul = || Sql::new("SELECT 1 -- \0");
    for write in [with_nul(), Sql::new("SELECT $1").bind("\0")] {
        let done = written(&store, "a", write).await;
        let Err(Error::Handler(Failed::Write(error))) = done else {
            panic!("{done:?}");
        };
        assert!(error.to_string().contains("NUL"), "{error}");
    }
    let once = engine(store.clone());
    let open = transact(&once, Key::new("op", "a"), None, async |tx| {
        let refused = tx.apply(&with_nul()).await.unwrap_err();
        assert_eq!(refused.problem(), Problem::Nul);
        Ok::<i64, Failed>(1)
    });
    assert_matches!(open.await, Ok(Outcome::Executed(1)));
}

/// A table whose constraint is checked at once, or in `COMMIT`.
async fn constrained(store: &Store, when: &str) -> String {
    table(store, &format!("n bigint UNIQUE {when}")).await
}

#[tokio::test]
async fn a_constraint_gives_the_writes_own_answer() {
    let store = store().await;
    let rows = constrained(&store, "NOT DEFERRABLE").await;
    let write = || {
        Sql::new(format!("INSERT INTO {rows} VALUES (7)")).or_else(|refusal| match refusal.met() {
            Some(Met::Constraint(error)) if error.problem() == Problem::Constraint => Failed::Own,
            other => panic!("{other:?}"),
        })
    };
    assert_matches!(
        written(&store, "a", write()).await,
        Ok(Outcome::Executed(1))
    );
    for _ in 0..2 {
        let done = written(&store, "b", write()).await;
        assert_matches!(done, Err(Error::Handler(Failed::Own)));
    }
    assert!(written(&store, "a", write()).await.unwrap().is_replayed());
    assert_eq!(count(&store, &rows).await, 1);
}

/// `COMMIT` doesn't say whose row it was.
#[tokio::test]
async fn a_deferred_constraint_commits_nothing_and_says_how_to_have_an_answer() {
    let store = store().await;
    let rows = constrained(&store, "DEFERRABLE INITIALLY DEFERRED").await;
    let write = || Sql::new(format!("INSERT INTO {rows} VALUES (7)")).or_else(|_| Failed::Own);
    assert_matches!(
        written(&store, "a", write()).await,
        Ok(Outcome::Executed(1))
    );
    let once = engine(store.clone());
    let open = transact(&once, Key::new("op", "c"), None, async |tx| {
        tx.batch_execute(&format!("INSERT INTO {rows} VALUES (7)"))
            .await?;
        Ok::<i64, Failed>(1)
    });
    for done in [written(&store, "b", write()).await, open.await] {
        assert_matches!(done, Err(Error::NotCommitted(_)));
        let error = store_error(done);
        assert_matches!(error, StoreError::Rejected(_));
        assert_eq!(problem(&error), Problem::Constraint);
        says(&error, "SET CONSTRAINTS ALL IMMEDIATE");
    }
    assert_eq!(count(&store, &rows).await, 1);
}

/// What the error of a write shows that the store commits alone.
async fn shown<P: Pool>(store: &PostgresStore<P>, write: &Sql) -> String {
    let writes = [Write::from(write.clone())];
    let commit = Commit::new("token", None, &writes);
    let soon = tokio::time::Instant::now() + MINUTE;
    match store.commit(commit, soon).await {
        Ok(Committed::Refused(refusal)) => format!("{:?}", refusal.met::<Met>()),
        Err(error) => format!("{error} {error:?}"),
        other => panic!("{other:?}"),
    }
}

/// Its error goes into logs.
#[tokio::test]
async fn a_statement_that_fails_shows_neither_its_values_nor_a_row() {
    let (store, on_sqlx) = (store().await, sqlx_store().await);
    let columns = "email text UNIQUE DEFERRABLE INITIALLY DEFERRED, \
                   CONSTRAINT short CHECK (length(email) < 20)";
    let rows = table(&store, columns).await;
    let email = "jane@example.org";
    sql(&format!("INSERT INTO {rows} VALUES ('{email}')")).await;
    let insert = || Sql::new(format!("INSERT INTO {rows} VALUES ($1)"));
    for (write, words) in [
        (Sql::new("SELECT $1::uuid IS NULL").bind(email), "22P02"),
        (
            Sql::new("SELECT $1::tsquery IS NULL").bind("jane d"),
            "42601",
        ),
        (insert().bind(email), "_email_key`"),
        (insert().bind(email.repeat(2)), "`short`"),
    ] {
        for said in [shown(&store, &write).await, shown(&on_sqlx, &write).await] {
            assert!(said.contains(words) && !said.contains("jane"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_nul_in_a_key_never_reaches_the_server() {
    let once = engine(store().await);
    for key in [
        Key::raw("op", "a\0b"),
        Key::new("op", "a\0b"),
        Key::new("o\0p", "a"),
    ] {
        let done = transact(&once, key, None, async |_| Ok::<i64, Failed>(1)).await;
        assert_matches!(done, Err(Error::Key(_)));
    }
}

#[tokio::test]
async fn the_longest_raw_key_is_a_key() {
    let store = store().await;
    let rows = table(&store, "n bigint").await;
    // Of letters that don't repeat: an index entry has room for 2,704 bytes.
    let mut rng = fastrand::Rng::with_seed(1);
    let long: String = (0..2_048).map(|_| rng.alphanumeric()).collect();
    let once = engine(store.clone());
    for expected in [false, true] {
        let done = transact(&once, Key::raw("op", long.clone()), None, async |tx| {
            super::insert(tx, &rows).await?;
            Ok::<i64, Failed>(1)
        });
        assert_eq!(done.await.unwrap().is_replayed(), expected);
    }
    let longer = transact(
        &once,
        Key::raw("op", format!("{long}x")),
        None,
        async |_| Ok::<i64, Failed>(1),
    );
    assert_matches!(longer.await, Err(Error::Key(_)));
    assert_eq!(count(&store, &rows).await, 1);
}

#[tokio::test]
async fn a_large_outcome_and_one_with_nul_are_replayed_whole() {
    let store = store().await;
    let mut rng = fastrand::Rng::with_seed(2);
    // It doesn't compress.
    let large: String = (0..1_000_000).map(|_| rng.alphanumeric()).collect();
    for (token, outcome) in [("large", large), ("nul", "a\0b\u{FFFF}\\u0000".to_owned())] {
        for expected in [false, true] {
            let engine = engine(store.clone());
            let open = transact(&engine, Key::new("open", token), None, async |_| {
                Ok::<_, Failed>(outcome.clone())
            });
            let claimed = engine.run(Key::new("claim", token), None, async |_| {
                Ok::<_, Failed>(outcome.clone())
            });
            for done in [open.await, claimed.await] {
                let done = done.unwrap();
                assert_eq!(done.is_replayed(), expected);
                assert!(*done.get() == outcome, "{token}");
            }
        }
    }
}

#[tokio::test]
async fn values_that_look_like_sql_are_values() {
    let store = store().await;
    let rows = table(&store, "n text").await;
    let hostile = "x'); DROP TABLE nowhere; --";
    let write = Sql::new(format!("INSERT INTO {rows} VALUES ($1)")).bind(hostile);
    claimed(&engine(store.clone()), hostile, write)
        .await
        .unwrap();
    let client = store.pool().get().await.unwrap();
    let row = client
        .query_one(&format!("SELECT n FROM {rows}"), &[])
        .await;
    assert_eq!(row.unwrap().get::<_, String>(0), hostile);
}

#[tokio::test]
async fn an_expired_record_counts_as_absent_also_where_it_cannot_be_read() {
    let (store, keys) = store_of(&url(), 4).await;
    let once = engine(store.clone());
    let broken = [
        "layout = 9",
        r#"journal = '{"charge":"4111 1111"}'"#,
        "omitted = 'for no reason'",
    ];
    for (place, broken) in broken.iter().enumerate() {
        for is_claimed in [true, false] {
            let key = || Key::new("op", format!("{place}-{is_claimed}"));
            let claimed = async || once.run(key(), None, async |_| Ok::<i64, Failed>(1)).await;
            let opened =
                async || transact(&once, key(), None, async |_| Ok::<i64, Failed>(1)).await;
            claimed().await.unwrap();
            sql(&format!("UPDATE {keys} SET {broken} WHERE id LIKE '%'")).await;
            let unreadable = claimed().await;
            assert_matches!(unreadable, Err(Error::Unreadable(_)));
            // The reason goes into logs.
            assert!(!format!("{unreadable:?}").contains("4111 1111"));
            sql(&format!("UPDATE {keys} SET expiration = 1")).await;
            let fresh = if is_claimed {
                claimed().await
            } else {
                opened().await
            };
            assert_matches!(fresh, Ok(Outcome::Executed(1)), "{broken}");
            assert!(claimed().await.unwrap().is_replayed(), "{broken}");
        }
    }
}

/// The caller of each sends it alone then.
#[tokio::test]
async fn a_group_is_not_refused_for_one_of_its_requests() {
    let store = store().await;
    let id = |text: &str| RecordId::stored(text).unwrap();
    let (good, bad) = (id("a"), id("a\0b"));
    let (now, later) = (EpochMillis(1), EpochSeconds(4_102_444_800));
    let claim = |id: &RecordId| -> RecordWrite {
        let owner = Owner::from_stored("me");
        NewClaim::new(id.clone(), owner, now, EpochMillis(9), later).into()
    };
    let soon = tokio::time::Instant::now() + MINUTE;
    let claims = [claim(&bad), claim(&good)];
    for answer in store.write_all(&claims, soon).await {
        assert_matches!(answer, Err(StoreError::NotSent));
    }
    let refused = store.write(&claims[0], soon).await;
    assert_matches!(refused, Err(StoreError::Rejected(_)));
    let applied = store.write(&claims[1], soon).await;
    assert!(applied.unwrap().is_applied());
    for found in store.load_all(&[bad, good], soon).await {
        assert_matches!(found, Err(StoreError::NotSent));
    }
}

/// `PgBouncer` gives every error of its own the code of a protocol violation.
#[tokio::test]
async fn a_proxy_that_has_no_connection_left_is_no_refusal() {
    let (_bouncer, through) = bouncer(&url()).await;
    let (server, _) = through.rsplit_once('/').unwrap();
    let admin = format!("{server}/pgbouncer");
    let admin = tokio_postgres::connect(&admin, tokio_postgres::NoTls);
    let (admin, connection) = admin.await.unwrap();
    tokio::spawn(connection);
    let (store, _) = store_of(&through, 4).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let client = pool_of(&through, 1).get().await.unwrap();
        client.batch_execute("BEGIN").await.unwrap();
        held.push(client);
    }
    let hasty = admin.simple_query("SET query_wait_timeout = 1").await;
    hasty.unwrap();
    let estimated = store.estimated_records(tokio::time::Instant::now() + MINUTE);
    let error = estimated.await.unwrap_err();
    assert_matches!(error, StoreError::Unavailable(_));
}

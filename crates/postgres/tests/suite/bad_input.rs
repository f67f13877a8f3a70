//! Wrong set-ups, handlers and values: the error says what to do, and nothing is lost or written twice.

use lambda_idempotency::{Error, Idempotency, Key, Outcome, StoreError};
use lambda_idempotency_postgres::{Sql, Transaction};

use crate::support::{Engine, Failed, Store, engine, problem, transact};

mod handlers;
mod server;
mod setup;
mod values;

type Tx = Transaction<deadpool_postgres::Pool>;
type Done = Result<Outcome<i64>, Error<Failed>>;

/// Adds one row in an open transaction.
async fn add(store: &Store, table: &str, token: &str) -> Done {
    add_by(&engine(store.clone()), table, token).await
}

async fn add_by(engine: &Engine<deadpool_postgres::Pool>, table: &str, token: &str) -> Done {
    transact(engine, Key::new("op", token), None, async |tx| {
        insert(tx, table).await?;
        Ok(1)
    })
    .await
}

async fn insert(tx: &Tx, table: &str) -> Result<(), Failed> {
    let insert = format!("INSERT INTO {table} VALUES (1)");
    tx.batch_execute(&insert).await?;
    Ok(())
}

/// Adds one row by a claim, with the record's completion.
async fn claimed(engine: &Idempotency, token: &str, write: Sql) -> Done {
    engine
        .run(Key::new("op", token), None, async |claim| {
            claim.write(write)?;
            Ok(1)
        })
        .await
}

/// The error of the store that a run ended with.
#[track_caller]
fn store_error<T: std::fmt::Debug>(done: Result<T, Error<Failed>>) -> StoreError {
    match done {
        Err(Error::Store(error) | Error::NotCommitted(error) | Error::OutcomeUnknown(error)) => {
            error
        }
        Err(Error::Handler(Failed::Transaction(
            lambda_idempotency_postgres::TransactionError::Store(error),
        ))) => error,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn says(error: &StoreError, words: &str) {
    let _ = problem(error);
    let said = error.to_string();
    assert!(said.contains(words), "{said}");
}

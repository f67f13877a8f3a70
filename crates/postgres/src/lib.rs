//! A PostgreSQL store for [`lambda_idempotency`]: the record and the business rows in one SQL
//! transaction.
//!
//! [`PostgresStore`] keeps the records in a table of your database, over a `deadpool_postgres::Pool` or
//! (feature `sqlx`) a `sqlx::PgPool`. With it there are three ways to work:
//!
//! | | the business rows are written | when |
//! |---|---|---|
//! | a claim | by the handler, wherever it likes | before the record is completed |
//! | a claim and [`Sql`] | by the engine, in the transaction that completes the record | after the handler |
//! | an open transaction: [`PostgresStore::transact`], [`PostgresStore::transaction`] | by the handler, in the transaction that the engine ends with the record | while it runs |
//!
//! The last is the one to begin with: the handler reads and writes as it does without this crate, and
//! its rows and the record of its key commit together, or not at all.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used))]
// Without a driver there is nobody to call it.
#![cfg_attr(
    not(any(feature = "sqlx", feature = "tokio-postgres")),
    allow(dead_code)
)]

mod columns;
mod driver;
mod error;
pub mod guard;
pub mod outbox;
pub mod schema;
mod sql;
mod statement;
mod store;
mod table;
mod transaction;
mod value;

pub use driver::Pool;
pub use error::{PostgresError, Problem};
pub use sql::{Met, Sql};
pub use store::{DEFAULT_TABLE, PostgresStore};
pub use table::TableNameError;
pub use transaction::{Isolation, Transaction, TransactionError};
pub use value::Value;

/// The book's page about this crate, whose examples are tested.
#[cfg(all(doctest, feature = "tokio-postgres"))]
#[doc = include_str!("../../../docs/recipes/postgres.md")]
struct Page;

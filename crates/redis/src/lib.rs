//! A store of records in Redis or Valkey, for [`lambda_idempotency`].
//!
//! One hash for each record, one script for each conditional write, one key in each script, so that it works on a cluster. The writes are
//! fenced as on DynamoDB: a stale owner changes nothing. **What Redis has acknowledged, a failover can lose**: a claim that is lost lets the
//! next delivery run. So it is not for money, unless the server is `MemoryDB`, or each effect has a derived key that its provider honours. The
//! page of the book, `docs/recipes/redis.md`, has the promises by service.
//!
//! ```no_run
//! use lambda_idempotency::{Idempotency, Key};
//! use lambda_idempotency_redis::RedisStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::connect("redis://127.0.0.1").await?;
//! store.verify().await?;
//! let once = Idempotency::builder(store).namespace("mails").build()?;
//! let sent = once.run(Key::new("welcome", "user-17"), None, |claim| async move {
//!     Ok::<_, std::io::Error>(claim.derive_key("mail"))
//! });
//! sent.await?;
//! # Ok(()) }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;
mod error;
mod line;
mod record;
mod script;
mod store;

pub use connection::Connection;
pub use error::{Problem, RedisStoreError};
pub use store::{Durability, RedisStore, Verified};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/recipes/redis.md")]
#[doc = include_str!("../README.md")]
struct Pages;

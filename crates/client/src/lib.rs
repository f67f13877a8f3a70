//! The client's half of idempotency: each *logical* request gets one `Idempotency-Key`, which it keeps over
//! its retries.
//!
//! A client that sends a request again, since no answer came, has it done twice, unless both carry one key
//! and the server knows that key. This crate sees to the first half, for every server that honours the
//! header; `lambda-idempotency` is a server's. It makes the key, keeps it, waits as `Retry-After` says,
//! tells the answers apart, bounds attempts and time, and says whether an answer is a replay.
//! **A write without a key is never sent twice.**
//!
//! - [`KeyLayer`] is a layer for tower services of `http::Request`;
//! - `KeyMiddleware` (feature `reqwest`) is a middleware for `reqwest-middleware`;
//! - [`Policy`] says what is sent again, and when, for both.
//!
//! It keeps nothing on disk. A key that is to survive a restart is derived from what the request is about,
//! such as an order's number: [`IdempotencyKey`].
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that panics has found something")
)]

mod key;
mod layer;
#[cfg(feature = "reqwest")]
mod middleware;
mod policy;

pub use key::{IdempotencyKey, InvalidKey, Unkeyed};
pub use layer::{KeyLayer, KeyService};
#[cfg(feature = "reqwest")]
#[cfg_attr(docsrs, doc(cfg(feature = "reqwest")))]
pub use middleware::KeyMiddleware;
pub use policy::{Delivery, Policy, RequestError};

/// Compiles what the page shows.
#[cfg(all(doctest, feature = "reqwest"))]
#[doc = include_str!("../../../docs/recipes/client.md")]
struct Page;

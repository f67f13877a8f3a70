//! Identifies a request before its handler gets it: names its operation, takes its key and its
//! fingerprint.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::request::Parts;

use crate::http::BODY_LIMIT;
use crate::http::body::{ReadError, RequestBody};
use crate::http::fingerprint::opened;
use crate::http::problem::Problem;
use crate::http::selector::Selector;
use crate::http::settings::{GuardedRoute, Settings};
use crate::idempotency::Idempotency;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::Key;

/// Holds the identity of a request, and the body for its handler.
pub(super) struct Identity<B> {
    pub(super) key: Option<Key>,
    pub(super) fingerprint: Option<Fingerprint>,
    /// The problem where the key is missing and required.
    pub(super) absence: Problem,
    pub(super) body: B,
}

/// Identifies a request. Without a key there is nothing to compare, so the body stays unread unless
/// the key may be in it.
pub(super) async fn identify<B: RequestBody>(
    once: &Idempotency,
    settings: &Settings,
    parts: &Parts,
    route: &GuardedRoute,
    body: B,
) -> Result<Identity<B>, Problem> {
    let mut identity = Identity {
        key: None,
        fingerprint: None,
        absence: Problem::KeyMissing,
        body,
    };
    let selector = settings.policy(route).selector.as_ref();
    let mut read = None;
    if selector.is_some_and(Selector::reads_body) {
        (read, identity.body) = bounded(parts, identity.body, once, settings).await?;
        if read.is_none() {
            return Ok(identity);
        }
    }
    let text = read.as_deref().unwrap_or_default();
    let find_key = || settings.key(parts, route, text);
    // Switched off, or only observing, the layer refuses nothing: an unusable key counts as none,
    // and so does a panic of the caller's code that finds it.
    identity.key = if once.is_passive() {
        let found = catch_unwind(AssertUnwindSafe(find_key));
        found.ok().and_then(Result::ok).flatten()
    } else {
        find_key()?
    };
    if identity.key.is_none() {
        if let Some(selector) = selector {
            identity.absence = selector.absence(text);
        }
        return Ok(identity);
    }
    // Switched off, nothing is compared.
    if once.is_disabled() {
        return Ok(identity);
    }
    if read.is_none() {
        (read, identity.body) = bounded(parts, identity.body, once, settings).await?;
    }
    identity.fingerprint = read.map(|bytes| settings.compared().of(parts, &bytes));
    Ok(identity)
}

/// Reads a body up to the limit, and opens its coding up to the same one, or to the default one where that is less:
/// a small body may open to a thousand times its size. Where nothing is protected, the
/// handler meets a body that can't be read as it is, and the request is not compared.
async fn bounded<B: RequestBody>(
    parts: &Parts,
    body: B,
    once: &Idempotency,
    settings: &Settings,
) -> Result<(Option<bytes::Bytes>, B), Problem> {
    let limit = settings.body_limit;
    match body.read(limit).await {
        (Ok(bytes), body) => Ok((
            Some(opened(&parts.headers, bytes, limit.min(BODY_LIMIT))),
            body,
        )),
        (Err(_), body) if once.is_passive() => Ok((None, body)),
        (Err(ReadError::TooLarge), _) => Err(Problem::BodyTooLarge),
        (Err(ReadError::Failed), _) => Err(Problem::BodyUnreadable),
    }
}

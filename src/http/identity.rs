//! Identifies a request before its handler gets it: names its operation, takes its key and its
//! fingerprint.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::request::Parts;

use crate::engine::claim::Claim;
use crate::http::BODY_LIMIT;
use crate::http::body::{ReadError, RequestBody};
use crate::http::fingerprint::opened;
use crate::http::place::Place;
use crate::http::problem::Problem;
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
    let place = settings.policy(route).place.as_ref();
    let mut read = None;
    if place.is_some_and(Place::reads_body) {
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
        let found = found.unwrap_or(Err(Problem::Misconfigured));
        let found = found.inspect_err(|problem| log_observed(once, *problem));
        found.ok().flatten()
    } else {
        let key = find_key()?;
        if key.as_ref().is_some_and(|key| is_claimed(once, parts, key)) {
            return Err(Problem::Misconfigured);
        }
        key
    };
    if identity.key.is_none() {
        if let Some(place) = place {
            identity.absence = place.absence(text);
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
    identity.fingerprint = read.map(|bytes| settings.fingerprint(parts, &bytes));
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
    let (read, body) = body.read(limit).await;
    let problem = match read {
        Ok(bytes) => {
            let opened = opened(&parts.headers, bytes, limit.min(BODY_LIMIT));
            return Ok((Some(opened), body));
        }
        Err(ReadError::TooLarge) => Problem::BodyTooLarge,
        Err(ReadError::Failed) => Problem::BodyUnreadable,
    };
    if !once.is_passive() {
        return Err(problem);
    }
    log_observed(once, problem);
    Ok((None, body))
}

/// Logs the problem of a request that runs all the same, where the engine only observes.
fn log_observed(once: &Idempotency, problem: Problem) {
    if once.is_observing() {
        tracing::info_span!("observed_only").in_scope(|| problem.log());
    }
}

/// Returns whether a layer outside has claimed this key, because the layer was applied twice: a second
/// claim would wait for the first, or take its place.
fn is_claimed(once: &Idempotency, parts: &Parts, key: &Key) -> bool {
    let Some(outer) = parts.extensions.get::<Claim>() else {
        return false;
    };
    let id = once.record_id(key);
    outer.is_protected() && id.is_ok_and(|id| id.hash() == outer.key_hash())
}

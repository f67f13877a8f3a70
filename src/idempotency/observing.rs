//! Watching without interfering: the claim and its end are carried out on shadow records, and the handler runs in any case.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::Instrument;

use super::Idempotency;
use crate::claim::{Claim, Hold};
use crate::engine::{Acquired, Request};
use crate::error::Error;
use crate::fingerprint::Fingerprint;
use crate::key::{Key, Namespace, RecordId};
use crate::metrics::Count;
use crate::observe::{self, Seen};
use crate::outcome::{Outcome, Verdict};
use crate::record::{Failure, Owner, error_kind};
use crate::store::Store;

impl<S: Store> Idempotency<S> {
    /// Runs the handler, and notes what would have become of it in the namespace `real`.
    pub(super) async fn observe<T, E, F, Fut>(
        &self,
        real: &Namespace,
        key: Option<Key>,
        fingerprint: Option<Fingerprint>,
        handler: F,
        verdict: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<Outcome<T>, Error<E>>
    where
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let span = tracing::info_span!("observed_only");
        let watched = self.watch(key.as_ref(), fingerprint);
        let watched = watched.instrument(span.clone()).await;
        // The key that it will have once protection is switched on: what is derived from it stays the same.
        let id = match key.as_ref().and_then(|key| self.resolve(key, real)) {
            Some(id) => id,
            None => RecordId::unkeyed(Owner::random()?.as_str()),
        };
        let operation = key.as_ref().map_or("", Key::operation);
        let clock = Arc::clone(&self.engine.clock);
        let claim = Claim::new(operation, id, None, self.deadline, clock);
        let running = AssertUnwindSafe(async move { handler(claim).await }).catch_unwind();
        let ended = running.await;
        let end = End::of(&ended, verdict);
        if let Some((request, hold)) = watched {
            let noted = self.note(&request, &hold, end);
            noted.instrument(span).await;
        }
        match ended {
            Ok(Ok(value)) => Ok(Outcome::Unprotected(value)),
            Ok(Err(error)) => Err(Error::Handler(error)),
            Err(panic) => resume_unwind(panic),
        }
    }

    fn resolve(&self, key: &Key, namespace: &Namespace) -> Option<RecordId> {
        key.resolve(namespace, self.engine.settings.max_token_chars)
            .ok()
    }

    /// The shadow claim, where the handler would have run.
    async fn watch(
        &self,
        key: Option<&Key>,
        fingerprint: Option<Fingerprint>,
    ) -> Option<(Request, Hold)> {
        let Some(key) = key else {
            observe::unprotected("", &crate::key::KeyError::Missing);
            self.engine.meter(None).count(Count::Unprotected);
            return None;
        };
        let request = match self.request(key, fingerprint) {
            Ok(request) => request,
            Err(error) => {
                observe::unprotected(key.operation(), &error);
                self.engine.meter(Some(key)).count(Count::Unprotected);
                return None;
            }
        };
        let began = Instant::now();
        let mut found = None;
        let acquired = self.engine.acquire::<()>(&request, &mut found).await;
        request.meter.claimed_in(began.elapsed());
        let seen = Seen::of(found.as_ref(), self.engine.clock.now());
        match acquired {
            Ok(Acquired::Run(hold)) => return Some((request, hold)),
            Ok(Acquired::Replay(record)) => observe::replayed(&request, &record, seen),
            Err(error) => observe::refused(&request, &error, seen),
        }
        None
    }

    /// Ends the shadow claim as the real one would end, but without the outcome's content.
    async fn note(&self, request: &Request, hold: &Hold, end: End) {
        match end {
            End::Complete => {
                self.engine.complete(request, hold, &()).await;
            }
            End::Fail => {
                request.meter.count(Count::Failures);
                self.engine.fail(request, hold, &Failure::unknown()).await;
            }
            End::Release(last_error) => {
                request.meter.count(Count::Failures);
                self.engine.release(request, hold, last_error).await;
            }
        }
    }
}

/// What becomes of a shadow claim.
enum End {
    Complete,
    Fail,
    Release(Option<&'static str>),
}

impl End {
    fn of<T, E, P>(
        ended: &Result<Result<T, E>, P>,
        verdict: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Self {
        let Ok(result) = ended else {
            return Self::Release(Some("panic"));
        };
        let verdict = catch_unwind(AssertUnwindSafe(|| verdict(result)))
            .unwrap_or_else(|_| Verdict::of(result));
        match (result, verdict) {
            (Ok(_), Verdict::Complete | Verdict::Fail) => Self::Complete,
            (Ok(_), Verdict::Release) => Self::Release(None),
            (Err(_), Verdict::Fail) => Self::Fail,
            (Err(_), Verdict::Release | Verdict::Complete) => {
                Self::Release(Some(error_kind::<E>()))
            }
        }
    }
}

//! Watching without interfering: the claim and its end are carried out on shadow records, and the handler runs in any case.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt;
use tracing::Instrument;

use super::Idempotency;
use super::unprotected::Performed;
use crate::claim::{Claim, Hold};
use crate::engine::{Acquired, Request};
use crate::error::Error;
use crate::fingerprint::Fingerprint;
use crate::key::{Key, Namespace, RecordId};
use crate::metrics::Count;
use crate::observe;
use crate::outcome::{Outcome, Verdict};
use crate::record::{Failure, Owner, error_kind};
use crate::store::Store;

impl<S: Store> Idempotency<S> {
    /// The namespace that keys will have once protection is on, where the engine only watches.
    pub(super) fn observed(&self) -> Option<&Namespace> {
        let real = self.engine.observed.as_ref();
        real.filter(|_| !self.engine.disabled)
    }

    /// Whether handlers run whatever the records say.
    #[cfg(any(feature = "http", feature = "sqs"))]
    pub(crate) fn is_passive(&self) -> bool {
        self.engine.disabled || self.is_observing()
    }

    /// Whether the engine only watches.
    #[cfg(any(feature = "http", feature = "sqs"))]
    pub(crate) fn is_observing(&self) -> bool {
        self.observed().is_some()
    }

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
        E: 'static,
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
        let performed = self.perform(key.as_ref(), id, handler, verdict);
        let ended = AssertUnwindSafe(performed).catch_unwind().await;
        let end = End::of(&ended);
        if let Some((request, hold)) = watched {
            let noted = self.note(&request, &hold, end);
            noted.instrument(span).await;
        }
        match ended {
            Ok(performed) => match performed?.0 {
                Ok(value) => Ok(Outcome::Unprotected(value)),
                Err(error) => Err(Error::Handler(error)),
            },
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
        let acquired = self.engine.acquire::<()>(&request).await;
        match acquired {
            Ok(Acquired::Run(hold)) => return Some((request, hold)),
            Ok(Acquired::Replay(record)) => observe::replayed(&request, &record),
            Err(error) => observe::refused(&request, &error),
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
    fn of<T, E, P>(ended: &Result<Performed<T, E>, P>) -> Self {
        match ended {
            Err(_) => Self::Release(Some("panic")),
            Ok(Err(_)) => Self::Release(Some("not committed")),
            Ok(Ok((Ok(_), Verdict::Release))) => Self::Release(None),
            Ok(Ok((Ok(_), _))) => Self::Complete,
            Ok(Ok((Err(_), Verdict::Fail))) => Self::Fail,
            Ok(Ok((Err(_), _))) => Self::Release(Some(error_kind::<E>())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(ended: &Result<Performed<(), std::fmt::Error>, ()>) -> Option<&'static str> {
        match End::of(ended) {
            End::Release(last_error) => last_error,
            End::Complete | End::Fail => panic!("not released"),
        }
    }

    #[test]
    fn a_shadow_claim_that_is_released_names_the_kind_of_failure() {
        assert_eq!(released(&Err(())), Some("panic"));
        assert_eq!(released(&Ok(Err(Error::LeaseLost))), Some("not committed"));
        assert_eq!(
            released(&Ok(Ok((Err(std::fmt::Error), Verdict::Release)))),
            Some("core::fmt::Error")
        );
        assert_eq!(released(&Ok(Ok((Ok(()), Verdict::Release)))), None);
    }
}

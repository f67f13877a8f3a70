//! Runs that no record stands behind: switched off, without a key, or with the store out of reach.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Idempotency;
use crate::claim::Claim;
use crate::error::Error;
use crate::key::{Key, KeyError, RecordId};
use crate::metrics::Count;
use crate::observe;
use crate::outcome::{Outcome, Verdict};
use crate::record::Owner;
use crate::settings::MissingKey;
use crate::store::Store;

/// What a handler gave, and the verdict on it; or why its writes were not carried out.
pub(super) type Performed<T, E> = Result<(Result<T, E>, Verdict), Error<E>>;

impl<S: Store> Idempotency<S> {
    pub(super) async fn run_without_key<T, E, F, Fut>(
        &self,
        handler: F,
        verdict: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<Outcome<T>, Error<E>>
    where
        E: 'static,
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let policy = self.overrides.missing_key;
        let policy = policy.unwrap_or(self.engine.settings.missing_key);
        if !self.engine.disabled && policy == MissingKey::Refuse {
            return Err(KeyError::Missing.into());
        }
        observe::unprotected("", &KeyError::Missing);
        let id = RecordId::unkeyed(Owner::random()?.as_str());
        self.run_unprotected(None, id, handler, verdict).await
    }

    pub(super) async fn run_unprotected<T, E, F, Fut>(
        &self,
        key: Option<&Key>,
        id: RecordId,
        handler: F,
        verdict: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<Outcome<T>, Error<E>>
    where
        E: 'static,
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.engine.meter(key).count(Count::Unprotected);
        let performed = self.perform(key, id, handler, verdict).await;
        match performed?.0 {
            Ok(value) => Ok(Outcome::Unprotected(value)),
            Err(error) => Err(Error::Handler(error)),
        }
    }

    /// Runs the handler, and carries out the writes that it handed in, without a record.
    pub(super) async fn perform<T, E, F, Fut>(
        &self,
        key: Option<&Key>,
        id: RecordId,
        handler: F,
        verdict: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Performed<T, E>
    where
        E: 'static,
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let claim = Claim::new(
            key.map(Key::shared_operation).unwrap_or_default(),
            id,
            None,
            None,
            self.deadline,
            Arc::clone(&self.engine.clock),
            self.collected(),
        );
        let result = handler(claim.clone()).await;
        let verdict = catch_unwind(AssertUnwindSafe(|| verdict(&result)))
            .unwrap_or_else(|_| Verdict::of(&result));
        let writes = claim.collected().close();
        if !writes.is_empty() && result.is_ok() && verdict != Verdict::Release {
            // A kill switch that kept the effects from happening would be an outage.
            let commit = self.engine.commit_unprotected(writes, self.deadline);
            Box::pin(commit).await.map_err(Self::not_committed)?;
        }
        Ok((result, verdict))
    }
}

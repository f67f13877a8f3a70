//! Runs that no record stands behind: switched off, without a key, or with the store out of reach.

use std::future::Future;
use std::sync::Arc;

use super::Idempotency;
use crate::claim::Claim;
use crate::error::Error;
use crate::key::{KeyError, RecordId};
use crate::observe;
use crate::outcome::{Outcome, Verdict};
use crate::record::Owner;
use crate::settings::MissingKey;
use crate::store::Store;

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
        self.run_unprotected("", id, handler, verdict).await
    }

    pub(super) async fn run_unprotected<T, E, F, Fut>(
        &self,
        operation: &str,
        id: RecordId,
        handler: F,
        verdict: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<Outcome<T>, Error<E>>
    where
        E: 'static,
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let claim = Claim::new(
            operation,
            id,
            None,
            None,
            self.deadline,
            Arc::clone(&self.engine.clock),
            self.collected(),
        );
        let result = handler(claim.clone()).await;
        let writes = claim.collected().close();
        if !writes.is_empty() && result.is_ok() && verdict(&result) != Verdict::Release {
            // A kill switch that kept the effects from happening would be an outage.
            let commit = self.engine.commit_unprotected(writes, self.deadline);
            Box::pin(commit).await.map_err(Self::not_committed)?;
        }
        match result {
            Ok(value) => Ok(Outcome::Unprotected(value)),
            Err(error) => Err(Error::Handler(error)),
        }
    }
}

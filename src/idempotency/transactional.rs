//! Runs whose effects commit together with the record.

use std::fmt::Display;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Idempotency;
use crate::claim::{Claim, Hold};
use crate::engine::{Applied, Ended, Finished, Request};
use crate::error::Error;
use crate::journal::Journal;
use crate::observe;
use crate::outcome::{Outcome, Verdict};
use crate::record::Failure;
use crate::store::Store;
use crate::transaction::{Collected, Write, WriteError};

impl<S: Store> Idempotency<S> {
    /// The same engine in its **claimless form**: for handlers whose whole effect is the writes that they hand to
    /// [`Claim::write`].
    ///
    /// Nothing is claimed before the handler. After it, one transaction says "this key has no record yet" and holds the
    /// record and the writes: one request, exactly once, and no lease to wait for after a crash. Without writes it is a single
    /// write of the record. A duplicate runs the handler
    /// too (which has no effect of its own), loses, and gets the stored outcome; one that is known to be a redelivery
    /// (SQS) reads first.
    ///
    /// Anything else that the handler does, an e-mail, a call, a write of its own, is done by each duplicate. Use the claimed
    /// form for those.
    ///
    /// ```
    /// # #[cfg(feature = "dynamodb")] mod example {
    /// use aws_sdk_dynamodb::types::{AttributeValue::{N, S}, Update};
    /// use lambda_idempotency::transaction::WriteError;
    /// use lambda_idempotency::{Error, Fingerprint, Idempotency, Key, Outcome, store::dynamodb::DynamoDbStore};
    ///
    /// async fn deposit(once: &Idempotency<DynamoDbStore>, event_id: &str) -> Result<Outcome<()>, Error<WriteError>> {
    ///     let handler = async |claim: lambda_idempotency::Claim| {
    ///         claim.write(
    ///             Update::builder()
    ///                 .table_name("accounts")
    ///                 .key("account", S("a-1".into()))
    ///                 .update_expression("ADD balance :five")
    ///                 .expression_attribute_values(":five", N("5".into())),
    ///         )
    ///     };
    ///     once.claimless().run(Key::new("deposit", event_id), Fingerprint::json(b"{}"), handler).await
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn claimless(&self) -> Self {
        Self {
            claimless: true,
            ..self.clone()
        }
    }

    pub(super) fn collected(&self) -> Collected {
        Collected::new(self.engine.store.admission())
    }

    /// The end of a claim with writes.
    pub(super) async fn commit<T, E>(
        &self,
        request: &Request,
        hold: &Hold,
        value: T,
        writes: Vec<Write>,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned,
        E: 'static,
    {
        match self.engine.commit(request, hold, &value, writes).await {
            Ended::Finished(finished) => self.conclude(request, finished, value).await,
            other => Err(Self::not_committed(other)),
        }
    }

    pub(super) async fn run_claimless<T, E, F, Fut>(
        &self,
        request: &Request,
        handler: F,
        verdict: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned,
        E: Display + 'static,
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let refused = |error: &Error<E>| observe::refused(request, error);
        if self.engine.store.admission().is_none() {
            return Err(Error::Write(WriteError::NotSupported)).inspect_err(refused);
        }
        let attempt = match self
            .engine
            .begin(request, request.read_first)
            .await
            .inspect_err(refused)?
        {
            Ok(attempt) => attempt,
            Err(record) => return self.replay(request, &record).await.inspect_err(refused),
        };
        let hold = Hold {
            owner: attempt.owner.clone(),
            attempt: 1,
            lease: attempt.until + self.engine.settings.rules.skew_margin,
            keeps_fingerprint: false,
            journal: Journal::default(),
        };
        let claim = Claim::new(
            Arc::clone(&request.operation),
            request.id.clone(),
            Some(hold.clone()),
            // There is no record to keep a journal in.
            None,
            Some(attempt.until),
            Arc::clone(&self.engine.clock),
            self.collected(),
        );
        observe::unclaimed(request);
        let result = handler(claim.clone()).await;
        // The caller's judgement may panic, after a handler that succeeded: then the default stands in for it.
        let verdict = catch_unwind(AssertUnwindSafe(|| verdict(&result)))
            .unwrap_or_else(|_| Verdict::of(&result));
        let writes = claim.collected().close();
        let is_final = verdict != Verdict::Release;
        if !is_final {
            // A duplicate may fail because the original has succeeded: it gets the original's outcome.
            match self.engine.begin::<E>(request, true).await {
                Ok(Err(record)) => return self.replay(request, &record).await.inspect_err(refused),
                Err(error @ Error::Mismatch) => return Err(error).inspect_err(refused),
                Ok(Ok(_)) | Err(_) => {}
            }
        }
        let value = match result {
            Ok(value) if !is_final => return Ok(Outcome::Executed(value)),
            Ok(value) => value,
            Err(error) => {
                if is_final {
                    let engine = &self.engine;
                    let failure = engine.failure_of(request, &hold.owner, &Failure::of(&error));
                    let applied = engine.apply::<E>(request, attempt, failure, Vec::new());
                    // Not stored, it fails again, which changes nothing.
                    if let Ok(Applied::Replay(record)) = applied.await {
                        return self.replay(request, &record).await.inspect_err(refused);
                    }
                }
                return Err(Error::Handler(error));
            }
        };
        let completion = self.engine.completion_of(request, &hold, &value).await;
        let applied = self
            .engine
            .apply(request, attempt, completion, writes)
            .await;
        match applied.inspect_err(refused)? {
            Applied::Replay(record) => self.replay(request, &record).await.inspect_err(refused),
            Applied::Ended(Ended::Finished(finished)) => {
                self.conclude(request, finished, value).await
            }
            Applied::Ended(other) => Err(Self::not_committed(other)),
        }
    }

    /// What a caller hears of a transaction that isn't known to stand.
    pub(super) fn not_committed<E: 'static>(ended: Ended) -> Error<E> {
        match ended {
            Ended::Refused(refusal) => match refusal.into_answer() {
                Ok(error) => Error::Handler(error),
                Err(refusal) => Error::Refused(refusal),
            },
            Ended::NotCommitted(error) | Ended::Finished(Finished::Unrecorded(error)) => {
                Error::NotCommitted(error)
            }
            Ended::Unknown(error) => Error::OutcomeUnknown(error),
            Ended::Finished(_) => Error::LeaseLost,
        }
    }
}

//! Begins and ends runs that no record protects: switched off, without a key, or with the store out
//! of reach.

use std::fmt::Display;
use std::sync::Arc;

use tokio::time::Instant;

use crate::engine::claim::{Claim, Subject};
use crate::engine::commit::Sent;
use crate::engine::error::Obstacle;
use crate::engine::fence::{Uncommitted, unanswered};
use crate::engine::metrics::Count;
use crate::engine::protection::Protection;
use crate::engine::{Begun, Disposition, Ended, Engine, Options, events};
use crate::protocol::key::{Key, RecordId};
use crate::protocol::record::Owner;
use crate::store::StoreError;
use crate::store::transaction::Committed;

impl Engine {
    #[allow(clippy::unnecessary_wraps, reason = "it is one of the ways to begin")]
    pub(super) fn begin_unprotected(
        self: &Arc<Self>,
        key: Option<&Key>,
        id: RecordId,
        options: &Options,
        reason: &dyn Display,
    ) -> Result<Begun, Obstacle> {
        events::unprotected(key.map_or("", Key::operation), key.map(|_| &id), reason);
        self.meter(key).count(Count::Unprotected);
        let claim = self.bare_claim(key, id, options);
        let end = options.store_end();
        Ok(Begun::Run(self.run(claim, Protection::None, end)))
    }

    /// Makes a claim that nothing protects.
    pub(super) fn bare_claim(&self, key: Option<&Key>, id: RecordId, options: &Options) -> Claim {
        let operation = key.map(Key::shared_operation).unwrap_or_default();
        let subject = Subject {
            operation,
            id,
            meter: self.meter(key),
        };
        self.claim_of(subject, None, None, options.deadline, None)
    }

    /// Carries out the writes that were handed to the claim: a kill switch that kept the effects
    /// from happening would be an outage.
    pub(super) async fn end_unprotected(
        &self,
        claim: &Claim,
        disposition: &Disposition,
        end: Option<Instant>,
    ) -> Result<Ended, Obstacle> {
        let writes = claim.collected().close();
        if !writes.is_empty() && matches!(disposition, Disposition::Complete(_)) {
            let owner = Owner::random()?;
            let until = claim.until();
            let until = until.unwrap_or(self.clock.now() + self.settings.lease);
            let sent = self.send_commit(None, owner.as_str(), &writes, until, end);
            let Sent { answer, is_silent } = sent.await;
            let uncommitted = match answer {
                Ok(Committed::Applied) => return Ok(Ended::Unprotected),
                // Without a record, no write keeps a send without an answer from applying later.
                Ok(_) if is_silent => Uncommitted::Unknown(unanswered()),
                Err(error) if is_silent => Uncommitted::Unknown(error),
                Ok(Committed::Refused(refusal)) => Uncommitted::Refused(refusal.asked(writes)),
                Ok(Committed::Fenced(_)) => Uncommitted::NotCommitted(StoreError::Rejected(
                    "the store compared a record that the commit didn't have".into(),
                )),
                Err(error) => Uncommitted::NotCommitted(error),
            };
            return Err(uncommitted.into());
        }
        Ok(Ended::Unprotected)
    }
}

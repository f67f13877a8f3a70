//! Carries out the claim and its end on shadow records, while the handler runs in any case.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::Instrument;

use crate::engine::acquire::Acquired;
use crate::engine::begin::unkeyed;
use crate::engine::claim::{Claim, Hold};
use crate::engine::error::Obstacle;
use crate::engine::events;
use crate::engine::metrics::Count;
use crate::engine::protection::{Protection, Shadow};
use crate::engine::{Begun, Disposition, Ended, Engine, Options, Request};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::{Key, KeyError};
use crate::protocol::record::Failure;

impl Engine {
    pub(super) async fn begin_shadow(
        self: &Arc<Self>,
        key: Option<Key>,
        fingerprint: Option<Fingerprint>,
        options: Options,
    ) -> Result<Begun, Obstacle> {
        let span = tracing::info_span!("observed_only");
        let claimed = self.claim_shadow(key.as_ref(), fingerprint, options.clone());
        let claimed = claimed.instrument(span.clone()).await;
        let id = match key.as_ref().and_then(|key| self.derived_id(key)) {
            Some(id) => id,
            None => unkeyed()?,
        };
        let claim = self.bare_claim(key.as_ref(), id, &options);
        let end = options.store_end();
        let shadow = claimed.map(|(request, hold)| {
            Box::new(Shadow {
                request,
                hold,
                span,
            })
        });
        Ok(Begun::Run(self.run(claim, Protection::Shadow(shadow), end)))
    }

    /// Makes the shadow claim, where the handler would have run.
    async fn claim_shadow(
        &self,
        key: Option<&Key>,
        fingerprint: Option<Fingerprint>,
        options: Options,
    ) -> Option<(Request, Hold)> {
        let resolve = |key| self.request(key, fingerprint, options);
        let request = match key.ok_or(KeyError::Missing).and_then(resolve) {
            Ok(request) => request,
            Err(error) => {
                events::unprotected(key.map_or("", Key::operation), None, &error);
                self.meter(key).count(Count::Unprotected);
                return None;
            }
        };
        match self.acquire(&request).await {
            Ok(Acquired::Claimed(hold)) => return Some((request, hold)),
            Ok(Acquired::Replay(record)) => events::replayed(&request, &record),
            Err(error) => events::refused(&request, &error),
        }
        None
    }

    pub(super) async fn end_shadow(
        &self,
        shadow: Option<Box<Shadow>>,
        claim: &Claim,
        disposition: Disposition,
        end: Option<Instant>,
    ) -> Result<Ended, Obstacle> {
        let ended = self.end_unprotected(claim, &disposition, end).await;
        if let Some(shadow) = shadow {
            let noted = match ended {
                Ok(_) => disposition,
                Err(_) => Disposition::Release(Some("not committed".into())),
            };
            self.note(*shadow, &noted).await;
        }
        ended
    }

    /// Ends the shadow claim as the real one would end, but without the outcome's content.
    pub(super) async fn note(&self, shadow: Shadow, disposition: &Disposition) {
        let Shadow {
            request,
            hold,
            span,
        } = shadow;
        let noted = async {
            match disposition {
                Disposition::Complete(_) => {
                    let nothing = Ok("null".to_owned());
                    let completion = self.completion_of(&request, &hold, nothing).await;
                    // An event reports what became of it.
                    let _ = self.finish(&request, &hold, completion).await;
                }
                Disposition::Fail(_) => {
                    request.meter.count(Count::Failures);
                    self.fail(&request, &hold, &Failure::unknown()).await;
                }
                Disposition::Release(last_error) => {
                    request.meter.count(Count::Failures);
                    self.release(&request, &hold, last_error.as_deref()).await;
                }
            }
        };
        noted.instrument(span).await;
    }
}

//! The claimless form: no claim before the handler, and one commit after it: a transaction, or a record without business writes.

use crate::clock::EpochMillis;
use crate::engine::acquire::{MAX_ROUNDS, obstacle};
use crate::engine::commit::{doubtful, is_mine};
use crate::engine::{Ended, Engine, Finished, Request};
use crate::error::Error;
use crate::metrics::Count;
use crate::observe;
use crate::protocol::{Asking, Decision, decide};
use crate::record::{Completion, Found, Owner, Record};
use crate::store::Store;
use crate::transaction::{Basis, Committed, Final, Write};

/// One attempt without a claim.
#[derive(Debug)]
pub(crate) struct Unclaimed {
    pub(crate) owner: Owner,
    /// When the attempt must be done.
    pub(crate) until: EpochMillis,
    started_at: EpochMillis,
    /// What a hinted redelivery read.
    found: Option<Found>,
}

/// What became of an attempt without a claim.
#[derive(Debug)]
pub(crate) enum Applied {
    /// It stands, or it doesn't.
    Ended(Ended),
    /// An earlier outcome, or failure, is final: replay it.
    Replay(Record),
}

impl<S: Store> Engine<S> {
    /// Begins, where nothing stands in the way as far as is known without asking. A hinted redelivery asks: a transaction that
    /// fails is billed for every item in it.
    pub(crate) async fn begin<E>(
        &self,
        request: &Request,
        read_first: bool,
    ) -> Result<Result<Unclaimed, Record>, Error<E>> {
        let owner = self.owners.next()?;
        let started_at = self.clock.now();
        let mut found = None;
        if read_first {
            // The read only saves a transaction that would fail. Without it, the transaction itself finds out.
            found = self.look(request).await.unwrap_or_default();
        }
        let asking = Asking {
            owner: &owner,
            fingerprint: request.fingerprint.as_ref(),
            now: started_at,
        };
        match decide(found.as_ref(), asking, &self.settings.rules) {
            Decision::Create | Decision::TakeOver { .. } => {}
            Decision::Replay(record) | Decision::ReplayFailure(record) => {
                return Ok(Err(record.clone()));
            }
            other => return Err(obstacle(&other, started_at)),
        }
        Ok(Ok(Unclaimed {
            owner,
            until: self.run_until(request, started_at),
            started_at,
            found,
        }))
    }

    /// Writes the outcome and the business writes, if no other outcome stands.
    pub(crate) async fn apply<E>(
        &self,
        request: &Request,
        attempt: Unclaimed,
        mut completion: Completion,
        writes: Vec<Write>,
    ) -> Result<Applied, Error<E>> {
        let Unclaimed {
            owner,
            until,
            started_at,
            mut found,
        } = attempt;
        for round in 0..MAX_ROUNDS {
            let now = self.clock.now();
            let asking = Asking {
                owner: &owner,
                fingerprint: request.fingerprint.as_ref(),
                now,
            };
            let (basis, number) = match decide(found.as_ref(), asking, &self.settings.rules) {
                Decision::Create => {
                    let claim = self.claim(request, &owner, 1, started_at);
                    (Basis::Absent(claim), 1)
                }
                Decision::TakeOver {
                    seen,
                    mode,
                    attempt,
                } => {
                    let claim = self.claim(request, &owner, attempt, started_at);
                    let seen = seen.clone();
                    (Basis::Version { seen, mode, claim }, attempt)
                }
                Decision::Replay(record) | Decision::ReplayFailure(record) => {
                    return Ok(Applied::Replay(record.clone()));
                }
                other => return Err(obstacle(&other, now)),
            };
            let mut record = Final { completion, basis };
            let token = format!("{}-{round}", owner.as_str());
            let ended = match self.send_final(&mut record, token, &writes, until).await {
                Ok(Committed::Applied) => Ended::Finished(Finished::Recorded),
                // An earlier send committed, and its reply was lost: nothing but a commit of this attempt writes its owner.
                Ok(Committed::Fenced(other)) if is_mine(other.as_ref(), &owner) => {
                    Ended::Finished(Finished::Recorded)
                }
                Ok(Committed::Fenced(other)) => {
                    found = other;
                    completion = record.completion;
                    continue;
                }
                Ok(Committed::Refused(refusal)) => Ended::Refused(refusal.asked(writes)),
                Err(error) => match self.look(request).await {
                    Ok(found) if is_mine(found.as_ref(), &owner) => {
                        Ended::Finished(Finished::Recorded)
                    }
                    _ => doubtful(error),
                },
            };
            request.meter.count(Count::Executions);
            observe::committed(request, number, &record.completion, &ended);
            return Ok(Applied::Ended(ended));
        }
        Err(Error::InFlight {
            retry_after: std::time::Duration::ZERO,
        })
    }
}

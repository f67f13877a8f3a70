//! Says each conditional write in the words of the script.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lambda_idempotency::StoreError;
use lambda_idempotency::protocol::record::{
    Ended, NewClaim, Owner, RecordWrite, Status, StoredOutcome, Takeover, Version,
};
use lambda_idempotency::{EpochMillis, EpochSeconds};

use crate::record::{
    ATTEMPT, COMPLETED_AT, EXPIRATION, FINGERPRINT, LAST_ERROR, LEASE, OUTCOME_FIELDS, OWNER,
    STARTED_AT, STATUS, VERSION, entry, outcome_fields, step_field,
};

/// The time for which a record stays at least after its expiration: the server's clock may be ahead of the engine's.
const MARGIN: Duration = Duration::from_hours(2);

/// The arguments of the script: three words for each instruction.
#[derive(Debug, Default)]
pub(crate) struct Instructions(pub(crate) Vec<Vec<u8>>);

impl Instructions {
    /// Reads the record, and changes nothing.
    pub(crate) fn load() -> Self {
        Self::default().say("whole", "", "")
    }

    pub(crate) fn of(write: &RecordWrite) -> Result<Self, StoreError> {
        let none = Self::default();
        Ok(match write {
            RecordWrite::Create(claim) => none.say("absent", "", "").claim(claim),
            RecordWrite::TakeOver { seen, mode, claim } => {
                let kept = match mode {
                    Takeover::Fresh => "nothing",
                    Takeover::Resume => "error",
                    Takeover::Unstarted => "steps",
                    _ => return Err(unknown()),
                };
                let over = none.seen(seen).say("keep", kept, "").claim(claim);
                over.say("whole", "", "")
            }
            RecordWrite::Renew {
                owner,
                lease,
                expiration,
                ..
            } => {
                let end = lease.0.to_string();
                let held = none.held(owner).say("below", LEASE, &end);
                let renewed = held.say("set", LEASE, &end).expires(*expiration);
                renewed.keep_until(*expiration, Some(*lease))
            }
            RecordWrite::Amend {
                owner,
                step,
                entry: noted,
                ..
            } => {
                let (field, entry) = (step_field(step), entry(noted));
                let held = none.held(owner).say("newer", &field, &entry);
                held.say("set", &field, &entry)
            }
            RecordWrite::Complete(completion) => none
                .held(&completion.owner)
                .say("set", STATUS, completion.status.as_str())
                .say("del", LEASE, "")
                .outcome(&completion.outcome)
                .say("set", COMPLETED_AT, completion.completed_at.0.to_string())
                .expires(completion.expiration)
                .keep_until(completion.expiration, None),
            RecordWrite::Release(release) => {
                let held = none.held(&release.owner);
                let mut released = held
                    .say("set", OWNER, release.tombstone.as_str())
                    .say("set", LEASE, "0");
                if let Some(error) = &release.last_error {
                    released = released.say("set", LAST_ERROR, error);
                }
                if release.forget_fingerprint {
                    released = released.say("del", FINGERPRINT, "");
                }
                released
            }
            RecordWrite::Intervene(intervention) => {
                let mut seen = none.seen(&intervention.seen);
                for word in ["newer", "set"] {
                    for (name, step) in intervention.steps.iter() {
                        seen = seen.say(word, &step_field(name), entry(step));
                    }
                }
                let owned = seen.say("set", OWNER, intervention.owner.as_str());
                let ended = match &intervention.end {
                    Ended::Released { last_error } => {
                        let released = owned
                            .say("set", STATUS, Status::InProgress.as_str())
                            .say("set", LEASE, "0")
                            .say("del", COMPLETED_AT, "")
                            .no_outcome();
                        match last_error {
                            Some(error) => released.say("set", LAST_ERROR, error),
                            None => released,
                        }
                    }
                    Ended::Final {
                        status,
                        outcome,
                        completed_at,
                    } => owned
                        .say("set", STATUS, status.as_str())
                        .say("del", LEASE, "")
                        .other_outcome(outcome)
                        .say("set", COMPLETED_AT, completed_at.0.to_string()),
                    _ => return Err(unknown()),
                };
                let expires = ended.expires(intervention.expiration);
                expires.keep_until(intervention.expiration, None)
            }
            _ => return Err(unknown()),
        })
    }

    /// Has the owner written again where the record that refuses the write has it: replicas acknowledge writes alone.
    pub(crate) fn or_again(self, owner: &str) -> Self {
        let mut first = Self::default().say("again", "", owner);
        first.0.extend(self.0);
        first
    }

    fn say(mut self, word: &str, field: &str, value: impl AsRef<[u8]>) -> Self {
        let words = [word.as_bytes(), field.as_bytes(), value.as_ref()];
        self.0.extend(words.map(<[u8]>::to_vec));
        self
    }

    /// The record is in progress, and held by this owner.
    fn held(self, owner: &Owner) -> Self {
        self.say("held", Status::InProgress.as_str(), owner.as_str())
    }

    /// The record is still exactly this: what was absent must still be absent.
    fn seen(self, seen: &Version) -> Self {
        let fields = [
            (OWNER, seen.owner.clone()),
            (STATUS, seen.status.clone()),
            (LEASE, seen.lease.map(|lease| lease.to_string())),
            (EXPIRATION, seen.expiration.map(|end| end.to_string())),
        ];
        let there = self.say("there", "", "");
        fields
            .into_iter()
            .fold(there, |said, (field, value)| match value {
                Some(value) => said.say("is", field, value),
                None => said.say("no", field, ""),
            })
    }

    fn claim(self, claim: &NewClaim) -> Self {
        let claimed = self
            .say("set", STATUS, Status::InProgress.as_str())
            .say("set", OWNER, claim.owner.as_str())
            .say("set", LEASE, claim.lease.0.to_string())
            .say("set", ATTEMPT, claim.attempt.to_string())
            .say("set", STARTED_AT, claim.started_at.0.to_string())
            .say(
                "set",
                VERSION,
                lambda_idempotency::protocol::record::LAYOUT.to_string(),
            )
            .expires(claim.expiration)
            .keep_until(claim.expiration, Some(claim.lease));
        match &claim.fingerprint {
            Some(fingerprint) => claimed.say("set", FINGERPRINT, fingerprint.as_str()),
            None => claimed,
        }
    }

    fn no_outcome(self) -> Self {
        let fields = OUTCOME_FIELDS.into_iter();
        fields.fold(self, |said, field| said.say("del", field, ""))
    }

    /// Sets an outcome, where there is none: a record in progress has none.
    fn outcome(self, outcome: &StoredOutcome) -> Self {
        let fields = outcome_fields(outcome).into_iter();
        fields.fold(self, |said, (field, value)| said.say("set", field, value))
    }

    /// Sets an outcome instead of another one.
    fn other_outcome(self, outcome: &StoredOutcome) -> Self {
        let set = outcome_fields(outcome);
        let is_set = |field: &&str| set.iter().any(|(name, _)| name == field);
        let others = OUTCOME_FIELDS.into_iter().filter(|field| !is_set(field));
        let said = others.fold(self, |said, field| said.say("del", field, ""));
        said.outcome(outcome)
    }

    fn expires(self, expiration: EpochSeconds) -> Self {
        self.say("set", EXPIRATION, expiration.0.to_string())
    }

    /// Lets the server delete the record, some time after it has expired, and never before its lease or by a clock that is ahead.
    fn keep_until(self, expiration: EpochSeconds, lease: Option<EpochMillis>) -> Self {
        self.say("until", "", end_of(expiration, lease).to_string())
    }
}

/// The time, in epoch milliseconds, from which the server may delete what expires then.
pub(crate) fn end_of(expiration: EpochSeconds, lease: Option<EpochMillis>) -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    // A time that is over would delete the record at once.
    let end = expiration.0.saturating_mul(1_000).max(millis(now));
    let end = end.max(lease.map_or(0, |lease| lease.0));
    // The latest time that the server takes: beyond it lies the end of its own arithmetic.
    end.saturating_add(millis(MARGIN)).min(1 << 52)
}

fn unknown() -> StoreError {
    StoreError::Rejected(
        "this release of the store doesn't know the write: update lambda-idempotency-redis".into(),
    )
}

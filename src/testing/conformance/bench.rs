//! Makes, sends and compares records for the checks.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::join;
use tokio::time::Instant;

use crate::protocol::clock::{Clock, EpochMillis, EpochSeconds, SystemClock};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::{Key, MAX_ID_BYTES, Namespace, RecordId};
use crate::protocol::record::{
    Completion, Found, NewClaim, Owner, Record, RecordWrite, Release, Status, StoredOutcome,
    Takeover, Version,
};
use crate::store::{Answer, DynStore, StoreError};

/// The result of a check: `Ok`, or the difference.
pub(super) type Check = Result<(), String>;

/// A bench holds the store under test, and talks to it for the checks.
pub(super) struct Bench<'a> {
    pub(super) store: &'a dyn DynStore,
    namespace: Namespace,
    pub(super) now: EpochMillis,
}

impl<'a> Bench<'a> {
    pub(super) fn new(store: &'a dyn DynStore) -> Result<Self, String> {
        let run = owner()?;
        let namespace = Namespace::new(format!("conformance-{}", run.as_str()))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            store,
            namespace,
            now: SystemClock.now(),
        })
    }

    pub(super) fn id(&self, name: &str) -> Result<RecordId, String> {
        Key::new("conformance", name)
            .resolve(&self.namespace, usize::MAX)
            .map_err(|error| error.to_string())
    }

    /// Makes an id that begins as those of this run do, and ends with this text.
    pub(super) fn raw_id(&self, text: &str) -> Result<RecordId, String> {
        let id = format!("{}#{text}", self.namespace.as_str());
        Key::raw("conformance", id)
            .resolve(&self.namespace, usize::MAX)
            .map_err(|error| error.to_string())
    }

    /// Returns the number of bytes that the text of a [raw id](Self::raw_id) may have.
    pub(super) fn most_of_a_raw_id(&self) -> usize {
        let most = self.store.max_id_bytes().min(MAX_ID_BYTES);
        most.saturating_sub(self.namespace.as_str().len() + 1)
    }

    /// Makes a claim with its own owner, on the record of this name.
    pub(super) fn claim(&self, name: &str) -> Result<NewClaim, String> {
        Ok(NewClaim {
            id: self.id(name)?,
            owner: owner()?,
            fingerprint: Some(Fingerprint::bytes(name.as_bytes())),
            attempt: 1,
            lease: self.now + Duration::from_mins(1),
            expiration: self.in_a_day(),
            started_at: self.now,
        })
    }

    /// Makes such a claim, and writes it.
    pub(super) async fn claimed(&self, name: &str) -> Result<NewClaim, String> {
        let claim = self.claim(name)?;
        self.applies("a first claim", claim.clone()).await?;
        Ok(claim)
    }

    pub(super) fn completion(&self, claim: &NewClaim, text: &str) -> Completion {
        Completion {
            id: claim.id.clone(),
            owner: claim.owner.clone(),
            status: Status::Completed,
            outcome: StoredOutcome::Inline(text.to_owned()),
            completed_at: self.now + Duration::from_millis(5),
            expiration: (self.now + Duration::from_hours(48)).ceil_seconds(),
        }
    }

    #[allow(clippy::unused_self, reason = "all requests are made by the bench")]
    pub(super) fn release(&self, claim: &NewClaim) -> Result<Release, String> {
        Ok(Release {
            id: claim.id.clone(),
            owner: claim.owner.clone(),
            tombstone: owner()?,
            last_error: Some("conformance::Error".to_owned()),
            forget_fingerprint: true,
        })
    }

    pub(super) fn renewal(&self, claim: &NewClaim, lease: EpochMillis) -> RecordWrite {
        RecordWrite::Renew {
            id: claim.id.clone(),
            owner: claim.owner.clone(),
            lease,
            expiration: (self.now + Duration::from_hours(72)).ceil_seconds(),
        }
    }

    pub(super) fn in_a_day(&self) -> EpochSeconds {
        (self.now + Duration::from_hours(24)).ceil_seconds()
    }

    pub(super) async fn load(&self, id: &RecordId) -> Result<Option<Found>, String> {
        ok(self.store.load(id, soon()).await)
    }

    /// Loads the record, which must exist and be readable.
    pub(super) async fn record(&self, id: &RecordId) -> Result<Record, String> {
        let found = self.load(id).await?.ok_or("the record is gone")?;
        let record = found
            .content
            .map_err(|reason| format!("the record is unreadable: {reason}"))?;
        same(
            "the version beside the record",
            found.version,
            Version::of(&record),
        )?;
        Ok(*record)
    }

    /// Compares the record with the one that it must be.
    pub(super) async fn has(&self, id: &RecordId, expected: Record) -> Check {
        same("the record", self.record(id).await?, expected)
    }

    /// Checks that one of these claims applied, and that it holds the record.
    pub(super) async fn one_wins(
        &self,
        id: &RecordId,
        claims: &[NewClaim],
        answers: Vec<Result<Answer, String>>,
    ) -> Check {
        let mut winners = Vec::new();
        for (claim, answer) in claims.iter().zip(answers) {
            if answer?.is_applied() {
                winners.push(claim.owner.clone());
            }
        }
        let held_by = self.record(id).await?.owner;
        same("the winners", winners, held_by.into_iter().collect())
    }

    /// Sends a late write of the claim and another attempt's takeover at once: one of them must apply.
    /// `late` tells whether the write has.
    pub(super) async fn beside_a_takeover(
        &self,
        first: &NewClaim,
        late: impl Future<Output = Result<bool, String>>,
    ) -> Check {
        let takeover = resumed(first, &self.record(&first.id).await?)?;
        let (late, taken) = join(late, settled(|| self.store.write(&takeover, soon()))).await;
        let (late, taken) = (late?, taken?.is_applied());
        same("the late write beside the takeover", late, !taken)?;
        let owner = self.record(&first.id).await?.owner;
        let is_successors = owner.as_ref() == Some(takeover.owner());
        same("the successor's record", is_successors, taken)
    }

    pub(super) async fn write(&self, write: impl Into<RecordWrite>) -> Result<Answer, String> {
        ok(self.store.write(&write.into(), soon()).await)
    }

    /// Sends a write that must apply.
    pub(super) async fn applies(&self, what: &str, write: impl Into<RecordWrite>) -> Check {
        let answer = self.write(write).await?;
        same(what, answer.is_applied(), true)
    }

    /// Sends a write that must be refused, must leave the record as it was, and must answer with
    /// it.
    pub(super) async fn refused(&self, what: &str, write: impl Into<RecordWrite>) -> Check {
        let write = write.into();
        let before = self.load(write.id()).await?;
        let answer = self.write(write.clone()).await?;
        same(what, answer, Answer::Refused(before.clone()))?;
        let after = self.load(write.id()).await?;
        same(&format!("the record after {what}"), after, before)
    }
}

/// Makes another attempt's claim over the record that was seen.
pub(super) fn resumed(first: &NewClaim, seen: &Record) -> Result<RecordWrite, String> {
    let claim = NewClaim {
        owner: owner()?,
        attempt: 2,
        ..first.clone()
    };
    Ok(RecordWrite::TakeOver {
        seen: Version::of(seen),
        mode: Takeover::Resume,
        claim,
    })
}

pub(super) fn owner() -> Result<Owner, String> {
    Owner::random().map_err(|error| error.to_string())
}

pub(super) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Makes the call until the store doesn't ask for it again.
pub(super) async fn settled<T, Fut>(call: impl Fn() -> Fut) -> Result<T, String>
where
    Fut: Future<Output = Result<T, StoreError>>,
{
    loop {
        match call().await {
            Err(StoreError::Conflict | StoreError::Throttled(_)) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            answer => return ok(answer),
        }
    }
}

pub(super) fn ok<T>(result: Result<T, StoreError>) -> Result<T, String> {
    result.map_err(|error| format!("the store failed: {error}"))
}

/// Checks the answer to a call whose deadline had passed.
pub(super) fn not_sent<T: Debug>(what: &str, answer: &Result<T, StoreError>) -> Check {
    match answer {
        Err(StoreError::NotSent) => Ok(()),
        other => Err(format!(
            "{what} after its deadline: expected `NotSent`, found {other:?}"
        )),
    }
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "most arguments are made for this call"
)]
pub(super) fn same<T: Debug + PartialEq>(what: &str, found: T, expected: T) -> Check {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:?}, found {found:?}"))
}

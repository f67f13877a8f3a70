//! Every promise of the [`Store`] contract, as a check that a store passes or fails.

use std::fmt::Debug;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{Clock, EpochMillis, EpochSeconds, SystemClock};
use crate::error::StoreError;
use crate::fingerprint::Fingerprint;
use crate::key::{Key, Namespace, RecordId};
use crate::record::{
    Completion, Found, NewClaim, Owner, Record, Release, Renewal, Status, StoredOutcome, Version,
};
use crate::store::{Answer, Store};

mod claims;
mod commits;
mod fence;
mod groups;
mod journal;
mod limits;
mod oversize;
mod takeovers;

/// A promise of the [`Store`] contract that a store broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store breaks its contract: {case}: {detail}")]
#[non_exhaustive]
pub struct Violation {
    /// The check that failed, as a sentence.
    pub case: &'static str,
    /// What was expected, and what came.
    pub detail: String,
}

/// What a check says: nothing, or what was wrong.
type Check = Result<(), String>;

/// Checks a store against the contract of [`Store`]: every condition, what a refusal answers with, concurrent writes, late
/// duplicates, the grouped calls; and transactions, where the store has them.
///
/// It uses ids of its own, so the store may hold other records. It needs a Tokio runtime, and a few hundred calls.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_idempotency::testing::Violation> {
/// use lambda_idempotency::{store::MemoryStore, testing::conformance};
///
/// conformance(&MemoryStore::new()).await
/// # }
/// ```
///
/// # Errors
///
/// The first [`Violation`] found.
pub async fn conformance<S: Store>(store: &S) -> Result<(), Violation> {
    let bench = Bench::new(store).map_err(|detail| Violation {
        case: "the bench is set up",
        detail,
    })?;
    macro_rules! check {
        ($($room:ident :: $case:ident),* $(,)?) => {
            // Boxed, so that the future of the suite isn't as large as those of all checks together.
            $(Box::pin($room::$case(&bench)).await.map_err(|detail| Violation {
                case: stringify!($case),
                detail,
            })?;)*
        };
    }
    check! {
        claims::a_claim_on_a_fresh_key_applies_and_is_read_back_whole,
        claims::a_claim_on_a_taken_key_is_refused_with_what_it_met,
        claims::a_repeated_claim_meets_itself,
        claims::of_many_claims_at_once_one_applies,
        claims::an_absent_key_is_read_as_absent,
        claims::a_claim_without_a_fingerprint_has_none,
        fence::the_owner_completes,
        fence::a_failure_is_final_too,
        fence::every_outcome_comes_back_as_it_was,
        fence::nobody_else_completes,
        fence::a_completed_record_is_final,
        fence::the_owner_releases,
        fence::a_release_may_keep_the_fingerprint,
        fence::a_released_record_ignores_its_old_owner,
        fence::nobody_else_releases,
        fence::a_renewal_only_lengthens,
        fence::an_amendment_changes_nothing_else,
        fence::writes_under_the_fence_create_nothing,
        journal::every_step_comes_back_as_it_was,
        journal::a_note_replaces_an_older_one_alone,
        journal::nobody_else_notes_a_step,
        journal::a_release_and_a_takeover_keep_the_journal,
        journal::a_fresh_takeover_forgets_the_journal,
        takeovers::a_resumed_record_keeps_its_last_error,
        takeovers::a_fresh_takeover_keeps_nothing,
        takeovers::a_takeover_needs_the_exact_version,
        takeovers::an_absent_attribute_must_still_be_absent,
        takeovers::of_many_takeovers_at_once_one_applies,
        takeovers::the_predecessor_is_fenced_out,
        takeovers::a_late_claim_does_not_apply_after_a_release,
        groups::grouped_claims_answer_in_order,
        groups::grouped_completions_answer_in_order,
        groups::grouped_releases_answer_in_order,
        groups::grouped_reads_answer_in_order,
        groups::a_large_group_is_taken,
        groups::an_empty_group_is_answered,
        oversize::what_is_kept_comes_back_byte_for_byte,
        oversize::each_owner_has_an_outcome_of_its_own,
        oversize::nothing_is_kept_after_the_deadline,
        limits::a_passed_deadline_writes_nothing,
        limits::a_read_sees_the_write_before_it,
    }
    if store.admission().is_some() {
        check! {
            commits::a_commit_completes_the_owners_claim,
            commits::a_commit_sent_again_changes_nothing,
            commits::nobody_else_commits,
            commits::a_commit_without_a_claim_needs_a_fresh_key,
            commits::a_commit_over_a_record_needs_its_exact_version,
            commits::of_many_commits_at_once_one_applies,
            commits::a_commit_after_its_deadline_writes_nothing,
        }
    }
    Ok(())
}

/// A store under test, with what the checks need to talk to it.
struct Bench<'a, S> {
    store: &'a S,
    namespace: Namespace,
    now: EpochMillis,
}

impl<'a, S: Store> Bench<'a, S> {
    fn new(store: &'a S) -> Result<Self, String> {
        let run = owner()?;
        let namespace = Namespace::new(format!("conformance-{}", run.as_str()))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            store,
            namespace,
            now: SystemClock.now(),
        })
    }

    fn id(&self, name: &str) -> Result<RecordId, String> {
        Key::new("conformance", name)
            .resolve(&self.namespace, usize::MAX)
            .map_err(|error| error.to_string())
    }

    /// A claim that nobody else has, on the record of this name.
    fn claim(&self, name: &str) -> Result<NewClaim, String> {
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

    /// The same, written.
    async fn claimed(&self, name: &str) -> Result<NewClaim, String> {
        let claim = self.claim(name)?;
        let answer = ok(self.store.create(&claim, soon()).await)?;
        same("a first claim", answer, Answer::Applied(()))?;
        Ok(claim)
    }

    fn completion(&self, claim: &NewClaim, text: &str) -> Completion {
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
    fn release(&self, claim: &NewClaim) -> Result<Release, String> {
        Ok(Release {
            id: claim.id.clone(),
            owner: claim.owner.clone(),
            tombstone: owner()?,
            last_error: Some("conformance::Error".to_owned()),
            forget_fingerprint: true,
        })
    }

    fn renewal(&self, claim: &NewClaim, lease: EpochMillis) -> Renewal {
        Renewal {
            id: claim.id.clone(),
            owner: claim.owner.clone(),
            lease,
            expiration: (self.now + Duration::from_hours(72)).ceil_seconds(),
        }
    }

    fn in_a_day(&self) -> EpochSeconds {
        (self.now + Duration::from_hours(24)).ceil_seconds()
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Found>, String> {
        ok(self.store.load(id, soon()).await)
    }

    /// The record, which must be there and readable.
    async fn record(&self, id: &RecordId) -> Result<Record, String> {
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

    /// Runs a write that must be refused, and must leave the record as it was and answer with it.
    async fn refused<T: Debug + PartialEq>(
        &self,
        what: &str,
        id: &RecordId,
        write: impl Future<Output = Result<Answer<T>, StoreError>>,
    ) -> Check {
        let before = self.load(id).await?;
        let answer = ok(write.await)?;
        same(what, answer, Answer::Refused(before.clone()))?;
        same(
            &format!("the record after {what}"),
            self.load(id).await?,
            before,
        )
    }
}

fn owner() -> Result<Owner, String> {
    Owner::random().map_err(|error| error.to_string())
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn ok<T>(result: Result<T, StoreError>) -> Result<T, String> {
    result.map_err(|error| format!("the store failed: {error}"))
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "most arguments are made for this call"
)]
fn same<T: Debug + PartialEq>(what: &str, found: T, expected: T) -> Check {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:?}, found {found:?}"))
}

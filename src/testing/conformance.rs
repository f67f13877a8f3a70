//! Checks every promise of the [`Store`] contract.

use bench::Bench;

use crate::store::Store;
use crate::testing::error::TestError;

mod bench;
mod claims;
mod commits;
mod fence;
mod groups;
mod journal;

/// Checks a store against the contract of [`Store`]: every condition, the record in each refusal,
/// concurrent writes, late duplicates, the grouped calls; and transactions, where the store has
/// them.
///
/// It uses ids of its own, so the store may hold other records. It needs a Tokio runtime, and a few
/// hundred calls.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_idempotency::testing::TestError> {
/// use lambda_idempotency::{store::MemoryStore, testing::conformance};
///
/// conformance(&MemoryStore::new()).await
/// # }
/// ```
///
/// # Errors
///
/// The first [violation](TestError::Violation) found.
pub async fn conformance(store: &impl Store) -> Result<(), TestError> {
    let bench = Bench::new(store).map_err(|detail| TestError::Violation {
        case: "the bench is set up",
        detail,
    })?;
    macro_rules! check {
        ($($room:ident :: $case:ident),* $(,)?) => {
            // Boxed, so that the future of the suite isn't as large as those of all checks
            // together.
            $(Box::pin($room::$case(&bench)).await.map_err(|detail| TestError::Violation {
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
        claims::ids_that_look_alike_have_their_own_records,
        fence::the_owner_completes,
        fence::a_failure_is_final_too,
        fence::every_outcome_comes_back_as_it_was,
        fence::times_of_the_year_9999_come_back_as_they_were,
        fence::nobody_else_completes,
        fence::a_completed_record_is_final,
        fence::the_owner_releases,
        fence::a_release_may_keep_the_fingerprint,
        fence::a_released_record_ignores_its_old_owner,
        fence::nobody_else_releases,
        fence::a_renewal_only_lengthens,
        fence::writes_under_the_fence_create_nothing,
        journal::every_step_comes_back_as_it_was,
        journal::a_note_replaces_an_older_one_alone,
        journal::of_two_notes_at_once_both_stand,
        journal::nobody_else_notes_a_step,
        journal::a_release_and_a_takeover_keep_the_journal,
        journal::a_fresh_takeover_forgets_the_journal,
        claims::a_resumed_record_keeps_its_last_error,
        claims::an_unstarted_record_loses_its_last_error,
        claims::a_fresh_takeover_keeps_nothing,
        claims::a_takeover_keeps_no_fingerprint,
        claims::a_takeover_needs_the_exact_version,
        claims::an_absent_attribute_must_still_be_absent,
        claims::of_many_takeovers_at_once_one_applies,
        claims::the_predecessor_is_fenced_out,
        claims::a_late_claim_does_not_apply_after_a_release,
        fence::of_a_takeover_and_a_late_write_at_once_one_applies,
        fence::an_operator_ends_a_record_of_any_status,
        fence::an_intervention_may_change_all_steps_of_a_saga,
        fence::an_intervention_needs_the_exact_version,
        fence::an_intervention_with_an_older_step_is_refused,
        fence::of_an_intervention_and_a_late_write_at_once_one_applies,
        fence::a_note_beside_the_end_of_its_claim_restores_nothing,
        groups::grouped_claims_answer_in_order,
        groups::grouped_completions_answer_in_order,
        groups::grouped_releases_answer_in_order,
        groups::a_mixed_group_answers_in_order,
        groups::grouped_reads_answer_in_order,
        groups::a_large_group_is_taken,
        groups::an_empty_group_is_answered,
        groups::a_group_after_its_deadline_is_not_sent,
        journal::what_is_kept_comes_back_byte_for_byte,
        journal::each_owner_has_an_outcome_of_its_own,
        journal::nothing_is_kept_after_the_deadline,
        claims::a_passed_deadline_writes_nothing,
        claims::a_read_sees_the_write_before_it,
    }
    if store.admission().is_some() {
        check! {
            commits::a_commit_completes_the_owners_claim,
            commits::a_commit_sent_again_changes_nothing,
            commits::nobody_else_commits,
            commits::a_commit_without_a_claim_needs_a_fresh_key,
            commits::a_commit_over_a_record_needs_its_exact_version,
            commits::of_many_commits_at_once_one_applies,
            commits::of_a_takeover_and_a_late_commit_at_once_one_applies,
            commits::a_commit_after_its_deadline_writes_nothing,
        }
    }
    Ok(())
}

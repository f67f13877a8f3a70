//! Every store keeps the contract; and the suite that says so can fail.

use std::num::NonZeroU16;
use std::time::Duration;

use aws_sdk_dynamodb::types::KeyType;
use lambda_idempotency::RecordId;
use lambda_idempotency::StoreError;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::protocol::record::{
    Found, NewClaim, Record, RecordWrite, Takeover, Version,
};
use lambda_idempotency::store::transaction::{Commit, Committed, Write, WriteError};
use lambda_idempotency::store::{Answer, MemoryStore, Store};
use lambda_idempotency::testing::{TestError, conformance};
use tokio::sync::RwLock;
use tokio::time::Instant;

use crate::on_each_server;
use crate::support::Server;
use crate::support::server::unique;

mod arn;
mod transacting;

#[tokio::test(start_paused = true)]
async fn the_memory_store_keeps_the_contract() {
    conformance(&MemoryStore::new()).await.unwrap();
}

on_each_server!(the_dynamodb_store_keeps_the_contract);
async fn the_dynamodb_store_keeps_the_contract(server: Server) {
    conformance(&server.store().await).await.unwrap();
}

on_each_server!(it_keeps_the_contract_under_other_names_and_a_composite_key);
async fn it_keeps_the_contract_under_other_names_and_a_composite_key(server: Server) {
    let table = unique("composite");
    server
        .create_table(&table, &[("pk", KeyType::Hash), ("sk", KeyType::Range)])
        .await;
    let store = DynamoDbStore::new(server.client(), table).layout(|layout| {
        layout.composite_key("pk", "idempotency", "sk");
        layout.status = "state".into();
        layout.expiration = "ttl".into();
        layout.in_progress_expiration = "lease".into();
        layout.data = "outcome".into();
        layout.validation = "fingerprint".into();
    });
    conformance(&store).await.unwrap();
}

on_each_server!(it_keeps_the_contract_in_records_that_are_spread);
async fn it_keeps_the_contract_in_records_that_are_spread(server: Server) {
    let table = unique("spread");
    server
        .create_table(&table, &[("pk", KeyType::Hash), ("sk", KeyType::Range)])
        .await;
    let store = DynamoDbStore::new(server.client(), table).layout(|layout| {
        layout.composite_key("pk", "idempotency", "sk");
        layout.spread = NonZeroU16::new(16).unwrap();
    });
    conformance(&store).await.unwrap();
}

/// The first check that a store fails; empty where it fails none.
async fn violated(store: &impl Store) -> &'static str {
    match conformance(store).await {
        Ok(()) => "",
        Err(TestError::Violation { case, .. }) => case,
        Err(other) => panic!("{other}"),
    }
}

/// A store that breaks one promise.
struct Broken<S> {
    inner: S,
    how: Flaw,
    /// A write at once with a commit in two steps comes between them.
    turn: RwLock<()>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    CompletesWithoutFence,
    ReleasesWithoutFence,
    FencesInTwoSteps,
    TakesOverByOwnerOnly,
    RefusesWithoutTheRecord,
    ShortensLeases,
    IgnoresDeadlines,
    ForgetsTheLastError,
    ForgetsTheOlderError,
    ForgetsTheStepsOfAnUnstarted,
    KeepsTheMark,
    TakesOlderNotes,
    LosesNotes,
    IntervenesUnderTheOldOwner,
    IntervenesOverAnything,
    IntervenesWithOlderSteps,
    AnswersGroupsBackwards,
    ReadsStale,
    CommitsWithoutFence,
    CommitsOverAnything,
    CommitsWithoutTheSteps,
    CommitsInTwoSteps,
    AmendsInTwoSteps,
    AmendsOverATakeover,
    IntervenesInTwoSteps,
    FoldsCase,
    CutsIds,
    GroupsIgnoreDeadlines,
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(9)
}

impl<S: Store> Broken<S> {
    fn new(inner: S, how: Flaw) -> Self {
        let turn = RwLock::default();
        Self { inner, how, turn }
    }

    async fn record(&self, id: &RecordId) -> Record {
        let found = self.inner.load(id, later()).await.unwrap();
        *found.unwrap().content.unwrap()
    }

    /// Reads, lets others write, and writes over what they wrote.
    async fn in_two_steps(&self, write: &mut RecordWrite) {
        match (self.how, write) {
            (
                Flaw::AmendsInTwoSteps | Flaw::AmendsOverATakeover,
                RecordWrite::Amend { id, owner, .. },
            ) => {
                let read = self.record(id).await;
                tokio::task::yield_now().await;
                let now = self.record(id).await;
                let overwrites = match self.how {
                    Flaw::AmendsInTwoSteps => now != read,
                    _ => now.owner != read.owner,
                };
                if !overwrites || read.owner.as_ref() != Some(&*owner) {
                    return;
                }
                let mut claim = NewClaim::new(
                    id.clone(),
                    owner.clone(),
                    read.started_at.unwrap(),
                    read.lease.unwrap(),
                    read.expiration,
                );
                claim.fingerprint = read.fingerprint;
                let restored = RecordWrite::TakeOver {
                    seen: Version::of(&now),
                    mode: Takeover::Fresh,
                    claim,
                };
                self.inner.write(&restored, later()).await.unwrap();
            }
            (Flaw::IntervenesInTwoSteps, RecordWrite::Intervene(intervention)) => {
                let read = self.record(&intervention.id).await;
                tokio::task::yield_now().await;
                if Version::of(&read) == intervention.seen {
                    intervention.seen = Version::of(&self.record(&intervention.id).await);
                }
            }
            _ => {}
        }
    }

    /// The id as the store keeps it.
    fn kept(&self, id: &RecordId) -> RecordId {
        let text = id.as_str();
        let kept = match self.how {
            Flaw::FoldsCase => text.to_ascii_lowercase(),
            Flaw::CutsIds => text.chars().take(1_000).collect(),
            _ => return id.clone(),
        };
        RecordId::stored(kept).unwrap()
    }
}

impl<S: Store> Store for Broken<S> {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        let _turn = self.turn.read().await;
        let found = self.inner.load(write.id(), later()).await?;
        let content = || found.as_ref().and_then(|found| found.content.as_ref().ok());
        let owner = || content().and_then(|record| record.owner.clone());
        let mut deadline = deadline;
        let mut write = write.clone();
        if found.is_some() {
            self.in_two_steps(&mut write).await;
        }
        match (self.how, &mut write) {
            (_, RecordWrite::Create(claim)) if self.kept(&claim.id) != claim.id => {
                claim.id = self.kept(&claim.id);
            }
            (Flaw::IgnoresDeadlines, RecordWrite::Create(_)) => deadline = later(),
            (Flaw::TakesOverByOwnerOnly, RecordWrite::TakeOver { seen, .. }) => {
                if let Some(found) = found.filter(|found| found.version.owner == seen.owner) {
                    *seen = found.version;
                }
            }
            (Flaw::ForgetsTheLastError, RecordWrite::TakeOver { mode, .. }) => {
                *mode = Takeover::Fresh;
            }
            (Flaw::ForgetsTheStepsOfAnUnstarted, RecordWrite::TakeOver { mode, .. })
                if *mode == Takeover::Unstarted =>
            {
                *mode = Takeover::Fresh;
            }
            (Flaw::KeepsTheMark, RecordWrite::TakeOver { mode, .. })
                if *mode == Takeover::Unstarted =>
            {
                *mode = Takeover::Resume;
            }
            (Flaw::CompletesWithoutFence, RecordWrite::Complete(completion)) if found.is_some() => {
                completion.owner = owner().unwrap();
            }
            (Flaw::ReleasesWithoutFence, RecordWrite::Release(release)) if found.is_some() => {
                release.owner = owner().unwrap();
            }
            (Flaw::ForgetsTheOlderError, RecordWrite::Release(release))
                if content().is_some_and(|record| record.last_error.is_some()) =>
            {
                release.last_error.get_or_insert_default();
            }
            (Flaw::FencesInTwoSteps, RecordWrite::Release(release))
                if found.is_some() && owner().as_ref() == Some(&release.owner) =>
            {
                tokio::task::yield_now().await;
                let found = self.inner.load(&release.id, later()).await?;
                release.owner = found.unwrap().content.unwrap().owner.unwrap();
            }
            (Flaw::ShortensLeases, RecordWrite::Renew { owner, .. }) => {
                if let Some(found) = found
                    && found.version.owner.as_deref() == Some(owner.as_str())
                    && found.version.status.as_deref() == Some("INPROGRESS")
                {
                    return Ok(Answer::Applied(None));
                }
            }
            (Flaw::TakesOlderNotes, RecordWrite::Amend { entry, .. }) => entry.revision += 100,
            (Flaw::LosesNotes, RecordWrite::Amend { owner, .. }) => {
                let owner = Some(owner.as_str());
                let held = |found: &Found| {
                    found.version.owner.as_deref() == owner
                        && found.version.status.as_deref() == Some("INPROGRESS")
                };
                if found.as_ref().is_some_and(held) {
                    return Ok(Answer::Applied(None));
                }
            }
            (Flaw::IntervenesUnderTheOldOwner, RecordWrite::Intervene(intervention))
                if found.is_some() =>
            {
                intervention.owner = owner().unwrap();
            }
            (Flaw::IntervenesOverAnything, RecordWrite::Intervene(intervention)) => {
                if let Some(found) = found {
                    intervention.seen = found.version;
                }
            }
            (Flaw::IntervenesWithOlderSteps, RecordWrite::Intervene(intervention)) => {
                let journal = found.and_then(|found| Some(found.content.ok()?.journal));
                let newer = intervention.steps.iter().map(|(name, entry)| {
                    let known = journal.as_ref().and_then(|known| known.get(name));
                    let next = known.map_or(1, |known| known.revision + 1);
                    let mut entry = entry.clone();
                    entry.revision = entry.revision.max(next);
                    (name, entry)
                });
                intervention.steps = newer.collect();
            }
            _ => {}
        }
        Ok(match self.inner.write(&write, deadline).await? {
            Answer::Refused(_) if self.how == Flaw::RefusesWithoutTheRecord => {
                Answer::Refused(None)
            }
            answer => answer,
        })
    }

    fn admission(&self) -> Option<fn(&[Write], &Write) -> Result<(), WriteError>> {
        self.inner.admission()
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        let mut record = commit.record.cloned().expect("a record");
        let turn = self.turn.write().await;
        let found = self.inner.load(&record.completion.id, later()).await?;
        drop(turn);
        match (self.how, &mut record.claim, found) {
            (Flaw::CommitsWithoutFence, None, Some(found)) => {
                record.completion.owner = found.content.unwrap().owner.expect("an owner");
            }
            (Flaw::CommitsOverAnything, Some(RecordWrite::TakeOver { seen, .. }), Some(found)) => {
                *seen = found.version;
            }
            (Flaw::CommitsWithoutTheSteps, Some(RecordWrite::TakeOver { mode, .. }), _)
                if *mode == Takeover::Unstarted =>
            {
                *mode = Takeover::Fresh;
            }
            (Flaw::CommitsInTwoSteps, None, Some(found))
                if found.version.owner.as_deref() == Some(record.completion.owner.as_str()) =>
            {
                let _turn = self.turn.write().await;
                let now = self.record(&record.completion.id).await;
                record.completion.owner = now.owner.expect("an owner");
            }
            _ => {}
        }
        let commit = Commit::new(commit.token, Some(&record), commit.writes);
        self.inner.commit(commit, deadline).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        if self.how == Flaw::ReadsStale {
            return Ok(None);
        }
        self.inner.load(&self.kept(id), deadline).await
    }

    async fn write_all(
        &self,
        writes: &[RecordWrite],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let deadline = match self.how {
            Flaw::GroupsIgnoreDeadlines => later(),
            // It is only single writes that do.
            Flaw::IgnoresDeadlines if Instant::now() >= deadline => {
                return writes.iter().map(|_| Err(StoreError::NotSent)).collect();
            }
            _ => deadline,
        };
        let mut answers = Vec::new();
        for write in writes {
            answers.push(self.write(write, deadline).await);
        }
        answers
    }

    async fn load_all(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        let mut answers = Vec::new();
        for id in ids {
            answers.push(self.load(id, deadline).await);
        }
        if self.how == Flaw::AnswersGroupsBackwards {
            answers.reverse();
        }
        answers
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_breaks_a_promise_is_found_out() {
    for (how, case) in [
        (Flaw::CompletesWithoutFence, "nobody_else_completes"),
        (Flaw::ReleasesWithoutFence, "the_owner_releases"),
        (
            Flaw::FencesInTwoSteps,
            "of_a_takeover_and_a_late_write_at_once_one_applies",
        ),
        (
            Flaw::TakesOverByOwnerOnly,
            "a_takeover_needs_the_exact_version",
        ),
        (
            Flaw::RefusesWithoutTheRecord,
            "a_claim_on_a_taken_key_is_refused_with_what_it_met",
        ),
        (Flaw::ShortensLeases, "a_renewal_only_lengthens"),
        (Flaw::IgnoresDeadlines, "a_passed_deadline_writes_nothing"),
        (
            Flaw::ForgetsTheLastError,
            "a_release_and_a_takeover_keep_the_journal",
        ),
        (
            Flaw::ForgetsTheOlderError,
            "a_resumed_record_keeps_its_last_error",
        ),
        (
            Flaw::ForgetsTheStepsOfAnUnstarted,
            "a_release_and_a_takeover_keep_the_journal",
        ),
        (
            Flaw::KeepsTheMark,
            "an_unstarted_record_loses_its_last_error",
        ),
        (Flaw::TakesOlderNotes, "every_step_comes_back_as_it_was"),
        (Flaw::LosesNotes, "every_step_comes_back_as_it_was"),
        (
            Flaw::IntervenesUnderTheOldOwner,
            "an_operator_ends_a_record_of_any_status",
        ),
        (
            Flaw::IntervenesOverAnything,
            "an_intervention_needs_the_exact_version",
        ),
        (
            Flaw::IntervenesWithOlderSteps,
            "an_intervention_with_an_older_step_is_refused",
        ),
        (
            Flaw::AnswersGroupsBackwards,
            "grouped_reads_answer_in_order",
        ),
        (
            Flaw::ReadsStale,
            "a_claim_on_a_fresh_key_applies_and_is_read_back_whole",
        ),
        (Flaw::AmendsInTwoSteps, "of_two_notes_at_once_both_stand"),
        (
            Flaw::AmendsOverATakeover,
            "a_note_beside_the_end_of_its_claim_restores_nothing",
        ),
        (
            Flaw::IntervenesInTwoSteps,
            "of_an_intervention_and_a_late_write_at_once_one_applies",
        ),
        (
            Flaw::FoldsCase,
            "ids_that_look_alike_have_their_own_records",
        ),
        (Flaw::CutsIds, "ids_that_look_alike_have_their_own_records"),
        (
            Flaw::GroupsIgnoreDeadlines,
            "a_group_after_its_deadline_is_not_sent",
        ),
    ] {
        let store = Broken::new(MemoryStore::new(), how);
        assert_eq!(violated(&store).await, case, "{how:?}");
    }
}

/// Runs all checks on a store with transactions that has the flaw. The checks take seconds, so each flaw
/// has its own test.
async fn found_out(how: Flaw, case: &str) {
    let inner = Server::dynoxide().await.store().await;
    assert_eq!(violated(&Broken::new(inner, how)).await, case);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_commits_without_its_fence_is_found_out() {
    found_out(Flaw::CommitsWithoutFence, "nobody_else_commits").await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_commits_over_anything_is_found_out() {
    let case = "a_commit_over_a_record_needs_its_exact_version";
    found_out(Flaw::CommitsOverAnything, case).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_commits_without_the_steps_is_found_out() {
    let case = "a_commit_over_a_record_needs_its_exact_version";
    found_out(Flaw::CommitsWithoutTheSteps, case).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_commits_in_two_steps_is_found_out() {
    let case = "of_a_takeover_and_a_late_commit_at_once_one_applies";
    found_out(Flaw::CommitsInTwoSteps, case).await;
}

//! Every store keeps the contract; and the suite that says so can fail.

use std::time::Duration;

use aws_sdk_dynamodb::types::KeyType;
use lambda_idempotency::RecordId;
use lambda_idempotency::StoreError;
use lambda_idempotency::record::{
    Amendment, Completion, Found, NewClaim, Owner, Release, Renewal, Takeover, Version,
};
use lambda_idempotency::store::dynamodb::{DynamoDbStore, TableLayout};
use lambda_idempotency::store::{Answer, MemoryStore, Store};
use lambda_idempotency::testing::conformance;
use lambda_idempotency::transaction::{Admission, Basis, Commit, Committed};
use tokio::time::Instant;

use crate::on_each_server;
use crate::support::Server;
use crate::support::server::unique;

mod transacting;

#[tokio::test]
async fn the_memory_store_keeps_the_contract() {
    conformance(&MemoryStore::new()).await.unwrap();
}

on_each_server! {
    async fn the_dynamodb_store_keeps_the_contract(server: Server) {
        conformance(&server.store().await).await.unwrap();
    }
}

on_each_server! {
    async fn it_keeps_the_contract_under_other_names_and_a_composite_key(server: Server) {
        let table = unique("composite");
        server.create_table(&table, &[("pk", KeyType::Hash), ("sk", KeyType::Range)]).await;
        let layout = TableLayout::default()
            .composite_key("pk", "idempotency", "sk")
            .status("state")
            .expiration("ttl")
            .in_progress_expiration("lease")
            .data("outcome")
            .validation("fingerprint");
        let store = DynamoDbStore::new(server.client(), table).layout(layout);
        conformance(&store).await.unwrap();
    }
}

/// A store that breaks one promise.
struct Broken<S> {
    inner: S,
    how: Flaw,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    CompletesWithoutFence,
    ReleasesWithoutFence,
    TakesOverByOwnerOnly,
    RefusesWithoutTheRecord,
    ShortensLeases,
    IgnoresDeadlines,
    ForgetsTheLastError,
    TakesOlderNotes,
    LosesNotes,
    AnswersGroupsBackwards,
    ReadsStale,
    CommitsWithoutFence,
    CommitsOverAnything,
}

impl<S: Store> Broken<S> {
    async fn owner_of(&self, id: &RecordId) -> Option<Owner> {
        let found = self.inner.load(id, later()).await.unwrap()?;
        found.content.unwrap().owner
    }
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(9)
}

impl<S: Store> Store for Broken<S> {
    async fn create(&self, claim: &NewClaim, deadline: Instant) -> Result<Answer, StoreError> {
        let deadline = if self.how == Flaw::IgnoresDeadlines {
            later()
        } else {
            deadline
        };
        let answer = self.inner.create(claim, deadline).await?;
        Ok(match answer {
            Answer::Refused(_) if self.how == Flaw::RefusesWithoutTheRecord => {
                Answer::Refused(None)
            }
            answer => answer,
        })
    }

    async fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        let mut seen = seen.clone();
        if self.how == Flaw::TakesOverByOwnerOnly
            && let Some(found) = self.inner.load(&claim.id, later()).await?
            && found.version.owner == seen.owner
        {
            seen = found.version;
        }
        let mode = if self.how == Flaw::ForgetsTheLastError {
            Takeover::Fresh
        } else {
            mode
        };
        self.inner.take_over(&seen, claim, mode, deadline).await
    }

    async fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let mut completion = completion.clone();
        if self.how == Flaw::CompletesWithoutFence
            && let Some(owner) = self.owner_of(&completion.id).await
        {
            completion.owner = owner;
        }
        self.inner.complete(&completion, deadline).await
    }

    async fn renew(&self, renewal: &Renewal, deadline: Instant) -> Result<Answer, StoreError> {
        if self.how == Flaw::ShortensLeases
            && let Some(found) = self.inner.load(&renewal.id, later()).await?
            && found.version.owner.as_deref() == Some(renewal.owner.as_str())
            && found.version.status.as_deref() == Some("INPROGRESS")
        {
            return Ok(Answer::Applied(()));
        }
        self.inner.renew(renewal, deadline).await
    }

    async fn amend(&self, amendment: &Amendment, deadline: Instant) -> Result<Answer, StoreError> {
        let mut amendment = amendment.clone();
        match self.how {
            Flaw::TakesOlderNotes => {
                if let Some(note) = &mut amendment.step {
                    note.entry.revision += 100;
                }
            }
            Flaw::LosesNotes => amendment.step = None,
            _ => {}
        }
        self.inner.amend(&amendment, deadline).await
    }

    async fn release(&self, release: &Release, deadline: Instant) -> Result<Answer, StoreError> {
        let mut release = release.clone();
        if self.how == Flaw::ReleasesWithoutFence
            && let Some(owner) = self.owner_of(&release.id).await
        {
            release.owner = owner;
        }
        self.inner.release(&release, deadline).await
    }

    fn admission(&self) -> Option<Admission> {
        self.inner.admission()
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        let mut record = commit.record.cloned().expect("a record");
        let found = self.inner.load(&record.completion.id, later()).await?;
        match (self.how, &mut record.basis, found) {
            (Flaw::CommitsWithoutFence, Basis::Claimed, Some(found)) => {
                record.completion.owner = found.content.unwrap().owner.expect("an owner");
            }
            (Flaw::CommitsOverAnything, Basis::Version { seen, .. }, Some(found)) => {
                *seen = found.version;
            }
            _ => {}
        }
        let commit = Commit {
            record: Some(&record),
            ..commit
        };
        self.inner.commit(commit, deadline).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        if self.how == Flaw::ReadsStale {
            return Ok(None);
        }
        self.inner.load(id, deadline).await
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

#[tokio::test]
async fn a_store_that_breaks_a_promise_is_found_out() {
    for (how, case) in [
        (Flaw::CompletesWithoutFence, "nobody_else_completes"),
        (Flaw::ReleasesWithoutFence, "the_owner_releases"),
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
        (Flaw::TakesOlderNotes, "every_step_comes_back_as_it_was"),
        (Flaw::LosesNotes, "every_step_comes_back_as_it_was"),
        (
            Flaw::AnswersGroupsBackwards,
            "grouped_reads_answer_in_order",
        ),
        (
            Flaw::ReadsStale,
            "a_claim_on_a_fresh_key_applies_and_is_read_back_whole",
        ),
    ] {
        let store = Broken {
            inner: MemoryStore::new(),
            how,
        };
        let violation = conformance(&store)
            .await
            .expect_err(&format!("{how:?} must be found"));
        assert_eq!(violation.case, case, "{how:?}: {violation}");
    }
}

#[tokio::test]
async fn a_store_that_breaks_a_promise_of_its_transactions_is_found_out() {
    for (how, case) in [
        (Flaw::CommitsWithoutFence, "nobody_else_commits"),
        (
            Flaw::CommitsOverAnything,
            "a_commit_over_a_record_needs_its_exact_version",
        ),
    ] {
        let inner = Server::dynoxide().await.store().await;
        let violation = conformance(&Broken { inner, how })
            .await
            .expect_err(&format!("{how:?} must be found"));
        assert_eq!(violation.case, case, "{how:?}: {violation}");
    }
}

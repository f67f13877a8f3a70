//! Checks `commit`: the record's part of a transaction, for stores that have any. Each store tests
//! the business writes itself.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::bench::{Bench, Check, not_sent, ok, owner, same, settled, soon};
use super::fence::{amendment, finished};
use crate::protocol::journal::Journal;
use crate::protocol::record::{
    Final, Found, NewClaim, Record, RecordWrite, StoredOutcome, Takeover, Version,
};
use crate::store::StoreError;
use crate::store::transaction::{Commit, Committed};

impl Bench<'_> {
    /// Makes the commit of a claim that was written before.
    fn final_of(&self, claim: &NewClaim, text: &str) -> Final {
        Final {
            completion: self.completion(claim, text),
            claim: None,
        }
    }

    /// Makes the commit of a run without a claim, on a fresh key.
    fn final_with(&self, claim: &NewClaim, text: &str) -> Final {
        Final {
            claim: Some(claim.clone().into()),
            ..self.final_of(claim, text)
        }
    }

    async fn commit(&self, record: &Final, deadline: Instant) -> Result<Committed, StoreError> {
        // The text of the completion is in the token, so that a repeated send has the same token,
        // and another commit another.
        let text = match &record.completion.outcome {
            StoredOutcome::Inline(text) => text.as_str(),
            _ => "",
        };
        let owner = record.completion.owner.as_str();
        let token = format!("{owner}{text}");
        let commit = Commit {
            token: &token,
            record: Some(record),
            writes: &[],
        };
        self.store.commit(commit, deadline).await
    }

    async fn commits(&self, what: &str, record: &Final) -> Check {
        match ok(self.commit(record, soon()).await)? {
            Committed::Applied => Ok(()),
            other => Err(format!("{what}: expected it to apply, found {other:?}")),
        }
    }

    /// Sends a commit that must meet a record, and must leave it as it was.
    async fn fenced(&self, what: &str, record: &Final) -> Check {
        let id = &record.completion.id;
        let before = self.load(id).await?;
        match ok(self.commit(record, soon()).await)? {
            Committed::Fenced(found) => same(what, found, before.clone())?,
            other => return Err(format!("{what}: expected the fence, found {other:?}")),
        }
        same(
            &format!("the record after {what}"),
            self.load(id).await?,
            before,
        )
    }
}

pub(super) async fn a_commit_completes_the_owners_claim(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("commit").await?;
    let record = bench.final_of(&claim, "1");
    bench.commits("the owner's commit", &record).await?;
    let expected = finished(&claim, &record.completion);
    bench.has(&claim.id, expected).await?;
    let other = bench.final_of(&claim, "2");
    bench.fenced("a second commit", &other).await
}

/// The reply may have been lost. The store recognises the copy by its token, or shows the record
/// that the first one left.
pub(super) async fn a_commit_sent_again_changes_nothing(bench: &Bench<'_>) -> Check {
    let claimed = bench.claimed("commit-again").await?;
    let fresh = bench.claim("commit-again-fresh")?;
    for record in [bench.final_of(&claimed, "1"), bench.final_with(&fresh, "1")] {
        bench.commits("the first send", &record).await?;
        let id = &record.completion.id;
        let left = bench.load(id).await?;
        match ok(bench.commit(&record, soon()).await)? {
            Committed::Applied => {}
            Committed::Fenced(found) => same("what the copy met", found, left.clone())?,
            other @ Committed::Refused(_) => return Err(format!("the copy: found {other:?}")),
        }
        same("the record", bench.load(id).await?, left)?;
    }
    Ok(())
}

pub(super) async fn nobody_else_commits(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("commit-theirs").await?;
    let stranger = NewClaim {
        owner: owner()?,
        ..claim.clone()
    };
    let record = bench.final_of(&stranger, "1");
    bench.fenced("a stranger's commit", &record).await?;
    bench.write(bench.release(&claim)?).await?;
    let late = bench.final_of(&claim, "1");
    bench.fenced("a commit after release", &late).await?;
    let nowhere = bench.claim("commit-nowhere")?;
    let record = bench.final_of(&nowhere, "1");
    bench.fenced("a commit without a claim", &record).await
}

pub(super) async fn a_commit_without_a_claim_needs_a_fresh_key(bench: &Bench<'_>) -> Check {
    let claim = bench.claim("commit-fresh")?;
    let record = bench.final_with(&claim, "1");
    bench.commits("a commit on a fresh key", &record).await?;
    let expected = finished(&claim, &record.completion);
    bench.has(&claim.id, expected).await?;
    let second = bench.claim("commit-fresh")?;
    let second = bench.final_with(&second, "2");
    bench.fenced("a second one", &second).await?;
    let taken = bench.claimed("commit-taken").await?;
    let record = bench.final_with(&taken, "1");
    bench.fenced("one on a claimed key", &record).await
}

pub(super) async fn a_commit_over_a_record_needs_its_exact_version(bench: &Bench<'_>) -> Check {
    for (name, mode) in [
        ("commit-resumed", Takeover::Resume),
        ("commit-unstarted", Takeover::Unstarted),
        ("commit-replaced", Takeover::Fresh),
    ] {
        let claim = bench.claimed(name).await?;
        bench.applies("a note", amendment(&claim)).await?;
        let stale = bench.load(&claim.id).await?;
        bench.write(bench.release(&claim)?).await?;
        let released = bench.record(&claim.id).await?;
        let next = NewClaim {
            attempt: 2,
            started_at: bench.now + Duration::from_millis(3),
            ..bench.claim(name)?
        };
        let over = |found: Option<Found>, text| Final {
            claim: Some(RecordWrite::TakeOver {
                seen: found.map_or_else(Version::default, |found| found.version),
                mode,
                claim: next.clone(),
            }),
            ..bench.final_of(&next, text)
        };
        let record = over(stale, "1");
        bench
            .fenced("a commit over a stale version", &record)
            .await?;
        let record = over(bench.load(&claim.id).await?, "2");
        bench
            .commits("a commit over the version that was seen", &record)
            .await?;
        let kept = (mode == Takeover::Resume)
            .then_some(released.last_error)
            .flatten();
        let expected = Record {
            last_error: kept,
            journal: match mode {
                Takeover::Fresh => Journal::default(),
                _ => released.journal,
            },
            ..finished(&next, &record.completion)
        };
        bench.has(&claim.id, expected).await?;
    }
    Ok(())
}

pub(super) async fn of_many_commits_at_once_one_applies(bench: &Bench<'_>) -> Check {
    let mut records = Vec::new();
    for text in 0..8 {
        let claim = bench.claim("commit-race")?;
        records.push(bench.final_with(&claim, &text.to_string()));
    }
    let answers = records
        .iter()
        .map(|record| settled(move || bench.commit(record, soon())));
    let mut applied = 0;
    for answer in join_all(answers).await {
        applied += usize::from(matches!(answer?, Committed::Applied));
    }
    same("the commits that applied", applied, 1)
}

/// A store that reads the owner and commits in a second request lets both apply.
pub(super) async fn of_a_takeover_and_a_late_commit_at_once_one_applies(
    bench: &Bench<'_>,
) -> Check {
    for number in 0..4 {
        let first = bench.claimed(&format!("commit-at-once-{number}")).await?;
        let record = bench.final_of(&first, "1");
        let late = async {
            let answer = settled(|| bench.commit(&record, soon())).await;
            answer.map(|answer| matches!(answer, Committed::Applied))
        };
        bench.beside_a_takeover(&first, late).await?;
    }
    Ok(())
}

pub(super) async fn a_commit_after_its_deadline_writes_nothing(bench: &Bench<'_>) -> Check {
    let claim = bench.claim("commit-late")?;
    let record = bench.final_with(&claim, "1");
    not_sent("a commit", &bench.commit(&record, Instant::now()).await)?;
    same("the record", bench.load(&claim.id).await?, None)
}

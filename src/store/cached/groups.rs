//! Grouped calls: what is remembered is answered here, the rest goes to the store behind, in one group.

use tokio::time::Instant;

use super::CachedStore;
use crate::error::StoreError;
use crate::key::RecordId;
use crate::record::{Completion, Found, NewClaim, Release};
use crate::store::{Answer, Store};

impl<S: Store> CachedStore<S> {
    pub(super) async fn create_group(
        &self,
        claims: &[NewClaim],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let (known, rest) = self.split(claims, |claim| &claim.id, deadline);
        let answers = match rest.as_slice() {
            [] => Vec::new(),
            rest => self.inner.create_all(rest, deadline).await,
        };
        for (claim, answer) in rest.iter().zip(&answers) {
            self.created(claim, answer);
        }
        weave(known, answers, |found| Answer::Refused(Some(found)))
    }

    pub(super) async fn complete_group(
        &self,
        completions: &[Completion],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let answers = self.inner.complete_all(completions, deadline).await;
        for (completion, answer) in completions.iter().zip(&answers) {
            self.completed(completion, answer);
        }
        answers
    }

    pub(super) async fn release_group(
        &self,
        releases: &[Release],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let answers = self.inner.release_all(releases, deadline).await;
        for (release, answer) in releases.iter().zip(&answers) {
            self.released(release, answer);
        }
        answers
    }

    pub(super) async fn load_group(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        let (known, rest) = self.split(ids, |id| id, deadline);
        let answers = match rest.as_slice() {
            [] => Vec::new(),
            rest => self.inner.load_all(rest, deadline).await,
        };
        for (id, answer) in rest.iter().zip(&answers) {
            if let Ok(found) = answer {
                self.met(id, found.as_ref());
            }
        }
        weave(known, answers, Some)
    }

    /// What is remembered, in the requests' places, and the requests for which nothing is.
    fn split<R: Clone>(
        &self,
        requests: &[R],
        id: impl Fn(&R) -> &RecordId,
        deadline: Instant,
    ) -> (Vec<Option<Found>>, Vec<R>) {
        let known: Vec<_> = requests
            .iter()
            .map(|request| self.remembered(id(request), deadline))
            .collect();
        let unknown = requests.iter().zip(&known);
        let rest = unknown.filter(|(_, known)| known.is_none());
        let rest = rest.map(|(request, _)| request.clone()).collect();
        (known, rest)
    }
}

/// The answers to all, in the order of the requests.
fn weave<A>(
    known: Vec<Option<Found>>,
    answers: Vec<Result<A, StoreError>>,
    answer: impl Fn(Found) -> A,
) -> Vec<Result<A, StoreError>> {
    let mut answers = answers.into_iter();
    let next = |known| match known {
        Some(found) => Some(Ok(answer(found))),
        None => answers.next(),
    };
    known.into_iter().map_while(next).collect()
}

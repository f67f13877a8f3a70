//! What is on the wire: writes that can be sent again, or later.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::StoreError;
use crate::record::{Amendment, Completion, Found, NewClaim, Release, Renewal, Takeover, Version};
use crate::store::{Answer, Store};

/// A write, frozen: each send of it is the same.
#[derive(Clone, Debug)]
pub(super) enum Sent {
    Create(NewClaim),
    TakeOver(Version, NewClaim, Takeover),
    Complete(Completion),
    Renew(Renewal),
    Amend(Amendment),
    Release(Release),
}

/// A write that arrives later.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) at: Instant,
    pub(super) write: Sent,
}

impl Sent {
    /// The answer, as that of a takeover; the caller drops the record again where none is shown.
    pub(super) async fn send<S: Store>(
        self,
        store: &S,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        let answer = match self {
            Self::TakeOver(seen, claim, mode) => {
                return store.take_over(&seen, &claim, mode, deadline).await;
            }
            Self::Create(claim) => store.create(&claim, deadline).await?,
            Self::Complete(completion) => store.complete(&completion, deadline).await?,
            Self::Renew(renewal) => store.renew(&renewal, deadline).await?,
            Self::Amend(amendment) => store.amend(&amendment, deadline).await?,
            Self::Release(release) => store.release(&release, deadline).await?,
        };
        Ok(answer.map(|()| Found::unreadable(Version::default(), "applied")))
    }
}

/// The deadline of a write that nobody waits for.
pub(super) fn answered_in_time() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

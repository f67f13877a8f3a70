//! The requests that a commit consists of: one token for all sends of each, and at most three
//! rounds.

use std::collections::VecDeque;

use super::*;
use crate::protocol::record::RecordWrite;

/// The store's answer to a send.
#[derive(Clone, Copy, Debug)]
enum Meets {
    Conflict,
    /// A record that another attempt released.
    Another,
    NoRoom,
    Success,
}

/// Each send meets what the test wants, and its token is kept.
#[derive(Debug)]
struct Tokens {
    meets: Mutex<VecDeque<Meets>>,
    sent: Mutex<Vec<String>>,
}

impl Script for Tokens {
    async fn commit(&self, _: At<'_>, commit: Commit<'_>) -> Result<Committed, StoreError> {
        let mut sent = self.sent.lock().unwrap();
        sent.push(commit.token.to_owned());
        let number = u32::try_from(sent.len()).unwrap();
        match self.meets.lock().unwrap().pop_front().unwrap() {
            Meets::Conflict => Err(StoreError::Conflict),
            Meets::NoRoom => Err(StoreError::TooLarge),
            Meets::Success => Ok(Committed::Applied),
            Meets::Another => {
                let Some(RecordWrite::Create(claim) | RecordWrite::TakeOver { claim, .. }) =
                    &commit.record.unwrap().claim
                else {
                    panic!("no claim came before")
                };
                let met = released_by_another(claim, number);
                Ok(Committed::Fenced(Some(met)))
            }
        }
    }
}

fn meeting(meets: &[Meets]) -> Bench<Tokens> {
    engine(Tokens {
        meets: Mutex::new(meets.iter().copied().collect()),
        sent: Mutex::default(),
    })
}

/// The tokens of one run, each as the place of the first send that had it.
async fn tokens(is_claimless: bool, meets: &[Meets]) -> Vec<usize> {
    let once = meeting(meets);
    let once = if is_claimless { once.claimless() } else { once };
    assert_eq!(write(&once).await.unwrap(), Outcome::Executed(1));
    let sent = once.store.script.sent.lock().unwrap();
    assert!(sent.iter().all(|token| token.len() <= 36), "{sent:?}");
    let first = |token| sent.iter().position(|other| other == token).unwrap();
    sent.iter().map(first).collect()
}

#[tokio::test(start_paused = true)]
async fn each_send_of_a_request_has_its_token_and_each_other_request_another() {
    use Meets::{Another, Conflict, NoRoom, Success};
    let claimed = tokens(false, &[Conflict, NoRoom, Conflict, Success]).await;
    assert_eq!(
        claimed,
        [0, 0, 2, 2],
        "without its outcome it is another request"
    );

    let rounds = [Conflict, Another, Conflict, Another, Success];
    assert_eq!(
        tokens(true, &rounds).await,
        [0, 0, 2, 2, 4],
        "each round is another request"
    );
    let both = [NoRoom, Another, Conflict, Success];
    assert_eq!(tokens(true, &both).await, [0, 1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_a_claim_that_lost_three_races_is_in_flight() {
    let once = meeting(&[Meets::Another; 3]).claimless();
    let lost = write(&once).await;
    assert_matches!(lost, Err(Error::InFlight { lease, .. }) if lease.is_zero());
    assert_eq!(once.store.script.sent.lock().unwrap().len(), 3);
}

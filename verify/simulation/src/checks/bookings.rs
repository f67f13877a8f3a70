//! The promises of transactions.

use lambda_idempotency::RecordId;

use super::{ahead, completions, is_expired, is_final, operator, those};
use crate::night::Night;
use crate::scenario::{Books, MARGIN};
use crate::watched::{Change, Kind};

/// Of each that books: its value was committed once, by whoever held the claim, or its booking is nowhere. A delivery that has no
/// answer to its commit and meets a record that an operator is rerunning commits once more: it is the next attempt.
pub fn bookings_match(night: &Night, ids: &[RecordId]) -> Vec<String> {
    let mut broken = Vec::new();
    for execution in &night.executions {
        let booked = night
            .bookings
            .iter()
            .filter(|(_, booking)| booking.value == execution.value)
            .count();
        let mut committed = 0;
        let mut repeated = 0;
        let mut asked = 0;
        let mut last = 0;
        for (change, _) in completions(night, i64::MAX).filter(|(change, value)| {
            change.id == ids[execution.key] && *value == Some(execution.value)
        }) {
            if committed > 0 && is_raised(night, change) {
                repeated += 1;
            } else {
                let is_asked = committed > 0 && operator::reran(night, &change.id, last, change.at);
                asked += usize::from(is_asked);
                committed += 1;
            }
            last = change.at;
        }
        let books = night
            .scenario
            .deliveries
            .get(execution.delivery)
            .is_some_and(|delivery| delivery.books != Books::Nothing);
        if committed > 1 + asked || (books && booked != committed) {
            broken.push(format!(
                "{execution:?}: booked {booked} times, completed {committed} times, and {repeated} times after it had expired"
            ));
        }
    }
    // Under the fence, or over nothing that was live.
    let wrong = those(&night.changes, |change| {
        change.kind == Kind::Commit
            && change.before.as_ref().is_some_and(|before| {
                let mine = before.owner == change.by && !is_final(before);
                let lease = before.lease.map_or(0, |lease| lease.0);
                let over = change.at + ahead(night) >= lease
                    && (!is_final(before)
                        || change.at + ahead(night) >= before.expiration.to_millis().0 + MARGIN);
                !mine && !over
            })
    });
    broken.extend(wrong);
    broken
}

/// Returns whether a completion repeats one that has expired, together with its claim.
fn is_raised(night: &Night, completion: &Change) -> bool {
    let is_claim = |change: &&Change| {
        matches!(change.kind, Kind::Create | Kind::Replace | Kind::Resume)
            && change.id == completion.id
            && change.by == completion.by
    };
    is_expired(completion) && night.changes.iter().filter(is_claim).count() > 1
}

//! An operator, whose tool reads a record, decides, and sends one write over what it read.

use std::time::Duration;

use fastrand::Rng;
use lambda_idempotency::protocol::journal::{StepEntry, StepState};
use lambda_idempotency::protocol::record::{
    Ended, Found, Intervention, Omission, Owner, Record, RecordWrite, Status, StoredOutcome,
};
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::testing::FaultyStore;
use lambda_idempotency::{EpochMillis, RecordId};
use tokio::time::Instant;

use crate::watched::Watched;
use crate::world::{World, millis};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    Release,
    /// Also while the attempt may still run.
    ReleaseLive,
    Redact,
    Rerun,
    /// The same, and confirmed steps fire again.
    RerunInFull,
}

impl Act {
    const ALL: [Self; 5] = [
        Self::Release,
        Self::ReleaseLive,
        Self::Redact,
        Self::Rerun,
        Self::RerunInFull,
    ];

    /// Returns the word for it that the record keeps.
    fn word(self) -> String {
        format!("{self:?} by an operator")
    }

    /// Returns the act with this word. Any other word is taken for the act that may do the least.
    pub fn of(word: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|act| act.word() == word).unwrap_or(Self::Redact)
    }
}

/// An operator's order to the tool.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Its reason, which no other order has.
    pub number: usize,
    pub at: i64,
    pub key: usize,
    pub act: Act,
    /// The time that the operator thinks, when the record has been read.
    pub thinks: i64,
}

/// The tool's entry for the orders that were carried out.
const ENTRY: &str = "@operator";

/// The number of times that the tool sends an unanswered write, and the number of times that the operator then gives the order.
const SENDS: usize = 4;
const TIMES: usize = 3;

/// Of the same seed as the night, whose other events stay as they are.
pub fn orders(seed: u64, keys: usize) -> Vec<Order> {
    let dice = &mut Rng::with_seed(seed ^ u64::from_be_bytes(*b"operator"));
    if dice.u8(0..4) > 0 {
        return Vec::new();
    }
    let order = |number| Order {
        number,
        at: dice.i64(0..70_000),
        key: dice.usize(0..keys),
        act: Act::ALL[dice.usize(0..Act::ALL.len())],
        thinks: [0, 0, 100, 5_000, 20_000][dice.usize(0..5)],
    };
    (0..6).map(order).collect()
}

/// An operator of one record.
pub struct Operator {
    pub world: World,
    pub table: FaultyStore,
    pub watched: Watched,
    pub id: RecordId,
}

impl Operator {
    /// Gives the order, and gives it again where no answer came.
    pub async fn carry_out(self, order: Order) {
        tokio::time::sleep(millis(order.at - self.world.elapsed())).await;
        for _ in 0..TIMES {
            if self.give(order).await {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Gives the order once, and tells whether there was an answer.
    async fn give(&self, order: Order) -> bool {
        let Ok(found) = self.table.load(&self.id, deadline()).await else {
            return false;
        };
        let Some(found) = found else { return true };
        let record = found
            .content
            .as_deref()
            .expect("a record that this crate wrote");
        let now = EpochMillis(self.world.now());
        if given(record).contains(&order.number.to_string()) {
            self.watched
                .reach("an operator's order that was carried out before");
            return true;
        }
        if !fits(order.act, record, now) {
            return true;
        }
        tokio::time::sleep(millis(order.thinks)).await;
        let write = RecordWrite::from(write(&self.id, &found, record, order, now));
        let is_own = |met: &Found| met.version.owner.as_deref() == Some(write.owner().as_str());
        for _ in 0..SENDS {
            match self.table.write(&write, deadline()).await {
                Ok(Answer::Refused(met)) => {
                    if !met.as_ref().is_some_and(is_own) {
                        self.watched
                            .reach("an operator's order over a record that moved");
                    }
                    return true;
                }
                Ok(_) => return true,
                Err(_) => {}
            }
        }
        false
    }
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(2)
}

/// The orders that were carried out on a record.
fn given(record: &Record) -> Vec<String> {
    let entry = record.journal.get(ENTRY).map(|entry| &entry.state);
    match entry {
        Some(StepState::Confirmed(Ok(text))) => text.split(',').map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Returns whether the tool lets the operator do it.
fn fits(act: Act, record: &Record, now: EpochMillis) -> bool {
    let is_final = record.status != Status::InProgress;
    let redacted = StoredOutcome::Omitted(Omission::Redacted);
    let is_live = !is_final && record.lease.is_some_and(|lease| now < lease);
    match act {
        _ if record.expiration.to_millis() <= now => false,
        Act::Release => record.status != Status::Completed && !record.is_released() && !is_live,
        Act::ReleaseLive => is_live,
        Act::Redact => is_final && record.outcome.as_ref() != Some(&redacted),
        Act::Rerun | Act::RerunInFull => is_final,
    }
}

fn write(
    id: &RecordId,
    found: &Found,
    record: &Record,
    order: Order,
    now: EpochMillis,
) -> Intervention {
    let steps = record.journal.iter().filter(|(name, _)| *name != ENTRY);
    let confirmed = steps.filter(|(_, entry)| matches!(entry.state, StepState::Confirmed(_)));
    let end = if order.act == Act::Redact {
        Ended::Final {
            status: record.status,
            outcome: StoredOutcome::Omitted(Omission::Redacted),
            completed_at: record.completed_at.unwrap_or(now),
        }
    } else {
        let last_error = Some(order.act.word());
        Ended::Released { last_error }
    };
    let state = match order.act {
        Act::Redact => Some(StepState::Confirmed(Err(Omission::Redacted))),
        Act::RerunInFull => Some(StepState::Failed),
        _ => None,
    };
    let mut notes = Vec::new();
    if let Some(state) = state {
        notes.extend(
            confirmed.map(|(name, entry)| (name, entry.ended(state.clone(), None, entry.at))),
        );
    }
    let mut all = given(record);
    all.push(order.number.to_string());
    let note = StepState::Confirmed(Ok(all.join(",")));
    let begun = StepEntry::begun(record.journal.get(ENTRY), now);
    notes.push((ENTRY, begun.ended(note, None, now)));
    let owner = Owner::from_stored(format!("{:032x}", fastrand::u128(..)));
    let expiration = match order.act {
        Act::Rerun | Act::RerunInFull => {
            let week = Duration::from_hours(7 * 24);
            record.expiration.max((now + week).ceil_seconds())
        }
        _ => record.expiration,
    };
    Intervention {
        id: id.clone(),
        seen: found.version.clone(),
        owner,
        expiration,
        steps: notes.into_iter().collect(),
        end,
    }
}

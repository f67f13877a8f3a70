//! The state of the world: what stands in the table, what each worker does, what is on the wire, and what an observer noted.

use std::time::Duration;

use lambda_idempotency::record::{
    Completion, NewClaim, Owner, Record, Release, StoredOutcome, Takeover, Version,
};
use lambda_idempotency::{EpochMillis, EpochSeconds};

/// One step of time, in milliseconds. Whole seconds, so that expirations are exact.
pub const TICK: i64 = 1_000;

/// The margin: two clocks within it never differ by more.
pub const MARGIN: Duration = Duration::from_millis(TICK as u64);

/// How long an attempt may run, without the margin.
pub const LEASE: Duration = Duration::from_millis(2 * TICK as u64);

/// How long an outcome is kept.
pub const RETENTION: Duration = Duration::from_millis(4 * TICK as u64);

/// All there is to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// In ticks.
    pub time: i64,
    /// By key.
    pub table: Vec<Option<Record>>,
    /// Business writes that committed: by key, the owners.
    pub booked: Vec<Vec<Owner>>,
    /// The last attempt of each key since it was last fresh.
    pub attempts: Vec<u32>,
    pub workers: Vec<Worker>,
    /// Copies of writes that the network still holds, sorted.
    pub late: Vec<(usize, Write)>,
    pub budget: Budget,
    /// The final outcome of each key since it was last fresh: by whom.
    pub outcome: Vec<Option<Final>>,
    /// The first thing that should not have happened.
    pub broken: Option<&'static str>,
}

/// A final outcome, as an observer wrote it down.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Final {
    pub owner: Owner,
    pub outcome: Option<StoredOutcome>,
    pub expiration: EpochSeconds,
}

/// How many faults of each class may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub crashes: u8,
    pub requests_lost: u8,
    pub replies_lost: u8,
    pub duplicates: u8,
    pub sweeps: u8,
    /// Completions by a library that has no fence.
    pub strangers: u8,
}

/// A process that serves one delivery after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    pub key: usize,
    /// Its clock, in ticks beside the true time.
    pub skew: i64,
    /// The payload that its deliveries carry.
    pub payload: u8,
    /// How many deliveries it still gets.
    pub deliveries: u8,
    /// How many owners it has made.
    pub owners: u8,
    pub phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Idle,
    /// A write is on its way; it is frozen, and sent again as it is.
    Sent {
        write: Box<Write>,
        rounds: u8,
        /// A commit without a reply, which this release is to settle.
        proves: Option<Box<Completion>>,
    },
    /// The handler runs.
    Running {
        hold: Hold,
    },
    /// The delivery has its answer.
    Answered(Answer),
}

/// What a worker believes to hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    pub owner: Owner,
    /// By the worker's clock: until when its lease lets it run.
    pub until: EpochMillis,
    pub keeps_fingerprint: bool,
}

/// What the caller gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Executed,
    Replayed,
    LeaseLost,
    Failed,
    Refused,
    Unknown,
}

/// A conditional write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    Create(NewClaim, bool),
    TakeOver(Version, NewClaim, Takeover, bool),
    Complete(Completion),
    /// A completion with a business write, in one transaction.
    Commit(Completion),
    Release(Release),
}

impl Write {
    pub fn owner(&self) -> &Owner {
        match self {
            Self::Create(claim, _) | Self::TakeOver(_, claim, _, _) => &claim.owner,
            Self::Complete(completion) | Self::Commit(completion) => &completion.owner,
            Self::Release(release) => &release.owner,
        }
    }

    /// In one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create(..) => "create",
            Self::TakeOver(..) => "take over",
            Self::Complete(_) => "complete",
            Self::Commit(_) => "commit",
            Self::Release(_) => "release",
        }
    }
}

impl World {
    /// What a worker's clock says.
    pub fn clock(&self, worker: &Worker) -> EpochMillis {
        EpochMillis((self.time + worker.skew) * TICK)
    }

    pub fn note(&mut self, broken: &'static str) {
        self.broken.get_or_insert(broken);
    }
}

impl World {
    /// Which write an action is about, in words.
    pub fn telling(&self, action: crate::checker::Action) -> String {
        use crate::checker::Action;
        let of = |w: usize| match self.workers.get(w).map(|worker| &worker.phase) {
            Some(Phase::Sent { write, .. }) => {
                format!(" ({} by {})", write.name(), write.owner().as_str())
            }
            _ => String::new(),
        };
        match action {
            Action::Exchange(w)
            | Action::LoseReply(w)
            | Action::LoseReplyAndGiveUp(w)
            | Action::LoseRequestAndGiveUp(w)
            | Action::Duplicate(w) => of(w),
            Action::Late(index) => self.late.get(index).map_or(String::new(), |(_, write)| {
                format!(" ({} by {})", write.name(), write.owner().as_str())
            }),
            Action::Tick => format!(" (tick {})", self.time + 1),
            _ => String::new(),
        }
    }
}

//! The state of the world: what stands in the table, what each worker does, what is on the wire, and what an observer noted.

use crate::labels::Labels;
use crate::values::{Completion, Journal, Name, Rec, Renewal, Reply, STEPS, Tick, Write};

pub const KEYS: usize = 2;
pub const WORKERS: usize = 4;

/// All there is to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct World {
    pub workers: [Worker; WORKERS],
    pub keys: [Key; KEYS],
    /// Copies of writes that the network still holds, sorted: key and write.
    pub late: Vec<(u8, Write)>,
    pub budget: Budget,
    /// The first thing that should not have happened.
    pub broken: Option<&'static str>,
    /// The number of names in use, which is the number of the next one.
    pub names: u8,
    pub labels: Labels,
}

/// A key: its record, and what an observer wrote down since it was last fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub rec: Option<Rec>,
    /// The last attempt's number.
    pub attempt: u8,
    /// The final outcome: by whom, and until when.
    pub outcome: Option<(Name, Tick)>,
    /// The owner whose business write committed.
    pub booked: Option<Name>,
    pub effects: [Effect; STEPS],
    /// An operator has released a live attempt, which may run on beside its successor.
    pub released_live: bool,
}

/// A step's effect at its provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Effect {
    /// The number of times that it was asked for: none, one, or more.
    pub fired: u8,
    /// The owner that asked first: a provider that honours keys answers the others with the same.
    pub first: Option<Name>,
    /// The result that was confirmed.
    pub confirmed: Option<Name>,
}

/// The number of faults of each class that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Budget {
    pub crashes: u8,
    pub requests_lost: u8,
    pub replies_lost: u8,
    /// Replies that come only after others have acted, or time has passed.
    pub replies_late: u8,
    /// Copies of writes that the network keeps.
    pub copies: u8,
    /// Deletions by TTL.
    pub sweeps: u8,
    /// Business conditions that fail.
    pub refusals: u8,
    /// Completions by a library that has no fence.
    pub strangers: u8,
    /// No fault: acts of operators.
    pub interventions: u8,
    /// No fault: renewals of leases.
    pub renewals: u8,
    /// No fault: ticks of time, where they are bounded.
    pub ticks: Option<u8>,
}

/// A process that serves one delivery after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Worker {
    pub phase: Phase,
    /// The number of deliveries that it still gets.
    pub deliveries: u8,
    /// Its claim, from the claim's reply to the end.
    pub hold: Option<Hold>,
    /// Only where a defect has it use its owner again.
    pub last: Option<Name>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The end of the last delivery is forgotten.
    #[default]
    Idle,
    /// The handler runs.
    Running,
    /// A write is on its way; it is frozen, and sent again as it is.
    Calling(Call),
    /// It was answered, and the answer is on its way.
    Answered(Call, Reply),
}

/// A write, and what its answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    pub write: Write,
    pub why: Why,
    /// An earlier send of this transaction got no answer.
    pub silent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// A read before anything: the delivery is known to be a repetition.
    Look,
    /// After so many rounds of decide and set.
    Claim { rounds: u8, keeps: bool },
    /// A claim in a group was refused, and is not told what it met.
    LookAgain { rounds: u8 },
    /// The last write of a success.
    End,
    /// The last write of a success without a claim.
    Apply { rounds: u8 },
    /// A release; the answer to the caller is known already.
    Release,
    /// A release that is to settle what became of a commit.
    Prove(Completion),
    /// A released record that is to keep the sends of a transaction without a claim from applying, after so many rounds.
    Fence { sent: Completion, rounds: u8 },
    /// A read that is to settle what became of a transaction without a claim.
    Find,
    /// A read after a handler without a claim has failed.
    Failed,
    /// A step's note.
    Note(Note),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Note {
    Begin,
    Confirm,
    /// The effect did not happen, or nobody knows.
    Fail,
    /// It will not fire.
    TakeBack,
}

/// The claim that a worker believes to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hold {
    pub owner: Name,
    pub attempt: u8,
    /// The time until which its lease lets it run.
    pub until: Tick,
    pub keeps: bool,
    pub journal: Journal,
    /// The step that comes next.
    pub step: u8,
    /// That step is noted, and its effect about to happen.
    pub firing: bool,
    /// Of its lease, among those that it has asked for.
    pub number: u8,
    /// A renewal on its way, beside the handler.
    pub renewal: Option<Renewal>,
    /// Without a claim: what a read found at the beginning.
    pub found: Option<Rec>,
    /// The key has become fresh since.
    pub outdated: bool,
}

/// The answer that the caller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    Executed,
    Replayed,
    LeaseLost,
    Failed,
    /// A business condition failed.
    Refused,
    Unknown,
    InFlight,
    Mismatch,
    Interrupted,
    TooLate,
    Unavailable,
}

impl Phase {
    /// The write on its way, or its answer.
    pub fn call(&self) -> Option<Call> {
        match *self {
            Self::Calling(call) | Self::Answered(call, _) => Some(call),
            Self::Idle | Self::Running => None,
        }
    }
}

impl Call {
    /// Returns whether any answer ends the delivery.
    pub fn is_last(&self) -> bool {
        matches!(
            self.why,
            Why::End | Why::Release | Why::Prove(_) | Why::Find | Why::Failed
        )
    }

    /// Returns whether no answer at all leads to another call.
    pub fn is_doubted(&self) -> bool {
        self.why == Why::End && self.write.books()
    }
}

impl Worker {
    /// Returns whether a handler is at work in it.
    pub fn is_executing(&self) -> bool {
        let phase = match self.phase {
            Phase::Running => true,
            Phase::Calling(call) | Phase::Answered(call, _) => matches!(call.why, Why::Note(_)),
            Phase::Idle => false,
        };
        phase && self.hold.is_some()
    }
}

impl Worker {
    /// Something of it that no name is part of.
    pub fn shape(&self) -> (u8, Tick, Tick) {
        let until = self.hold.map_or(Tick::MIN, |hold| hold.until);
        let (kind, tick) = match &self.phase {
            Phase::Idle => (0, 0),
            Phase::Running => (1, 0),
            Phase::Calling(call) => call.write.shape(2),
            Phase::Answered(call, _) => call.write.shape(16),
        };
        (kind + 32 * self.deliveries, until, tick)
    }
}

impl World {
    /// The sender of a transaction is told that nothing of it is written, now or later.
    pub fn deny(&mut self, key: usize, owner: Name) {
        if self.keys[key].booked == Some(owner) {
            self.note("14: what is refused, or not committed, was not written");
        }
        self.each_send(owner, |write| {
            if let Write::Commit { denied, .. } | Write::Apply { denied, .. } = write {
                *denied = true;
            }
        });
    }

    /// The key is fresh again: what was denied of it counts until then.
    pub fn pardon(&mut self, key: usize) {
        for (_, write) in self
            .late
            .iter_mut()
            .filter(|(of, _)| usize::from(*of) == key)
        {
            if let Write::Commit { denied, .. } | Write::Apply { denied, .. } = write {
                *denied = false;
            }
        }
    }

    /// All sends of an owner that have not arrived yet.
    pub fn each_send(&mut self, owner: Name, mut f: impl FnMut(&mut Write)) {
        let sent = self.workers.iter_mut().filter_map(|w| match &mut w.phase {
            Phase::Calling(call) | Phase::Answered(call, _) => Some(&mut call.write),
            _ => None,
        });
        let all = sent.chain(self.late.iter_mut().map(|(_, write)| write));
        all.filter(|write| write.owner() == owner).for_each(&mut f);
    }

    pub fn note(&mut self, broken: &'static str) {
        self.broken.get_or_insert(broken);
    }

    /// A name that nobody has.
    pub fn name(&mut self, w: usize, tombstone: bool) -> Name {
        let name = Name(self.names);
        self.labels.christen(name, w, tombstone);
        self.names += 1;
        name
    }
}

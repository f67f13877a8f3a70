//! The values that a state is made of, each as small as it can be. `real.rs` turns them into the library's own, and back.

/// Time, in ticks from now. Only differences matter to the protocol, so there is no beginning and no end.
pub type Tick = i8;

/// The most by which two clocks may differ.
pub const MARGIN: Tick = 1;

/// The most steps that a handler may have.
pub const STEPS: usize = 2;

/// The name of an owner: random bits, good for nothing but comparison. So which number it has means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub u8);

/// The outcome of a library that knows no owners.
pub const STRANGER: Name = Name(u8::MAX);

/// The value that an operator leaves instead of an outcome, or of a step's result.
pub const REDACTED: Name = Name(u8::MAX - 1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lease {
    None,
    Released,
    /// With its number among the leases that its owner has asked for, in rounds and by renewals: each is later than the last.
    Until(Tick, u8),
}

/// The journal's entry on a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    pub mark: Mark,
    pub revision: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mark {
    #[default]
    Absent,
    Pending,
    /// With the result that this owner's effect gave.
    Confirmed(Name),
    Failed,
}

pub type Journal = [Entry; STEPS];

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rec {
    pub owner: Name,
    pub done: bool,
    pub lease: Lease,
    pub expiration: Tick,
    pub attempt: u8,
    pub payload: Option<u8>,
    /// The owner whose outcome it is.
    pub outcome: Option<Name>,
    pub journal: Journal,
}

/// The version that a takeover compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Seen {
    Exactly {
        owner: Name,
        done: bool,
        lease: Lease,
        expiration: Tick,
    },
    /// One that will never stand again.
    Stale(Name),
}

impl Seen {
    pub fn of(rec: &Rec) -> Self {
        Self::Exactly {
            owner: rec.owner,
            done: rec.done,
            lease: rec.lease,
            expiration: rec.expiration,
        }
    }

    pub fn owner(self) -> Name {
        match self {
            Self::Exactly { owner, .. } | Self::Stale(owner) => owner,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    pub owner: Name,
    pub payload: u8,
    pub attempt: u8,
    pub lease: Tick,
    /// Of the lease.
    pub number: u8,
    pub expiration: Tick,
}

/// In the place of a lease's number: the claim is written as released, to fence off a key.
pub const ENDED: u8 = u8::MAX;

/// In the place of a payload: the claim is bound to none.
pub const UNBOUND: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Completion {
    pub owner: Name,
    pub expiration: Tick,
}

/// A write, frozen before it is first sent. The last one only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Write {
    Create(Claim),
    TakeOver {
        seen: Seen,
        fresh: bool,
        claim: Claim,
    },
    Complete(Completion),
    /// A completion with a business write, in one transaction; `applied`: an earlier send of it did; `denied`: its sender has been
    /// told that it never will.
    Commit {
        completion: Completion,
        applied: bool,
        denied: bool,
    },
    /// The same without a claim before it, over nothing, or over what was seen.
    Apply {
        over: Option<(Seen, bool)>,
        claim: Claim,
        completion: Completion,
        applied: bool,
        denied: bool,
    },
    Renew(Renewal),
    Amend {
        owner: Name,
        step: u8,
        entry: Entry,
    },
    Release {
        owner: Name,
        tombstone: Name,
        forgets: bool,
    },
    /// An operator's write over the record that it has seen.
    Intervene {
        seen: Seen,
        owner: Name,
        act: Act,
        expiration: Tick,
        /// Entries that it writes; an absent one stays as it is.
        steps: Journal,
    },
    Read(Name),
}

/// The act that an operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Act {
    /// The key of an attempt whose lease is over is given back.
    Release,
    /// The same, of one that may still run.
    ReleaseLive,
    /// The outcome and the results of steps are erased.
    Redact,
    /// The key of a final record is given back: its confirmed steps are skipped, or fire again.
    Rerun { repeats: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Renewal {
    pub owner: Name,
    pub lease: Tick,
    pub number: u8,
    pub expiration: Tick,
}

impl Write {
    pub fn owner(&self) -> Name {
        match *self {
            Self::Create(claim) | Self::TakeOver { claim, .. } | Self::Apply { claim, .. } => {
                claim.owner
            }
            Self::Complete(completion) | Self::Commit { completion, .. } => completion.owner,
            Self::Renew(renewal) => renewal.owner,
            Self::Amend { owner, .. }
            | Self::Release { owner, .. }
            | Self::Intervene { owner, .. }
            | Self::Read(owner) => owner,
        }
    }

    /// Returns whether it could make its owner the record's.
    pub fn claims(&self) -> bool {
        matches!(
            self,
            Self::Create(_) | Self::TakeOver { .. } | Self::Apply { .. } | Self::Intervene { .. }
        )
    }

    /// Returns whether a business write is in it.
    pub fn books(&self) -> bool {
        matches!(self, Self::Commit { .. } | Self::Apply { .. })
    }

    /// Returns whether it keeps the sends of a transaction without a claim from applying.
    pub fn fences_off(&self) -> bool {
        matches!(self, Self::Create(claim) | Self::TakeOver { claim, .. } if claim.number == ENDED)
    }

    /// Its kind, counted from a base, and one of its times.
    pub fn shape(&self, base: u8) -> (u8, Tick) {
        let (kind, tick) = match *self {
            Self::Create(claim) => (0, claim.lease),
            Self::TakeOver { claim, .. } => (1, claim.lease),
            Self::Complete(completion) => (2, completion.expiration),
            Self::Commit { completion, .. } => (3, completion.expiration),
            Self::Apply { completion, .. } => (4, completion.expiration),
            Self::Renew(renewal) => (5, renewal.lease),
            Self::Amend { entry, .. } => (6, Tick::from_ne_bytes([entry.revision])),
            Self::Release { .. } => (7, 0),
            Self::Intervene { expiration, .. } => (8, expiration),
            Self::Read(_) => (9, 0),
        };
        (base + kind, tick)
    }

    /// In few words.
    pub fn word(&self) -> &'static str {
        match self {
            _ if self.fences_off() => "fence off",
            Self::Create(_) => "create",
            Self::TakeOver { .. } => "take over",
            Self::Complete(_) => "complete",
            Self::Commit { .. } => "commit",
            Self::Apply { .. } => "commit without a claim",
            Self::Renew(_) => "renew",
            Self::Amend { entry, .. } => match entry.mark {
                Mark::Pending => "note: pending",
                Mark::Confirmed(_) => "note: confirmed",
                Mark::Failed | Mark::Absent => "note: failed",
            },
            Self::Release { .. } => "release",
            Self::Intervene { act, .. } => match act {
                Act::Release => "an operator's release",
                Act::ReleaseLive => "an operator's release of a live attempt",
                Act::Redact => "an operator's redaction",
                Act::Rerun { .. } => "an operator's rerun",
            },
            Self::Read(_) => "read",
        }
    }
}

/// The answer to a write: whether it applied, and the record, either the one that a takeover left or the one that was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reply {
    pub applied: bool,
    pub rec: Option<Rec>,
}

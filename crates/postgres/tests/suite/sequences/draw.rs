//! Draws the next write of a sequence: by few owners, at few times, so that the conditions hold about as
//! often as they don't.

use fastrand::Rng;
use lambda_idempotency::protocol::journal::{StepEntry, StepState};
use lambda_idempotency::protocol::packed::{PackedOutcome, Place};
use lambda_idempotency::protocol::record::{
    Completion, Found, NewClaim, Omission, Owner, Record, RecordWrite, Release, Status,
    StoredOutcome, Takeover, Version,
};
use lambda_idempotency::protocol::transition;
use lambda_idempotency::store::Answer;
use lambda_idempotency::{EpochMillis, EpochSeconds, Fingerprint, RecordId};

/// Texts that a statement, an array or JSON could take for its own part.
const TEXTS: [&str; 8] = [
    "a",
    "",
    "NULL",
    "it's \"quoted\" \\ {,}",
    "{\"n\":[1,null,\"\\u0000\"]}",
    "ünïcödé \u{1F980}",
    "line\nbreak\ttab",
    "$1 :name ? --",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    TakeOver,
    Renew,
    Amend,
    Complete,
    Release,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::Create,
        Self::TakeOver,
        Self::Renew,
        Self::Amend,
        Self::Complete,
        Self::Release,
    ];

    fn of(write: &RecordWrite) -> Self {
        match write {
            RecordWrite::Create(_) => Self::Create,
            RecordWrite::TakeOver { .. } => Self::TakeOver,
            RecordWrite::Renew { .. } => Self::Renew,
            RecordWrite::Amend { .. } => Self::Amend,
            RecordWrite::Complete(_) => Self::Complete,
            _ => Self::Release,
        }
    }
}

/// The writes to one record, and what the record is after them.
pub(super) struct Sequence {
    pub(super) id: RecordId,
    pub(super) model: Option<Record>,
    pub(super) sent: Vec<RecordWrite>,
    versions: Vec<Version>,
}

impl Sequence {
    pub(super) fn new(id: RecordId) -> Self {
        Self {
            id,
            model: None,
            sent: Vec::new(),
            versions: vec![Version::default()],
        }
    }

    pub(super) fn found(&self) -> Option<Found> {
        self.model.clone().map(Found::readable)
    }

    /// Applies the write to the model, and returns the answer that a store must give.
    pub(super) fn expect(&mut self, write: &RecordWrite) -> Answer {
        let left = transition(self.model.as_ref(), write);
        self.sent.push(write.clone());
        let Some(left) = left else {
            return Answer::Refused(self.found());
        };
        self.note(left);
        Answer::Applied(match write {
            RecordWrite::TakeOver { .. } => self.found(),
            _ => None,
        })
    }

    pub(super) fn note(&mut self, left: Record) {
        self.versions.push(Version::of(&left));
        self.model = Some(left);
    }

    /// The next write, of one of these kinds: a new one, or one that was sent before and comes late.
    pub(super) fn next(&self, rng: &mut Rng, kinds: &[Kind]) -> RecordWrite {
        let late = self.sent.iter().filter(|w| kinds.contains(&Kind::of(w)));
        let late: Vec<_> = late.collect();
        if !late.is_empty() && rng.u8(..6) == 0 {
            return late[rng.usize(..late.len())].clone();
        }
        let owner = match &self.model {
            Some(Record {
                owner: Some(own), ..
            }) if rng.u8(..4) > 0 => own.clone(),
            _ => owner(rng),
        };
        let id = self.id.clone();
        match kinds[rng.usize(..kinds.len())] {
            Kind::Create => self.claim(rng).into(),
            Kind::TakeOver => RecordWrite::TakeOver {
                seen: self.seen(rng),
                mode: [Takeover::Fresh, Takeover::Resume, Takeover::Unstarted][rng.usize(..3)],
                claim: self.claim(rng),
            },
            Kind::Renew => RecordWrite::Renew {
                id,
                owner,
                lease: lease(rng),
                expiration: expiration(rng),
            },
            Kind::Amend => {
                let (step, entry) = step(rng);
                RecordWrite::Amend {
                    id,
                    owner,
                    step,
                    entry,
                }
            }
            Kind::Complete => {
                let outcome = outcome(rng);
                let mut completion =
                    Completion::new(id, owner, outcome, lease(rng), expiration(rng));
                if rng.bool() {
                    completion.status = Status::Failed;
                }
                completion.into()
            }
            Kind::Release => Release {
                id,
                owner,
                tombstone: self::owner(rng),
                last_error: rng.bool().then(|| text(rng)),
                forget_fingerprint: rng.bool(),
            }
            .into(),
        }
    }

    pub(super) fn claim(&self, rng: &mut Rng) -> NewClaim {
        let mut claim = NewClaim::new(
            self.id.clone(),
            owner(rng),
            lease(rng),
            lease(rng),
            expiration(rng),
        );
        claim.attempt = rng.u32(1..4);
        claim.fingerprint = rng.bool().then(|| Fingerprint::bytes(text(rng).as_bytes()));
        claim
    }

    /// The version that is there, mostly; an earlier one, or one that never was, in one value.
    pub(super) fn seen(&self, rng: &mut Rng) -> Version {
        let last = self.versions.len() - 1;
        let place = if rng.u8(..4) > 0 {
            last
        } else {
            rng.usize(..=last)
        };
        let mut version = self.versions[place].clone();
        match rng.u8(..24) {
            0 => version.owner = Some(owner(rng).as_str().to_owned()),
            1 => version.owner = None,
            2 => version.status = Some(Status::Failed.as_str().to_owned()),
            3 => version.lease = Some(lease(rng).0),
            4 => version.lease = None,
            5 => version.expiration = Some(expiration(rng).0),
            _ => {}
        }
        version
    }
}

fn owner(rng: &mut Rng) -> Owner {
    Owner::from_stored(format!("owner-{}", rng.u8(..3)))
}

fn text(rng: &mut Rng) -> String {
    TEXTS[rng.usize(..TEXTS.len())].to_owned()
}

fn lease(rng: &mut Rng) -> EpochMillis {
    EpochMillis([1, 2_000, 3_000, i64::MAX / 2_000][rng.usize(..4)])
}

fn expiration(rng: &mut Rng) -> EpochSeconds {
    EpochSeconds([1, 7, 4_102_444_800][rng.usize(..3)])
}

fn step(rng: &mut Rng) -> (String, StepEntry) {
    let state = match rng.u8(..4) {
        0 => StepState::Pending,
        1 => StepState::Failed,
        2 => StepState::Confirmed(Err(Omission::TooLarge)),
        _ => StepState::Confirmed(Ok(text(rng))),
    };
    let mut entry = StepEntry::new(state, rng.u32(..4), rng.u32(..3), lease(rng));
    entry.last_error = rng.bool().then(|| text(rng));
    let name = ["pay", "it's \"b\"", ""][rng.usize(..3)];
    (name.to_owned(), entry)
}

pub(super) fn outcome(rng: &mut Rng) -> StoredOutcome {
    let packed = |place| {
        StoredOutcome::Packed(PackedOutcome {
            sha256: "ab".to_owned(),
            bytes: 3,
            place,
        })
    };
    match rng.u8(..6) {
        0 => StoredOutcome::Omitted(Omission::NotSerializable),
        1 => packed(Place::Record(vec![0, 255, b'\\', b'\'', 0])),
        2 => packed(Place::Entry(owner(rng))),
        3 => packed(Place::Object(owner(rng))),
        _ => StoredOutcome::Inline(text(rng)),
    }
}

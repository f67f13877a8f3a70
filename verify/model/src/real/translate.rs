//! The small values as the library's own, and back.

use lambda_idempotency::protocol::journal::{StepEntry, StepState};
use lambda_idempotency::protocol::record::{
    Completion as RealCompletion, LAYOUT, NewClaim, Omission, Owner, RELEASED, Record, Status,
    StoredOutcome, Version,
};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{EpochMillis, EpochSeconds, Fingerprint, Idempotency, Key, RecordId};

use crate::values::{
    Claim, Completion, ENDED, Entry, Journal, Lease, Mark, Name, REDACTED, Rec, STEPS, STRANGER,
    Seen, Tick, UNBOUND,
};

/// One step of time, in milliseconds. Whole seconds, so that expirations are exact.
const TICK: i64 = 1_000;

/// The library's "now": any time will do.
const NOW: i64 = 1_000_000;

/// More leases than an owner asks for: three rounds, and a few renewals.
const LEASES: i64 = 9;

/// The names of a handler's steps.
pub(super) const STEP_NAMES: [&str; STEPS] = ["charge", "ship"];

pub(super) fn id() -> RecordId {
    thread_local! {
        static ID: RecordId = Idempotency::builder(MemoryStore::new())
            .namespace("model")
            .build()
            .expect("a namespace")
            .record_id(&Key::new("run", "k"))
            .expect("a key");
    }
    ID.with(RecordId::clone)
}

pub(super) fn millis(tick: Tick) -> EpochMillis {
    EpochMillis((NOW + i64::from(tick)) * TICK)
}

/// A little before the tick, so that the leases that one owner has asked for are told apart, and keep their order, even where it no
/// longer matters how long ago they ended. No clock is ever there to see it.
pub(super) fn lease_end(tick: Tick, number: u8) -> EpochMillis {
    EpochMillis(millis(tick).0 - LEASES + i64::from(number))
}

pub(super) fn seconds(tick: Tick) -> EpochSeconds {
    EpochSeconds(NOW + i64::from(tick))
}

fn tick(seconds: i64) -> Tick {
    Tick::try_from(seconds - NOW).expect("a time that is near")
}

pub(super) fn fingerprint(payload: u8) -> Fingerprint {
    Fingerprint::bytes(&[payload])
}

fn text(name: Name) -> String {
    format!("o{}", name.0)
}

pub(super) fn name(text: &str) -> Name {
    Name(text[1..].parse().expect("one of ours"))
}

pub(super) fn owner(name: Name) -> Owner {
    Owner::from_stored(text(name))
}

pub(super) fn new_claim(claim: Claim) -> NewClaim {
    let mut new = NewClaim::new(
        id(),
        owner(claim.owner),
        millis(0),
        lease_end(claim.lease, claim.number % ENDED),
        seconds(claim.expiration),
    );
    new.fingerprint = (claim.payload != UNBOUND).then(|| fingerprint(claim.payload));
    if claim.number == ENDED {
        new.lease = RELEASED;
    }
    new.attempt = u32::from(claim.attempt);
    new
}

/// Each owner completes once, so its time says nothing that its name doesn't.
pub(super) fn completion(sent: Completion) -> RealCompletion {
    let outcome = StoredOutcome::Inline(text(sent.owner));
    let expiration = seconds(sent.expiration);
    RealCompletion::new(id(), owner(sent.owner), outcome, millis(0), expiration)
}

pub(super) fn version(seen: Seen) -> Version {
    let mut version = Version::default();
    version.owner = Some(text(seen.owner()));
    if let Seen::Exactly {
        done,
        lease,
        expiration,
        ..
    } = seen
    {
        version.status = Some(status(done).as_str().to_owned());
        version.lease = self::lease(lease).map(|lease| lease.0);
        version.expiration = Some(seconds(expiration).0);
    }
    version
}

fn outcome(name: Name) -> StoredOutcome {
    match name {
        REDACTED => StoredOutcome::Omitted(Omission::Redacted),
        name => StoredOutcome::Inline(text(name)),
    }
}

fn status(done: bool) -> Status {
    if done {
        Status::Completed
    } else {
        Status::InProgress
    }
}

fn lease(lease: Lease) -> Option<EpochMillis> {
    match lease {
        Lease::None => None,
        Lease::Released => Some(RELEASED),
        Lease::Until(tick, number) => Some(lease_end(tick, number)),
    }
}

pub(super) fn entry(known: Entry) -> Option<StepEntry> {
    let state = match known.mark {
        Mark::Absent => return None,
        Mark::Pending => StepState::Pending,
        Mark::Confirmed(REDACTED) => StepState::Confirmed(Err(Omission::Redacted)),
        Mark::Confirmed(name) => StepState::Confirmed(Ok(text(name))),
        Mark::Failed => StepState::Failed,
    };
    let revision = u32::from(known.revision);
    Some(StepEntry::new(state, revision, 0, millis(0)))
}

/// The entries that a journal has.
pub(super) fn notes(journal: Journal) -> impl Iterator<Item = (&'static str, StepEntry)> {
    let all = STEP_NAMES.into_iter().zip(journal);
    all.filter_map(|(name, known)| Some((name, entry(known)?)))
}

pub(super) fn small(entry: &StepEntry) -> Entry {
    Entry {
        mark: match &entry.state {
            StepState::Pending => Mark::Pending,
            StepState::Confirmed(Ok(text)) => Mark::Confirmed(name(text)),
            StepState::Confirmed(Err(Omission::Redacted)) => Mark::Confirmed(REDACTED),
            StepState::Failed => Mark::Failed,
            other => panic!("{other:?} has no place in the model"),
        },
        revision: u8::try_from(entry.revision).expect("a few revisions"),
    }
}

pub(super) fn record(rec: &Rec) -> Record {
    let mut record = Record::new(status(rec.done), seconds(rec.expiration));
    record.owner = Some(owner(rec.owner));
    record.lease = lease(rec.lease);
    record.attempt = u32::from(rec.attempt);
    record.fingerprint = rec.payload.map(fingerprint);
    record.outcome = rec.outcome.map(outcome);
    let ours = rec.outcome.is_some_and(|name| name != STRANGER);
    record.completed_at = ours.then(|| millis(0));
    record.layout = Some(LAYOUT);
    record.journal = notes(rec.journal).collect();
    record
}

pub(super) fn rec(record: &Record) -> Rec {
    let lease = match record.lease {
        None => Lease::None,
        Some(RELEASED) => Lease::Released,
        Some(lease) => {
            let tick = tick(lease.0.div_euclid(TICK) + 1);
            let number = lease.0 - lease_end(tick, 0).0;
            Lease::Until(tick, u8::try_from(number).expect("a few leases"))
        }
    };
    let outcome = record.outcome.as_ref().map(|outcome| match outcome {
        StoredOutcome::Inline(text) => name(text),
        StoredOutcome::Omitted(Omission::Redacted) => REDACTED,
        other => panic!("{other:?} has no place in the model"),
    });
    let payload = record.fingerprint.as_ref();
    let payload = payload.map(|known| (0..2).find(|payload| *known == fingerprint(*payload)));
    let mut journal = Journal::default();
    for (slot, name) in journal.iter_mut().zip(STEP_NAMES) {
        *slot = record.journal.get(name).map(small).unwrap_or_default();
    }
    Rec {
        owner: name(record.owner.as_ref().expect("an owner").as_str()),
        done: record.status == Status::Completed,
        lease,
        expiration: tick(record.expiration.0),
        attempt: u8::try_from(record.attempt).expect("a few attempts"),
        payload: payload.map(|payload| payload.expect("a payload of ours")),
        outcome,
        journal,
    }
}

//! The library's own decisions and conditions, asked about small values.
//!
//! Each answer is computed once and remembered: the same question comes up in millions of states. A memory belongs to one thread
//! and one defect.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use ahash::RandomState;
use lambda_idempotency::protocol::journal::StepEntry;
use lambda_idempotency::protocol::record::{Found, Omission, Takeover};
use lambda_idempotency::protocol::{
    Asking, Decision, OnCrash, Rules, Settled, StepDecision, decide, decide_step, settle,
};

use crate::mutation::Mutation;
use crate::values::{Completion, Entry, MARGIN, Mark, Name, REDACTED, Rec, Tick, Write};
use translate::{completion, entry, fingerprint, millis, name, rec, record, small};

mod conditions;
mod translate;

/// The decision on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Create,
    Mine,
    TakeOver { fresh: bool, attempt: u8 },
    Replay,
    Mismatch,
    InFlight,
    Interrupted,
}

/// The fate of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Recorded,
    Superseded,
    Lost,
}

/// The decision on a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Fire,
    Skip(Name),
    Interrupted,
}

type Memory<K, V> = HashMap<K, V, RandomState>;

#[derive(Default)]
struct Memories {
    verdicts: Memory<(Option<Rec>, Name, u8, Tick), Verdict>,
    fates: Memory<(Option<Rec>, Completion, Option<u8>), Fate>,
    writes: Memory<(Option<Rec>, Write), Option<Rec>>,
}

thread_local! {
    static MEMORIES: RefCell<Memories> = RefCell::default();
}

fn remembered<K: Hash + Eq + Copy, V: Copy>(
    memory: fn(&mut Memories) -> &mut Memory<K, V>,
    question: K,
    answer: impl FnOnce() -> V,
) -> V {
    MEMORIES.with_borrow_mut(|memories| *memory(memories).entry(question).or_insert_with(answer))
}

/// `protocol::decide`.
pub fn verdict(found: Option<Rec>, owner: Name, payload: u8, skew: Tick) -> Verdict {
    remembered(
        |memories| &mut memories.verdicts,
        (found, owner, payload, skew),
        || {
            let found = found.map(|rec| Found::readable(record(&rec)));
            let (owner, fingerprint) = (translate::owner(owner), fingerprint(payload));
            let asking = Asking::new(&owner, Some(&fingerprint), millis(skew));
            let rules = Rules {
                on_crash: OnCrash::RunAgain,
                max_attempts: None,
                skew_margin: Duration::from_secs(u64::from(MARGIN.unsigned_abs())),
            };
            match decide(found.as_ref(), asking, &rules) {
                Decision::Create => Verdict::Create,
                Decision::Mine(_) => Verdict::Mine,
                Decision::TakeOver {
                    seen,
                    mode,
                    attempt,
                } => {
                    assert_eq!(Some(seen), found.as_ref().map(|found| &found.version));
                    Verdict::TakeOver {
                        fresh: mode == Takeover::Fresh,
                        attempt: u8::try_from(attempt).expect("a few attempts"),
                    }
                }
                Decision::Replay(_) => Verdict::Replay,
                Decision::Mismatch { .. } => Verdict::Mismatch,
                Decision::InFlight { .. } => Verdict::InFlight,
                Decision::Interrupted { .. } => Verdict::Interrupted,
                other => panic!("{other:?} has no place in the model"),
            }
        },
    )
}

/// `protocol::settle`.
pub fn fate(found: Option<Rec>, sent: Completion, payload: Option<u8>) -> Fate {
    remembered(
        |memories| &mut memories.fates,
        (found, sent, payload),
        || {
            let found = found.map(|rec| Found::readable(record(&rec)));
            let fingerprint = payload.map(fingerprint);
            match settle(found.as_ref(), &completion(sent), fingerprint.as_ref()) {
                Settled::Recorded => Fate::Recorded,
                Settled::Superseded(_) => Fate::Superseded,
                _ => Fate::Lost,
            }
        },
    )
}

/// `protocol::decide_step`.
pub fn turn(known: Entry, crashed: OnCrash) -> Turn {
    match decide_step(entry(known).as_ref(), crashed) {
        StepDecision::Fire => Turn::Fire,
        StepDecision::Skip(Ok(text)) => Turn::Skip(name(text)),
        StepDecision::Skip(Err(Omission::Redacted)) => Turn::Skip(REDACTED),
        StepDecision::Interrupted { .. } => Turn::Interrupted,
        other => panic!("{other:?} has no place in the model"),
    }
}

/// `StepEntry::begun`.
pub fn begun(known: Entry) -> Entry {
    small(&StepEntry::begun(entry(known).as_ref(), millis(0)))
}

/// `StepEntry::ended`.
pub fn ended(begun: Entry, mark: Mark) -> Entry {
    let begun = entry(begun).expect("a step that began");
    let state = entry(Entry { mark, revision: 0 }).expect("a state").state;
    small(&begun.ended(state, None, millis(0)))
}

/// Returns the record that a write leaves by `protocol::transition`, or by a defect of it.
pub fn apply(met: Option<Rec>, write: &Write, mutation: Mutation) -> Option<Rec> {
    remembered(
        |memories| &mut memories.writes,
        (met, *write),
        || {
            let met = met.as_ref().map(record);
            let left = conditions::transitioned(met.as_ref(), write, mutation)?;
            Some(rec(&left))
        },
    )
}

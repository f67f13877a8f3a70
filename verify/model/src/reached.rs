//! The events that were reached at all. A search that never saw a fault has checked nothing of it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::Answer;

macro_rules! events {
    ($($event:ident,)*) => {
        /// Something worth reaching.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Event {
            $($event,)*
        }

        const ALL: &[Event] = &[$(Event::$event,)*];
    };
}

events! {
    Create,
    Mine,
    TakeOverFresh,
    TakeOverResume,
    Replay,
    Mismatch,
    InFlight,
    Executed,
    LeaseLost,
    Failed,
    TimedOut,
    Refused,
    FencedOff,
    Unknown,
    TooLate,
    Unavailable,
    StepSkipped,
    StepFired,
    StepInterrupted,
    StepTakenBack,
    NoteRefused,
    Crash,
    RequestLost,
    ReplyLost,
    GroupReplyLost,
    ReplyLate,
    LateCopy,
    LateCopyApplied,
    Sweep,
    Stranger,
    Renewed,
    RenewalRefused,
    Released,
    ReleasedLive,
    Redacted,
    Rerun,
    RerunRepeats,
}

impl Event {
    pub fn of(answer: Answer) -> Self {
        match answer {
            Answer::Executed => Self::Executed,
            Answer::Replayed => Self::Replay,
            Answer::LeaseLost => Self::LeaseLost,
            Answer::Failed => Self::Failed,
            Answer::Refused => Self::Refused,
            Answer::Unknown => Self::Unknown,
            Answer::InFlight => Self::InFlight,
            Answer::Mismatch => Self::Mismatch,
            Answer::Interrupted => Self::StepInterrupted,
            Answer::TooLate => Self::TooLate,
            Answer::Unavailable => Self::Unavailable,
        }
    }
}

static REACHED: AtomicU64 = AtomicU64::new(0);

pub fn reach(event: Event) {
    let bit = 1 << event as u8;
    // Nearly always it is there already, and reading is cheaper.
    if REACHED.load(Ordering::Relaxed) & bit == 0 {
        REACHED.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Returns the events that were never reached so far.
pub fn missed() -> Vec<Event> {
    let reached = REACHED.load(Ordering::Relaxed);
    let all = ALL.iter().copied();
    all.filter(|event| reached & (1 << *event as u8) == 0)
        .collect()
}

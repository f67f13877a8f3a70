//! The wire between a function and DynamoDB: what it does to whom is up to the dice.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use serde_json::Value;
use tokio::time::Instant;

use crate::defect::Defect;
use crate::lane::Tables;
use crate::night::{Night, between};
use crate::support::Fault;
use crate::support::proxy::Meddler;
use crate::tape::Tape;

/// Of a hundred single requests so many meet something.
const TROUBLED: u32 = 7;
/// Of a hundred groups, which are fewer.
const TROUBLED_GROUPS: u32 = 20;
/// Of a thousand requests so many begin a time in which most others meet the same: the SDK's three sends are not enough then.
const BURSTS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    RequestDelayed,
    RequestHeld,
    ReplyDelayed,
    RequestLost,
    ReplyLost,
    RequestLate,
    CopyLate,
    Internal,
    Throttled,
    Conflict,
    PartOfAGroup,
}

/// The classes of faults that may also come in bursts.
const BURSTING: [Class; 5] = [
    Class::RequestLost,
    Class::ReplyLost,
    Class::Internal,
    Class::Throttled,
    Class::Conflict,
];

const SINGLE: [Class; 10] = [
    Class::RequestDelayed,
    Class::RequestHeld,
    Class::ReplyDelayed,
    Class::RequestLost,
    Class::ReplyLost,
    Class::RequestLate,
    Class::CopyLate,
    Class::Internal,
    Class::Throttled,
    Class::Conflict,
];

impl Class {
    fn name(self) -> &'static str {
        match self {
            Self::RequestDelayed => "fault: request delayed",
            Self::RequestHeld => "fault: request held past the deadline",
            Self::ReplyDelayed => "fault: reply delayed",
            Self::RequestLost => "fault: request lost",
            Self::ReplyLost => "fault: reply lost",
            Self::RequestLate => "fault: request late",
            Self::CopyLate => "fault: copy late",
            Self::Internal => "fault: 500",
            Self::Throttled => "fault: throttled",
            Self::Conflict => "fault: conflict",
            Self::PartOfAGroup => "fault: part of a group",
        }
    }

    fn fault(self, operation: &str, dice: &mut Rng) -> Fault {
        match self {
            Self::RequestDelayed => Fault::Delay(pause(dice)),
            Self::RequestHeld => Fault::Hold(between(dice, 2_000, 4_500)),
            Self::ReplyDelayed => Fault::SlowReply(pause(dice)),
            Self::RequestLost => Fault::LoseRequest,
            Self::ReplyLost => Fault::LoseReply,
            // Up to longer than a lease.
            Self::RequestLate => Fault::Late(between(dice, 50, 4_500)),
            Self::CopyLate => Fault::Again(between(dice, 50, 4_500)),
            Self::Internal => Fault::INTERNAL,
            Self::Throttled if operation == "TransactWriteItems" => {
                Fault::Cancel(&["None", "ThrottlingError", "None"])
            }
            Self::Throttled => Fault::THROTTLE,
            Self::Conflict if operation == "TransactWriteItems" => {
                Fault::Cancel(&["TransactionConflict", "None", "None"])
            }
            Self::Conflict => Fault::CONFLICT,
            Self::PartOfAGroup => Fault::Partly {
                taken: dice.usize(0..3),
                code: ["ThrottlingError", "TransactionConflict"][dice.usize(0..2)],
            },
        }
    }
}

/// Mostly short, sometimes longer than an invocation.
fn pause(dice: &mut Rng) -> Duration {
    match dice.u32(0..20) {
        0 => between(dice, 1_000, 3_000),
        _ => between(dice, 5, 250),
    }
}

pub struct Wire {
    night: Arc<Night>,
    tables: Tables,
    defect: Defect,
    state: Mutex<State>,
    pub tape: Tape,
}

struct State {
    dice: Rng,
    number: u64,
    burst: Option<(Class, Instant)>,
}

impl Wire {
    pub fn new(night: &Arc<Night>, name: &str, tables: Tables, defect: Defect) -> Self {
        Self {
            night: Arc::clone(night),
            tape: Tape::of(night, tables.clone()),
            tables,
            defect,
            state: Mutex::new(State {
                dice: night.dice(&format!("the wire of {name}")),
                number: 0,
                burst: None,
            }),
        }
    }
}

impl State {
    fn class(&mut self, is_group: bool) -> Option<Class> {
        let now = Instant::now();
        if let Some((class, until)) = self.burst {
            if now < until {
                return (self.dice.u32(0..5) > 0).then_some(class);
            }
            self.burst = None;
        }
        if self.dice.u32(0..1_000) < BURSTS {
            let class = BURSTING[self.dice.usize(0..BURSTING.len())];
            self.burst = Some((class, now + between(&mut self.dice, 300, 2_500)));
            return Some(class);
        }
        if is_group && self.dice.u32(0..100) < TROUBLED_GROUPS {
            return Some(Class::PartOfAGroup);
        }
        (self.dice.u32(0..100) < TROUBLED).then(|| SINGLE[self.dice.usize(0..SINGLE.len())])
    }
}

impl Meddler for Wire {
    fn fault(&self, operation: &str, request: &Value) -> Fault {
        let mut state = self.state.lock().expect("not poisoned");
        state.number += 1;
        let by_defect = self
            .defect
            .fault(&self.tables, operation, request, state.number);
        if let Some(fault) = by_defect {
            return fault;
        }
        if !self.night.is_troubled() {
            return Fault::Pass;
        }
        let class = state.class(operation.starts_with("Batch"));
        // A read conflicts with nothing.
        let fits = |class: &Class| *class != Class::Conflict || !operation.contains("Get");
        let Some(class) = class.filter(fits) else {
            return Fault::Pass;
        };
        self.night.report.count(class.name());
        class.fault(operation, &mut state.dice)
    }

    fn rewrite(&self, operation: &str, request: Value) -> Value {
        self.defect.rewrite(&self.tables, operation, request)
    }

    fn answered(&self, operation: &str, request: &Value, status: u16, reply: &Value) {
        self.tape.note(operation, request, status, reply);
    }
}

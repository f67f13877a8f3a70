//! Chooses the fault that a call meets: an injected one, or a random one.

use std::collections::VecDeque;
use std::time::Duration;

use super::fault::{Call, Fault};

#[derive(Debug, Default)]
pub(super) struct Plan {
    waiting: VecDeque<(Call, Fault)>,
    dice: Option<Dice>,
}

#[derive(Debug)]
struct Dice {
    random: fastrand::Rng,
    probability: f64,
}

impl Plan {
    pub(super) fn seeded(seed: u64, probability: f64) -> Self {
        Self {
            waiting: VecDeque::new(),
            dice: Some(Dice {
                random: fastrand::Rng::with_seed(seed),
                probability,
            }),
        }
    }

    pub(super) fn inject(&mut self, call: Call, fault: Fault) {
        self.waiting.push_back((call, fault));
    }

    pub(super) fn next(&mut self, call: Call) -> Option<Fault> {
        let told = self.waiting.iter().position(|(wanted, _)| *wanted == call);
        match told {
            Some(position) => self.waiting.remove(position).map(|(_, fault)| fault),
            None => self.dice.as_mut()?.throw(),
        }
    }
}

impl Dice {
    fn throw(&mut self) -> Option<Fault> {
        if self.random.f64() >= self.probability {
            return None;
        }
        // From a blink to longer than most leases last.
        let pause = Duration::from_millis(10_u64 << self.random.u32(0..12));
        Some(match self.random.u8(0..9) {
            0 => Fault::RequestLost,
            1 => Fault::ReplyLost,
            2 => Fault::Resent,
            3 => Fault::Late(pause),
            4 => Fault::Delayed(pause),
            5 => Fault::ReplyDelayed(pause),
            6 => Fault::Copied(pause),
            7 => Fault::Throttled,
            _ => Fault::Conflict,
        })
    }
}

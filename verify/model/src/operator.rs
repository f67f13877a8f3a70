//! An operator with its tool: it looks at a record, decides, and sends one write over the record that it saw.

use crate::checker::{Action, Checker};
use crate::reached::{Event, reach};
use crate::real;
use crate::values::{Act, Entry, Journal, Lease, Mark, REDACTED, Rec, Seen, Write};
use crate::world::World;

impl Checker {
    /// Adds the acts that the tool allows an operator who looks now, by the true time.
    pub fn of_operator(&self, world: &World, number: usize, rec: &Rec, actions: &mut Vec<Action>) {
        let live = match rec.lease {
            Lease::Until(lease, _) => lease > 0,
            Lease::None | Lease::Released => false,
        };
        let reruns = [false, true].map(|repeats| Act::Rerun { repeats });
        let acts: &[Act] = match (rec.done, rec.lease) {
            (true, _) if rec.outcome == Some(REDACTED) => &reruns[..1],
            (true, _) if self.scope.steps > 0 => &[Act::Redact, reruns[0], reruns[1]],
            (true, _) => &[Act::Redact, reruns[0]],
            (false, Lease::Released) => &[],
            (false, _) if live => &[Act::ReleaseLive],
            (false, _) => &[Act::Release],
        };
        for act in acts {
            actions.push(Action::Intervene(number, *act, false));
            if world.budget.replies_lost > 0 {
                actions.push(Action::Intervene(number, *act, true));
            }
        }
    }

    /// The operator's write leaves. It arrives later, whatever happens to the record until then.
    pub fn intervene(&self, world: &mut World, key: usize, act: Act, again: bool) -> Option<()> {
        let rec = world.keys[key].rec?;
        world.budget.interventions -= 1;
        world.budget.replies_lost -= u8::from(again);
        let write = Write::Intervene {
            seen: Seen::of(&rec),
            owner: world.name(0, true),
            act,
            expiration: match act {
                Act::Rerun { .. } => rec.expiration.max(self.scope.retention),
                _ => rec.expiration,
            },
            steps: steps(rec.journal, act),
        };
        let number = u8::try_from(key).expect("few keys");
        for _ in 0..=u8::from(again) {
            world.late.push((number, write));
        }
        Some(())
    }

    /// An operator's write applied.
    pub fn intervened(
        world: &mut World,
        key: usize,
        seen: Seen,
        act: Act,
        met: Option<Rec>,
        left: &Rec,
    ) {
        let Some(met) = met else {
            return world.note("15: an intervention makes no record");
        };
        if Seen::of(&met) != seen {
            world.note(
                "15: an intervention applies over what the operator saw, and over nothing else",
            );
        }
        let asked = matches!(act, Act::Rerun { .. });
        if met.done && !left.done && !asked {
            world.note("15: only a rerun lets a record run that was final");
        }
        let well_formed = left.done == left.outcome.is_some()
            && left.done == (left.lease == Lease::None)
            && left.attempt == met.attempt
            && left.payload == met.payload;
        if !well_formed {
            world.note("15: an intervention leaves a whole record");
        }
        let known = &mut world.keys[key];
        match act {
            Act::Release => reach(Event::Released),
            Act::ReleaseLive => {
                reach(Event::ReleasedLive);
                known.released_live = true;
            }
            Act::Redact => {
                reach(Event::Redacted);
                known.outcome = known.outcome.map(|(_, until)| (REDACTED, until));
                for effect in &mut known.effects {
                    effect.confirmed = effect.confirmed.map(|_| REDACTED);
                }
            }
            // A second effect is what the operator asks for.
            Act::Rerun { repeats } => {
                (known.outcome, known.booked) = (None, None);
                reach(Event::Rerun);
                if repeats {
                    reach(Event::RerunRepeats);
                    for (effect, entry) in known.effects.iter_mut().zip(left.journal) {
                        if entry.mark == Mark::Failed {
                            (effect.fired, effect.confirmed) = (0, None);
                        }
                    }
                }
            }
        }
    }
}

/// The entries of steps that an act changes.
fn steps(journal: Journal, act: Act) -> Journal {
    let change = |entry: Entry| match (entry.mark, act) {
        (Mark::Confirmed(_), Act::Redact) => real::ended(entry, Mark::Confirmed(REDACTED)),
        (Mark::Confirmed(_), Act::Rerun { repeats: true }) => real::ended(entry, Mark::Failed),
        _ => Entry::default(),
    };
    journal.map(change)
}

impl World {
    /// Returns whether an operator's write is on its way.
    pub fn intervenes(&self) -> bool {
        let mut late = self.late.iter();
        late.any(|(_, write)| matches!(write, Write::Intervene { .. }))
    }
}

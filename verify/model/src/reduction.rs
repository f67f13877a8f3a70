//! The reduction of many states to one. A reduced search must find everything that a search without reduction finds.

use crate::values::Tick;

/// The ways in which many states become one.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    /// Workers that are alike change places, and owners are numbered as they come.
    pub reorders: bool,
    /// Details that can't be noticed any more are dropped.
    pub prunes: bool,
    /// The ticks by which times are told apart for longer than necessary.
    pub slack: Tick,
}

impl Reduction {
    pub const FULL: Self = Self {
        reorders: true,
        prunes: true,
        slack: 0,
    };

    /// Only times that are over for everybody are as good as each other: without that there would be no end.
    pub const LEAST: Self = Self {
        reorders: false,
        prunes: false,
        slack: 0,
    };
}

#[cfg(test)]
mod tests {
    use ahash::{AHashMap as HashMap, AHashSet as HashSet};

    use stateright::Model;

    use super::*;
    use crate::checker::Checker;
    use crate::controls::controls;
    use crate::mutation::Mutation;
    use crate::scopes::{Form, Provider, Scope};
    use crate::world::{Budget, Phase, Worker, World};

    /// All that can be reached, each state as the full reduction has it, with the faults that may still come.
    fn reachable(scope: &Scope, reduction: Reduction) -> HashMap<World, HashSet<Budget>> {
        let model = Checker::new(scope.clone(), Mutation::None, reduction);
        let full = Checker::new(scope.clone(), Mutation::None, Reduction::FULL);
        let mut seen: HashSet<World> = model.init_states().into_iter().collect();
        let mut pending: Vec<World> = seen.iter().cloned().collect();
        let mut actions = Vec::new();
        while let Some(world) = pending.pop() {
            model.actions(&world, &mut actions);
            for action in actions.drain(..) {
                let Some(next) = model.next_state(&world, action) else {
                    continue;
                };
                assert_eq!(next.broken, None);
                if seen.insert(next.clone()) {
                    pending.push(next);
                }
            }
        }
        let mut all = HashMap::<World, HashSet<Budget>>::new();
        for world in seen {
            let mut world = full.canonical(world);
            let budget = std::mem::take(&mut world.budget);
            all.entry(world).or_default().insert(budget);
        }
        all
    }

    /// Returns whether a delivery only waits for an answer that ends it.
    fn is_ending(world: &World) -> bool {
        let ends = |worker: &Worker| match worker.phase {
            Phase::Answered(call, _) => call.is_last(),
            _ => false,
        };
        world.workers.iter().any(ends)
    }

    fn covers(more: &Budget, less: &Budget) -> bool {
        more.crashes >= less.crashes
            && more.requests_lost >= less.requests_lost
            && more.replies_lost >= less.replies_lost
            && more.replies_late >= less.replies_late
            && more.copies >= less.copies
            && more.sweeps >= less.sweeps
            && more.refusals >= less.refusals
            && more.strangers >= less.strangers
            && more.renewals >= less.renewals
            && more.interventions >= less.interventions
    }

    /// Nothing is reached that wasn't, and everything that was, with no fewer faults to come.
    fn is_the_same(scope: &Scope) {
        let reduced = reachable(scope, Reduction::FULL);
        for slack in [0, 1] {
            let least = Reduction {
                slack,
                ..Reduction::LEAST
            };
            let all = reachable(scope, least);
            for (world, budgets) in &reduced {
                let known = all.get(world);
                assert!(
                    known.is_some_and(|known| budgets.is_subset(known)),
                    "{world:?} {budgets:?}"
                );
            }
            for (world, budgets) in all.iter().filter(|(world, _)| !is_ending(world)) {
                let known = reduced.get(world);
                let covered =
                    |less| known.is_some_and(|all| all.iter().any(|more| covers(more, less)));
                assert!(
                    budgets.iter().all(covered),
                    "{world:?} {budgets:?} {known:?}"
                );
            }
        }
    }

    #[test]
    fn a_reduced_search_reaches_what_a_search_without_reaches() {
        let two = || Scope::of("").clocks(&[0, 0]);
        is_the_same(&two().faults(|b| b.crashes = 1));
        is_the_same(&two().faults(|b| b.copies = 1).no_failures());
        is_the_same(
            &two()
                .form(Form::Claimless)
                .faults(|b| (b.copies, b.sweeps) = (1, 1)),
        );
        is_the_same(&two().form(Form::Transaction).faults(|b| b.replies_lost = 1));
        is_the_same(
            &two()
                .form(Form::Claimless)
                .faults(|b| (b.copies, b.refusals) = (1, 1)),
        );
        is_the_same(&two().no_failures().faults(|b| b.replies_late = 1));
        is_the_same(&two().no_failures().faults(|b| b.requests_lost = 1));
        is_the_same(&two().faults(|b| b.sweeps = 1));
        is_the_same(&two().clocks(&[0, 2]).no_failures().faults(|b| b.copies = 1));
        is_the_same(&two().renewing().no_failures().faults(|b| b.renewals = 1));
        is_the_same(&two().steps(1, Provider::HonoursKeys).no_failures());
        is_the_same(&two().no_failures().faults(|b| b.interventions = 1));
        is_the_same(
            &two()
                .no_failures()
                .faults(|b| (b.interventions, b.sweeps) = (1, 1)),
        );
    }

    #[test]
    fn every_control_is_of_a_defect_of_its_own() {
        let all = controls();
        let names: HashSet<String> = all.iter().map(|(defect, _)| defect.to_string()).collect();
        assert_eq!(names.len(), all.len());
        assert!(!names.contains(&Mutation::None.to_string()));
    }
}

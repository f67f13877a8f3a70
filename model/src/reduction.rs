//! How far states are made one. A search that is reduced must find what a search without does.

use crate::values::Tick;

/// What makes one state of many.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    /// Workers that are alike change places, and owners are numbered as they come.
    pub reorders: bool,
    /// What can't be noticed any more is dropped.
    pub prunes: bool,
    /// How much longer than necessary times are told apart.
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
    use std::collections::HashSet;

    use stateright::Model;

    use super::*;
    use crate::checker::Checker;
    use crate::controls::controls;
    use crate::mutation::Mutation;
    use crate::scopes::{Form, Provider, Scope};
    use crate::world::World;

    /// All that can be reached, each state as the full reduction has it.
    fn reachable(scope: &Scope, reduction: Reduction) -> HashSet<World> {
        let model = Checker::new(scope.clone(), Mutation::None, reduction);
        let full = Checker::new(scope.clone(), Mutation::None, Reduction::FULL);
        let mut seen: HashSet<World> = model.init_states().into_iter().collect();
        let mut pending: Vec<World> = seen.iter().cloned().collect();
        let mut actions = Vec::new();
        while let Some(world) = pending.pop() {
            model.actions(&world, &mut actions);
            for action in actions.drain(..) {
                let next = model.next_state(&world, action).expect("it is possible");
                assert_eq!(next.broken, None);
                if seen.insert(next.clone()) {
                    pending.push(next);
                }
            }
        }
        seen.into_iter()
            .map(|world| full.canonical(world))
            .collect()
    }

    fn is_the_same(scope: &Scope) {
        let reduced = reachable(scope, Reduction::FULL);
        for slack in [0, 1] {
            let least = Reduction {
                slack,
                ..Reduction::LEAST
            };
            let all = reachable(scope, least);
            assert_eq!(reduced.len(), all.len());
            assert_eq!(reduced, all);
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
        is_the_same(&two().steps(1, Provider::HonoursKeys).no_failures());
    }

    #[test]
    fn every_defect_has_a_control() {
        let all = controls();
        let names: HashSet<String> = all.iter().map(|(defect, _)| defect.to_string()).collect();
        assert_eq!(names.len(), all.len());
        assert!(!names.contains(&Mutation::None.to_string()));
    }
}

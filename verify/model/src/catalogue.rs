//! The scopes that are explored: in each run of the tests, and in a long one.

use crate::scopes::{FAR, Form, Provider, Scope};
use crate::world::Budget;

fn one(name: impl std::fmt::Display) -> Scope {
    Scope::of(format!("1 key, 3 workers: {name}"))
}

fn two(name: impl std::fmt::Display) -> Scope {
    Scope::of(format!("1 key, 2 workers: {name}")).clocks(&[0, 1])
}

fn groups(name: impl std::fmt::Display) -> Scope {
    let scope = Scope::of(format!("2 keys, 2 workers, groups: {name}"));
    scope.clocks(&[0, 0]).in_groups().no_failures()
}

/// The scopes of the test command.
pub fn short() -> Vec<Scope> {
    vec![
        one("crashes, lost replies").faults(|b| (b.crashes, b.replies_lost) = (2, 2)),
        one("a crash, a late copy").faults(|b| (b.crashes, b.copies) = (1, 1)),
        one("lost requests, a late reply").faults(|b| (b.requests_lost, b.replies_late) = (2, 1)),
        one("TTL, a late copy").faults(|b| (b.sweeps, b.copies) = (2, 1)),
        one("clocks beyond the margin")
            .clocks(&FAR)
            .faults(|b| (b.crashes, b.replies_lost) = (1, 1)),
        two("a retry, another payload")
            .retries()
            .another_payload()
            .faults(|b| (b.crashes, b.replies_lost) = (1, 1)),
        two("a retry, a library without a fence")
            .retries()
            .no_failures()
            .faults(|b| (b.crashes, b.replies_lost, b.strangers) = (1, 1, 1)),
        one("a transaction: a crash, a lost reply")
            .form(Form::Transaction)
            .faults(|b| (b.crashes, b.replies_lost) = (1, 1)),
        two("a transaction: one fault of every class")
            .form(Form::Transaction)
            .faults(|b| *b = every(1)),
        one("without a claim: a lost reply, a late copy, TTL")
            .form(Form::Claimless)
            .faults(|b| (b.replies_lost, b.copies, b.sweeps) = (1, 1, 1)),
        two("a transaction: a refusal, a lost request, a lost reply, a late copy")
            .form(Form::Transaction)
            .faults(|b| (b.refusals, b.requests_lost, b.replies_lost, b.copies) = (1, 1, 1, 1)),
        two("without a claim: a refusal, a lost request, a lost reply, a late copy, TTL")
            .form(Form::Claimless)
            .faults(|b| {
                (b.refusals, b.requests_lost, b.replies_lost) = (1, 1, 1);
                (b.copies, b.sweeps) = (1, 1);
            }),
        two("steps, keys honoured: a late copy")
            .steps(2, Provider::HonoursKeys)
            .faults(|b| (b.replies_lost, b.copies) = (1, 1)),
        two("steps, keys honoured: a crash, a retry")
            .retries()
            .steps(1, Provider::HonoursKeys)
            .faults(|b| (b.crashes, b.replies_lost) = (1, 1)),
        two("steps, no keys: a crash, a retry")
            .retries()
            .steps(1, Provider::NoKeys)
            .faults(|b| (b.crashes, b.replies_late) = (1, 1)),
        two("steps, an operator looks: a crash, a retry")
            .retries()
            .steps(1, Provider::NoKeysInterrupt)
            .faults(|b| (b.crashes, b.requests_lost) = (1, 1)),
        two("renewals, a lost reply, a late copy")
            .renewing()
            .faults(|b| (b.renewals, b.replies_lost, b.copies) = (2, 1, 1)),
        two("handlers that are ended, steps, a crash, a lost reply")
            .ending()
            .steps(1, Provider::HonoursKeys)
            .faults(|b| (b.crashes, b.replies_lost) = (1, 1)),
        two("a deadline that is outlived: renewals, a crash, a late copy")
            .renewing()
            .ending()
            .another_payload()
            .faults(|b| (b.renewals, b.crashes, b.copies) = (2, 1, 1)),
        two("an operator twice, a crash").faults(|b| (b.interventions, b.crashes) = (2, 1)),
        two("an operator, a lost reply, TTL")
            .faults(|b| (b.interventions, b.replies_lost, b.sweeps) = (1, 1, 1)),
        two("an operator, a transaction, a lost reply")
            .form(Form::Transaction)
            .faults(|b| (b.interventions, b.replies_lost) = (1, 1)),
        two("an operator, without a claim, a lost reply")
            .form(Form::Claimless)
            .faults(|b| (b.interventions, b.replies_lost) = (1, 1)),
        two("an operator, a step, an operator looks, a crash")
            .steps(1, Provider::NoKeysInterrupt)
            .faults(|b| (b.interventions, b.crashes) = (1, 1)),
        groups("a lost reply").faults(|b| (b.replies_lost, b.ticks) = (1, Some(2))),
        groups("a crash").faults(|b| (b.crashes, b.ticks) = (1, Some(2))),
    ]
}

/// Every two classes of faults, twice each; and what else takes more than a moment.
pub fn long() -> Vec<Scope> {
    let mut scopes = vec![one("no faults")];
    for (name, class) in CLASSES {
        scopes.push(one(format!("{name} twice")).faults(|b| *class(b) = 2));
    }
    scopes.extend(twice(one));
    scopes.push(
        one("without a claim: two of every class")
            .form(Form::Claimless)
            .faults(|b| *b = every(2)),
    );
    scopes.push(groups("a crash, a lost request, a lost reply").faults(|b| {
        (b.crashes, b.requests_lost, b.replies_lost) = (1, 1, 1);
        b.ticks = Some(2);
    }));
    scopes.push(
        one("renewals, a crash, a lost reply, a late copy")
            .renewing()
            .faults(|b| (b.renewals, b.replies_lost, b.copies, b.crashes) = (1, 1, 1, 1)),
    );
    for (name, provider) in [
        ("keys honoured", Provider::HonoursKeys),
        ("no keys", Provider::NoKeys),
        ("an operator looks", Provider::NoKeysInterrupt),
    ] {
        let step = two(format!("a step, {name}: one of every class"));
        scopes.push(step.steps(1, provider).faults(|b| *b = every(1)));
    }
    scopes.extend(operators());
    scopes.extend(twice(|name| {
        one(format!("a transaction: {name}")).form(Form::Transaction)
    }));
    scopes.extend(twice(|name| {
        one(format!("clocks beyond the margin: {name}")).clocks(&FAR)
    }));
    scopes.push(
        two("a retry, one of every class")
            .retries()
            .faults(|b| *b = every(1)),
    );
    scopes.push(one("one of every class").faults(|b| *b = every(1)));
    scopes.push(one("two of every class").faults(|b| *b = every(2)));
    scopes
}

/// An operator beside retries, and beside more faults.
fn operators() -> Vec<Scope> {
    let scope = |name| two(format!("an operator: {name}")).retries();
    vec![
        scope("a retry, twice, a crash").faults(|b| (b.interventions, b.crashes) = (2, 1)),
        scope("a retry, a lost reply, a late copy, TTL")
            .no_failures()
            .faults(|b| {
                (b.interventions, b.replies_lost) = (1, 1);
                (b.copies, b.sweeps) = (1, 1);
            }),
        scope("a retry, a transaction, a lost reply")
            .form(Form::Transaction)
            .faults(|b| (b.interventions, b.replies_lost) = (1, 1)),
        scope("a retry, without a claim, a lost reply")
            .form(Form::Claimless)
            .faults(|b| (b.interventions, b.replies_lost) = (1, 1)),
        scope("a retry, a step, an operator looks, a crash")
            .steps(1, Provider::NoKeysInterrupt)
            .faults(|b| (b.interventions, b.crashes) = (1, 1)),
    ]
}

/// Every two classes of faults, each of them twice.
fn twice(scope: impl Fn(String) -> Scope) -> Vec<Scope> {
    let pairs = pairs().map(|((first, one), (second, other))| {
        let named = scope(format!("{first} twice, {second} twice"));
        named.faults(|b| {
            *one(b) = 2;
            *other(b) = 2;
        })
    });
    pairs.collect()
}

/// A class of faults: its name, and its place in a budget.
type Class = (&'static str, fn(&mut Budget) -> &mut u8);

const CLASSES: [Class; 6] = [
    ("a crash", |b| &mut b.crashes),
    ("a lost request", |b| &mut b.requests_lost),
    ("a lost reply", |b| &mut b.replies_lost),
    ("a late reply", |b| &mut b.replies_late),
    ("a late copy", |b| &mut b.copies),
    ("TTL", |b| &mut b.sweeps),
];

fn pairs() -> impl Iterator<Item = (Class, Class)> {
    let firsts = CLASSES.into_iter().enumerate();
    firsts.flat_map(|(place, first)| {
        let later = CLASSES.into_iter().skip(place + 1);
        later.map(move |second| (first, second))
    })
}

/// So many faults of every class.
fn every(count: u8) -> Budget {
    Budget {
        crashes: count,
        requests_lost: count,
        replies_lost: count,
        replies_late: count,
        copies: count,
        sweeps: count,
        ..Budget::default()
    }
}

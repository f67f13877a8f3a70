//! The leased form: one stored outcome for each payment, and no execution beyond what a lease that ran out, or a failure, explains.

use std::time::SystemTime;

use super::{Story, Why};
use crate::payments::Form;
use crate::report::Report;
use crate::support::provider::Asked;

/// A message that the queue was told is done.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    pub amount: u64,
    pub at: SystemTime,
}

/// All that is known of one payment.
pub struct Payment<'a> {
    pub form: Form,
    pub story: Option<Story>,
    /// The entries in the ledger, by id, and the time by which each stood.
    pub entries: &'a [(String, SystemTime)],
    pub asked: Vec<Asked>,
    pub acknowledged: Vec<Acknowledged>,
    /// The amounts of the messages that ended in the dead-letter queue.
    pub dead: Vec<u64>,
    /// The number of messages that are in neither place.
    pub lost: usize,
}

impl Payment<'_> {
    pub fn broken(mut self, report: &Report) -> Vec<String> {
        let mut broken = Vec::new();
        if self.lost > 0 {
            broken.push(format!("{} messages never came to an end", self.lost));
        }
        let story = self.story.take();
        if let Some(story) = &story {
            self.executions(story, report, &mut broken);
        } else if !self.executed().is_empty() || !self.acknowledged.is_empty() {
            broken.push("it was paid without a record".to_owned());
        }
        self.acknowledgements(&mut broken);
        self.amounts(&mut broken);
        if self.form != Form::Plain {
            self.charges(&mut broken);
        }
        self.end(story.as_ref(), &mut broken);
        broken.extend(story.into_iter().flat_map(|story| story.broken));
        broken
    }

    /// Returns the times at which its effect happened, or was asked for, in order.
    fn executed(&self) -> Vec<SystemTime> {
        let mut times: Vec<_> = match self.form {
            Form::Plain => self.entries.iter().map(|(_, at)| *at).collect(),
            Form::Keyed | Form::Unkeyed => self.asked.iter().map(|asked| asked.at).collect(),
        };
        times.sort_unstable();
        times
    }

    /// By the time of the nth execution, n claims stood: an execution has its own claim.
    fn executions(&self, story: &Story, report: &Report, broken: &mut Vec<String>) {
        for (number, at) in (1..).zip(self.executed()) {
            let stood = story.claims_by(at);
            if stood < number {
                broken.push(format!("execution {number} had no claim: {stood} stood"));
            } else if number > 1 {
                report.count(match story.claims[stood - 1].why {
                    Why::LeaseOver => "execution repeated after a lease that ran out",
                    Why::First | Why::Released => "execution repeated after a failed attempt",
                });
            }
        }
    }

    /// No message is acknowledged before its effect.
    fn acknowledgements(&self, broken: &mut Vec<String>) {
        let entered = self.entries.iter().map(|(_, at)| *at).min();
        let charged = self.asked.iter().filter(|asked| asked.is_charged);
        let charged = charged.map(|asked| asked.at).min();
        for ack in &self.acknowledged {
            let has = |effect: Option<SystemTime>| effect.is_some_and(|at| at <= ack.at);
            if !has(entered) || (self.form != Form::Plain && !has(charged)) {
                broken.push(format!(
                    "acknowledged at {:?}, before its effect: entered {entered:?}, charged {charged:?}",
                    ack.at
                ));
            }
        }
    }

    /// Of two messages with one id and two amounts, one is paid.
    fn amounts(&self, broken: &mut Vec<String>) {
        let asked = self.asked.iter().map(|asked| asked.amount);
        let mut amounts: Vec<_> = asked
            .chain(self.acknowledged.iter().map(|ack| ack.amount))
            .collect();
        amounts.sort_unstable();
        amounts.dedup();
        if amounts.len() > 1 {
            broken.push(format!("two amounts under one id: {amounts:?}"));
        }
    }

    fn charges(&self, broken: &mut Vec<String>) {
        let charges = self.asked.iter().filter(|asked| asked.is_charged).count();
        if charges > 1 {
            broken.push(format!("charged {charges} times"));
        }
        if self.entries.len() > 1 {
            broken.push(format!("entered under {} ids", self.entries.len()));
        }
    }

    /// Done, and then every message of it but those with another amount; or reported, and then for a reason.
    fn end(&self, story: Option<&Story>, broken: &mut Vec<String>) {
        if let Some(done) = self.acknowledged.first() {
            if !story.is_some_and(Story::is_completed) {
                broken.push("it is done, and no outcome is stored".to_owned());
            }
            if self.dead.contains(&done.amount) {
                broken.push("it is done, and a message of it is dead".to_owned());
            }
            return;
        }
        // By its journal: the attempt that came last may have ended before it looked there.
        let is_in_doubt = story.is_some_and(|story| story.end.is_in_doubt);
        if self.form != Form::Unkeyed || !is_in_doubt {
            broken.push(format!(
                "it is neither done nor waits for an operator: {:?}",
                story.map(|story| &story.end)
            ));
        }
    }
}

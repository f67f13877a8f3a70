//! The times that are on a record, in their order.

use lambda_idempotency::EpochMillis;
use lambda_idempotency::protocol::journal::StepState;
use lambda_idempotency::protocol::record::{Record, Status};

use super::Moment;
use crate::records::acts::acts;
use crate::records::operate::handlers_steps;
use crate::time;

pub(super) fn timeline(record: &Record, now: EpochMillis) -> Vec<Moment> {
    let attempt = record.attempt;
    let lease = record.lease.filter(|_| !record.is_released());
    let stored = match record.status {
        Status::Failed => "the failure was stored",
        _ => "the outcome was stored",
    };
    let mut times = vec![
        (record.started_at, format!("attempt {attempt} began")),
        (lease, format!("the lease of attempt {attempt} ends")),
        (record.completed_at, stored.to_owned()),
        (
            Some(record.expiration.to_millis()),
            "the record expires: the key counts as new".to_owned(),
        ),
    ];
    for (name, entry) in handlers_steps(record) {
        let what = match &entry.state {
            StepState::Confirmed(_) => "was confirmed",
            StepState::Failed => "failed",
            _ => "began, and is pending",
        };
        times.push((Some(entry.at), format!("step `{name}` {what}")));
    }
    for act in acts(&record.journal) {
        times.push((
            Some(EpochMillis(act.at)),
            format!("{} by {}: {}", act.act, act.by, act.reason),
        ));
    }
    let mut times: Vec<_> = times
        .into_iter()
        .filter_map(|(at, what)| Some((at?, what)))
        .collect();
    times.sort_by_key(|(at, _)| *at);
    let moment = |(at, what)| Moment {
        at: time::text(at),
        distance: time::distance(at, now),
        what,
    };
    times.into_iter().map(moment).collect()
}

//! The report of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Error;
use crate::effects::Effects;
use crate::generator::Sent;

/// The run, in JSON.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Requests, repetitions included.
    pub sent: usize,
    /// Repetitions.
    pub again: usize,
    /// Orders that a client was told are placed.
    pub placed: usize,
    /// The number of requests that were answered with each status; under 0, those without an answer.
    pub statuses: BTreeMap<u16, usize>,
    /// Orders that a client was told are placed, and that had no effect.
    pub lost: usize,
    /// Orders whose effect happened more than once.
    pub doubled: usize,
    /// Orders that no client was told of.
    pub unanswered: usize,
    /// Of first requests, in microseconds.
    pub first_us: Latencies,
    /// Of repetitions, in microseconds.
    pub again_us: Latencies,
    /// Of all requests, for each ten seconds.
    pub over_time: Vec<Latencies>,
    /// The memory of its processes, for each second.
    pub memory_kib: Vec<u64>,
    /// The processor time of its processes.
    pub cpu_ms: u64,
    /// From the first request until the last answer.
    pub seconds: f64,
}

/// Percentiles.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latencies {
    /// The median.
    pub p50: u64,
    /// The latency that 1 of 100 exceeds.
    pub p99: u64,
    /// The latency that 1 of 1,000 exceeds.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

const WINDOW: Duration = Duration::from_secs(10);

impl Report {
    /// Of what was sent, and what it did.
    pub fn of(
        sent: &[Sent],
        effects: &Effects,
        memory_kib: Vec<u64>,
        cpu_ms: u64,
    ) -> Result<Self, Error> {
        let mut statuses = BTreeMap::new();
        let mut orders = BTreeMap::new();
        let mut windows: BTreeMap<u64, Vec<&Sent>> = BTreeMap::new();
        for one in sent {
            *statuses.entry(one.status.unwrap_or_default()).or_default() += 1;
            *orders.entry(one.arrival.order).or_default() |= matches!(one.status, Some(200..=299));
            windows
                .entry(one.arrival.at.as_secs() / WINDOW.as_secs())
                .or_default()
                .push(one);
        }
        let runs = |order: &u32| effects.get(order).copied().unwrap_or_default();
        let placed = || orders.iter().filter(|(_, placed): &(_, &bool)| **placed);
        let end = |one: &Sent| one.arrival.at + one.latency;
        Ok(Self {
            sent: sent.len(),
            again: sent.iter().filter(|one| one.arrival.is_again).count(),
            placed: placed().count(),
            statuses,
            lost: placed().filter(|(order, _)| runs(order) == 0).count(),
            doubled: orders.keys().filter(|order| runs(order) > 1).count(),
            unanswered: orders.len() - placed().count(),
            first_us: Latencies::of(sent.iter().filter(|one| !one.arrival.is_again))?,
            again_us: Latencies::of(sent.iter().filter(|one| one.arrival.is_again))?,
            over_time: windows
                .into_values()
                .map(|window| Latencies::of(window.into_iter()))
                .collect::<Result<_, _>>()?,
            memory_kib,
            cpu_ms,
            seconds: sent.iter().map(end).max().unwrap_or_default().as_secs_f64(),
        })
    }
}

impl Latencies {
    fn of<'a>(sent: impl Iterator<Item = &'a Sent>) -> Result<Self, Error> {
        let mut histogram = Histogram::<u32>::new(3)?;
        for one in sent {
            histogram.record(u64::try_from(one.latency.as_micros())?)?;
        }
        Ok(Self {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Arrival;

    fn sent(order: u32, is_again: bool, status: Option<u16>) -> Sent {
        let arrival = Arrival {
            at: Duration::from_secs(u64::from(order)),
            order,
            is_again,
        };
        Sent {
            arrival,
            latency: Duration::from_millis(3),
            status,
        }
    }

    #[test]
    fn what_was_lost_or_doubled_is_told_from_what_was_not_placed() {
        let all = [
            sent(1, false, Some(201)),
            sent(1, true, Some(201)),
            sent(2, false, Some(201)),
            sent(3, false, Some(201)),
            sent(4, false, None),
            sent(5, false, Some(503)),
            sent(5, true, Some(201)),
        ];
        let effects = Effects::from([(1, 1), (2, 2), (4, 1), (5, 1)]);
        let report = Report::of(&all, &effects, Vec::new(), 0).unwrap();
        assert_eq!((report.lost, report.doubled, report.unanswered), (1, 1, 1));
        assert_eq!((report.sent, report.again, report.placed), (7, 2, 4));
        assert_eq!(
            report.statuses,
            BTreeMap::from([(0, 1), (201, 5), (503, 1)])
        );
        // To three digits.
        assert!((3_000..3_010).contains(&report.again_us.p50));
    }
}

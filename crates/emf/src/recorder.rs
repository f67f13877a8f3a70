//! The recorder keeps each metric until it is written, by its labels and its name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Label, Metadata, Recorder,
    SharedString, Unit,
};

use crate::document;

/// The number of values that a histogram keeps until they are written: the largest batch of SQS,
/// twice. It bounds the memory of a process that never writes.
const MOST_VALUES: usize = 20_000;

/// The metrics of an exporter.
#[derive(Default)]
pub(crate) struct Registered(Mutex<State>);

#[derive(Default)]
struct State {
    by_labels: BTreeMap<Vec<Label>, BTreeMap<String, Metric>>,
    units: HashMap<String, Unit>,
    /// The names of which the log says why they are not written.
    refused: HashSet<(String, &'static str)>,
}

enum Metric {
    Counter(Arc<Count>),
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Values>),
}

/// A counter, of which a part was written.
#[derive(Default)]
struct Count {
    total: AtomicU64,
    written: AtomicU64,
}

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        self.total.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.total.fetch_max(value, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Values(Mutex<Vec<f64>>);

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if values.len() < MOST_VALUES {
            values.push(value);
        }
    }
}

/// The samples of the metrics with the same labels, since they were last written.
pub(crate) struct Drained {
    pub(crate) labels: Vec<Label>,
    pub(crate) samples: Vec<Sample>,
}

pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) unit: Option<Unit>,
    pub(crate) value: Value,
}

pub(crate) enum Value {
    Counted(u64),
    Level(f64),
    Measured(Vec<f64>),
}

impl Metric {
    /// Takes what is new; a gauge keeps its value.
    fn drain(&self) -> Option<Value> {
        match self {
            Self::Counter(count) => {
                let total = count.total.load(Ordering::Relaxed);
                let written = count.written.swap(total, Ordering::Relaxed);
                let new = total.wrapping_sub(written);
                (new > 0).then_some(Value::Counted(new))
            }
            Self::Gauge(level) => Some(Value::Level(f64::from_bits(level.load(Ordering::Relaxed)))),
            Self::Histogram(values) => {
                let mut values = values.0.lock().unwrap_or_else(PoisonError::into_inner);
                let values = std::mem::take(&mut *values);
                (!values.is_empty()).then_some(Value::Measured(values))
            }
        }
    }
}

impl Registered {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was recorded since the last call. The lock keeps two calls from taking one count.
    pub(crate) fn drain(&self) -> Vec<Drained> {
        let state = self.state();
        let mut drained = Vec::new();
        for (labels, metrics) in &state.by_labels {
            let sample = |(name, metric): (&String, &Metric)| {
                Some(Sample {
                    name: name.clone(),
                    unit: state.units.get(name).copied(),
                    value: metric.drain()?,
                })
            };
            let samples: Vec<_> = metrics.iter().filter_map(sample).collect();
            if !samples.is_empty() {
                let labels = labels.clone();
                drained.push(Drained { labels, samples });
            }
        }
        drained
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>) {
        if let Some(unit) = unit {
            self.state().units.insert(name.as_str().to_owned(), unit);
        }
    }

    /// Finds the metric of this key, or makes it; `None` where the key is that of another kind, or no
    /// document can have it.
    fn register<T>(
        &self,
        key: &Key,
        make: fn() -> Metric,
        handle: fn(&Metric) -> Option<T>,
    ) -> Option<T> {
        if !document::takes(key) {
            self.refuse(
                key,
                "CloudWatch takes no metric of this name with these labels; it is not written",
            );
            return None;
        }
        let mut labels: Vec<_> = key.labels().cloned().collect();
        labels.sort();
        let mut state = self.state();
        let metrics = state.by_labels.entry(labels).or_default();
        let metric = metrics.entry(key.name().to_owned()).or_insert_with(make);
        let found = handle(metric);
        drop(state);
        if found.is_none() {
            self.refuse(
                key,
                "a metric is recorded as two kinds; only the first is written",
            );
        }
        found
    }

    /// Logs why a key is not written, once for its name: `counter!` registers its key each time.
    fn refuse(&self, key: &Key, reason: &'static str) {
        let told = (key.name().to_owned(), reason);
        if self.state().refused.insert(told) {
            tracing::error!(name = key.name(), "{reason}");
        }
    }
}

/// The recorder, as the facade takes it.
pub(crate) struct Registry(pub(crate) Arc<Registered>);

impl Recorder for Registry {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.0.describe(&name, unit);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.0.describe(&name, unit);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.0.describe(&name, unit);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let make = || Metric::Counter(Arc::default());
        let handle = |metric: &Metric| match metric {
            Metric::Counter(count) => Some(Counter::from_arc(Arc::clone(count))),
            _ => None,
        };
        let found = self.0.register(key, make, handle);
        found.unwrap_or_else(Counter::noop)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let make = || Metric::Gauge(Arc::default());
        let handle = |metric: &Metric| match metric {
            Metric::Gauge(level) => Some(Gauge::from_arc(Arc::clone(level))),
            _ => None,
        };
        self.0
            .register(key, make, handle)
            .unwrap_or_else(Gauge::noop)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let make = || Metric::Histogram(Arc::default());
        let handle = |metric: &Metric| match metric {
            Metric::Histogram(values) => Some(Histogram::from_arc(Arc::clone(values))),
            _ => None,
        };
        let found = self.0.register(key, make, handle);
        found.unwrap_or_else(Histogram::noop)
    }
}

//! The documents follow AWS's specification of the embedded metric format; its limits are below.

use std::io::{Result, Write};

use metrics::{Key, Label, Unit};
use serde_json::{Map, Value as Json, json};

use crate::recorder::{Drained, Sample, Value};

/// The number of metrics in one document.
const MOST_METRICS: usize = 100;

/// The number of values of one metric in one document.
const MOST_VALUES: usize = 100;

/// The largest value, 2^360; the least one is its negative. CloudWatch takes none that is not finite, either.
const LARGEST: f64 = f64::from_bits((1_023 + 360) << 52);

/// The number of dimensions in a set.
const MOST_DIMENSIONS: usize = 30;

/// The number of characters of a metric's or a dimension's name.
const MOST_NAME_CHARS: usize = 255;

/// Writes each document on its own line.
pub(crate) fn lines(namespace: &str, millis: u128, drained: Vec<Drained>) -> Result<Vec<u8>> {
    let mut lines = Vec::new();
    for Drained { labels, samples } in drained {
        let mut rest = samples;
        while !rest.is_empty() {
            let (members, metrics, beyond) = first(rest);
            rest = beyond;
            if metrics.is_empty() {
                continue;
            }
            let mut document = json!({
                "_aws": {
                    "Timestamp": millis,
                    "CloudWatchMetrics": [{
                        "Namespace": namespace,
                        "Dimensions": dimensions(&labels),
                        "Metrics": metrics,
                    }],
                },
            });
            if let Some(document) = document.as_object_mut() {
                let labels = labels.iter();
                document.extend(labels.map(|label| (label.key().into(), value_of(label).into())));
                document.extend(members);
            }
            serde_json::to_writer(&mut lines, &document)?;
            lines.write_all(b"\n")?;
        }
    }
    Ok(lines)
}

/// Takes as much as one document may have: its values, their descriptions, and the rest.
fn first(samples: Vec<Sample>) -> (Map<String, Json>, Vec<Json>, Vec<Sample>) {
    let (mut members, mut metrics, mut beyond) = (Map::new(), Vec::new(), Vec::new());
    for mut sample in samples {
        if metrics.len() == MOST_METRICS {
            beyond.push(sample);
            continue;
        }
        let number = |value: f64| (value.abs() <= LARGEST).then(|| json!(value));
        let value = match &mut sample.value {
            Value::Counted(count) => Some(json!(count)),
            Value::Level(level) => number(*level),
            Value::Measured(values) => {
                let count = values.len().min(MOST_VALUES);
                let values: Vec<_> = values.drain(..count).filter_map(number).collect();
                (!values.is_empty()).then_some(Json::Array(values))
            }
        };
        let unit = sample.unit.and_then(name_of);
        // One value that CloudWatch doesn't take would cost the whole document.
        if let Some(value) = value {
            metrics.push(match unit {
                Some(unit) => json!({ "Name": sample.name, "Unit": unit }),
                None => json!({ "Name": sample.name }),
            });
            members.insert(sample.name.clone(), value);
        }
        if matches!(&sample.value, Value::Measured(values) if !values.is_empty()) {
            beyond.push(sample);
        }
    }
    (members, metrics, beyond)
}

/// The sets of dimensions: all labels, and for the library's metrics those without the operation,
/// since alarms look at all operations of a service together.
fn dimensions(labels: &[Label]) -> Vec<Vec<&str>> {
    let is_dimension = |label: &&Label| is_name(label.key()) && !is_blank(label.value());
    let fit = labels.iter().filter(is_dimension);
    let names = fit.map(Label::key).take(MOST_DIMENSIONS);
    let all: Vec<_> = names.collect();
    let mut sets = vec![all.clone()];
    if all.contains(&"namespace") && all.contains(&"operation") {
        sets.push(
            all.into_iter()
                .filter(|name| *name != "operation")
                .collect(),
        );
    }
    sets
}

/// Returns whether a document can have this metric. CloudWatch takes no name that is blank or too long; a label
/// of the metric's name would be the same member, and `_aws` is the member that describes the metrics.
pub(crate) fn takes(key: &Key) -> bool {
    let name = key.name();
    let collides = |label: &Label| label.key() == name || label.key() == "_aws";
    !is_blank(name)
        && name != "_aws"
        && name.chars().count() <= MOST_NAME_CHARS
        && !key.labels().any(collides)
}

/// Returns whether CloudWatch takes this name of a dimension.
fn is_name(name: &str) -> bool {
    is_printable(name) && !is_blank(name) && name.len() <= MOST_NAME_CHARS && !name.starts_with(':')
}

/// Returns whether a text is empty, or only blanks. CloudWatch takes no such name, and no such value.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Returns whether a text is ASCII without control characters.
fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// The value of a dimension. CloudWatch takes 1,024 characters of ASCII without control characters, so that
/// others are escaped.
fn value_of(label: &Label) -> String {
    let value = label.value();
    if is_printable(value) {
        return value.chars().take(1_024).collect();
    }
    value.escape_default().take(1_024).collect()
}

/// CloudWatch's name of a unit, where it has one.
fn name_of(unit: Unit) -> Option<&'static str> {
    Some(match unit {
        Unit::Count => "Count",
        Unit::Percent => "Percent",
        Unit::Seconds => "Seconds",
        Unit::Milliseconds => "Milliseconds",
        Unit::Microseconds => "Microseconds",
        Unit::Tebibytes => "Terabytes",
        Unit::Gibibytes => "Gigabytes",
        Unit::Mebibytes => "Megabytes",
        Unit::Kibibytes => "Kilobytes",
        Unit::Bytes => "Bytes",
        Unit::TerabitsPerSecond => "Terabits/Second",
        Unit::GigabitsPerSecond => "Gigabits/Second",
        Unit::MegabitsPerSecond => "Megabits/Second",
        Unit::KilobitsPerSecond => "Kilobits/Second",
        Unit::BitsPerSecond => "Bits/Second",
        Unit::CountPerSecond => "Count/Second",
        Unit::Nanoseconds => return None,
    })
}

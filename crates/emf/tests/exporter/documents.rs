//! The form of the documents, by AWS's specification of the embedded metric format.

use std::collections::BTreeSet;
use std::io::Error as IoError;

use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Idempotency, Key};
use metrics::{Unit, counter, describe_counter, gauge, histogram};
use serde_json::{Value, json};

use crate::support::{Output, Written};

fn directive(document: &Value) -> &Value {
    let directives = document["_aws"]["CloudWatchMetrics"].as_array().unwrap();
    assert_eq!(directives.len(), 1);
    &directives[0]
}

#[tokio::test]
async fn what_the_library_counts_is_written_once_in_both_sets_of_dimensions() {
    let written = Written::new();
    let recorder = written.exporter.recorder();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("shop")
        .build()
        .unwrap();
    for _ in 0..2 {
        let handler = |_| async { Ok::<_, IoError>("done".to_owned()) };
        once.run(Key::new("charge", "1"), None, handler)
            .await
            .unwrap();
    }
    let documents = written.flushed();
    assert_eq!(documents.len(), 1);
    let document = &documents[0];
    let directive = directive(document);
    assert_eq!(directive["Namespace"], "LambdaIdempotency");
    assert_eq!(
        directive["Dimensions"],
        json!([["namespace", "operation"], ["namespace"]])
    );
    assert_eq!(document["namespace"], "shop");
    assert_eq!(document["operation"], "charge");
    assert_eq!(document["idempotency_executions"], 1);
    assert_eq!(document["idempotency_replays"], 1);
    let times = document["idempotency_claim_time"].as_array().unwrap();
    assert_eq!(times.len(), 2);
    let unit = |name: &str| {
        let metrics = directive["Metrics"].as_array().unwrap();
        let metric = metrics.iter().find(|metric| metric["Name"] == name);
        metric.unwrap()["Unit"].clone()
    };
    assert_eq!(unit("idempotency_executions"), "Count");
    assert_eq!(unit("idempotency_claim_time"), "Milliseconds");
    assert_eq!(unit("idempotency_outcome_size"), "Bytes");
    assert!(written.flushed().is_empty());
}

#[test]
fn metrics_of_ones_own_have_their_labels_as_one_set_of_dimensions() {
    let written = Written::new();
    let documents = written.of(|| {
        describe_counter!("orders", Unit::Count, "orders placed");
        counter!("orders", "shop" => "tea", "operation" => "place").increment(2);
        counter!("orders", "operation" => "place", "shop" => "tea").increment(1);
        counter!("orders", "shop" => "").increment(4);
    });
    assert_eq!(documents.len(), 2);
    let (without, with) = (&documents[1], &documents[0]);
    let counted = json!([{ "Name": "orders", "Unit": "Count" }]);
    assert_eq!(directive(with)["Metrics"], counted);
    assert_eq!(
        directive(with)["Dimensions"],
        json!([["operation", "shop"]])
    );
    assert_eq!((&with["orders"], &with["shop"]), (&json!(3), &json!("tea")));
    // CloudWatch takes no dimension without a value.
    assert_eq!(directive(without)["Dimensions"], json!([[]]));
    assert_eq!(without["orders"], 4);
}

#[test]
fn a_metric_that_would_lose_its_document_is_not_written() {
    let long = "n".repeat(256);
    let longest = &long[1..];
    let documents = Written::new().of(|| {
        for name in ["", " ", "_aws", "shop", long.as_str(), longest, "orders"] {
            counter!(name.to_owned(), "shop" => "tea").increment(1);
        }
        counter!("orders", "_aws" => "tea").increment(1);
    });
    assert_eq!(documents.len(), 1);
    let written = json!([{ "Name": longest }, { "Name": "orders" }]);
    assert_eq!(directive(&documents[0])["Metrics"], written);
    assert_eq!(documents[0]["shop"], "tea");
}

#[test]
fn the_log_says_once_why_a_metric_is_not_written() {
    let log = Output::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
    tracing::subscriber::with_default(subscriber.finish(), || {
        Written::new().of(|| {
            for request in ["a", "b", "c"] {
                counter!("_aws", "id" => request).increment(1);
                counter!("orders").increment(1);
                gauge!("orders").set(1.0);
            }
        })
    });
    let log = log.take();
    assert_eq!(log.lines().count(), 2, "{log}");
}

#[test]
fn a_dimension_has_a_name_that_cloudwatch_takes() {
    let names = [
        String::new(),
        "  ".to_owned(),
        ":x".to_owned(),
        "städte".to_owned(),
        "n".repeat(256),
        "n".repeat(255),
    ];
    let longest = names[5].clone();
    let documents = Written::new().of(|| {
        let labels = names.map(|name| (name, "a".to_owned()));
        counter!("orders", &labels).increment(1);
    });
    assert_eq!(directive(&documents[0])["Dimensions"], json!([[longest]]));
}

#[test]
fn a_dimension_has_ascii_characters_alone_and_more_than_blanks() {
    let written = Written::new();
    let documents = written.of(|| counter!("orders", "shop" => "für", "city" => " ").increment(1));
    assert_eq!(directive(&documents[0])["Dimensions"], json!([["shop"]]));
    assert_eq!(documents[0]["shop"], "f\\u{fc}r");
    let documents = written.of(|| {
        let wide = "🦀".repeat(200);
        counter!("orders", "shop" => "a\tb", "städte" => "a", ":x" => "a", "wide" => wide)
            .increment(1);
    });
    assert_eq!(
        directive(&documents[0])["Dimensions"],
        json!([["shop", "wide"]])
    );
    assert_eq!(documents[0]["shop"], "a\\tb");
    assert_eq!(documents[0]["wide"].as_str().map(str::len), Some(1_024));
}

#[test]
fn a_counter_is_written_as_what_was_added_and_a_gauge_as_its_value() {
    let written = Written::new();
    let count = || {
        counter!("added").increment(3);
        counter!("absolute").absolute(10);
        gauge!("level").set(1.5);
    };
    let first = written.of(count);
    let values =
        |document: &Value| ["added", "absolute", "level"].map(|name| document[name].clone());
    assert_eq!(values(&first[0]), [json!(3), json!(10), json!(1.5)]);
    let second = written.of(|| {
        count();
        counter!("absolute").absolute(12);
    });
    assert_eq!(values(&second[0]), [json!(3), json!(2), json!(1.5)]);
    assert_eq!(
        values(&written.flushed()[0]),
        [Value::Null, Value::Null, json!(1.5)]
    );
}

#[test]
fn more_values_or_metrics_than_a_document_may_have_go_on_in_further_documents() {
    let written = Written::new();
    let names: Vec<_> = (0..150).map(|number| format!("metric_{number}")).collect();
    let documents = written.of(|| {
        for value in 0..250 {
            histogram!("time").record(f64::from(value));
        }
        for name in &names {
            counter!(name.clone()).increment(1);
        }
    });
    let (mut values, mut counted) = (Vec::new(), BTreeSet::new());
    for document in &documents {
        let metrics = directive(document)["Metrics"].as_array().unwrap();
        assert!(metrics.len() <= 100);
        for metric in metrics {
            let name = metric["Name"].as_str().unwrap();
            if let Some(some) = document[name].as_array() {
                assert!(some.len() <= 100);
                values.extend(some.iter().filter_map(Value::as_f64));
            } else {
                assert_eq!(document[name], 1);
                assert!(counted.insert(name.to_owned()), "{name} is there twice");
            }
        }
    }
    assert!(values.into_iter().eq((0..250).map(f64::from)));
    assert_eq!(counted, names.into_iter().collect());
}

#[test]
fn a_value_that_cloudwatch_does_not_take_is_left_out() {
    let written = Written::new();
    let largest = 2_f64.powi(360);
    let documents = written.of(|| {
        for value in [f64::NAN, 2.0, largest.next_up(), -largest, f64::MIN] {
            histogram!("time").record(value);
        }
        gauge!("level").set(f64::INFINITY);
        gauge!("depth").set(-largest.next_up());
    });
    assert_eq!(documents.len(), 1);
    assert_eq!(documents[0]["time"], json!([2.0, -largest]));
    assert!(documents[0].get("level").is_none());
    assert!(documents[0].get("depth").is_none());
    assert!(
        written
            .of(|| histogram!("time").record(f64::NAN))
            .is_empty()
    );
}

#[test]
fn the_first_thirty_labels_are_dimensions_and_all_of_them_are_written() {
    let labels: Vec<_> = (10..45)
        .map(|number| (format!("label_{number}"), "x".to_owned()))
        .collect();
    let documents = Written::new().of(|| counter!("orders", &labels).increment(1));
    let dimensions = directive(&documents[0])["Dimensions"].clone();
    assert_eq!(dimensions[0].as_array().unwrap().len(), 30);
    assert_eq!(dimensions[0][29], "label_39");
    assert_eq!(documents[0]["label_44"], "x");
}

#[test]
fn a_metric_that_is_recorded_as_two_kinds_is_written_as_the_first() {
    let documents = Written::new().of(|| {
        counter!("orders").increment(1);
        gauge!("orders").set(7.0);
        histogram!("orders").record(8.0);
    });
    assert_eq!(documents[0]["orders"], 1);
}

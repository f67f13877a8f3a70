//! The JSON of each command has its schema, and all of them the one that is committed.

use super::{WHY, dead, deliver, id};
use crate::support::{Scratch, on, run, table};
use lambda_idempotency_cli::schema;
use schemars::Schema;
use serde_json::{Value, json};

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/output.json");

/// `UPDATE_SCHEMA=1` writes it.
#[test]
fn the_schema_that_is_committed_is_that_of_the_code() {
    let printed = schema::of_all();
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        let text = serde_json::to_string_pretty(&printed).unwrap() + "\n";
        std::fs::write(COMMITTED, text).unwrap();
    }
    let committed = std::fs::read(COMMITTED).unwrap();
    let committed: Value = serde_json::from_slice(&committed).unwrap();
    assert_eq!(&committed, printed.as_value());
}

fn errors(schema: &Schema, document: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(schema.as_value()).unwrap();
    let errors = validator.iter_errors(document);
    errors.map(|error| error.to_string()).collect()
}

fn validate(name: &str, document: &Value) {
    for schema in [schema::of(name).unwrap(), schema::of_all()] {
        let errors = errors(&schema, document);
        assert_eq!(errors, [] as [&str; 0], "{name}: {document}");
    }
}

#[tokio::test]
async fn what_is_printed_has_its_schema() {
    let table = table().await;
    let dead = dead(&table, "dead").await;
    deliver(&table, "done").await.unwrap();
    let done = id(&table, "done");
    let file = Scratch::with(&done);
    for (name, words) in [
        ("get", dead.clone()),
        ("get", done.clone()),
        ("explain", dead.clone()),
        ("explain", done.clone()),
        ("list", "--yes".to_owned()),
        ("release", format!("{dead} {WHY}")),
        ("rerun", format!("{done} --keys new {WHY}")),
        ("rerun", format!("--from {file} --keys new {WHY}")),
    ] {
        let said = on(&table, &format!("{name} --json {words}")).await;
        let documents = serde_json::Deserializer::from_str(&said.out).into_iter();
        let documents: Vec<Value> = documents.map(Result::unwrap).collect();
        assert!(!documents.is_empty(), "{said:?}");
        for document in documents {
            validate(name, &document);
        }
    }
    let printed = run("schema get").await.ended_with(0).json();
    assert_eq!(&printed, schema::of("get").unwrap().as_value());
    let printed = run("schema").await.ended_with(0).json();
    assert_eq!(&printed, schema::of_all().as_value());
    run("schema man").await.refused(2, "`man` prints no JSON");
    for schema in [schema::of("get").unwrap(), schema::of_all()] {
        assert_ne!(errors(&schema, &json!({"id": 17})), [] as [&str; 0]);
    }
}

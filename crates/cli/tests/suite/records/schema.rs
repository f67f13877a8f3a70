//! The JSON of each command has the schema that is committed.

use super::{WHY, dead, deliver, id};
use crate::support::{on, run, table};
use lambda_idempotency_cli::schema;
use serde_json::Value;

fn committed(name: &str) -> Value {
    let path = format!("{}/schema/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_slice(&text).unwrap()
}

/// `UPDATE_SCHEMA=1` writes them.
#[test]
fn the_schemas_that_are_committed_are_those_of_the_code() {
    for name in schema::commands() {
        let schema = serde_json::to_value(schema::of(name).unwrap()).unwrap();
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            let path = format!("{}/schema/{name}.json", env!("CARGO_MANIFEST_DIR"));
            let text = serde_json::to_string_pretty(&schema).unwrap();
            std::fs::write(path, text + "\n").unwrap();
        }
        assert_eq!(committed(name), schema, "{name}");
    }
}

fn validate(name: &str, document: &Value) {
    let schema = committed(name);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(document)
        .map(|error| error.to_string())
        .collect();
    assert_eq!(errors, [] as [&str; 0], "{name}: {document}");
}

#[tokio::test]
async fn what_is_printed_has_its_schema() {
    let table = table().await;
    let dead = dead(&table, "dead").await;
    deliver(&table, "done").await.unwrap();
    let done = id(&table, "done");
    for id in [&dead, &done] {
        validate("get", &on(&table, &["get", id, "--json"]).await.json());
        validate(
            "explain",
            &on(&table, &["explain", id, "--json"]).await.json(),
        );
    }
    for line in on(&table, &["list", "--yes", "--json"]).await.out.lines() {
        validate("list", &serde_json::from_str(line).unwrap());
    }
    let release = [&["release", &dead, "--yes", "--json"][..], &WHY].concat();
    validate("release", &on(&table, &release).await.json());
    let printed = run(&["schema", "get"]).await.ended_with(0).json();
    assert_eq!(printed, committed("get"));
    run(&["schema", "man"])
        .await
        .refused(2, "`man` prints no JSON");
    let validator = jsonschema::validator_for(&committed("get")).unwrap();
    assert!(
        !validator.is_valid(&serde_json::json!({"id": 17})),
        "a schema that takes anything"
    );
}

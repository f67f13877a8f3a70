//! `drift-audit` behind the Runtime API: it finds a settlement without a payout and one with two, and counts them.

use aws_sdk_dynamodb::types::AttributeValue::S;
use serde_json::{Value, json};

use crate::support::lambda::{Function, Reply, text};

#[tokio::test]
async fn a_settlement_without_a_payout_and_one_with_two_are_found_and_counted() {
    let settlements = Function::settlements().await;
    let mut sandbox = settlements.start().await;
    for number in 0..5 {
        let settlement =
            json!({ "settlement_id": format!("s-{number}"), "merchant": "m-1", "amount": 1250 });
        sandbox.invoke(settlement).await.answer();
    }
    let mut audit = settlements.drift_audit().start().await;
    let found = audit.invoke(json!({})).await.answer();
    assert_eq!(
        found,
        json!({ "checked": 5, "missing": 0, "double": 0, "not_judged": 0 })
    );

    let payouts = settlements.effects().await;
    let of = |id: &str| {
        payouts
            .iter()
            .find(|payout| text(payout, "settlement_id") == id)
            .unwrap()
    };
    let client = settlements.server().client();
    let delete = client.delete_item().table_name(settlements.effects_table());
    let lost = S(text(of("s-1"), "payout_id").to_owned());
    delete.key("payout_id", lost).send().await.unwrap();
    let again = client.put_item().table_name(settlements.effects_table());
    let again = again.item("payout_id", S("again".to_owned()));
    again
        .item("settlement_id", S("s-2".to_owned()))
        .send()
        .await
        .unwrap();

    let found = audit.invoke(json!({})).await.answer();
    assert_eq!(
        found,
        json!({ "checked": 5, "missing": 1, "double": 1, "not_judged": 0 })
    );
    let lines = audit.lines();
    let drift = lines
        .lines()
        .filter(|line| line.contains("\"event\":\"drift\""));
    let drift: Vec<Value> = drift
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(drift.len(), 2, "{lines}");
    for line in drift {
        let key = line["fields"]["key"].as_str().unwrap();
        let is_hash = key.len() == 64 && key.bytes().all(|digit| digit.is_ascii_hexdigit());
        assert!(is_hash, "{line}");
    }
    // An id that a caller chose may be a secret.
    assert!(!lines.contains("settlements#settle#"), "{lines}");
    let mut counted = lines
        .lines()
        .filter(|line| line.contains("\"drift_found\":2"));
    let counted: Value = serde_json::from_str(counted.next().expect("a metric")).unwrap();
    let directive = &counted["_aws"]["CloudWatchMetrics"][0];
    assert_eq!(directive["Namespace"], "LambdaIdempotency");
    assert_eq!(directive["Dimensions"], json!([["function"]]));
    assert_eq!(counted["function"], "drift-audit");
}

#[tokio::test]
async fn a_table_that_cannot_be_read_fails_the_invocation() {
    let settlements = Function::settlements().await;
    let audit = settlements.drift_audit().with("EFFECTS_TABLE", "nowhere");
    let mut audit = audit.start().await;
    match audit.invoke(json!({})).await {
        Reply::Failed(message) => {
            assert!(message.contains("read the effects of nowhere"), "{message}");
        }
        other => panic!("no failure: {other:?}"),
    }
}

#[tokio::test]
async fn an_audit_that_compared_nothing_fails() {
    let settlements = Function::settlements().await;
    let mut audit = settlements.drift_audit().start().await;
    match audit.invoke(json!({})).await {
        Reply::Failed(message) => {
            assert!(message.contains("nothing was compared"), "{message}");
        }
        other => panic!("no failure: {other:?}"),
    }
}

#[tokio::test]
async fn an_audit_that_compared_less_than_nine_records_of_ten_fails() {
    let settlements = Function::settlements().await;
    let mut sandbox = settlements.start().await;
    for number in 0..10 {
        let settlement =
            json!({ "settlement_id": format!("s-{number}"), "merchant": "m-1", "amount": 1250 });
        sandbox.invoke(settlement).await.answer();
    }
    let records = settlements.records().await;
    let table = settlements.records_table();
    let forget = async |number: usize| {
        let update = settlements.server().client().update_item();
        update
            .table_name(table)
            .key("id", records[number]["id"].clone())
            .update_expression("SET #data = :nothing")
            .expression_attribute_names("#data", "data")
            .expression_attribute_values(":nothing", S("{}".to_owned()))
            .send()
            .await
            .unwrap();
    };
    let mut audit = settlements.drift_audit().start().await;
    forget(0).await;
    let found = audit.invoke(json!({})).await.answer();
    assert_eq!(
        found,
        json!({ "checked": 9, "missing": 0, "double": 0, "not_judged": 1 })
    );
    forget(1).await;
    match audit.invoke(json!({})).await {
        Reply::Failed(message) => {
            assert!(message.contains("more than one record in ten"), "{message}");
        }
        other => panic!("no failure: {other:?}"),
    }
    assert!(audit.lines().contains("\"drift_checked\":8"));
}

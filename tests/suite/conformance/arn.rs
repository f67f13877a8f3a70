//! A table that is given by its ARN. Neither server takes one, so the wire puts the name in its place.

use std::sync::Arc;

use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::testing::conformance;
use serde_json::Value;

use crate::on_each_server;
use crate::support::Server;
use crate::support::proxy::{Fault, Meddler, Proxy};

const ARN: &str = "arn:aws:dynamodb:us-east-1:123456789012:table/";

/// Takes ARNs wherever the documentation of DynamoDB's API does.
struct TakesArns;

impl Meddler for TakesArns {
    fn fault(&self, operation: &str, request: &Value) -> Fault {
        assert!(
            request.to_string().contains(ARN),
            "{operation} has another name of the table: {request}"
        );
        Fault::Pass
    }

    fn rewrite(&self, _operation: &str, request: Value) -> Value {
        let text = request.to_string().replace(ARN, "");
        text.parse().unwrap()
    }
}

on_each_server!(it_keeps_the_contract_in_a_table_given_by_its_arn);
async fn it_keeps_the_contract_in_a_table_given_by_its_arn(server: Server) {
    let table = server.idempotency_table().await;
    let wire = Proxy::meddled_with(&server, Arc::new(TakesArns)).await;
    let store = DynamoDbStore::new(wire.server().client(), format!("{ARN}{table}"));
    conformance(&store).await.unwrap();
    let counts = wire.take_counts();
    assert!(counts.contains_key("BatchGetItem"), "{counts:?}");
    // PartiQL's documentation knows names alone.
    assert!(!counts.contains_key("BatchExecuteStatement"), "{counts:?}");
}

//! A pipe: the source's records in an array, and its ids in the reply.

use lambda_idempotency::sqs::SqsMessage;
use serde_json::json;

use super::*;

const PIPE: &str = include_str!("../../fixtures/pipe-sqs.json");

on_each_server!(a_failed_message_is_named_by_its_id_and_the_others_are_not_run_again);
async fn a_failed_message_is_named_by_its_id_and_the_others_are_not_run_again(server: Server) {
    let (once, world) = (engine(&server).await, World::default());
    let [first, second] = [1, 2].map(|n| format!("059f36b4-87a3-44ab-83d2-66197597777{n}"));
    world.fail_on(&[&second]);
    let reply = deliver(layer::<Vec<SqsMessage>>(&once), &world, PIPE)
        .await
        .unwrap();
    let expected = json!({ "batchItemFailures": [{ "itemIdentifier": second }] });
    assert_eq!(serde_json::to_value(reply).unwrap(), expected);
    assert_eq!(world.take(), [first]);

    world.fail_on(&[]);
    let reply = deliver(layer::<Vec<SqsMessage>>(&once), &world, PIPE)
        .await
        .unwrap();
    assert!(reply.batch_item_failures.is_empty());
    assert_eq!(world.take(), [second]);
}

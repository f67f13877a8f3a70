//! Steps and business writes in one handler: the effects outside are noted, those in DynamoDB commit with the outcome.

use aws_sdk_dynamodb::types::{AttributeValue::S, Put};

use super::faults::Wire;
use super::*;
use crate::on_each_server;
use crate::support::Server;

on_each_server!(a_transaction_that_is_refused_keeps_what_its_steps_did);
async fn a_transaction_that_is_refused_keeps_what_its_steps_did(server: Server) {
    let wire = &Wire::to(&server).await;
    let orders = &server.table_with_key("orders", "id").await;
    let once = wire.once();
    let place = || {
        once.run(Key::raw("order", ID), payload(), |claim| async move {
            let receipt = claim.step("charge", |_| wire.effect()).await?;
            let order = Put::builder()
                .table_name(orders)
                .item("id", S("order-1".into()))
                .item("receipt", S(receipt.to_string()))
                .condition_expression("attribute_not_exists(id)");
            claim.write(order).expect("it can be written");
            Ok::<_, StepError<Provider>>(receipt)
        })
    };
    let taken = server
        .client()
        .put_item()
        .table_name(orders)
        .item("id", S("order-1".into()));
    taken.send().await.unwrap();
    let refused = place().await;
    assert_matches!(refused, Err(Error::Refused(_)));

    let freed = server
        .client()
        .delete_item()
        .table_name(orders)
        .key("id", S("order-1".into()));
    freed.send().await.unwrap();
    assert_eq!(place().await.unwrap(), Outcome::Executed(1));
    assert!(place().await.unwrap().is_replayed());
    assert_eq!(wire.fired(), 1);
}

on_each_server!(the_claimless_form_has_no_journal_and_says_so);
async fn the_claimless_form_has_no_journal_and_says_so(server: Server) {
    let wire = &Wire::to(&server).await;
    let once = wire.once().claimless();
    for _ in 0..2 {
        let error = wire.charge(&once, true).await.unwrap_err();
        assert_matches!(error, Error::Handler(StepError::NoJournal));
    }
    assert_eq!(wire.fired(), 0, "each duplicate would fire it");
}

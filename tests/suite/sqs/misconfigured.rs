//! A configuration that takes the protection away fails the invocation, so that Lambda counts an error.

use lambda_idempotency::store::MemoryStore;

use super::*;
use crate::support::Fault;

fn payments() -> [Value; 3] {
    [1, 2, 3].map(|n| payment(&format!("m-{n}"), &format!("p-{n}"), n))
}

/// The error of a batch that no message of is done.
async fn error(once: &Idempotency) -> String {
    let effects = Effects::default();
    let failed = charging(once, &effects).call(batch(payments())).await;
    assert_eq!(effects.take(), NOTHING);
    match failed {
        Err(BatchError::Misconfigured { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

on_each_server!(a_table_that_does_not_exist_fails_the_invocation);
async fn a_table_that_does_not_exist_fails_the_invocation(server: Server) {
    let once = builder(DynamoDbStore::new(server.client(), "no-such-table"));
    let error = error(&once.build().unwrap()).await;
    assert!(error.contains("no-such-table"), "{error}");
}

on_each_server!(a_table_with_another_key_schema_fails_the_invocation);
async fn a_table_with_another_key_schema_fails_the_invocation(server: Server) {
    let table = server.table_with_key("other", "pk").await;
    let once = builder(DynamoDbStore::new(server.client(), &table));
    let error = error(&once.build().unwrap()).await;
    assert!(error.contains("partition key"), "{error}");
}

on_each_server!(a_missing_permission_fails_the_invocation);
async fn a_missing_permission_fails_the_invocation(server: Server) {
    let proxy = Proxy::before(&server).await;
    let once = engine(proxy.server()).await;
    for operation in ["BatchExecuteStatement", "PutItem"] {
        proxy.repeat(operation, Fault::DENY, 6);
    }
    let error = error(&once).await;
    assert!(error.contains("dynamodb:PutItem"), "{error}");
}

on_each_server!(a_transaction_without_permission_fails_the_invocation);
async fn a_transaction_without_permission_fails_the_invocation(server: Server) {
    let proxy = Proxy::before(&server).await;
    let once = engine(proxy.server()).await.claimless();
    for operation in ["TransactWriteItems", "PutItem", "BatchExecuteStatement"] {
        proxy.repeat(operation, Fault::DENY, 30);
    }
    let mut worker = charge(&once).handler(|_: Message<Payment>| async { Ok(()) });
    let failed = worker.call(batch(payments())).await;
    let is_told = matches!(&failed, Err(BatchError::Misconfigured { reason }) if reason.contains("dynamodb:"));
    assert!(is_told, "{failed:?}");
}

#[tokio::test]
async fn an_id_without_room_for_the_tenant_fails_the_invocation() {
    let once = Idempotency::builder(MemoryStore::new()).namespace("sqs");
    let layer =
        charge(&once.build().unwrap()).raw_id(|payment: &Payment, _| payment.payment_id.clone());
    let mut worker = layer
        .scope(|_, _| Some("tenant"))
        .handler(|_| async { Ok(()) });
    let failed = worker.call(batch(payments())).await;
    assert_matches!(failed, Err(BatchError::Misconfigured { .. }));
}

on_each_server!(a_batch_of_which_a_handler_ran_says_that_nothing_was_acknowledged);
async fn a_batch_of_which_a_handler_ran_says_that_nothing_was_acknowledged(server: Server) {
    let proxy = Arc::new(Proxy::before(&server).await);
    let (once, effects) = (engine(proxy.server()).await, Effects::default());
    let runs = effects.clone();
    let layer = charge(&once).settings(|settings| {
        settings.concurrency = 1;
        settings.single_writes = true;
    });
    let mut worker = layer.handler(move |message| {
        runs.of(&message);
        proxy.repeat("PutItem", Fault::DENY, 6);
        async { Err::<(), _>(PaymentError::Unreachable) }
    });
    let failed = worker.call(batch(payments())).await.unwrap_err();
    assert_eq!(effects.take(), ["m-1"]);
    assert_matches!(failed, BatchError::Misconfigured { .. });
    let said = failed.to_string();
    assert!(
        said.starts_with("no message could be acknowledged: "),
        "{said}"
    );
}

on_each_server!(without_item_failures_a_batch_fails_as_a_whole_and_repeats_no_effect);
async fn without_item_failures_a_batch_fails_as_a_whole_and_repeats_no_effect(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let worker = |declines: bool| {
        let effects = effects.clone();
        charge(&once)
            .settings(|settings| settings.without_item_failures = true)
            .handler(move |message: Message<Payment>| {
                effects.of(&message);
                async move {
                    match message.id() {
                        "m-2" if declines => Err(PaymentError::Unreachable),
                        _ => Ok(()),
                    }
                }
            })
    };
    let failed = worker(true).call(batch(payments())).await;
    let expected = BatchError::Incomplete {
        failed: 1,
        messages: 3,
    };
    assert_eq!(failed.unwrap_err(), expected);
    assert_eq!(effects.take(), ["m-1", "m-2", "m-3"]);
    assert_eq!(deliver(&mut worker(false), payments()).await, NOTHING);
    assert_eq!(effects.take(), ["m-2"]);
}

//! Events in the handler's transaction.

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::dynamodb::outbox::{Event, Outbox, StoredEvent};
use lambda_idempotency::{Error, Outcome};

use super::{Bench, Failed, key, payload, string};
use crate::on_each_server;
use crate::support::Server;

on_each_server!(an_event_never_overwrites_one_that_has_its_id);
async fn an_event_never_overwrites_one_that_has_its_id(server: Server) {
    let bench = Bench::on(&server).await;
    let table = server.outbox_table().await;
    let outbox = Outbox::new(&table);
    let place = async |amount: u32| {
        bench
            .once()
            .run(key(), payload(), async |claim| {
                let event = Event::new("order.created", "order-1");
                Ok::<_, Failed>(outbox.emit(&claim, event, &amount).unwrap())
            })
            .await
    };
    let Outcome::Executed(id) = place(1).await.unwrap() else {
        panic!("it is new")
    };
    let stored = async || {
        let get = server
            .client()
            .get_item()
            .table_name(&table)
            .consistent_read(true);
        let reply = get
            .key("aggregate", string("order-1"))
            .key("id", string(&id))
            .send()
            .await
            .unwrap();
        StoredEvent::from_item(&reply.item.unwrap()).unwrap()
    };
    let first = stored().await;
    assert_eq!(first.data, "1");

    // The record is forgotten, the event is not: the same request has the same event once more.
    let record = bench.record().await["id"].clone();
    let delete = server.client().delete_item().table_name(&bench.records);
    delete.key("id", record).send().await.unwrap();
    let refused = place(2).await;
    let Err(Error::Refused(refusal)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(refusal.index(), 0);
    assert_eq!(
        refusal.item().map(|item| &item["id"]),
        Some(&AttributeValue::S(id.clone()))
    );
    assert_eq!(stored().await, first);
}

on_each_server!(an_event_leaves_room_for_the_marks_of_its_relay);
async fn an_event_leaves_room_for_the_marks_of_its_relay(server: Server) {
    let bench = Bench::on(&server).await;
    let outbox = Outbox::new(server.outbox_table().await);
    let emit = async |bytes: usize| {
        let data = "x".repeat(bytes);
        bench
            .once()
            .run(key(), payload(), async |claim| {
                let event = Event::new("order.created", "order-1");
                let emitted = outbox.emit(&claim, event, &data);
                Ok::<_, Failed>(emitted.map_err(|error| error.to_string()))
            })
            .await
    };
    let refused = emit(400 * 1_024 - 300).await.unwrap().into_inner();
    assert!(
        refused.unwrap_err().contains("409344"),
        "400 KB less 256 bytes"
    );
}

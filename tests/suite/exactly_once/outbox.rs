//! Events in the handler's transaction.

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::outbox::{Event, Outbox, StoredEvent};
use lambda_idempotency::{Error, Outcome};

use super::{Bench, Failed, key, payload, string};
use crate::on_each_server;

on_each_server! {
    async fn an_event_never_overwrites_one_that_has_its_id(server: Server) {
        let bench = Bench::on(&server).await;
        let table = server.outbox_table().await;
        let outbox = Outbox::new(&table);
        let place = async |amount: u32| {
            bench.once().run(key(), payload(), async |claim| {
                let event = Event::new("order.created", "order-1");
                Ok::<_, Failed>(outbox.emit(&claim, event, &amount).unwrap())
            }).await
        };
        let Outcome::Executed(id) = place(1).await.unwrap() else { panic!("it is new") };
        let stored = async || {
            let get = server.client().get_item().table_name(&table).consistent_read(true);
            let reply = get.key("aggregate", string("order-1")).key("id", string(&id)).send().await.unwrap();
            StoredEvent::from_item(&reply.item.unwrap()).unwrap()
        };
        let first = stored().await;
        assert_eq!(first.data, "1");

        // The record is forgotten, the event is not: the same request has the same event once more.
        let record = bench.record().await["id"].clone();
        let delete = server.client().delete_item().table_name(&bench.records);
        delete.key("id", record).send().await.unwrap();
        let refused = place(2).await;
        let Err(Error::Refused(refusal)) = refused else { panic!("{refused:?}") };
        assert_eq!(refusal.index(), 0);
        assert_eq!(refusal.item().map(|item| &item["id"]), Some(&AttributeValue::S(id.clone())));
        assert_eq!(stored().await, first);
    }
}

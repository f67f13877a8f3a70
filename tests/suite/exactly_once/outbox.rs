//! Events in the handler's transaction.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::dynamodb::outbox::{Event, Outbox, StoredEvent};
use lambda_idempotency::store::transaction::WriteError;
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
    assert_eq!(refusal.index, 0);
    assert_eq!(
        refusal.item().map(|item| &item["id"]),
        Some(&AttributeValue::S(id.clone()))
    );
    assert_eq!(stored().await, first);
}

on_each_server!(a_second_event_without_a_name_is_refused_at_once);
async fn a_second_event_without_a_name_is_refused_at_once(server: Server) {
    let bench = Bench::on(&server).await;
    let outbox = Outbox::new(server.outbox_table().await);
    let elsewhere = Outbox::new(server.outbox_table().await);
    let event = || Event::new("order.changed", "order-1");
    let ran = bench
        .once()
        .run(key(), payload(), async |claim| {
            outbox.emit(&claim, event(), &1)?;
            claim.write(bench.put("between"))?;
            let again = outbox.emit(&claim, event(), &2);
            assert_eq!(again, Err(WriteError::SameTarget { first: 0 }));
            elsewhere.emit(&claim, event(), &2)?;
            let named = || event().name("second");
            outbox.emit(&claim, named(), &2)?;
            let again = outbox.emit(&claim, named(), &3);
            assert_eq!(again, Err(WriteError::SameTarget { first: 3 }));
            Ok::<_, Failed>(())
        })
        .await;
    ran.unwrap();
}

on_each_server!(an_event_that_its_table_or_its_relay_could_not_take_is_refused);
async fn an_event_that_its_table_or_its_relay_could_not_take_is_refused(server: Server) {
    let bench = Bench::on(&server).await;
    let outbox = Outbox::new(server.outbox_table().await);
    let (longest, longer) = ("x".repeat(2_048), "x".repeat(2_049));
    let incomplete = "a type, and an aggregate of 1 to 2,048 bytes";
    let ran = bench
        .once()
        .run(key(), payload(), async |claim| {
            for (kind, aggregate, bytes, words) in [
                // 400 KB less the 256 bytes of a relay's marks.
                ("order.created", "order-1", 400 * 1_024 - 300, "409344"),
                ("order.created", longer.as_str(), 1, incomplete),
                ("order.created", "", 1, incomplete),
                ("", "order-1", 1, incomplete),
            ] {
                let event = Event::new(kind, aggregate);
                let refused = outbox.emit(&claim, event, &"x".repeat(bytes));
                let refused = refused.unwrap_err().to_string();
                assert!(refused.contains(words), "{refused}");
            }
            let event = Event::new("order.created", "order-1");
            let refused = outbox.emit(&claim, event, &HashMap::from([((1, 2), 3)]));
            assert_matches!(refused, Err(WriteError::Data(_)));
            let event = Event::new("order.created", longest.as_str());
            Ok::<_, Failed>(outbox.emit(&claim, event, &1).unwrap())
        })
        .await;
    ran.unwrap();
}

on_each_server!(events_of_an_aggregate_are_numbered_in_the_order_of_their_transaction);
async fn events_of_an_aggregate_are_numbered_in_the_order_of_their_transaction(server: Server) {
    let bench = Bench::on(&server).await;
    let (table, other) = (server.outbox_table().await, server.outbox_table().await);
    let (outbox, elsewhere) = (Outbox::new(&table), Outbox::new(&other));
    let tries = AtomicU32::new(0);
    let place = async || {
        bench
            .once()
            .run(key(), payload(), async |claim| {
                let number = tries.fetch_add(1, Ordering::SeqCst);
                let emit = |outbox: &Outbox, aggregate: &str, name: &str| {
                    // In the order of these calls, neither of names nor of ids.
                    let event = Event::new("order.changed", aggregate).name(name);
                    let data = format!("{aggregate} {name}");
                    outbox.emit(&claim, event, &data).unwrap();
                };
                emit(&outbox, "order-1", "z");
                emit(&outbox, "order-2", "y");
                emit(&elsewhere, "order-1", "x");
                claim.write(bench.put("between")).unwrap();
                let too_large = Event::new("order.changed", "order-1");
                let refused = outbox.emit(&claim, too_large, &"x".repeat(400 * 1_024));
                assert!(refused.is_err(), "and has no number");
                emit(&outbox, "order-1", "m");
                emit(&outbox, "order-2", "a");
                if number == 0 {
                    return Err(Failed::Broken);
                }
                emit(&outbox, "order-1", "a");
                Ok(0)
            })
            .await
    };
    assert!(place().await.is_err());
    place().await.unwrap();

    let mut found = Vec::new();
    let mut transactions = HashSet::new();
    for (place, table) in [("here", &table), ("elsewhere", &other)] {
        let items = server.client().scan().table_name(table).send().await;
        for item in items.unwrap().items.unwrap() {
            let event = StoredEvent::from_item(&item).unwrap();
            found.push(format!("{place} {} {}", event.data, event.position));
            transactions.insert(event.transaction);
        }
    }
    found.sort();
    assert_eq!(
        found,
        [
            "elsewhere \"order-1 x\" 0",
            "here \"order-1 a\" 2",
            "here \"order-1 m\" 1",
            "here \"order-1 z\" 0",
            "here \"order-2 a\" 1",
            "here \"order-2 y\" 0",
        ]
    );
    assert_eq!(transactions.len(), 1, "{transactions:?}");
}

on_each_server!(events_of_a_rerun_with_new_keys_are_of_another_transaction);
async fn events_of_a_rerun_with_new_keys_are_of_another_transaction(server: Server) {
    let bench = Bench::on(&server).await;
    let table = server.outbox_table().await;
    let outbox = Outbox::new(&table);
    let place = async || {
        bench
            .once()
            .run(key(), payload(), async |claim| {
                let event = Event::new("order.created", "order-1");
                Ok::<_, Failed>(outbox.emit(&claim, event, &1).unwrap())
            })
            .await
    };
    place().await.unwrap();

    bench.rerun_with_new_keys().await;
    assert!(!place().await.unwrap().is_replayed());

    let items = server.client().scan().table_name(&table).send().await;
    let items = items.unwrap().items.unwrap();
    let transactions = items.iter().map(StoredEvent::from_item);
    let transactions: HashSet<_> = transactions
        .map(|event| event.unwrap().transaction)
        .collect();
    assert_eq!(transactions.len(), 2, "{transactions:?}");
}

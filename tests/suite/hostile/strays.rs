//! Attributes that a record shouldn't have, on real servers.

use std::convert::Infallible;

use aws_sdk_dynamodb::types::AttributeValue::{self, M, N, S};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::{Idempotency, Key, Outcome};

use crate::on_each_server;
use crate::support::{Server, builder_on};

const ID: &str = "strays#1";

/// A released record, with one attribute more.
async fn released_with(server: &Server, name: &str, value: AttributeValue) -> Idempotency {
    let table = server.idempotency_table().await;
    let put = server.client().put_item().table_name(&table);
    let text = |text: &str| S(text.to_owned());
    let number = |number: i64| N(number.to_string());
    put.item("id", text(ID))
        .item("status", text("INPROGRESS"))
        .item("owner", text("nobody"))
        .item("attempt", number(1))
        .item("in_progress_expiration", number(0))
        .item("expiration", number(4_102_444_800))
        .item("v", number(1))
        .item(name, value)
        .send()
        .await
        .unwrap();
    let store = DynamoDbStore::new(server.client(), table);
    builder_on(store, "strays").build().unwrap()
}

on_each_server!(an_outcome_in_a_record_that_is_taken_over_does_not_hide_the_new_one);
async fn an_outcome_in_a_record_that_is_taken_over_does_not_hide_the_new_one(server: Server) {
    let text = |text: &str| S(text.to_owned());
    let members = [
        ("in", text("item")),
        ("owner", text("nobody")),
        ("bytes", N("7".to_owned())),
        ("sha256", text("0")),
    ];
    let packed = members
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    for (name, value) in [
        ("packed", M(packed)),
        ("omitted", text("too_large")),
        ("data", text("\"old\"")),
    ] {
        for is_claimless in [false, true] {
            let once = released_with(&server, name, value.clone()).await;
            let once = if is_claimless { once.claimless() } else { once };
            let run = || {
                once.run(Key::raw("work", ID), None, async |_| {
                    Ok::<_, Infallible>("new".to_owned())
                })
            };
            assert_eq!(
                run().await.unwrap(),
                Outcome::Executed("new".to_owned()),
                "{name}"
            );
            let again = run().await.unwrap();
            assert!(again.is_replayed(), "{name}");
            assert_eq!(again.get(), "new", "{name}");
        }
    }
}

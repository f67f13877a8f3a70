//! The output about items: business writes and their transaction, events in an outbox, guards, and whatever stands in a record, by the
//! store and through the real SDK.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue::{self, B, M, N, S};
use aws_sdk_dynamodb::types::{Put, Update};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::dynamodb::guard::{Guard, Guarded, Version};
use lambda_idempotency::dynamodb::outbox::{Event, Outbox, StoredEvent};
use lambda_idempotency::store::transaction::Write;
use lambda_idempotency::{Error, Fingerprint, Idempotency, Key, StoreError};
use tokio::time::Instant;

use super::canary::{Canary, Seen};
use super::engine::Quoting;
use crate::on_each_server;
use crate::support::{Bucket, Fault, Proxy, Server, builder_on};

fn canary() -> Canary {
    Canary::new("hunterseventeen", "\"\\4111")
}

struct Bench {
    server: Server,
    proxy: Proxy,
    table: String,
    secret: String,
}

impl Bench {
    async fn on(server: Server) -> Self {
        Self {
            proxy: Proxy::before(&server).await,
            table: server.idempotency_table().await,
            server,
            secret: canary().text(),
        }
    }

    fn store(&self) -> DynamoDbStore {
        DynamoDbStore::new(self.proxy.server().client(), &self.table)
    }

    fn once(&self) -> Idempotency {
        builder_on(self.store(), "secrets")
            .settings(|settings| settings.inline_limit = 100)
            .build()
            .unwrap()
    }

    fn key(&self, name: &str) -> Key {
        Key::new("charge", format!("{name}{}", self.secret)).scope(self.secret.as_str())
    }

    fn text(&self) -> AttributeValue {
        S(self.secret.clone())
    }

    /// One of these runs ends in an error: in both forms, and for the claimless form with what is read on the way.
    async fn refused(
        &self,
        seen: &mut Seen,
        name: &str,
        writes: impl Fn() -> Vec<Write>,
    ) -> [&'static str; 2] {
        let mut codes = [""; 2];
        for (code, once) in codes.iter_mut().zip([self.once(), self.once().claimless()]) {
            let run = once.run(
                self.key(name),
                Fingerprint::bytes(self.secret.as_bytes()),
                async |claim| {
                    for write in writes() {
                        claim
                            .write(write)
                            .map_err(|error| Quoting(error.to_string()))?;
                    }
                    Ok(self.secret.clone())
                },
            );
            let error = run.await.unwrap_err();
            *code = error.code();
            if let Error::Handler(Quoting(words)) = &error {
                seen.text(words);
            }
            seen.error(error);
        }
        codes
    }
}

on_each_server!(no_transaction_tells_a_secret);
async fn no_transaction_tells_a_secret(server: Server) {
    let mut seen = Seen::of(&canary());
    let bench = Bench::on(server).await;
    let business = bench.server.table_with_key("business", "id").await;
    let put = || {
        Put::builder()
            .table_name(&business)
            .item("id", bench.text())
            .item("card", bench.text())
    };
    seen.debug(&Write::from(put()));
    bench
        .once()
        .run(bench.key("first"), None, async |claim| {
            claim
                .write(put())
                .map_err(|error| Quoting(error.to_string()))
        })
        .await
        .unwrap();

    let conditional = || {
        vec![Write::from(
            put().condition_expression("attribute_not_exists(id)"),
        )]
    };
    let [claimed, claimless] = bench.refused(&mut seen, "condition", conditional).await;
    assert_eq!([claimed, claimless], ["condition_failed"; 2]);
    let short = builder_on(bench.store(), "secrets");
    let short = short.retention(Duration::from_mins(1)).build().unwrap();
    let key = bench.key("short");
    let claimless = short.claimless();
    let run = claimless.run(key, None, async |_| Ok::<(), Quoting>(()));
    seen.error(run.await.unwrap_err());
    let not_a_number = || vec![Write::from(put().item("amount", N(bench.secret.clone())))];
    bench.refused(&mut seen, "number", not_a_number).await;
    let wrong_key = || {
        vec![Write::from(
            Put::builder()
                .table_name(&business)
                .item("id", N("1".into()))
                .item("card", bench.text()),
        )]
    };
    bench.refused(&mut seen, "key", wrong_key).await;
    let garbled = || {
        vec![Write::from(
            Update::builder()
                .table_name(&business)
                .key("id", bench.text())
                .update_expression("SET card = :card, :card")
                .expression_attribute_values(":card", bench.text()),
        )]
    };
    bench.refused(&mut seen, "expression", garbled).await;
    let incomplete = || vec![Write::from(Put::builder().item("card", bench.text()))];
    assert_eq!(
        bench.refused(&mut seen, "incomplete", incomplete).await,
        ["handler_failed"; 2]
    );
    let twice = || vec![Write::from(put()), Write::from(put())];
    assert_eq!(
        bench.refused(&mut seen, "twice", twice).await,
        ["handler_failed"; 2]
    );
    let large = || {
        vec![Write::from(
            put().item("large", S(bench.secret.repeat(30_000))),
        )]
    };
    assert_eq!(
        bench.refused(&mut seen, "large", large).await,
        ["handler_failed"; 2]
    );
    for fault in [
        Fault::DENY,
        Fault::CONFLICT,
        Fault::THROTTLE,
        Fault::INTERNAL,
    ] {
        bench.proxy.inject("TransactWriteItems", fault.clone());
        bench.proxy.inject("TransactWriteItems", fault.clone());
        bench.proxy.inject("TransactWriteItems", fault);
    }
    bench
        .refused(&mut seen, "faults", || vec![Write::from(put())])
        .await;
    seen.assert_silent("condition_failed not_committed");
}

on_each_server!(no_event_and_no_guard_tells_a_secret);
async fn no_event_and_no_guard_tells_a_secret(server: Server) {
    let mut seen = Seen::of(&canary());
    let bench = Bench::on(server).await;
    let (outbox, client) = (bench.server.outbox_table().await, bench.server.client());
    let secret = || bench.secret.clone();
    let event = || Event::new("order.created", secret()).name(secret());
    seen.debug(&event());
    bench
        .once()
        .run(bench.key("event"), None, async |claim| {
            Outbox::new(&outbox)
                .emit(&claim, event(), &secret())
                .map_err(|error| Quoting(error.to_string()))
        })
        .await
        .unwrap();
    let mut item = client
        .scan()
        .table_name(&outbox)
        .send()
        .await
        .unwrap()
        .items
        .unwrap()
        .remove(0);
    let stored = StoredEvent::from_item(&item).unwrap();
    assert_eq!(stored.aggregate, secret());
    seen.debug(&stored);
    for name in ["recorded_at", "position"] {
        let right = item.insert(name.to_owned(), bench.text()).unwrap();
        seen.text(StoredEvent::from_item(&item).unwrap_err());
        item.insert(name.to_owned(), right);
    }

    let business = bench.server.table_with_key("business", "id").await;
    let paid = || {
        Guard::transition(&business, [("id", bench.text())], ["pending"], "paid")
            .set("by", bench.text())
    };
    let deposit = || Guard::once(&business, [("id", bench.text())], secret()).add("balance", 5);
    seen.debug(&paid());
    seen.debug(&deposit());
    let version = Version::timestamp(std::time::SystemTime::now(), &secret()).unwrap();
    let latest = Guard::latest(&business, [("id", S("latest".to_owned()))], version);
    let latest = latest.set("by", bench.text());
    seen.debug(&latest);
    assert_eq!(latest.apply(&client).await.unwrap(), Guarded::Applied);
    let other = Guard::latest(&business, [("id", S("latest".to_owned()))], 1);
    let failed = other.apply(&client).await.unwrap_err();
    seen.debug(&failed);
    seen.text(&failed);
    let refused = paid().apply(&client).await.unwrap();
    seen.debug(&refused);
    assert_eq!(deposit().apply(&client).await.unwrap(), Guarded::Applied);
    let refused = paid().apply(&client).await.unwrap();
    assert_matches!(refused, Guarded::Refused { found: Some(_) });
    seen.debug(&refused);
    let not_a_number = Guard::transition(&business, [("id", bench.text())], ["pending"], "paid")
        .set("by", N(secret()));
    let failed = not_a_number.apply(&client).await.unwrap_err();
    seen.debug(&failed);
    seen.text(&failed);
    seen.assert_silent("completed");
}

on_each_server!(no_record_tells_a_secret_however_strange);
async fn no_record_tells_a_secret_however_strange(server: Server) {
    let mut seen = Seen::of(&canary());
    let bench = Bench::on(server).await;
    let (once, client) = (bench.once(), bench.server.client());
    let members = |name: &str| {
        let right = [
            ("state", "CONFIRMED"),
            ("in", "record"),
            ("result", "1"),
            ("omitted", "too_large"),
            ("sha256", "0"),
            ("owner", "o"),
        ];
        let mut members: std::collections::HashMap<_, _> = right
            .into_iter()
            .map(|(name, value)| (name.to_owned(), S(value.to_owned())))
            .collect();
        for number in ["revision", "tries", "at", "bytes"] {
            members.insert(number.to_owned(), N("1".to_owned()));
        }
        members.insert(
            "content".to_owned(),
            B(aws_sdk_dynamodb::primitives::Blob::new(
                bench.secret.as_bytes(),
            )),
        );
        members.insert(name.to_owned(), bench.text());
        M(members)
    };
    // Not the owner and the hashes: what they name was made here, and is shown.
    let mut strange = vec![
        ("data", bench.text()),
        ("packed", bench.text()),
        ("step:a", bench.text()),
        ("id-only", bench.text()),
    ];
    strange.extend(
        [
            "status",
            "omitted",
            "expiration",
            "in_progress_expiration",
            "attempt",
            "v",
            "started_at",
            "completed_at",
        ]
        .map(|name| (name, bench.text())),
    );
    strange.extend(
        ["state", "revision", "tries", "at", "result", "omitted"]
            .map(|name| ("step:a", members(name))),
    );
    strange.extend(["in", "bytes", "content", "nothing"].map(|name| ("packed", members(name))));
    for (place, (name, value)) in strange.into_iter().enumerate() {
        for status in ["INPROGRESS", "COMPLETED", "FAILED"] {
            let key = || Key::raw("charge", format!("{place}-{status}-{}", bench.secret));
            let number = |number: i64| N(number.to_string());
            let put = client.put_item().table_name(&bench.table);
            put.item("status", S(status.to_owned()))
                .item("expiration", number(4_102_444_800))
                .item("in_progress_expiration", number(0))
                .item("owner", S("o".to_owned()))
                .item("attempt", number(1))
                .item("v", number(1))
                .item("data", bench.text())
                .item(name, value.clone())
                .item("id", S(once.record_id(&key()).unwrap().as_str().to_owned()))
                .send()
                .await
                .unwrap();
            let deadline = Instant::now() + std::time::Duration::from_secs(10);
            seen.debug(
                &once
                    .store()
                    .load(&once.record_id(&key()).unwrap(), deadline)
                    .await
                    .unwrap(),
            );
            if let Err(error) = once
                .run(key(), None, async |_| {
                    Ok::<_, Quoting>(bench.secret.clone())
                })
                .await
            {
                seen.error(error);
            }
        }
    }
    seen.debug(&bench.store());
    seen.assert_silent("unreadable outcome_omitted");
}

on_each_server!(no_large_outcome_tells_a_secret);
async fn no_large_outcome_tells_a_secret(server: Server) {
    let mut seen = Seen::of(&canary());
    let bench = Bench::on(server).await;
    let bucket = Bucket::new().await;
    let store = bench
        .store()
        .outcome_bucket(bucket.client(), Bucket::NAME, "kept/");
    seen.debug(&store);
    let once = builder_on(store, "secrets")
        .settings(|settings| {
            settings.inline_limit = 10;
            settings.store_timeout = std::time::Duration::from_secs(3);
        })
        .build()
        .unwrap();
    // Numbers, so that it stays large.
    let large = || {
        bench.secret.clone()
            + &(0..60_000_u64)
                .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string())
                .collect::<String>()
    };
    let run =
        |name: &'static str| once.run(bench.key(name), None, async |_| Ok::<_, Quoting>(large()));
    run("kept").await.unwrap();
    assert!(run("kept").await.unwrap().is_replayed());
    for refusal in [
        (403, "AccessDenied"),
        (404, "NoSuchKey"),
        (404, "NoSuchBucket"),
        (500, "InternalError"),
        (503, "SlowDown"),
    ] {
        bucket.refuse(Some(refusal));
        seen.error(run("kept").await.unwrap_err());
    }
    bucket.refuse(Some((403, "AccessDenied")));
    run("refused").await.unwrap();
    seen.error(run("refused").await.unwrap_err());
    bucket.refuse(None);
    bucket.change(|_| Some(bytes::Bytes::from(bench.secret.clone())));
    let damaged = run("kept").await.unwrap_err();
    assert_matches!(damaged, Error::OutcomeOmitted { .. });
    seen.error(damaged);
    seen.error(Error::<Quoting>::Store(StoreError::TooLarge));
    seen.assert_silent("outcome_not_kept outcome_omitted completed replayed");
}

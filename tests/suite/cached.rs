//! The local cache: it saves requests, and changes nothing else.

use std::io::Error as HandlerError;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::protocol::record::Status;
use lambda_idempotency::sqs::BatchLayer;
use lambda_idempotency::store::{CachedStore, MemoryStore, Store};
use lambda_idempotency::testing::{ManualClock, conformance};
use lambda_idempotency::{Clock, Error, Fingerprint, Idempotency, Key, Outcome, Verdict};
use tokio::time::Instant;
use tower::Service;

use crate::on_each_server;
use crate::support::events::{batch, message};
use crate::support::{Proxy, Server};

type Result<T> = std::result::Result<Outcome<T>, Error<HandlerError>>;

/// Processes that share a table, reached through a wire that counts.
struct World {
    proxy: Proxy,
    table: String,
    clock: ManualClock,
}

impl World {
    async fn new(server: &Server) -> Self {
        let table = server.idempotency_table().await;
        Self {
            proxy: Proxy::before(server).await,
            table,
            clock: ManualClock::default(),
        }
    }

    fn table(&self) -> DynamoDbStore {
        DynamoDbStore::new(self.proxy.server().client(), &self.table)
    }

    fn store(&self) -> CachedStore {
        CachedStore::new(self.table()).clock(self.clock.clone())
    }

    fn engine(&self, store: CachedStore) -> Idempotency {
        Idempotency::builder(store)
            .namespace("cached")
            .retention(RETENTION)
            .clock(self.clock.clone())
            .build()
            .unwrap()
    }

    /// One that remembers nothing yet.
    fn process(&self) -> Idempotency {
        self.engine(self.store())
    }

    fn requests(&self) -> usize {
        self.proxy.take_total()
    }
}

const RETENTION: Duration = Duration::from_hours(1);

async fn run(once: &Idempotency, token: &str, payload: &str, value: u32) -> Result<u32> {
    let fingerprint = Fingerprint::bytes(payload.as_bytes());
    let handler = |_| async move { Ok(value) };
    once.run(Key::new("charge", token), fingerprint, handler)
        .await
}

fn replays(outcome: Result<u32>, value: u32) {
    let outcome = outcome.unwrap();
    assert!(outcome.is_replayed(), "{outcome:?}");
    assert_eq!(outcome.into_inner(), value);
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(9)
}

#[tokio::test(start_paused = true)]
async fn around_the_memory_store_the_contract_is_kept() {
    for bytes in [1 << 20, 2_000, 0] {
        let store = CachedStore::new(MemoryStore::new()).max_bytes(bytes);
        conformance(&store).await.unwrap();
    }
}

on_each_server!(around_dynamodb_the_contract_is_kept);
async fn around_dynamodb_the_contract_is_kept(server: Server) {
    conformance(&CachedStore::new(server.store().await))
        .await
        .unwrap();
}

on_each_server!(a_duplicate_that_this_process_has_met_costs_no_request);
async fn a_duplicate_that_this_process_has_met_costs_no_request(server: Server) {
    let world = World::new(&server).await;
    let first = world.process();
    assert_eq!(
        run(&first, "1", "a", 7).await.unwrap(),
        Outcome::Executed(7)
    );
    assert_eq!(world.requests(), 2);
    replays(run(&first, "1", "a", 8).await, 7);
    assert_eq!(world.requests(), 0, "its own outcome");

    let second = world.process();
    replays(run(&second, "1", "a", 8).await, 7);
    assert_eq!(world.requests(), 1, "another's, met for the first time");
    replays(run(&second, "1", "a", 8).await, 7);
    assert_eq!(world.requests(), 0);
}

on_each_server!(a_batch_that_comes_twice_costs_no_request);
async fn a_batch_that_comes_twice_costs_no_request(server: Server) {
    let world = World::new(&server).await;
    let mut worker = BatchLayer::new(world.process())
        .handler(|_: lambda_idempotency::sqs::Message<u32>| async { Ok::<_, HandlerError>(()) });
    for expected in [10, 0] {
        let messages = (0..5).map(|n| message(&format!("m-{n}"), "1"));
        worker.call(batch(messages)).await.unwrap();
        assert!(world.requests() <= expected);
    }
}

on_each_server!(what_is_remembered_is_what_is_stored);
async fn what_is_remembered_is_what_is_stored(server: Server) {
    let world = World::new(&server).await;
    let once = world.process();
    run(&once, "fresh", "a", 7).await.unwrap();
    for expected in [false, true] {
        let fails = |_| async move { expected.then_some(7).ok_or(HandlerError::other("down")) };
        let print = Fingerprint::bytes(b"a");
        assert_eq!(
            once.run(Key::new("charge", "again"), print, fails)
                .await
                .is_ok(),
            expected
        );
    }
    let stepped = once.run(Key::new("charge", "stepped"), None, async |claim| {
        let receipt = claim
            .step("gateway", |_| async { Ok::<_, HandlerError>(7) })
            .await;
        receipt.map_err(|error| HandlerError::other(error.to_string()))
    });
    stepped.await.unwrap();
    world.requests();
    let again = once.run(Key::new("charge", "stepped"), None, |_| async {
        Ok::<_, HandlerError>(8)
    });
    replays(again.await, 7);
    assert_eq!(world.requests(), 0, "its steps are remembered, too");
    let nothing = once.run(Key::new("charge", "unchecked"), None, |_| async {
        Ok::<_, HandlerError>(())
    });
    nothing.await.unwrap();
    for token in ["fresh", "again", "stepped", "unchecked"] {
        let id = once.record_id(&Key::new("charge", token)).unwrap();
        world.requests();
        let remembered = once.store().load(&id, later()).await.unwrap();
        assert_eq!(world.requests(), 0, "{token}");
        assert_eq!(
            remembered,
            world.table().load(&id, later()).await.unwrap(),
            "{token}"
        );
    }
}

on_each_server!(another_payload_is_a_mismatch_without_a_request);
async fn another_payload_is_a_mismatch_without_a_request(server: Server) {
    let world = World::new(&server).await;
    let once = world.process();
    run(&once, "1", "a", 7).await.unwrap();
    world.requests();
    assert_matches!(run(&once, "1", "b", 8).await, Err(Error::Mismatch));
    assert_eq!(world.requests(), 0);
}

on_each_server!(a_permanent_failure_is_remembered_and_a_passing_one_is_not);
async fn a_permanent_failure_is_remembered_and_a_passing_one_is_not(server: Server) {
    let world = World::new(&server).await;
    let once = world.process();
    let attempt = |token: &'static str, verdict: Verdict| {
        let failing = |_| async { Err::<u32, _>(HandlerError::other("no")) };
        once.run_with(
            Key::new("charge", token),
            Fingerprint::bytes(b"a"),
            failing,
            move |_| verdict,
        )
    };
    for (requests, replayed) in [(2, false), (0, true)] {
        world.requests();
        let failed = matches!(
            attempt("for-good", Verdict::Fail).await,
            Err(Error::Failed(_))
        );
        assert_eq!((world.requests(), failed), (requests, replayed));
    }
    attempt("for-now", Verdict::Release).await.unwrap_err();
    assert_eq!(
        run(&once, "for-now", "a", 7).await.unwrap(),
        Outcome::Executed(7)
    );
}

on_each_server!(a_request_in_flight_is_asked_about_each_time);
async fn a_request_in_flight_is_asked_about_each_time(server: Server) {
    let world = World::new(&server).await;
    let (here, elsewhere) = (world.process(), world.process());
    let outcome = elsewhere.run(
        Key::new("charge", "1"),
        Fingerprint::bytes(b"a"),
        |_| async {
            world.requests();
            for _ in 0..2 {
                for once in [&here, &elsewhere] {
                    assert_matches!(run(once, "1", "a", 8).await, Err(Error::InFlight { .. }));
                    assert_eq!(world.requests(), 1);
                }
            }
            Ok::<_, HandlerError>(7)
        },
    );
    outcome.await.unwrap();
    world.requests();
    replays(run(&here, "1", "a", 8).await, 7);
    assert_eq!(world.requests(), 1, "it was not known to be done");
    replays(run(&elsewhere, "1", "a", 8).await, 7);
    assert_eq!(
        world.requests(),
        0,
        "duplicates did not make it forget its claim"
    );
}

on_each_server!(an_expired_outcome_is_as_absent_as_without_a_cache);
async fn an_expired_outcome_is_as_absent_as_without_a_cache(server: Server) {
    let world = World::new(&server).await;
    let (here, elsewhere) = (world.process(), world.process());
    run(&here, "1", "a", 1).await.unwrap();
    replays(run(&elsewhere, "1", "a", 2).await, 1);

    // Past its expiration, but within the skew margin, it is still replayed: as the table says, not as remembered.
    let expires = world.stored(&here).await.expiration.to_millis();
    world.clock.set(expires);
    world.requests();
    replays(run(&here, "1", "a", 2).await, 1);
    assert_eq!(world.requests(), 1);

    // Beyond it, whoever comes first runs, and everybody else gets the new outcome.
    world.clock.advance(Duration::from_secs(2));
    assert_eq!(
        run(&elsewhere, "1", "b", 2).await.unwrap(),
        Outcome::Executed(2)
    );
    replays(run(&here, "1", "b", 3).await, 2);
    assert_eq!(world.stored(&here).await.status, Status::Completed);
}

on_each_server!(a_record_that_ttl_has_deleted_does_not_block_its_key);
async fn a_record_that_ttl_has_deleted_does_not_block_its_key(server: Server) {
    let world = World::new(&server).await;
    let once = world.process();
    run(&once, "1", "a", 1).await.unwrap();
    world.clock.advance(RETENTION + Duration::from_secs(5));
    world.delete(&server, &once).await;
    assert_eq!(run(&once, "1", "b", 2).await.unwrap(), Outcome::Executed(2));
    world.requests();
    replays(run(&once, "1", "b", 3).await, 2);
    assert_eq!(world.requests(), 0);
}

on_each_server!(a_cache_whose_clock_stands_still_does_not_block_a_key);
async fn a_cache_whose_clock_stands_still_does_not_block_a_key(server: Server) {
    let world = World::new(&server).await;
    let once = world.engine(world.store().clock(ManualClock::at(world.clock.now())));
    run(&once, "1", "a", 1).await.unwrap();
    world.clock.advance(RETENTION + Duration::from_secs(5));
    world.delete(&server, &once).await;
    assert_eq!(run(&once, "1", "b", 2).await.unwrap(), Outcome::Executed(2));
}

on_each_server!(another_librarys_record_is_asked_for_each_time);
async fn another_librarys_record_is_asked_for_each_time(server: Server) {
    let world = World::new(&server).await;
    let once = world.process();
    let id = once.record_id(&Key::new("charge", "1")).unwrap();
    let in_an_hour = world.clock.now().0 / 1_000 + 3_600;
    let put = server.client().put_item().table_name(&world.table);
    let put = put
        .item("id", AttributeValue::S(id.as_str().to_owned()))
        .item("status", AttributeValue::S("COMPLETED".to_owned()))
        .item("data", AttributeValue::S("7".to_owned()))
        .item("expiration", AttributeValue::N(in_an_hour.to_string()));
    put.send().await.unwrap();
    for _ in 0..2 {
        world.requests();
        replays(run(&once, "1", "a", 8).await, 7);
        assert_eq!(world.requests(), 1, "it may change at any time");
    }
    // That library deletes the record when its handler fails.
    world.delete(&server, &once).await;
    assert_eq!(run(&once, "1", "a", 8).await.unwrap(), Outcome::Executed(8));
}

on_each_server!(beyond_the_bound_the_oldest_is_asked_for_again);
async fn beyond_the_bound_the_oldest_is_asked_for_again(server: Server) {
    let world = World::new(&server).await;
    let once = world.engine(world.store().max_bytes(2_700));
    let large = |token: &str| {
        let key = Key::new("report", token.to_owned());
        once.run(key, None, async |_| Ok::<_, HandlerError>("x".repeat(600)))
    };
    for token in ["1", "2", "3"] {
        large(token).await.unwrap();
    }
    world.requests();
    for (token, requests) in [("3", 0), ("2", 0), ("1", 1), ("3", 1), ("3", 0)] {
        large(token).await.unwrap();
        assert_eq!(world.requests(), requests, "{token}");
    }
}

impl World {
    /// The record of token 1, as the table has it.
    async fn stored(&self, once: &Idempotency) -> lambda_idempotency::protocol::record::Record {
        let id = once.record_id(&Key::new("charge", "1")).unwrap();
        let found = self.table().load(&id, later()).await.unwrap();
        *found.unwrap().content.unwrap()
    }

    /// As TTL would.
    async fn delete(&self, server: &Server, once: &Idempotency) {
        let id = once.record_id(&Key::new("charge", "1")).unwrap();
        let id = AttributeValue::S(id.as_str().to_owned());
        let delete = server.client().delete_item().table_name(&self.table);
        delete.key("id", id).send().await.unwrap();
    }
}

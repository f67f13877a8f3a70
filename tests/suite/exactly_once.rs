//! Effects that commit together with their record, through the real SDK: what applies, what doesn't, and what a fault leaves.

mod alone;
mod claimless;
mod cost;
mod dropped;
mod guards;
mod layers;
mod outbox;
mod sends;
mod tokens;
mod transaction;

use std::collections::{BTreeMap, HashMap};
use std::iter;
use std::time::Duration;

use aws_sdk_dynamodb::types::builders::{PutBuilder, UpdateBuilder};
use aws_sdk_dynamodb::types::{AttributeValue, KeyType, Put, Update};
use futures_util::future::join_all;
use lambda_idempotency::dynamodb::{DynamoDbError, DynamoDbStore};
use lambda_idempotency::protocol::record::{Ended, Intervention, Owner, RecordWrite};
use lambda_idempotency::store::Store;
use lambda_idempotency::store::transaction::WriteError;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{
    Builder, Claim, EpochMillis, Error, Fingerprint, Idempotency, Key, Outcome, StoreError, Verdict,
};
use tokio::time::Instant;

use crate::on_each_server;
use crate::secrets::Log;
use crate::support::server::unique;
use crate::support::{Fault, Proxy, Server, builder_on, number, string};

/// The handler's own error.
#[derive(Debug, PartialEq, thiserror::Error)]
enum Failed {
    #[error("sold out, {left} left")]
    SoldOut { left: i64 },
    #[error("it can't be written: {0}")]
    Write(#[from] WriteError),
    #[error("broken")]
    Broken,
}

/// The forms in which an outcome is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A claim, then one transaction with the record and the deposit.
    Transaction,
    /// No claim: one transaction.
    Claimless,
    /// No claim and no deposit: one conditional write.
    Alone,
}

impl Form {
    const ALL: [Self; 3] = [Self::Transaction, Self::Claimless, Self::Alone];
    const WITHOUT_A_CLAIM: [Self; 2] = [Self::Claimless, Self::Alone];

    /// Returns the operation that writes the outcome of a new key.
    fn operation(self) -> &'static str {
        match self {
            Self::Transaction | Self::Claimless => "TransactWriteItems",
            Self::Alone => "PutItem",
        }
    }

    /// Returns the amount that a run deposits.
    fn amount(self) -> i64 {
        if self == Self::Alone { 0 } else { 5 }
    }

    fn write(self, bench: &Bench, claim: &Claim) -> Result<(), WriteError> {
        match self.amount() {
            0 => Ok(()),
            amount => claim.write(bench.deposit(amount)),
        }
    }

    async fn place(
        self,
        bench: &Bench,
        once: &Idempotency,
        value: i32,
    ) -> Result<Outcome<i32>, Error<Failed>> {
        let once = match self {
            Self::Transaction => once.clone(),
            Self::Claimless | Self::Alone => once.claimless(),
        };
        once.run(key(), payload(), async |claim| {
            self.write(bench, &claim)?;
            Ok(value)
        })
        .await
    }

    async fn assert_places(self, bench: &Bench, once: &Idempotency, value: i32) {
        let done = self.place(bench, once, value).await.unwrap();
        assert_eq!(done, Outcome::Executed(value), "{self:?}");
    }
}

/// An engine on a fresh table behind a wire that can be cut, and a business table beside it.
struct Bench {
    proxy: Proxy,
    direct: Server,
    records: String,
    business: String,
}

impl Bench {
    async fn on(server: &Server) -> Self {
        Self {
            proxy: Proxy::before(server).await,
            direct: server.clone(),
            records: server.idempotency_table().await,
            business: server.table_with_key("business", "id").await,
        }
    }

    fn store(&self) -> DynamoDbStore {
        DynamoDbStore::new(self.proxy.server().client(), &self.records)
    }

    fn builder(&self) -> Builder {
        builder_on(self.store(), "exactly-once")
    }

    fn once(&self) -> Idempotency {
        self.once_with(|once| once)
    }

    fn once_with(&self, settings: impl FnOnce(Builder) -> Builder) -> Idempotency {
        settings(self.builder()).build().unwrap()
    }

    /// Returns an engine whose claims last so many seconds.
    fn lasting(&self, seconds: u64) -> Idempotency {
        self.once_with(|once| once.lease(Duration::from_secs(seconds)))
    }

    /// Returns an engine on its own table, with a composite key and other names.
    async fn composite(&self) -> Idempotency {
        let table = unique("composite");
        let keys = [("pk", KeyType::Hash), ("sk", KeyType::Range)];
        self.direct.create_table(&table, &keys).await;
        let store = DynamoDbStore::new(self.proxy.server().client(), &table).layout(|layout| {
            layout.composite_key("pk", "idempotency", "sk");
            layout.status = "state".into();
            layout.data = "outcome".into();
        });
        builder_on(store, "exactly-once").build().unwrap()
    }

    /// A deposit: not idempotent, so that a second one shows.
    fn deposit(&self, amount: i64) -> UpdateBuilder {
        Update::builder()
            .table_name(&self.business)
            .key("id", string("account"))
            .update_expression("ADD balance :amount")
            .expression_attribute_values(":amount", number(amount))
    }

    /// Takes from what is there, if it is enough.
    fn take(&self, amount: i64) -> UpdateBuilder {
        Update::builder()
            .table_name(&self.business)
            .key("id", string("stock"))
            .update_expression("ADD pieces :minus")
            .condition_expression("pieces >= :amount")
            .expression_attribute_values(":amount", number(amount))
            .expression_attribute_values(":minus", number(-amount))
    }

    fn put(&self, id: &str) -> PutBuilder {
        Put::builder()
            .table_name(&self.business)
            .item("id", string(id))
    }

    async fn stock(&self, pieces: i64) {
        let request = self.direct.client().put_item().table_name(&self.business);
        let request = request
            .item("id", string("stock"))
            .item("pieces", number(pieces));
        request.send().await.unwrap();
    }

    /// Returns the balance of the account; zero where nothing was ever deposited.
    async fn balance(&self) -> i64 {
        let account = self.item(&self.business, "account").await;
        account
            .get("balance")
            .map_or(0, |balance| balance.as_n().unwrap().parse().unwrap())
    }

    /// The pieces in stock.
    async fn pieces(&self) -> i64 {
        met(Some(&self.item(&self.business, "stock").await), "pieces")
    }

    /// Returns the number of business items.
    async fn items(&self) -> usize {
        let scan = self
            .direct
            .client()
            .scan()
            .table_name(&self.business)
            .consistent_read(true);
        scan.send().await.unwrap().items().len()
    }

    /// The record as it stands, read past the wire.
    async fn record(&self) -> HashMap<String, AttributeValue> {
        let id = self.once().record_id(&key()).unwrap();
        self.item(&self.records, id.as_str()).await
    }

    /// Releases the record with new derived keys, as `idempotency rerun --keys new` does.
    async fn rerun_with_new_keys(&self) {
        let id = self.once().record_id(&key()).unwrap();
        let (store, deadline) = (self.store(), Instant::now() + Duration::from_mins(1));
        let found = store.load(&id, deadline).await.unwrap().unwrap();
        let record = found.content.unwrap();
        let rerun = Intervention {
            id,
            seen: found.version,
            owner: Owner::random().unwrap(),
            expiration: record.expiration,
            steps: iter::once(record.journal.next_keys(EpochMillis(0))).collect(),
            end: Ended::Released { last_error: None },
        };
        let write = RecordWrite::Intervene(rerun);
        store.write(&write, deadline).await.unwrap();
    }

    async fn item(&self, table: &str, id: &str) -> HashMap<String, AttributeValue> {
        let request = self
            .direct
            .client()
            .get_item()
            .table_name(table)
            .key("id", string(id));
        let reply = request.consistent_read(true).send().await.unwrap();
        reply.item.unwrap_or_default()
    }
}

fn key() -> Key {
    Key::new("deposit", "event-1")
}

fn payload() -> Fingerprint {
    Fingerprint::bytes(b"payload")
}

/// A number that a condition met.
fn met(item: Option<&HashMap<String, AttributeValue>>, attribute: &str) -> i64 {
    item.unwrap()[attribute].as_n().unwrap().parse().unwrap()
}

on_each_server!(without_a_claim_one_request_does_it_and_a_duplicate_replays);
async fn without_a_claim_one_request_does_it_and_a_duplicate_replays(server: Server) {
    for form in Form::WITHOUT_A_CLAIM {
        let bench = Bench::on(&server).await;
        let one_request = BTreeMap::from([(form.operation().to_owned(), 1)]);
        let (log, _capture) = Log::capture();
        form.assert_places(&bench, &bench.once(), 1).await;
        assert!(log.text().contains("attempt=1"), "{}", log.text());
        assert_eq!(bench.proxy.take_counts(), one_request);
        let again = form.place(&bench, &bench.once(), 2).await.unwrap();
        assert!(again.is_replayed());
        assert_eq!(again.into_inner(), 1);
        assert_eq!(bench.proxy.take_counts(), one_request);
        assert_eq!(bench.balance().await, form.amount());
        let record = bench.record().await;
        for (attribute, value) in [
            ("status", string("COMPLETED")),
            ("attempt", number(1)),
            ("data", string("1")),
            ("v", number(1)),
        ] {
            assert_eq!(record[attribute], value, "{attribute}");
        }
        assert!(record.contains_key("validation") && record.contains_key("started_at"));
        assert!(!record.contains_key("in_progress_expiration"));
    }
}

on_each_server!(without_a_claim_of_many_at_once_one_applies);
async fn without_a_claim_of_many_at_once_one_applies(server: Server) {
    for form in Form::WITHOUT_A_CLAIM {
        let bench = Bench::on(&server).await;
        let once = bench.once();
        let results = join_all((0..8).map(|value| form.place(&bench, &once, value))).await;
        let outcomes: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        let ran = outcomes.iter().filter(|outcome| !outcome.is_replayed());
        assert_eq!(ran.count(), 1);
        let first = outcomes[0].get();
        assert!(outcomes.iter().all(|outcome| outcome.get() == first));
        assert_eq!(bench.balance().await, form.amount());
    }
}

on_each_server!(without_a_claim_an_expired_record_is_replaced);
async fn without_a_claim_an_expired_record_is_replaced(server: Server) {
    for form in Form::WITHOUT_A_CLAIM {
        let bench = Bench::on(&server).await;
        let clock = ManualClock::default();
        let builder = bench.builder().clock(clock.clone());
        let once = builder.retention(Duration::from_hours(1)).build().unwrap();
        form.assert_places(&bench, &once, 1).await;
        clock.advance(Duration::from_hours(2));
        form.assert_places(&bench, &once, 2).await;
        assert_eq!(bench.balance().await, 2 * form.amount());
        assert_eq!(bench.record().await["attempt"], number(1));
    }
}

on_each_server!(without_a_claim_a_permanent_failure_is_one_write_and_is_replayed);
async fn without_a_claim_a_permanent_failure_is_one_write_and_is_replayed(server: Server) {
    for form in Form::WITHOUT_A_CLAIM {
        let bench = Bench::on(&server).await;
        let once = bench.once().claimless();
        let run = async || {
            let handler = async |claim: Claim| {
                form.write(&bench, &claim)?;
                Err::<i32, _>(Failed::Broken)
            };
            once.run_with(key(), payload(), handler, |_| Verdict::Fail)
                .await
        };
        assert_matches!(run().await, Err(Error::Handler(Failed::Broken)));
        assert_eq!(bench.proxy.take_counts()["PutItem"], 1);
        assert_matches!(run().await, Err(Error::Failed(_)));
        assert_eq!(bench.balance().await, 0);
    }
}

on_each_server!(without_a_claim_a_missing_permission_is_named);
async fn without_a_claim_a_missing_permission_is_named(server: Server) {
    for form in Form::WITHOUT_A_CLAIM {
        let bench = Bench::on(&server).await;
        bench.proxy.inject(form.operation(), Fault::DENY);
        let denied = form.place(&bench, &bench.once(), 1).await;
        let Err(Error::NotCommitted(StoreError::Denied(reason))) = denied else {
            panic!("{denied:?}")
        };
        let Some(DynamoDbError::AccessDenied { action, .. }) = reason.downcast_ref() else {
            panic!("{reason}")
        };
        let names_a_check = action.contains("ConditionCheckItem");
        assert!(action.starts_with("dynamodb:PutItem"), "{action}");
        assert_eq!(names_a_check, form == Form::Claimless, "{action}");
    }
}

on_each_server!(without_a_claim_it_works_in_a_table_with_a_composite_key);
async fn without_a_claim_it_works_in_a_table_with_a_composite_key(server: Server) {
    for form in Form::WITHOUT_A_CLAIM {
        let bench = Bench::on(&server).await;
        let once = bench.composite().await;
        // In such a table an update creates the record.
        for operation in ["TransactWriteItems", "UpdateItem"] {
            bench.proxy.inject(operation, Fault::LoseReply);
        }
        form.assert_places(&bench, &once, 1).await;
        assert!(form.place(&bench, &once, 2).await.unwrap().is_replayed());
        assert_eq!(bench.balance().await, form.amount());
    }
}

on_each_server!(a_reply_that_is_lost_changes_nothing);
async fn a_reply_that_is_lost_changes_nothing(server: Server) {
    for form in Form::ALL {
        let bench = Bench::on(&server).await;
        bench.proxy.repeat(form.operation(), Fault::LoseReply, 4);
        form.assert_places(&bench, &bench.once(), 1).await;
        assert!(bench.proxy.take_counts()[form.operation()] >= 2);
        assert_eq!(bench.balance().await, form.amount());
        let again = form.place(&bench, &bench.once(), 2).await;
        assert!(again.unwrap().is_replayed());
    }
}

on_each_server!(a_reply_that_is_lost_to_the_end_is_settled_by_the_record);
async fn a_reply_that_is_lost_to_the_end_is_settled_by_the_record(server: Server) {
    for form in Form::ALL {
        let bench = Bench::on(&server).await;
        bench.proxy.repeat(form.operation(), Fault::LoseReply, 500);
        form.assert_places(&bench, &bench.lasting(3), 1).await;
        assert_eq!(bench.balance().await, form.amount());
    }
}

on_each_server!(a_request_that_is_lost_to_the_end_has_written_nothing_and_a_retry_runs);
async fn a_request_that_is_lost_to_the_end_has_written_nothing_and_a_retry_runs(server: Server) {
    for form in Form::ALL {
        let bench = Bench::on(&server).await;
        bench
            .proxy
            .repeat(form.operation(), Fault::LoseRequest, 500);
        let lost = form.place(&bench, &bench.lasting(3), 1).await;
        if form == Form::Alone {
            // The write that would fence its key off is lost, too.
            assert_matches!(lost, Err(Error::OutcomeUnknown(_)));
        } else {
            assert_matches!(lost, Err(Error::NotCommitted(_)));
            let record = bench.record().await;
            let lease = &record["in_progress_expiration"];
            assert_eq!(lease, &number(0), "the released record is the proof");
        }
        bench.proxy.forget();
        form.assert_places(&bench, &bench.once(), 2).await;
        assert_eq!(bench.balance().await, form.amount());
    }
}

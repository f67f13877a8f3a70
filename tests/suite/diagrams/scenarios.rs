//! One record, and what may happen to it.

use lambda_idempotency::sqs::{BatchLayer, Message};
use lambda_idempotency::{Error, Outcome};
use tower::Service;

use super::stage::{Diagram, Environment, TABLE, Table, key, payload};
use crate::support::{Begun, events};

/// The attributes of a record that a diagram shows.
const SHOWN: &[&str] = &["status", "owner", "in_progress_expiration", "data"];
const ONE: &[&str] = &["SQS", "Lambda", TABLE, "Provider"];
const TWO: &[&str] = &["SQS", "Lambda 1", "Lambda 2", TABLE];
const TWO_AND_PROVIDER: &[&str] = &["SQS", "Lambda 1", "Lambda 2", TABLE, "Provider"];

type Answer = Result<Outcome<String>, Error<std::io::Error>>;

/// Runs the handler that charges once, from the delivery to the answer.
async fn charge(environment: &Environment) -> Answer {
    environment.delivered("charge A-17");
    let own = environment.clone();
    let run = environment
        .once
        .run(key(), payload("A-17, 12.50"), async move |claim| {
            own.begins();
            let receipt = own.charges(&claim.derive_key("gateway"));
            own.ends();
            Ok::<_, std::io::Error>(receipt)
        });
    let answer = run.await;
    environment.answers(&answer);
    answer
}

pub(super) async fn twice() -> Diagram {
    let table = Table::on(ONE, SHOWN).await;
    let environment = table.environment("Lambda").await;
    charge(&environment).await.unwrap();
    table
        .stage
        .line("Note over SQS,Provider: the same message,<br/>a second time");
    assert!(charge(&environment).await.unwrap().is_replayed());
    table.stage.diagram(
        "twice",
        "The first delivery runs, the second gets its outcome",
        "A conditional write claims the key. The handler runs, with a derived key for the provider. A second conditional write stores its \
         outcome. The claim of the second delivery is refused, and the refusal brings the record: its outcome is the answer, and the \
         handler doesn't run.",
    )
}

pub(super) async fn concurrent_duplicate() -> Diagram {
    let table = Table::on(TWO, SHOWN).await;
    let [first, second] = table.two_environments().await;
    first.delivered("charge A-17");
    let own = first.clone();
    let run = first
        .once
        .run(key(), payload("A-17, 12.50"), async move |_claim| {
            own.begins();
            assert_matches!(charge(&second).await, Err(Error::InFlight { .. }));
            own.ends();
            Ok::<_, std::io::Error>("receipt 17".to_owned())
        });
    first.answers(&run.await);
    table.stage.diagram(
        "concurrent-duplicate",
        "A duplicate while the first is at work",
        "The claim of the second environment is refused by the claim of the first, which still holds its lease. The delivery is told to \
         come again, and the handler runs once.",
    )
}

pub(super) async fn takeover() -> Diagram {
    let table = Table::on(TWO_AND_PROVIDER, SHOWN).await;
    let [first, second] = table.two_environments().await;
    let begun = Begun::default();
    first.delivered("charge A-17");
    let own = first.clone();
    let attempt = first
        .once
        .run(key(), payload("A-17, 12.50"), async |claim| {
            own.begins();
            own.charges(&claim.derive_key("gateway"));
            begun.then_never::<Result<String, std::io::Error>>().await
        });
    begun.cut_off(attempt).await;
    first.dies("after the charge");
    table.stage.lease_ends();
    assert_matches!(charge(&second).await, Ok(Outcome::Executed(_)));
    table.stage.diagram(
        "takeover",
        "A crash, and the takeover after the lease",
        "The first environment dies after its effect, before its outcome is stored. When its lease is over, the next delivery takes the \
         claim over, on exactly the version that it saw. The provider gets the same key again, and recognises it.",
    )
}

pub(super) async fn stale_owner() -> Diagram {
    let table = Table::on(TWO, SHOWN).await;
    let [first, second] = table.two_environments().await;
    first.delivered("charge A-17");
    let own = first.clone();
    let run = first
        .once
        .run(key(), payload("A-17, 12.50"), async move |_claim| {
            own.begins();
            // The environment is frozen, or the provider takes too long.
            own.stage.lease_ends();
            second.delivered("charge A-17");
            let successor = async |_| Ok::<_, std::io::Error>("receipt 18".to_owned());
            let taken = second.once.run(key(), payload("A-17, 12.50"), successor);
            second.answers(&taken.await);
            own.ends();
            Ok::<_, std::io::Error>("receipt 17".to_owned())
        });
    first.answers(&run.await);
    table.stage.diagram(
        "stale-owner",
        "A handler that outlives its lease is fenced",
        "The second environment takes over and completes. When the first one returns, its completion is refused, since the record has \
         another owner; it answers with the outcome that is stored.",
    )
}

pub(super) async fn mismatch() -> Diagram {
    let table = Table::on(&["SQS", "Lambda", TABLE], &["status", "validation", "data"]).await;
    let environment = table.environment("Lambda").await;
    let run = |amount: &str| {
        let charge = async |_| Ok::<_, std::io::Error>("receipt 17".to_owned());
        environment.once.run(key(), payload(amount), charge)
    };
    run("12.50").await.unwrap();
    table.stage.take();
    environment.delivered("charge A-17, another amount");
    let answer = run("99.00").await;
    assert_matches!(answer, Err(Error::Mismatch));
    environment.answers(&answer);
    table.stage.diagram(
        "mismatch",
        "A key that comes again with another payload",
        "The claim is refused, and the record has the fingerprint of another payload. The handler doesn't run, and the stored outcome is \
         not given to a request that asked for something else.",
    )
}

pub(super) async fn batch() -> Diagram {
    let table = Table::on(ONE, &["status", "owner"]).await;
    let environment = table.environment("Lambda").await;
    let own = environment.clone();
    let mut worker = BatchLayer::new(environment.once.clone())
        .operation("charge")
        .key(|order: &String| order.clone())
        .handler(move |message: Message<String>| {
            let own = own.clone();
            async move {
                own.begins();
                own.charges(&message.claim.derive_key("gateway"));
                own.ends();
                Ok::<_, std::io::Error>(())
            }
        });
    let orders = ["A-17", "A-18", "A-19"];
    let messages = orders.map(|order| events::message(order, format!("\"{order}\"")));
    environment.delivered(&format!("a batch: {}", orders.join(", ")));
    let reply = worker.call(events::batch(messages)).await.unwrap();
    environment.replies(&format!("{} failed", reply.batch_item_failures.len()));
    table.stage.diagram(
        "batch",
        "A batch of messages: group commit",
        "The claims of all messages leave in one request, each statement with its own condition. Each handler runs with its own derived \
         key. The outcomes leave together, too.",
    )
}

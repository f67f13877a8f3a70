//! One record, and what may happen to it.

use lambda_idempotency::{Error, Outcome};

use super::engine::{Environment, LEASE, SHOWN, Table, key, payload};
use super::trace::Diagram;
use crate::support::{Begun, Fault};

const CLIENT: &str = "SQS";
const LAMBDA: &str = "Lambda";
const FIRST: &str = "Lambda 1";
const SECOND: &str = "Lambda 2";
const TABLE: &str = "DynamoDB";
const PROVIDER: &str = "Provider";

type Answer = Result<Outcome<String>, Error<std::io::Error>>;

/// Runs the handler that charges once, from the delivery to the answer.
async fn charge(environment: &Environment, provider: usize) -> Answer {
    environment.delivered("charge order A-17");
    let own = environment.clone();
    let answer = environment
        .once
        .run(key(), payload("A-17, 12.50"), async move |claim| {
            own.begins();
            let receipt = own.charges(provider, &claim.derive_key("gateway"));
            own.ends();
            Ok::<_, std::io::Error>(receipt)
        });
    let answer = answer.await;
    environment.answers(&answer);
    answer
}

pub(super) async fn first_run() -> Diagram {
    let table = Table::on(2, SHOWN).await;
    let environment = table.environment(1).await;
    charge(&environment, 3).await.unwrap();
    Diagram {
        name: "first-run",
        title: "The first delivery runs",
        description: "A conditional write claims the key. The handler runs, with a derived key for the provider. A second conditional write \
                      stores its outcome.",
        lanes: vec![CLIENT, LAMBDA, TABLE, PROVIDER],
        events: table.stage.trace.take(),
    }
}

pub(super) async fn duplicate() -> Diagram {
    let table = Table::on(2, SHOWN).await;
    let environment = table.environment(1).await;
    charge(&environment, 3).await.unwrap();
    table.stage.trace.take();
    assert!(charge(&environment, 3).await.unwrap().is_replayed());
    Diagram {
        name: "duplicate",
        title: "A duplicate gets the stored outcome",
        description: "The claim of a second delivery is refused, and the refusal brings the record. Its outcome is the answer: one request, \
                      and the handler doesn't run.",
        lanes: vec![CLIENT, LAMBDA, TABLE, PROVIDER],
        events: table.stage.trace.take(),
    }
}

pub(super) async fn concurrent_duplicate() -> Diagram {
    let table = Table::on(3, SHOWN).await;
    let (first, second) = (table.environment(1).await, table.environment(2).await);
    first.delivered("charge order A-17");
    let own = first.clone();
    let answer = first
        .once
        .run(key(), payload("A-17, 12.50"), async move |_claim| {
            own.begins();
            let refused = charge(&second, 3).await;
            assert!(matches!(refused, Err(Error::InFlight { .. })));
            own.ends();
            Ok::<_, std::io::Error>("receipt 17".to_owned())
        });
    first.answers(&answer.await);
    Diagram {
        name: "concurrent-duplicate",
        title: "A duplicate while the first is at work",
        description: "The claim of the second environment is refused by the claim of the first, which still holds its lease. The delivery \
                      is told to come again, and the handler runs once.",
        lanes: vec![CLIENT, FIRST, SECOND, TABLE],
        events: table.stage.trace.take(),
    }
}

pub(super) async fn takeover() -> Diagram {
    let table = Table::on(3, SHOWN).await;
    let (first, second) = (table.environment(1).await, table.environment(2).await);
    let begun = Begun::default();
    first.delivered("charge order A-17");
    let own = first.clone();
    let attempt = first
        .once
        .run(key(), payload("A-17, 12.50"), async |claim| {
            own.begins();
            own.charges(4, &claim.derive_key("gateway"));
            begun.then_never::<Result<String, std::io::Error>>().await
        });
    begun.cut_off(attempt).await;
    first.dies("dies after the charge");
    table
        .stage
        .passes(LEASE + std::time::Duration::from_secs(2));
    let answer = charge(&second, 4).await;
    assert!(matches!(answer, Ok(Outcome::Executed(_))));
    Diagram {
        name: "takeover",
        title: "A crash, and the takeover after the lease",
        description: "The first environment dies after its effect, before its outcome is stored. When its lease is over, the next delivery \
                      takes the claim over, on exactly the version that it saw. The provider gets the same key again, and recognises it.",
        lanes: vec![CLIENT, FIRST, SECOND, TABLE, PROVIDER],
        events: table.stage.trace.take(),
    }
}

pub(super) async fn stale_owner() -> Diagram {
    let table = Table::on(3, SHOWN).await;
    let (first, second) = (table.environment(1).await, table.environment(2).await);
    first.delivered("charge order A-17");
    let own = first.clone();
    let stage = table.stage.clone();
    let answer = first
        .once
        .run(key(), payload("A-17, 12.50"), async move |_claim| {
            own.begins();
            // The environment is frozen, or the provider takes too long.
            stage.passes(LEASE + std::time::Duration::from_secs(2));
            second.delivered("charge order A-17");
            let successor = second.clone();
            let taken = second
                .once
                .run(key(), payload("A-17, 12.50"), async move |_claim| {
                    successor.begins();
                    successor.ends();
                    Ok::<_, std::io::Error>("receipt 18".to_owned())
                });
            second.answers(&taken.await);
            own.ends();
            Ok::<_, std::io::Error>("receipt 17".to_owned())
        });
    first.answers(&answer.await);
    Diagram {
        name: "stale-owner",
        title: "A handler that outlives its lease is fenced",
        description: "The second environment takes over and completes. When the first one returns, its completion is refused, since the \
                      record has another owner; it answers with the outcome that is stored.",
        lanes: vec![CLIENT, FIRST, SECOND, TABLE],
        events: table.stage.trace.take(),
    }
}

pub(super) async fn mismatch() -> Diagram {
    let table = Table::on(2, &["status", "validation", "data"]).await;
    let environment = table.environment(1).await;
    charge(&environment, 3).await.unwrap();
    table.stage.trace.take();
    environment.delivered("charge order A-17, another amount");
    let answer = environment
        .once
        .run(key(), payload("A-17, 99.00"), async |_| {
            Ok::<_, std::io::Error>("never".to_owned())
        });
    let answer = answer.await;
    assert!(matches!(answer, Err(Error::Mismatch)));
    environment.answers(&answer);
    Diagram {
        name: "mismatch",
        title: "A key that comes again with another payload",
        description: "The claim is refused, and the record has the fingerprint of another payload. The handler doesn't run, and the stored \
                      outcome is not given to a request that asked for something else.",
        lanes: vec![CLIENT, LAMBDA, TABLE, PROVIDER],
        events: table.stage.trace.take(),
    }
}

pub(super) async fn lost_reply() -> Diagram {
    let table = Table::on(2, SHOWN).await;
    let environment = table.disturbed(1, [("UpdateItem", Fault::LoseReply)]).await;
    assert!(matches!(
        charge(&environment, 3).await,
        Ok(Outcome::Executed(_))
    ));
    Diagram {
        name: "lost-reply",
        title: "The answer to a write is lost",
        description: "The completion applies, and its answer is lost. The same write is sent again; it is refused by the record that it made \
                      itself, which proves that the outcome is stored.",
        lanes: vec![CLIENT, LAMBDA, TABLE, PROVIDER],
        events: table.stage.trace.take(),
    }
}

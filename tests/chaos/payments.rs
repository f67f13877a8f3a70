//! `payments-worker` behind a queue: the leased form, three times.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use fastrand::Rng;
use futures_util::future::join_all;
use lambda_idempotency::Key;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::defect::Defect;
use crate::judge::Story;
use crate::judge::payments::{Acknowledged, Payment};
use crate::lane::Lane;
use crate::night::{Night, between};
use crate::queue::{End, Queue, Subject};
use crate::support::lambda::{Function, Reply};
use crate::support::provider::{Mishap, Provider};

/// The number of batches that are worked on side by side.
const POLLERS: usize = 3;

/// The number of messages that wait, so that there is always one.
const BACKLOG: usize = 30;

const UNANSWERED: &str = "payments: invocation without an answer";

/// The situations that show that the machine is too busy for the functions' short timeout, where nothing else disturbs them.
const LATE: [&str; 3] = [UNANSWERED, "decision: store_failed", "decision: too_late"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Each execution shows as its own entry.
    Plain,
    /// In steps, with a provider that honours keys.
    Keyed,
    /// In steps, with a provider that charges as often as it is asked: an operator looks where nobody can know.
    Unkeyed,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "payments, entered",
            Self::Keyed => "payments, charged by keys",
            Self::Unkeyed => "payments, charged without keys",
        }
    }
}

pub async fn run(night: &Arc<Night>, form: Form, defect: Defect) -> Vec<String> {
    let function = Function::payments_worker().await;
    let provider = match form {
        Form::Plain => None,
        Form::Keyed => Some(Provider::that_honours_keys().await),
        Form::Unkeyed => Some(Provider::that_ignores_keys().await),
    };
    let function = match &provider {
        Some(provider) => {
            provider.befall(mishaps(Arc::clone(night), form));
            function.with_provider(provider)
        }
        None => function.slow(Duration::from_millis(100)),
    };
    let name = form.name();
    let lane = Lane::open(night, name, "payments-worker", function, defect, POLLERS).await;
    let queue = Queue::new(night, name);
    let work = async {
        produce(night, form, &queue).await;
        // Everything comes to an end; then all that was done is sent once more.
        let settled = settle(night, &queue).await;
        queue.replay();
        settled & settle(night, &queue).await
    };
    let pollers = (0..POLLERS).map(|number| poll(night, &lane, &queue, number));
    let settled = tokio::select! {
        settled = work => settled,
        _ = join_all(pollers) => false,
    };
    lane.pool.close().await;
    let mut broken = judge(night, form, &lane, &queue, provider.as_ref()).await;
    if !settled {
        broken.push(format!("{name}: {} messages never settled", queue.open()));
    }
    broken
}

fn mishaps(night: Arc<Night>, form: Form) -> impl FnMut() -> Option<Mishap> + Send {
    let mut dice = night.dice(&format!("the provider of {}", form.name()));
    move || {
        let mishap = match dice.u32(0..100) {
            _ if !night.is_troubled() => return None,
            0..4 => Mishap::Refused(StatusCode::PAYMENT_REQUIRED),
            4..8 => Mishap::Charged(StatusCode::BAD_GATEWAY),
            8..50 => Mishap::Slow(between(&mut dice, 20, 400)),
            _ => return None,
        };
        night.report.count(match mishap {
            Mishap::Refused(_) => "provider: refused",
            Mishap::Charged(_) => "provider: charged, and answered with an error",
            Mishap::Slow(_) => "provider: slow",
        });
        Some(mishap)
    }
}

/// Sends payments as long as the night lasts, most of them several times, a few with another amount, a few that are none.
async fn produce(night: &Arc<Night>, form: Form, queue: &Queue) {
    let mut dice = night.dice(&format!("the producer of {}", form.name()));
    let mut number = 0;
    while night.is_troubled() {
        if queue.open() < BACKLOG {
            number += 1;
            send(form, queue, number, &mut dice);
        } else {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn send(form: Form, queue: &Queue, number: usize, dice: &mut Rng) {
    let id = format!("pay-{number}");
    if dice.u32(0..100) == 0 {
        let body = format!("{{\"payment_id\": \"{id}\", \"amount\": ");
        queue.send(subject(&id, 0, body), Duration::ZERO);
        return;
    }
    let amount = 100 + number as u64;
    for _ in 0..copies(dice) {
        let delay = match dice.u32(0..2) {
            0 => Duration::ZERO,
            _ => between(dice, 0, 5_000),
        };
        queue.send(payment(&id, amount), delay);
    }
    // A handler that failed is taken to have had no effect, so that another payload may have its key. In steps that is known; what
    // just enters a payment may have entered it.
    if form != Form::Plain && dice.u32(0..100) < 3 {
        queue.send(payment(&id, amount + 1), between(dice, 0, 2_000));
    }
}

/// Draws the number of times that something is sent: 2.3 on average.
pub fn copies(dice: &mut Rng) -> usize {
    [1, 1, 1, 2, 2, 2, 3, 3, 4, 4][dice.usize(0..10)]
}

fn payment(id: &str, amount: u64) -> Subject {
    let body = json!({ "payment_id": id, "order_id": id, "amount": amount, "currency": "EUR" });
    subject(id, amount, body.to_string())
}

fn subject(id: &str, amount: u64, body: String) -> Subject {
    Subject {
        payment_id: id.to_owned(),
        amount,
        body,
    }
}

async fn poll(night: &Arc<Night>, lane: &Lane, queue: &Queue, number: usize) {
    let mut dice = night.dice(&format!("poller {number} of {}", lane.name));
    loop {
        let Some((event, ids)) = queue.receive(dice.usize(1..=10)) else {
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        // Without an answer nothing is acknowledged: the messages come again when they are visible.
        let Reply::Answered(answer) = lane.pool.invoke(event).await else {
            night.report.count(UNANSWERED);
            continue;
        };
        let failures = answer["batchItemFailures"].as_array();
        let failed = failures.expect("a list").iter();
        let failed = failed.map(|it| it["itemIdentifier"].as_str().expect("an id").to_owned());
        queue.answered(&ids, &failed.collect::<Vec<_>>());
    }
}

/// Waits until every message is done or put aside. Messages that were put aside come again, until all of them are put aside again with
/// nothing late meanwhile: on a machine that is busy with other work, each of the few times that a message is received may come to
/// nothing.
async fn settle(night: &Night, queue: &Queue) -> bool {
    let until = Instant::now() + night.patience;
    let late = || LATE.iter().map(|what| night.report.of(what)).sum::<u64>();
    let mut aside = None;
    loop {
        let before = late();
        while queue.open() > 0 {
            if Instant::now() > until {
                return false;
            }
            sleep(Duration::from_millis(50)).await;
        }
        let dead = Some(queue.put_aside());
        if dead == aside && late() == before {
            return true;
        }
        aside = dead;
        queue.redrive();
    }
}

async fn judge(
    night: &Night,
    form: Form,
    lane: &Lane,
    queue: &Queue,
    provider: Option<&Provider>,
) -> Vec<String> {
    let (histories, notes) = (lane.histories().await, lane.wire.tape.notes());
    let asked = provider.map(Provider::asked).unwrap_or_default();
    let messages = queue.messages();
    let ids: BTreeSet<_> = messages.iter().map(|it| &it.subject.payment_id).collect();
    night
        .report
        .count_all(&format!("keys: {}", lane.name), ids.len());
    let mut broken = Vec::new();
    for id in ids {
        let messages = || messages.iter().filter(|it| it.subject.payment_id == *id);
        // A message that can't be read has no amount, and must have no effect.
        let is_poison = messages().any(|it| it.subject.amount == 0);
        let record_id = lane.record_id(&Key::new("payment", id.as_str()));
        let changes = histories.get(record_id.as_str());
        let story =
            changes.and_then(|changes| Story::of(changes, &notes.claimed_at, night.calm_since()));
        if is_poison {
            let done = story.is_some() || messages().any(|it| it.end != Some(End::Dead));
            let what = done.then(|| "a message that is no payment was taken".to_owned());
            broken.extend(lane.tell(&record_id, what.into_iter().collect()));
            continue;
        }
        let payment = Payment {
            form,
            story,
            entries: notes.effects.get(id).map_or(&[], Vec::as_slice),
            asked: asked
                .iter()
                .filter(|it| it.payment_id == *id)
                .cloned()
                .collect(),
            acknowledged: messages()
                .filter_map(|it| match it.end {
                    Some(End::Acknowledged(at)) => Some(Acknowledged {
                        amount: it.subject.amount,
                        at,
                    }),
                    _ => None,
                })
                .collect(),
            dead: messages()
                .filter(|it| it.end == Some(End::Dead))
                .map(|it| it.subject.amount)
                .collect(),
            lost: messages().filter(|it| it.end.is_none()).count(),
        };
        broken.extend(lane.tell(&record_id, payment.broken(&night.report)));
    }
    broken
}

//! `orders-api` and its clients: the exactly-once form, with an event in its outbox.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::{StreamExt, stream};
use lambda_idempotency::Key;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::client::{Client, TENANT, Told};
use crate::defect::Defect;
use crate::judge::Story;
use crate::judge::orders::{Answer, Order};
use crate::lane::Lane;
use crate::night::{Night, between};
use crate::payments::copies;
use crate::support::Stream;
use crate::support::lambda::{Function, number, text};

const NAME: &str = "orders";

const ENVIRONMENTS: usize = 4;

/// The number of clients that ask side by side: more than there are environments.
const CLIENTS: usize = 8;

/// Between two new keys, so that the other functions get their share of the machine.
const PAUSE: Duration = Duration::from_millis(150);

/// The results of the clients of each key.
type Heard = BTreeMap<String, Vec<Told>>;

pub async fn run(night: &Arc<Night>, defect: Defect) -> Vec<String> {
    let function = Function::orders_api().await;
    function.server().follow(function.effects_table()).await;
    let lane = Lane::open(night, NAME, "orders-api", function, defect, ENVIRONMENTS).await;
    let lane = Arc::new(lane);
    let mut heard = Heard::new();
    let mut clients = send(night, &lane).await;
    while let Some(client) = clients.join_next().await {
        let (key, told) = client.expect("no panic in a client");
        heard.entry(key).or_default().push(told);
    }
    replay(night, &lane, &mut heard).await;
    lane.pool.close().await;
    judge(night, &lane, heard).await
}

/// New clients as long as the night lasts, most of them in company.
async fn send(night: &Arc<Night>, lane: &Arc<Lane>) -> JoinSet<(String, Told)> {
    let mut dice = night.dice("the clients");
    let mut clients = JoinSet::new();
    let places = Arc::new(Semaphore::new(CLIENTS));
    let mut number = 0;
    while night.is_troubled() {
        number += 1;
        let key = format!("cart-{number}");
        for copy in 0..copies(&mut dice) {
            // A key that is used for another order too is a mistake of the client's, and refused.
            let quantity = if copy > 0 && dice.u32(0..100) < 3 {
                2
            } else {
                1
            };
            let client = Client {
                key: key.clone(),
                order: order(number, quantity),
                dice: Rng::with_seed(dice.u64(..)),
            };
            let delay = match copy {
                0 => Duration::ZERO,
                _ => between(&mut dice, 0, 3_000),
            };
            let (night, lane, places) = (Arc::clone(night), Arc::clone(lane), Arc::clone(&places));
            clients.spawn(async move {
                sleep(delay).await;
                let place = places.acquire_owned().await.expect("a place");
                let key = client.key.clone();
                let told = client.ask(night, lane, copy == 0).await;
                drop(place);
                (key, told)
            });
        }
        sleep(PAUSE).await;
        // Not faster than they are served.
        let place = Arc::clone(&places).acquire_owned().await;
        drop(place.expect("a place"));
    }
    clients
}

fn order(number: usize, quantity: i64) -> Value {
    json!({ "sku": format!("TEA-{number}"), "quantity": quantity, "amount": 1_250, "currency": "EUR" })
}

/// Everybody who was told that the order is placed asks once more.
async fn replay(night: &Arc<Night>, lane: &Arc<Lane>, heard: &mut Heard) {
    let again = |(key, told): (&String, &Vec<Told>)| {
        let placed = told.iter().find_map(|told| match told {
            Told::Placed(answer) => Some(&answer.body),
            _ => None,
        })?;
        let fields = ["sku", "quantity", "amount", "currency"];
        let order = fields.map(|field| (field.to_owned(), placed[field].clone()));
        Some(Client {
            key: key.clone(),
            order: Value::Object(order.into_iter().collect()),
            dice: night.dice(key),
        })
    };
    let clients: Vec<_> = heard.iter().filter_map(again).collect();
    let asking = stream::iter(clients).map(async |client| {
        let key = client.key.clone();
        (
            key,
            client.ask(Arc::clone(night), Arc::clone(lane), false).await,
        )
    });
    let asked: Vec<_> = asking.buffer_unordered(CLIENTS).collect().await;
    for (key, told) in asked {
        heard.entry(key).or_default().push(told);
    }
}

async fn judge(night: &Night, lane: &Lane, heard: Heard) -> Vec<String> {
    night
        .report
        .count_all(&format!("keys: {NAME}"), heard.len());
    let (histories, notes) = (lane.histories().await, lane.wire.tape.notes());
    let server = lane.function.server();
    let writes = changes(
        &Stream::of(server, lane.function.effects_table()).await,
        "order_id",
    )
    .await;
    let events = changes(
        &Stream::of(server, lane.function.outbox()).await,
        "aggregate",
    )
    .await;
    let quantities: HashMap<_, _> = lane
        .function
        .effects()
        .await
        .iter()
        .map(|order| {
            (
                text(order, "order_id").to_owned(),
                number(order, "quantity"),
            )
        })
        .collect();
    let stopped: HashSet<_> = notes.stopped_by_the_order.iter().collect();
    let (mut broken, mut known) = (Vec::new(), HashSet::new());
    for (key, told) in heard {
        let record_id = lane.record_id(&Key::new("POST /orders", key.as_str()).scope(TENANT.1));
        let answers: Vec<Answer> = told
            .iter()
            .filter_map(|told| match told {
                Told::Placed(answer) => Some(answer.clone()),
                _ => None,
            })
            .collect();
        let order_id = answers.first().and_then(|it| it.body["order_id"].as_str());
        let order_id = order_id.unwrap_or_default().to_owned();
        let story = histories.get(record_id.as_str());
        let order = Order {
            story: story
                .and_then(|changes| Story::of(changes, &notes.claimed_at, night.calm_since())),
            unanswered: told.iter().filter(|it| matches!(it, Told::Nothing)).count(),
            placed_at: notes.effects.get(&order_id).map(|found| found[0].1),
            quantity: quantities.get(&order_id).copied(),
            writes: writes.get(&order_id).copied().unwrap_or_default(),
            event_writes: events.get(&order_id).copied().unwrap_or_default(),
            not_committed: lane.logs.attempts(&record_id, "not_committed"),
            is_stopped_by_itself: stopped.contains(&order_id),
            answers,
        };
        known.insert(order_id);
        let mut found = order.broken();
        found.extend(told.iter().filter_map(|told| match told {
            Told::Nonsense(answer) => Some(format!("a client was told {answer}")),
            _ => None,
        }));
        broken.extend(lane.tell(&record_id, found));
    }
    let unknown = quantities
        .keys()
        .filter(|order_id| !known.contains(*order_id));
    broken.extend(unknown.map(|order_id| format!("{NAME}: nobody ordered {order_id}")));
    broken
}

/// Returns the number of writes of each of a table's items, by this part of its key.
async fn changes(stream: &Stream, key: &str) -> HashMap<String, usize> {
    let mut changes = HashMap::new();
    for record in stream.all().await {
        let of = record["dynamodb"]["Keys"][key]["S"].as_str();
        *changes.entry(of.expect("a key").to_owned()).or_default() += 1;
    }
    changes
}

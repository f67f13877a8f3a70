//! The examples, as processes.

use std::path::PathBuf;
use std::process::Stdio;

use lambda_simulator::{InvocationBuilder, InvocationStatus, Simulator};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use crate::support::{MINUTE, eventually, name, pool_of, url};
use lambda_idempotency_postgres::PostgresStore;

/// A database of the test's own, since examples name their tables.
async fn database() -> (String, Client) {
    let name = name("example");
    connect(&url())
        .await
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .await
        .unwrap();
    let (server, _) = url()
        .rsplit_once('/')
        .map(|(server, name)| (server.to_owned(), name.to_owned()))
        .unwrap();
    let url = format!("{server}/{name}");
    let client = connect(&url).await;
    (url, client)
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Starts an example that was built beside this program.
fn start(example: &str, url: &str, more: impl IntoIterator<Item = (String, String)>) -> Child {
    let here = std::env::current_exe().unwrap();
    let program: PathBuf = here
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples")
        .join(example);
    Command::new(&program)
        .env("POSTGRES_URL", url)
        .envs(more)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}: build the examples first", program.display()))
}

/// Sends an order, and returns the status, the head and the body of the answer.
async fn post(address: &str, key: &str, body: &str) -> (u16, String, Value) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST /orders HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nidempotency-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(MINUTE, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (
        status,
        head.to_owned(),
        serde_json::from_str(body).unwrap_or_default(),
    )
}

#[tokio::test]
async fn the_server_places_each_order_once_and_ends_at_sigterm() {
    let (url, client) = database().await;
    let mut server = start("axum_on_postgres", &url, []);
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = timeout(MINUTE, lines.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let address = line
        .strip_prefix("http://")
        .unwrap()
        .strip_suffix("/orders")
        .unwrap();

    let (status, head, first) = post(address, "order-1", r#"{"cents": 1250}"#).await;
    assert_eq!(status, 201, "{head}");
    assert!(!head.contains("idempotent-replayed"), "{head}");
    let (status, head, again) = post(address, "order-1", r#"{"cents": 1250}"#).await;
    assert_eq!((status, &again), (201, &first), "{head}");
    assert!(head.contains("idempotent-replayed: true"), "{head}");
    let (status, ..) = post(address, "order-1", r#"{"cents": 9}"#).await;
    assert_eq!(status, 422);

    let crowd = (0..12).map(|_| post(address, "order-2", r#"{"cents": 7}"#));
    let answers = futures_util::future::join_all(crowd).await;
    let (_, _, first) = &answers[0];
    for (status, head, answer) in &answers {
        assert_eq!((*status, answer), (201, first), "{head}");
    }
    let is_replayed = |head: &str| head.contains("idempotent-replayed: true");
    let replayed = answers.iter().filter(|(_, head, _)| is_replayed(head));
    assert_eq!(replayed.count(), 11);
    let count: i64 = client
        .query_one("SELECT count(*) FROM orders", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(count, 2);

    let id = server.id().unwrap().to_string();
    let told = Command::new("kill").arg(id).status().await.unwrap();
    assert!(told.success());
    let ended = timeout(MINUTE, server.wait()).await.unwrap().unwrap();
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn the_worker_takes_each_payment_once() {
    let (url, client) = database().await;
    PostgresStore::new(pool_of(&url, 1))
        .create_tables()
        .await
        .unwrap();
    let tables = "CREATE TABLE orders (number bigint PRIMARY KEY, status text NOT NULL);
        CREATE TABLE payments (id text PRIMARY KEY, cents bigint NOT NULL);
        INSERT INTO orders VALUES (1, 'placed'), (2, 'placed'), (3, 'cancelled')";
    client.batch_execute(tables).await.unwrap();
    let simulator = Simulator::builder()
        .function_name("queue")
        .region("eu-central-1")
        .build()
        .await
        .unwrap();
    let environment = simulator
        .lambda_env_vars()
        .into_iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    let _worker = start("queue_on_postgres", &url, environment);

    let message = |number: usize, payment: &str, order: i64| {
        json!({
            "messageId": format!("m-{number}"), "receiptHandle": "r", "eventSource": "aws:sqs", "awsRegion": "eu-central-1",
            "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:payments", "attributes": {}, "messageAttributes": {},
            "body": json!({ "id": payment, "order": order, "cents": 100 }).to_string(),
        })
    };
    // Each payment comes twice in one batch, and all of them again.
    for round in 0..2 {
        let payments = [("p-1", 1), ("p-2", 2), ("p-1", 1), ("p-3", 3), ("p-2", 2)];
        let records: Vec<_> = payments
            .iter()
            .enumerate()
            .map(|(place, (id, order))| message(round * 10 + place, id, *order))
            .collect();
        let invocation = InvocationBuilder::new()
            .payload(json!({ "Records": records }))
            .timeout_ms(120_000)
            .build()
            .unwrap();
        let id = simulator.enqueue(invocation).await;
        let answer = async || {
            let state = simulator.get_invocation_state(&id).await.unwrap();
            match state.status {
                InvocationStatus::Success => Some(state.response.unwrap().payload),
                InvocationStatus::Error => panic!("{:?}", state.error),
                _ => None,
            }
        };
        let answer = eventually("an answer", answer).await;
        // The third order can't be paid: that failure is stored, and its message goes to the queue's
        // dead-letter queue in the end.
        let refused = format!("m-{}", round * 10 + 3);
        assert_eq!(
            answer["batchItemFailures"],
            json!([{ "itemIdentifier": refused }]),
            "{answer}"
        );
    }
    let row = client
        .query_one(
            "SELECT count(*), count(*) FILTER (WHERE id = 'p-3') FROM payments",
            &[],
        )
        .await
        .unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (2, 0));
    let paid: i64 = client
        .query_one("SELECT count(*) FROM orders WHERE status = 'paid'", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(paid, 2);
}

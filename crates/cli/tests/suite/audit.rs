//! `audit` finds each planted missing and double effect among many records, and none where there are
//! none. `RECORDS=100000` audits ten thousand of them.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, GlobalSecondaryIndex, KeySchemaElement,
    KeyType, Projection, ProjectionType, PutRequest, ScalarAttributeType, WriteRequest,
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use crate::support::{Said, command, dynamodb, on, run, size, table};

fn records() -> usize {
    size("RECORDS", 10_000) / 10
}

fn id(number: usize) -> String {
    format!("payments#charge#{number:064x}")
}

type Record = Vec<(&'static str, AttributeValue)>;

fn record(number: usize) -> Record {
    let text = |text: String| AttributeValue::S(text);
    let count = |number: i64| AttributeValue::N(number.to_string());
    vec![
        ("id", text(id(number))),
        ("status", text("COMPLETED".to_owned())),
        ("owner", text("0f".to_owned())),
        ("attempt", count(1)),
        ("data", text(format!("{{\"payment\":\"p-{number}\"}}"))),
        ("started_at", count(1_700_000_000_000)),
        ("completed_at", count(1_700_000_000_000)),
        ("expiration", count(4_000_000_000)),
        ("v", count(1)),
    ]
}

/// The effects of a payment: up to seven payments have none, up to five two.
fn effects(number: usize, planted: bool) -> usize {
    match number % 100 {
        17 if planted && number < 700 => 0,
        18 if planted && number < 500 => 2,
        _ => 1,
    }
}

async fn put_all(table: &str, items: impl Iterator<Item = Record>) {
    let request = |item: Record| {
        let put = item
            .into_iter()
            .fold(PutRequest::builder(), |put, (name, value)| {
                put.item(name, value)
            });
        WriteRequest::builder()
            .put_request(put.build().unwrap())
            .build()
    };
    let requests: Vec<_> = items.map(request).collect();
    let client = dynamodb().client();
    let batches = requests.chunks(25).map(|batch| {
        let write = client
            .batch_write_item()
            .request_items(table, batch.to_vec());
        async move {
            let left = write.send().await.unwrap().unprocessed_items;
            assert!(left.is_none_or(|left| left.is_empty()));
        }
    });
    stream::iter(batches)
        .for_each_concurrent(8, |batch| batch)
        .await;
}

/// A table of records and one of their effects, whose attribute `payment` names the payment.
async fn world(count: usize, planted: bool, key: &str) -> (String, String) {
    let (records, ledger) = (table().await, format!("ledger-{}", fastrand::u64(..)));
    dynamodb()
        .create_table(&ledger, &[key, "entry"])
        .await
        .unwrap();
    put_all(&records, (0..count).map(record)).await;
    let entries = (0..count)
        .flat_map(|number| (0..effects(number, planted)).map(move |entry| (number, entry)));
    let text = |text: String| AttributeValue::S(text);
    let items = entries.map(|(number, entry)| {
        let mut item = vec![
            ("payment", text(format!("p-{number}"))),
            ("entry", text(format!("e-{entry}"))),
        ];
        if key != "payment" {
            item.push(("account", text(format!("a-{number}"))));
        }
        item
    });
    put_all(&ledger, items).await;
    (records, ledger)
}

async fn audit(records: &str, ledger: &str, words: &[&str]) -> Said {
    let effects = ["--effects-table", ledger, "--effects-attribute", "payment"];
    let key = ["audit", "--json", "--effect-key", "/payment"];
    on(records, &[&key[..], &effects, words].concat()).await
}

fn counts(said: &Said) -> [u64; 3] {
    let report = said.json();
    let count = |pointer| report.pointer(pointer).and_then(Value::as_u64).unwrap();
    [
        count("/checked"),
        count("/missing/count"),
        count("/double/count"),
    ]
}

#[tokio::test]
async fn what_is_planted_is_found_and_nothing_else() {
    // By queries, where the name is the partition key, and by a scan, where it is not.
    for (count, key) in [(records(), "payment"), (records() / 5, "account")] {
        let (records, ledger) = world(count, true, key).await;
        let said = audit(&records, &ledger, &["--show", "100"])
            .await
            .ended_with(1);
        let with = |wanted| (0..count).filter(move |number| effects(*number, true) == wanted);
        let found = [count, with(0).count(), with(2).count()].map(|count| count as u64);
        assert_eq!(counts(&said), found, "{said:?}");
        let report = said.json();
        let ids = report["missing"]["ids"].as_array().unwrap();
        let mut ids: Vec<&str> = ids.iter().map(|id| id.as_str().unwrap()).collect();
        ids.sort_unstable();
        let expected: Vec<String> = with(0).map(id).collect();
        assert_eq!(ids, expected);
        let rate = &report["missing"];
        let (low, high) = (
            rate["low"].as_f64().unwrap(),
            rate["high"].as_f64().unwrap(),
        );
        assert!(
            low < rate["rate"].as_f64().unwrap() && rate["rate"].as_f64().unwrap() < high,
            "{rate}"
        );
    }
}

#[tokio::test]
async fn nothing_is_found_where_all_is_well() {
    let count = self::records();
    let (records, ledger) = world(count, false, "payment").await;
    let said = audit(&records, &ledger, &[]).await.ended_with(0);
    assert_eq!(counts(&said), [count as u64, 0, 0]);
    let said = audit(&records, &ledger, &["--sample", "300", "--seed", "7"])
        .await
        .ended_with(0);
    assert_eq!(counts(&said)[0], 300);
    on(
        &records,
        &[
            "audit",
            "--effect-key",
            "/nothing",
            "--effects-table",
            &ledger,
            "--effects-attribute",
            "payment",
        ],
    )
    .await
    .refused(
        1,
        &format!("{count} records don't tell which effect is theirs"),
    );
}

#[tokio::test]
async fn an_audit_that_could_compare_too_little_knows_nothing() {
    for (judged, not_judged, code) in [(90, 10, 0), (89, 11, 1), (1, 99, 1)] {
        let (records, ledger) = world(judged, false, "payment").await;
        let nameless = (judged..judged + not_judged).map(|number| {
            let mut record = record(number);
            record.retain(|(name, _)| *name != "data");
            record.push(("data", AttributeValue::S("{}".to_owned())));
            record
        });
        put_all(&records, nameless).await;
        let said = audit(&records, &ledger, &[]).await.ended_with(code);
        assert_eq!(counts(&said), [judged as u64, 0, 0]);
        assert_eq!(said.json()["blind"], code == 1);
    }
}

/// A text that is too long for a key names no item, and stops nothing.
#[tokio::test]
async fn a_name_of_any_length_is_compared() {
    let records = table().await;
    let longest = "x".repeat(2_048);
    let ledger = format!("ledger-{}", fastrand::u64(..));
    dynamodb()
        .create_table(&ledger, &["payment"])
        .await
        .unwrap();
    let names = [String::new(), longest.clone(), format!("{longest}x")];
    let record = |(number, name): (usize, &String)| {
        let mut record = record(number);
        record.retain(|(name, _)| *name != "data");
        let outcome = json!({ "payment": name }).to_string();
        record.push(("data", AttributeValue::S(outcome)));
        record
    };
    put_all(&records, names.iter().enumerate().map(record)).await;
    let effect = vec![("payment", AttributeValue::S(longest))];
    put_all(&ledger, std::iter::once(effect)).await;
    let said = audit(&records, &ledger, &[]).await.ended_with(1);
    assert_eq!(counts(&said), [3, 2, 0], "{said:?}");
    let ids = said.json()["missing"]["ids"].clone();
    let mut ids: Vec<_> = ids.as_array().unwrap().iter().map(Value::as_str).collect();
    ids.sort_unstable();
    assert_eq!(ids, [Some(&*id(0)), Some(&*id(2))]);
}

#[tokio::test]
async fn an_audit_that_compared_nothing_knows_nothing() {
    let (records, ledger) = world(20, false, "payment").await;
    for words in [
        ["--operation", "refund"],
        ["--namespace", "payment"],
        ["--since", "2024-01-01T00:00:00Z"],
        ["--settled-for", "99years"],
        ["--sample", "0"],
    ] {
        let said = audit(&records, &ledger, &words).await.ended_with(1);
        assert_eq!(counts(&said), [0, 0, 0], "{words:?}");
    }
    let empty = table().await;
    let effects = ["--effects-table", &ledger, "--effects-attribute", "payment"];
    let words = [&["audit", "--effect-key", "/payment"][..], &effects].concat();
    on(&empty, &words)
        .await
        .refused(1, "nothing was compared: look at --table");
}

/// Two numbers that a double can't tell apart, and one with a zero at its end.
const NUMBERS: [&str; 3] = [
    "12345678901234567890123",
    "12345678901234567890124",
    "12.50",
];

#[tokio::test]
async fn an_effect_is_named_by_a_number_to_its_last_digit() {
    let records = table().await;
    let record = |(number, name): (usize, &&str)| {
        let mut record = record(number);
        record.retain(|(name, _)| *name != "data");
        let outcome = format!("{{\"payment\": {name}}}");
        record.push(("data", AttributeValue::S(outcome)));
        record
    };
    put_all(&records, NUMBERS.iter().enumerate().map(record)).await;
    // The first has no effect. By queries, where the name is the partition key, and by a scan, where it is not.
    for key in ["payment", "account"] {
        let ledger = format!("ledger-{}", fastrand::u64(..));
        let hash = KeySchemaElement::builder()
            .attribute_name(key)
            .key_type(KeyType::Hash);
        let kind = AttributeDefinition::builder()
            .attribute_name(key)
            .attribute_type(ScalarAttributeType::N);
        let create = dynamodb().client().create_table().table_name(&ledger);
        let create = create.billing_mode(BillingMode::PayPerRequest);
        let create = create.key_schema(hash.build().unwrap());
        let create = create.attribute_definitions(kind.build().unwrap());
        create.send().await.unwrap();
        let effect = |(number, name): (usize, &&str)| {
            vec![
                ("payment", AttributeValue::N((*name).to_owned())),
                ("account", AttributeValue::N(number.to_string())),
            ]
        };
        let effects: Vec<_> = NUMBERS[1..].iter().enumerate().map(effect).collect();
        let effects = effects.into_iter().map(|mut effect| {
            effect.truncate(if key == "payment" { 1 } else { 2 });
            effect
        });
        put_all(&ledger, effects).await;
        let said = audit(&records, &ledger, &[]).await.ended_with(1);
        assert_eq!(counts(&said), [3, 1, 0], "{key}: {said:?}");
        assert_eq!(said.json()["missing"]["ids"][0], id(0), "{said:?}");
    }
}

/// An index with a sort key has no item that lacks this key's attribute.
#[tokio::test]
async fn an_effect_that_an_index_lacks_is_not_missing() {
    let records = table().await;
    put_all(&records, (0..3).map(record)).await;
    for has_another in [false, true] {
        let ledger = format!("ledger-{}", fastrand::u64(..));
        let key = |name: &str, kind| {
            let element = KeySchemaElement::builder().attribute_name(name);
            element.key_type(kind).build().unwrap()
        };
        let index = |name: &str, keys: Vec<KeySchemaElement>| {
            let all = Projection::builder().projection_type(ProjectionType::All);
            let index = GlobalSecondaryIndex::builder().index_name(name);
            let index = index.set_key_schema(Some(keys)).projection(all.build());
            index.build().unwrap()
        };
        let payment = || key("payment", KeyType::Hash);
        let sparse = vec![payment(), key("shipped_at", KeyType::Range)];
        let mut indexes = vec![index("a-sparse", sparse)];
        if has_another {
            indexes.push(index("b-whole", vec![payment()]));
        }
        let text = |name: &str| {
            let attribute = AttributeDefinition::builder().attribute_name(name);
            let attribute = attribute.attribute_type(ScalarAttributeType::S);
            attribute.build().unwrap()
        };
        let create = dynamodb().client().create_table().table_name(&ledger);
        let create = create
            .billing_mode(BillingMode::PayPerRequest)
            .key_schema(key("account", KeyType::Hash))
            .set_attribute_definitions(Some(["account", "payment", "shipped_at"].map(text).into()))
            .set_global_secondary_indexes(Some(indexes));
        create.send().await.unwrap();
        let effects = (0..3).map(|number| {
            let text = |text: String| AttributeValue::S(text);
            let mut effect = vec![
                ("account", text(format!("a-{number}"))),
                ("payment", text(format!("p-{number}"))),
                ("shipped_at", text("2026-01-01".to_owned())),
            ];
            effect.truncate(if number == 2 { 2 } else { 3 });
            effect
        });
        put_all(&ledger, effects).await;
        let said = audit(&records, &ledger, &[]).await.ended_with(0);
        assert_eq!(counts(&said), [3, 0, 0], "{has_another}: {said:?}");
    }
}

/// An export as DynamoDB writes it, of the first records.
fn export(count: usize) -> PathBuf {
    let records: Vec<_> = (0..count).map(record).collect();
    export_of(&records)
}

fn export_of(records: &[Record]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("cli-export-{}", fastrand::u64(..)));
    std::fs::create_dir_all(folder.join("data")).unwrap();
    let mut manifest = Vec::new();
    for (part, records) in records.chunks(100).enumerate() {
        let name = format!("part{part}.json.gz");
        let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        for record in records {
            let attribute = |(name, value): &(&str, AttributeValue)| {
                let value = match value {
                    AttributeValue::S(text) => json!({ "S": text }),
                    AttributeValue::N(number) => json!({ "N": number }),
                    other => panic!("{other:?}"),
                };
                ((*name).to_owned(), value)
            };
            let item: serde_json::Map<_, _> = record.iter().map(attribute).collect();
            writeln!(file, "{}", json!({ "Item": item })).unwrap();
        }
        std::fs::write(folder.join("data").join(&name), file.finish().unwrap()).unwrap();
        let line =
            json!({"itemCount": 100, "dataFileS3Key": format!("AWSDynamoDB/01-0f/data/{name}")});
        writeln!(manifest, "{line}").unwrap();
    }
    std::fs::write(folder.join("manifest-files.json"), manifest).unwrap();
    folder
}

pub(crate) const COUNTS_ONE: &str =
    "sed 's/.*\"id\":\"\\([^\"]*\\)\".*/{\"id\":\"\\1\",\"effects\":1}/'";

async fn by_command(place: &str, effects: &str) -> Said {
    let mut command = command(&["audit", "--json", "--effect-key", "hash", "--export", place]);
    command.args(["--effects-command", effects]);
    Said::of(&command.output().await.unwrap())
}

/// The table keeps a record for a while after it has expired; an export has it for ever.
#[tokio::test]
async fn a_record_that_has_expired_is_not_compared() {
    let (records, ledger) = world(20, false, "payment").await;
    let expired = (20..25).map(|number| {
        let mut record = record(number);
        record.retain(|(name, _)| *name != "expiration");
        let then = AttributeValue::N("1700000001".to_owned());
        record.push(("expiration", then));
        record
    });
    put_all(&records, expired).await;
    let said = audit(&records, &ledger, &[]).await.ended_with(0);
    assert_eq!(counts(&said), [20, 0, 0]);
}

/// Services share a table with two keys, each under its own partition value.
#[tokio::test]
async fn records_under_another_partition_value_are_not_compared() {
    let (_, ledger) = world(20, false, "payment").await;
    let under = |value: &str, number: usize| {
        let mut record = record(number);
        record[0].0 = "sk";
        record.push(("pk", AttributeValue::S(value.to_owned())));
        record
    };
    let mine = (0..20).map(|number| under("mine", number));
    let theirs = (20..25).map(|number| under("theirs", number));
    let records: Vec<Record> = mine.chain(theirs).collect();
    let table = format!("cli-{:016x}", fastrand::u64(..));
    dynamodb()
        .create_table(&table, &["pk", "sk"])
        .await
        .unwrap();
    put_all(&table, records.iter().cloned()).await;
    let folder = export_of(&records);
    let layout = ["--partition-key", "pk", "--sort-key", "sk"];
    let place = ["--partition-value", "mine"];
    for source in [&[][..], &["--export", folder.to_str().unwrap()]] {
        let words = [&layout[..], &place, source].concat();
        let said = audit(&table, &ledger, &words).await.ended_with(0);
        assert_eq!(counts(&said), [20, 0, 0], "{source:?}");
        said.refused(0, "5 items have another key or partition value");
    }
    let place = ["--partition-value", "theirs"];
    let words = [&layout[..], &place].concat();
    let said = audit(&table, &ledger, &words).await.ended_with(1);
    assert_eq!(counts(&said), [5, 5, 0]);
    said.refused(1, "20 items have another key or partition value");
}

#[tokio::test]
async fn an_export_is_compared_by_a_command() {
    let folder = export(1_234);
    let place = folder.to_str().unwrap();
    assert_eq!(
        counts(&by_command(place, COUNTS_ONE).await.ended_with(0)),
        [1_234, 0, 0]
    );
    let none = COUNTS_ONE.replace("effects\":1", "effects\":0");
    assert_eq!(
        counts(&by_command(place, &none).await.ended_with(1)),
        [1_234, 1_234, 0]
    );
    // A line for each effect, next to each other or not.
    let twice = format!("{COUNTS_ONE} | awk '{{print; print}}'");
    let again =
        format!("{COUNTS_ONE} | awk '{{print; all = all $0 \"\\n\"}} END {{printf \"%s\", all}}'");
    for effects in [&twice, &again] {
        assert_eq!(
            counts(&by_command(place, effects).await.ended_with(1)),
            [1_234, 0, 1_234]
        );
    }
    let stranger = format!("{COUNTS_ONE} | sed '$s/payments/other/'");
    by_command(place, &stranger)
        .await
        .refused(3, "a record that it was not asked for: other#charge#");
    for (effects, words) in [
        ("exit 3", "ended with exit status: 3"),
        (
            "cat >/dev/null",
            "printed no line for the record payments#charge#",
        ),
        ("echo rubbish", "printed a line that is no"),
        ("head -n 1 | sed 's/.*/{}/'", "printed a line that is no"),
    ] {
        by_command(place, effects).await.refused(3, words);
    }
    by_command("/nonexistent", COUNTS_ONE)
        .await
        .refused(3, "/nonexistent/manifest-files.json");
    std::fs::write(folder.join("data/part0.json.gz"), "rubbish").unwrap();
    by_command(place, COUNTS_ONE)
        .await
        .refused(3, "part0.json.gz");
}

#[tokio::test]
async fn a_command_that_does_not_end_is_stopped() {
    let folder = export(10);
    let place = folder.to_str().unwrap();
    for effects in [
        "sleep 1000",
        "cat; sleep 1000",
        "exec 0<&-; sleep 1000 | cat",
    ] {
        let words = ["--effects-command", effects, "--timeout", "1s"];
        let audit = ["audit", "--effect-key", "hash", "--export", place];
        run(&[&audit[..], &words].concat())
            .await
            .refused(3, "did not end within 1s");
    }
}

/// Starts a bucket with an export, and returns its address. A request for `never` is noted, and gets
/// no answer.
async fn bucket(folder: PathBuf, never: &'static str, is_asked: Arc<AtomicBool>) -> String {
    let files = axum::Router::new().fallback(move |uri: axum::http::Uri| {
        let path = uri
            .path()
            .strip_prefix("/exports/AWSDynamoDB/01-0f/")
            .unwrap_or("none")
            .to_owned();
        let found = std::fs::read(folder.join(&path));
        let is_asked = Arc::clone(&is_asked);
        async move {
            if path == never {
                is_asked.store(true, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }
            found.map_err(|_| axum::http::StatusCode::NOT_FOUND)
        }
    });
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, files).await.unwrap() });
    url
}

/// The command has counted the first page of the records, and the second one isn't there yet.
#[tokio::test]
async fn an_audit_is_interrupted_between_two_runs_of_its_command() {
    let is_asked = Arc::new(AtomicBool::new(false));
    let url = bucket(export(250), "data/part1.json.gz", Arc::clone(&is_asked)).await;
    let mut audit = command(&[
        "audit",
        "--effect-key",
        "hash",
        "--effects-command",
        COUNTS_ONE,
        "--export",
        "s3://exports/AWSDynamoDB/01-0f",
        "--endpoint-url",
        &url,
    ]);
    let audit = audit.stdout(Stdio::piped()).stderr(Stdio::piped());
    let audit = audit.spawn().unwrap();
    let minute = Duration::from_mins(1);
    let asked = async {
        while !is_asked.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(minute, asked).await.unwrap();
    let interrupt = format!("kill -INT {}", audit.id().unwrap());
    let mut shell = tokio::process::Command::new("/bin/sh");
    let sent = shell.args(["-c", &interrupt]).status().await.unwrap();
    assert!(sent.success());
    let ended = tokio::time::timeout(minute, audit.wait_with_output()).await;
    let said = Said::of(&ended.unwrap().unwrap());
    said.refused(3, "the audit was interrupted");
}

#[tokio::test]
async fn an_export_is_read_from_s3() {
    let url = bucket(export(250), "nothing", Arc::default()).await;
    let place = [
        "--export",
        "s3://exports/AWSDynamoDB/01-0f",
        "--endpoint-url",
        &url,
    ];
    let words = [
        "audit",
        "--json",
        "--effect-key",
        "hash",
        "--effects-command",
        COUNTS_ONE,
    ];
    let said = run(&[&words[..], &place].concat()).await.ended_with(0);
    assert_eq!(counts(&said), [250, 0, 0]);
    let place = ["--export", "s3://other/01-0f", "--endpoint-url", &url];
    run(&[&words[..], &place].concat())
        .await
        .refused(3, "manifest-files.json");
}

#[tokio::test]
async fn what_is_no_effect_is_said() {
    let table = table().await;
    let key = ["audit", "--effect-key"];
    for (words, refusal, code) in [
        (&["payment"][..], "names no effect", 2),
        (&["hash"], "required", 2),
        (&["hash", "--effects-table", "t"], "--effects-attribute", 2),
        (
            &[
                "hash",
                "--effects-table",
                "nowhere",
                "--effects-attribute",
                "a",
            ],
            "nowhere",
            3,
        ),
    ] {
        on(&table, &[&key[..], words].concat())
            .await
            .refused(code, refusal);
    }
}

//! `audit` finds each planted missing and double effect among many records, and none where there are
//! none. `RECORDS=100000` audits ten thousand of them.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, GlobalSecondaryIndex, KeySchemaElement,
    KeyType, Projection, ProjectionType, ScalarAttributeType,
};
use serde_json::{Value, json};

use crate::support::{
    self, Item, Said, Scratch, command, dynamodb, item, number, on, put_all, refused, run, serve,
    size, table, table_with, text,
};

fn records() -> usize {
    size("RECORDS", 10_000) / 10
}

fn id(number: usize) -> String {
    format!("payments#charge#{number:064x}")
}

fn record(count: usize) -> Item {
    record_with(count, json!({"payment": format!("p-{count}")}).to_string())
}

fn record_with(count: usize, outcome: String) -> Item {
    let then = 1_700_000_000_000_u64;
    let own = [
        ("data", text(outcome)),
        ("started_at", number(then)),
        ("completed_at", number(then)),
    ];
    support::record(id(count), "COMPLETED", own)
}

/// The effects of a payment: up to seven payments have none, up to five two.
fn effects(number: usize, planted: bool) -> usize {
    match number % 100 {
        17 if planted && number < 700 => 0,
        18 if planted && number < 500 => 2,
        _ => 1,
    }
}

/// A table of records and one of their effects, whose attribute `payment` names the payment.
async fn world(count: usize, planted: bool, key: &str) -> (String, String) {
    let (records, ledger) = (table().await, table_with(&[key, "entry"]).await);
    put_all(&records, (0..count).map(record)).await;
    let entries = (0..count)
        .flat_map(|number| (0..effects(number, planted)).map(move |entry| (number, entry)));
    let items = entries.map(|(number, entry)| {
        item([
            ("account", text(format!("a-{number}"))),
            ("payment", text(format!("p-{number}"))),
            ("entry", text(format!("e-{entry}"))),
        ])
    });
    put_all(&ledger, items).await;
    (records, ledger)
}

fn effects_in(ledger: &str) -> String {
    format!("--effects-table {ledger} --effects-attribute payment")
}

async fn audit(records: &str, ledger: &str, words: &str) -> Said {
    let effects = effects_in(ledger);
    let line = format!("audit --json --effect-key /payment {effects} {words}");
    on(records, &line).await
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
        let said = audit(&records, &ledger, "--show 100").await.ended_with(1);
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
    let said = audit(&records, &ledger, "").await.ended_with(0);
    assert_eq!(counts(&said), [count as u64, 0, 0]);
    let said = audit(&records, &ledger, "--sample 300 --seed 7").await;
    assert_eq!(counts(&said.ended_with(0))[0], 300);
    let effects = effects_in(&ledger);
    let refusal = format!("{count} records don't tell which effect is theirs");
    on(&records, &format!("audit --effect-key /nothing {effects}"))
        .await
        .refused(1, &refusal);
}

#[tokio::test]
async fn an_audit_that_could_compare_too_little_knows_nothing() {
    for (judged, not_judged, code) in [(90, 10, 0), (89, 11, 1), (1, 99, 1)] {
        let (records, ledger) = world(judged, false, "payment").await;
        let nameless = judged..judged + not_judged;
        let nameless = nameless.map(|number| record_with(number, "{}".to_owned()));
        put_all(&records, nameless).await;
        let said = audit(&records, &ledger, "").await.ended_with(code);
        assert_eq!(counts(&said), [judged as u64, 0, 0]);
        assert_eq!(said.json()["blind"], code == 1);
    }
}

/// A text that is too long for a key names no item, and stops nothing.
#[tokio::test]
async fn a_name_of_any_length_is_compared() {
    let (records, ledger) = (table().await, table_with(&["payment"]).await);
    let longest = "x".repeat(2_048);
    let names = [String::new(), longest.clone(), format!("{longest}x")];
    let items = names.iter().enumerate().map(|(place, name)| {
        let outcome = json!({ "payment": name });
        record_with(place, outcome.to_string())
    });
    put_all(&records, items).await;
    put_all(&ledger, [item([("payment", text(longest))])]).await;
    let said = audit(&records, &ledger, "").await.ended_with(1);
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
        "--operation refund",
        "--namespace payment",
        "--since 2024-01-01T00:00:00Z",
        "--settled-for 99years",
        "--sample 0",
    ] {
        let said = audit(&records, &ledger, words).await.ended_with(1);
        assert_eq!(counts(&said), [0, 0, 0], "{words}");
    }
    let empty = table().await;
    let effects = effects_in(&ledger);
    on(&empty, &format!("audit --effect-key /payment {effects}"))
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
    let items = NUMBERS
        .iter()
        .enumerate()
        .map(|(place, name)| record_with(place, format!("{{\"payment\": {name}}}")));
    put_all(&records, items).await;
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
        let effects = NUMBERS[1..]
            .iter()
            .enumerate()
            .map(|(place, name)| item([("payment", number(name)), ("account", number(place))]));
        put_all(&ledger, effects).await;
        let said = audit(&records, &ledger, "").await.ended_with(1);
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
        let of_text = |name: &str| {
            let attribute = AttributeDefinition::builder().attribute_name(name);
            let attribute = attribute.attribute_type(ScalarAttributeType::S);
            attribute.build().unwrap()
        };
        let create = dynamodb().client().create_table().table_name(&ledger);
        let create = create
            .billing_mode(BillingMode::PayPerRequest)
            .key_schema(key("account", KeyType::Hash))
            .set_attribute_definitions(Some(
                ["account", "payment", "shipped_at"].map(of_text).into(),
            ))
            .set_global_secondary_indexes(Some(indexes));
        create.send().await.unwrap();
        let effects = (0..3).map(|number| {
            let mut effect = item([
                ("account", text(format!("a-{number}"))),
                ("payment", text(format!("p-{number}"))),
            ]);
            if number < 2 {
                effect.insert("shipped_at".to_owned(), text("2026-01-01"));
            }
            effect
        });
        put_all(&ledger, effects).await;
        let said = audit(&records, &ledger, "").await.ended_with(0);
        assert_eq!(counts(&said), [3, 0, 0], "{has_another}: {said:?}");
    }
}

/// An export as DynamoDB writes it, of the first records.
fn export(count: usize) -> Scratch {
    let records: Vec<_> = (0..count).map(record).collect();
    export_of(&records)
}

fn export_of(records: &[Item]) -> Scratch {
    let folder = Scratch::folder();
    std::fs::create_dir(folder.join("data")).unwrap();
    let mut manifest = Vec::new();
    for (part, records) in records.chunks(100).enumerate() {
        let name = format!("part{part}.json.gz");
        let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        for record in records {
            let attribute = |(name, value): (&String, &AttributeValue)| {
                let value = match value {
                    AttributeValue::S(text) => json!({ "S": text }),
                    AttributeValue::N(number) => json!({ "N": number }),
                    other => panic!("{other:?}"),
                };
                (name.clone(), value)
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
    r#"sed "s/.*\"id\":\"\([^\"]*\)\".*/{\"id\":\"\1\",\"effects\":1}/""#;

async fn by_command(export: &str, effects: &str) -> Said {
    let mut command = command(&format!("audit --json --effect-key hash --export {export}"));
    command.args(["--effects-command", effects]);
    Said::of(&command.output().await.unwrap())
}

/// The table keeps a record for a while after it has expired; an export has it for ever.
#[tokio::test]
async fn a_record_that_has_expired_is_not_compared() {
    let (records, ledger) = world(20, false, "payment").await;
    let expired = (20..25).map(|count| {
        let mut record = record(count);
        record.insert("expiration".to_owned(), number(1_700_000_001));
        record
    });
    put_all(&records, expired).await;
    let said = audit(&records, &ledger, "").await.ended_with(0);
    assert_eq!(counts(&said), [20, 0, 0]);
}

/// Services share a table with two keys, each under its own partition value.
#[tokio::test]
async fn records_under_another_partition_value_are_not_compared() {
    let (_, ledger) = world(20, false, "payment").await;
    let under = |value: &str, number: usize| {
        let mut record = record(number);
        let id = record.remove("id").unwrap();
        record.extend(item([("sk", id), ("pk", text(value))]));
        record
    };
    let mine = (0..20).map(|number| under("mine", number));
    let theirs = (20..25).map(|number| under("theirs", number));
    let records: Vec<Item> = mine.chain(theirs).collect();
    let table = table_with(&["pk", "sk"]).await;
    put_all(&table, records.iter().cloned()).await;
    let folder = export_of(&records);
    for (value, source, found, others) in [
        ("mine", String::new(), [20, 0, 0], 5),
        ("mine", format!("--export {folder}"), [20, 0, 0], 5),
        ("theirs", String::new(), [5, 5, 0], 20),
    ] {
        let layout = format!("--partition-key pk --sort-key sk --partition-value {value}");
        let said = audit(&table, &ledger, &format!("{layout} {source}")).await;
        assert_eq!(counts(&said), found, "{value} {source}");
        let words = format!("{others} items have another key or partition value");
        said.refused(i32::from(found[1] > 0), &words);
    }
}

#[tokio::test]
async fn an_export_is_compared_by_a_command() {
    let folder = export(1_234);
    let place = &folder.to_string();
    let none = COUNTS_ONE.replace(":1}", ":0}");
    // A line for each effect, next to each other or not.
    let twice = format!("{COUNTS_ONE} | awk '{{print; print}}'");
    let again =
        format!("{COUNTS_ONE} | awk '{{print; all = all $0 \"\\n\"}} END {{printf \"%s\", all}}'");
    for (effects, code, found) in [
        (COUNTS_ONE, 0, [1_234, 0, 0]),
        (&none, 1, [1_234, 1_234, 0]),
        (&twice, 1, [1_234, 0, 1_234]),
        (&again, 1, [1_234, 0, 1_234]),
    ] {
        let said = by_command(place, effects).await.ended_with(code);
        assert_eq!(counts(&said), found, "{effects}");
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
    refused(by_command(place, COUNTS_ONE), 3, "part0.json.gz").await;
}

#[tokio::test]
async fn a_command_that_does_not_end_is_stopped() {
    let export = export(10);
    for effects in [
        "sleep 1000",
        "cat; sleep 1000",
        "exec 0<&-; sleep 1000 | cat",
    ] {
        let audit = format!("audit --effect-key hash --export {export} --timeout 1s");
        run(&format!("{audit} --effects-command '{effects}'"))
            .await
            .refused(3, "did not end within 1s");
    }
}

/// Starts a bucket with an export, and returns its address. A request for `never` is noted, and gets
/// no answer.
async fn bucket(folder: Scratch, never: &'static str, is_asked: Arc<AtomicBool>) -> String {
    let folder = Arc::new(folder);
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
    serve(files).await
}

/// The line of an audit of an export in a bucket, whose effects are all there.
fn of_bucket(folder: &str, url: &str) -> String {
    let export = format!("--export s3://{folder}/01-0f --endpoint-url {url}");
    format!("audit --json --effect-key hash --effects-command '{COUNTS_ONE}' {export}")
}

/// The command has counted the first page of the records, and the second one isn't there yet.
#[tokio::test]
async fn an_audit_is_interrupted_between_two_runs_of_its_command() {
    let is_asked = Arc::new(AtomicBool::new(false));
    let url = bucket(export(250), "data/part1.json.gz", Arc::clone(&is_asked)).await;
    let mut audit = command(&of_bucket("exports/AWSDynamoDB", &url));
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
    let audit = of_bucket("exports/AWSDynamoDB", &url);
    let said = run(&audit).await.ended_with(0);
    assert_eq!(counts(&said), [250, 0, 0]);
    refused(run(&of_bucket("other", &url)), 3, "manifest-files.json").await;
}

#[tokio::test]
async fn what_is_no_effect_is_said() {
    let table = table().await;
    for (words, refusal, code) in [
        ("payment", "names no effect", 2),
        ("hash", "required", 2),
        ("hash --effects-table t", "--effects-attribute", 2),
        (
            "hash --effects-table nowhere --effects-attribute a",
            "nowhere",
            3,
        ),
    ] {
        on(&table, &format!("audit --effect-key {words}"))
            .await
            .refused(code, refusal);
    }
}

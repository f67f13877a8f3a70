//! `doctor` finds each misconfiguration, and nothing in a sound deployment.
//!
//! The table is on DynamoDB Local where that answers; Lambda, SQS and IAM are a wire that answers in
//! the shapes that AWS documents. `tests/deployed` runs the same binary against the template that is
//! deployed into an emulator.

mod wire;

use serde_json::{Value, json};

use crate::support::{Said, Scratch, command, dynamodb, dynamodb_endpoint, findings, table};
use wire::Wire;

async fn doctor(wire: &Wire, table: &str, words: &str) -> Said {
    let settings = format!("--asynchronous --retention 56days {words}");
    doctor_of(wire, table, &settings).await
}

async fn doctor_of(wire: &Wire, table: &str, settings: &str) -> Said {
    // The clocks of the test may differ: the date of a reply is read when the machine has time for it.
    let line = format!("doctor --json --table {table} --function worker --skew-margin 10min");
    let mut command = command(&format!("{line} {settings}"));
    command.env("AWS_ENDPOINT_URL", wire.url());
    if !wire.plays_dynamodb() {
        command.env("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_endpoint());
    }
    Said::of(&command.output().await.unwrap())
}

fn ids(said: &Said) -> Vec<String> {
    findings(&said.json())
}

#[tokio::test]
async fn a_sound_deployment_has_no_finding() {
    let wire = Wire::sound(true).await;
    let lock = "version = 4\n[[package]]\nname = \"rustls\"\nversion = \"0.23.46\"\n";
    let lock = Scratch::with(lock);
    let said = doctor(&wire, "idempotency", &format!("--cargo-lock {lock}")).await;
    let report = said.ended_with(0).json();
    let fine = report["fine"].as_array().unwrap();
    // Each rule but that of a Kinesis stream's retention, which no API here tells.
    assert_eq!(fine.len(), 25, "{report:#}");
    assert!(!fine.contains(&json!("stream-retention")));
    assert_eq!(
        report["not_checked"].as_array().unwrap().len(),
        1,
        "{report:#}"
    );
}

#[tokio::test]
async fn each_planted_misconfiguration_is_found() {
    for (id, place, planted) in [
        ("ttl-off", "ttl/TimeToLiveStatus", json!("DISABLED")),
        ("ttl-attribute", "ttl/AttributeName", json!("ttl")),
        (
            "key-schema",
            "table/KeySchema",
            json!([{"AttributeName": "pk", "KeyType": "HASH"}]),
        ),
        ("point-in-time-recovery", "recovery", json!("DISABLED")),
        (
            "deletion-protection",
            "table/DeletionProtectionEnabled",
            json!(false),
        ),
        (
            "table-variable",
            "function/Environment/Variables/IDEMPOTENCY_TABLE",
            json!("other"),
        ),
        (
            "kill-switch",
            "function/Environment/Variables/IDEMPOTENCY_DISABLED",
            json!(" Yes\n"),
        ),
        ("missing-action", "denied", json!(["dynamodb:UpdateItem"])),
        ("async-destination", "destination", Value::Null),
        ("mapping-disabled", "mappings/0/State", json!("Disabled")),
        (
            "item-failures",
            "mappings/1/FunctionResponseTypes",
            json!([]),
        ),
        ("concurrency", "reserved", json!(2)),
        (
            "concurrency",
            "mappings/0/ProvisionedPollerConfig",
            json!({"MaximumPollers": 2}),
        ),
        (
            "visibility-timeout",
            "mappings/0/MaximumBatchingWindowInSeconds",
            json!(60),
        ),
        (
            "dead-letter-queue",
            "queues/payments/RedrivePolicy",
            json!(""),
        ),
        (
            "dead-letter-retention",
            "queues/payments-dead/MessageRetentionPeriod",
            json!("345600"),
        ),
        (
            "tumbling-window",
            "mappings/1/TumblingWindowInSeconds",
            json!(30),
        ),
        (
            "bisect",
            "mappings/1/BisectBatchOnFunctionError",
            json!(false),
        ),
        (
            "on-failure",
            "mappings/1/DestinationConfig",
            json!({"OnFailure": {}}),
        ),
        ("clock", "date", json!("Sun, 06 Nov 1994 08:49:37 GMT")),
    ] {
        assert_found(id, |it| *at(it, place) = planted).await;
    }
    assert_found("record-age", |it| {
        it["mappings"][1]["MaximumRetryAttempts"] = json!(-1);
        it["mappings"][1]["MaximumRecordAgeInSeconds"] = json!(-1);
    })
    .await;
}

/// The value at this place of a deployment.
fn at<'a>(deployment: &'a mut Value, place: &str) -> &'a mut Value {
    let names = place.split('/');
    names.fold(deployment, |it, name| match name.parse::<usize>() {
        Ok(number) => &mut it[number],
        Err(_) => &mut it[name],
    })
}

/// Fails unless this change of a sound deployment is found, and nothing else is.
async fn assert_found(id: &str, change: impl FnOnce(&mut Value)) {
    let wire = Wire::sound(true).await;
    wire.change(change);
    let said = doctor(&wire, "idempotency", "").await.ended_with(1);
    assert_eq!(ids(&said), [id], "{said:?}");
    doctor(&wire, "idempotency", &format!("--ignore {id}"))
        .await
        .ended_with(0);
}

#[tokio::test]
async fn a_functions_dead_letter_queue_is_a_destination() {
    let wire = Wire::sound(true).await;
    wire.change(|it| {
        it["destination"] = Value::Null;
        it["function"]["DeadLetterConfig"] =
            json!({"TargetArn": "arn:aws:sqs:eu-central-1:123456789012:worker-dead"});
    });
    doctor(&wire, "idempotency", "").await.ended_with(0);
}

/// No API tells how it is invoked.
#[tokio::test]
async fn whether_a_function_is_invoked_asynchronously_is_asked() {
    let wire = Wire::sound(true).await;
    let settings = "--retention 56days --adapter invoke";
    doctor_of(&wire, "idempotency", settings)
        .await
        .refused(0, "give --asynchronous");
}

/// Amazon MQ reads no `batchItemFailures`: that it doesn't is no finding.
#[tokio::test]
async fn a_broker_is_judged_by_what_it_has() {
    let wire = Wire::sound(true).await;
    for (state, found, code) in [
        ("Enabled", &[][..], 0),
        ("Disabled", &["mapping-disabled"], 1),
    ] {
        wire.change(|it| {
            it["mappings"] = json!([{
                "UUID": "33333333", "State": state, "Queues": ["jobs"], "BatchSize": 10,
                "EventSourceArn": "arn:aws:mq:eu-central-1:123456789012:broker:jobs:b-0f",
            }]);
        });
        let said = doctor(&wire, "idempotency", "").await.ended_with(code);
        assert_eq!(ids(&said), found);
    }
}

#[tokio::test]
async fn what_the_code_sets_is_judged_too() {
    let wire = Wire::sound(true).await;
    for (settings, found) in [
        ("--retention 17days", &["retention"][..]),
        (
            "--asynchronous --retention 14days",
            &["async-retention", "retention"],
        ),
        (
            "--retention 56days --failure-retention 9min",
            &["failure-retention"; 2],
        ),
        (
            "--retention 56days --failure-retention 6h",
            &["failure-retention"],
        ),
        ("--retention 56days --failure-retention 7h", &[]),
    ] {
        let said = doctor_of(&wire, "idempotency", settings).await;
        assert_eq!(ids(&said), found, "{settings}");
    }
    let two = "[[package]]\nname = \"rustls\"\nversion = \"0.23.46\"\n[[package]]\nname = \"rustls\"\nversion = \"0.21.12\"\n";
    let lock = Scratch::with(two);
    let said = doctor(&wire, "idempotency", &format!("--cargo-lock {lock}")).await;
    assert_eq!(ids(&said.ended_with(1)), ["tls-stack"]);
    wire.change(|it| it["queues"]["payments"]["RedrivePolicy"] = json!(
        "{\"deadLetterTargetArn\":\"arn:aws:sqs:eu-central-1:123456789012:payments-dead\",\"maxReceiveCount\":3}"
    ));
    assert_eq!(
        ids(&doctor(&wire, "idempotency", "").await),
        ["receive-count"]
    );
}

#[tokio::test]
async fn a_table_that_is_named_by_its_arn_is_the_one_of_its_name() {
    let wire = Wire::sound(true).await;
    let arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/idempotency";
    wire.change(|it| {
        it["function"]["FunctionArn"] =
            json!("arn:aws:lambda:eu-central-1:123456789012:function:worker");
    });
    doctor(&wire, arn, "").await.ended_with(0);
    wire.change(|it| {
        it["function"]["Environment"]["Variables"]["IDEMPOTENCY_TABLE"] =
            json!("arn:aws:dynamodb:eu-west-1:123456789012:table/idempotency");
    });
    for table in ["idempotency", arn] {
        let said = doctor(&wire, table, "").await.ended_with(1);
        assert_eq!(ids(&said), ["table-variable"]);
    }
    // No command is in the name.
    let said = doctor(&wire, "my-aws", "--region eu-north-1").await;
    said.refused(1, "IDEMPOTENCY_TABLE: my-aws }");
}

#[tokio::test]
async fn the_table_is_asked_for_real() {
    let wire = Wire::sound(false).await;
    let table = table().await;
    wire.change(|it| {
        it["function"]["Environment"]["Variables"]["IDEMPOTENCY_TABLE"] = json!(table);
    });
    let said = doctor(&wire, &table, "").await.ended_with(1);
    assert!(ids(&said).contains(&"ttl-off".to_owned()), "{said:?}");
    let ttl = aws_sdk_dynamodb::types::TimeToLiveSpecification::builder();
    let ttl = ttl
        .enabled(true)
        .attribute_name("expiration")
        .build()
        .unwrap();
    let update = dynamodb().client().update_time_to_live().table_name(&table);
    update.time_to_live_specification(ttl).send().await.unwrap();
    let said = doctor(&wire, &table, "--ignore deletion-protection").await;
    let said = said.ended_with(0);
    assert!(
        said.json()["fine"]
            .as_array()
            .unwrap()
            .contains(&json!("ttl-attribute")),
        "{said:?}"
    );
    let keys = "--partition-key pk --sort-key sk --partition-value records";
    let said = doctor(&wire, &table, keys).await.ended_with(1);
    assert!(ids(&said).contains(&"key-schema".to_owned()));
}

#[tokio::test]
async fn what_may_not_be_asked_is_not_checked_and_says_what_to_allow() {
    for action in [
        "iam:SimulatePrincipalPolicy",
        "sqs:GetQueueAttributes",
        "dynamodb:DescribeContinuousBackups",
        "lambda:ListEventSourceMappings",
    ] {
        let (_, call) = action.split_once(':').unwrap();
        let wire = Wire::sound(true).await;
        wire.change(|it| it["forbidden"] = json!(call));
        let words = format!("allow your role {action}, or what AWS names: no");
        doctor(&wire, "idempotency", "").await.refused(0, &words);
    }
}

#[tokio::test]
async fn variables_that_could_not_be_read_are_not_checked() {
    let wire = Wire::sound(true).await;
    wire.change(|it| {
        it["function"]["Environment"] = json!({"Error": {
            "ErrorCode": "AccessDeniedException",
            "Message": "Lambda was unable to decrypt your environment variables",
        }});
    });
    let said = doctor(&wire, "idempotency", "").await;
    let said = said.refused(0, "unable to decrypt your environment variables");
    let report = said.json();
    let fine = report["fine"].as_array().unwrap();
    for rule in ["kill-switch", "table-variable"] {
        assert!(!fine.contains(&json!(rule)), "{report:#}");
    }
    said.refused(0, "allow your role kms:Decrypt");
}

/// An ARN of a stream of DynamoDB ends with a time, and a Kafka of one's own has no ARN.
#[tokio::test]
async fn a_mapping_is_named_by_its_table_its_stream_or_its_id() {
    let wire = Wire::sound(true).await;
    let arn = "arn:aws:kinesis:eu-central-1:123456789012:stream/movements/consumer/one:1700000000";
    for (arn, name) in [
        (
            "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/2026-11-23T03:12:00.000",
            "orders",
        ),
        (arn, "movements"),
    ] {
        wire.change(|it| {
            it["mappings"][1]["EventSourceArn"] = json!(arn);
            it["mappings"][1]["BisectBatchOnFunctionError"] = json!(false);
        });
        let said = doctor(&wire, "idempotency", "").await.ended_with(1);
        assert_eq!(ids(&said), ["bisect"]);
        assert_eq!(said.json()["findings"][0]["at"], name, "{said:?}");
    }
    wire.change(|it| {
        it["mappings"] = json!([{
            "UUID": "44444444", "State": "Disabled", "Topics": ["payments"],
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
        }]);
    });
    let said = doctor(&wire, "idempotency", "").await;
    said.refused(1, "its mapping of 44444444 is disabled");
}

#[tokio::test]
async fn what_may_be_an_aliass_is_not_checked() {
    let wire = Wire::sound(true).await;
    wire.change(|it| it["mappings"] = json!([]));
    for adapter in ["batch", "http", "invoke"] {
        let said = doctor(&wire, "idempotency", &format!("--adapter {adapter}")).await;
        said.refused(0, "--function NAME:ALIAS");
    }
    let said = doctor(&wire, "idempotency", "--function worker:live").await;
    said.refused(0, "mappings of worker:live");
}

/// It runs a published version, which no change of the function's own variables reaches.
#[tokio::test]
async fn an_alias_gets_a_version_without_the_kill_switch() {
    let wire = Wire::sound(true).await;
    wire.change(|it| {
        it["function"]["Environment"]["Variables"]["IDEMPOTENCY_DISABLED"] = json!("true");
    });
    for name in [
        "worker",
        "123456789012:function:worker",
        "arn:aws:lambda:eu-central-1:123456789012:function:worker",
        "arn:aws:lambda:eu-central-1:123456789012:function:function",
    ] {
        let flags = format!("--function {name}:live --region eu-north-1");
        let said = doctor(&wire, "idempotency", &flags).await.ended_with(1);
        let report = said.json();
        let fix = |of: usize| report["findings"][of]["fix"].as_str().unwrap();
        // That of `worker` itself.
        assert!(!fix(0).contains("publish-version"), "{report:#}");
        let aws = "aws --region eu-north-1 lambda";
        for command in [
            format!("{aws} update-function-configuration --function-name {name} "),
            format!("{aws} publish-version --function-name {name} "),
            format!("{aws} update-alias --function-name {name} --name live "),
        ] {
            assert!(fix(1).contains(&command), "{command}: {report:#}");
        }
        let not_checked = report["not_checked"].to_string();
        assert!(!not_checked.contains("concurrency"), "{report:#}");
        let kinesis = "aws --region eu-north-1 kinesis";
        assert!(not_checked.contains(kinesis), "{report:#}");
    }
    for (version, fixed) in [
        ("$LATEST", "--environment "),
        ("7", "invoke the new version"),
    ] {
        let flags = format!("--function worker:{version}");
        let said = doctor(&wire, "idempotency", &flags).await.ended_with(1);
        let report = said.json();
        let fix = report["findings"][1]["fix"].as_str().unwrap();
        assert!(fix.contains(fixed), "{report:#}");
        assert!(!fix.contains("update-alias"), "{report:#}");
    }
}

#[tokio::test]
async fn the_role_of_a_profile_is_assumed_in_the_region_that_is_looked_at() {
    let wire = Wire::sound(true).await;
    let base = "[profile base]\naws_access_key_id = test\naws_secret_access_key = test\n";
    let ops = "[profile ops]\nrole_arn = arn:aws:iam::123456789012:role/ops\nsource_profile = base\nregion = eu-north-1\n";
    let profiles = Scratch::with(format!("{base}{ops}"));
    for (words, region) in [("", "eu-north-1"), ("--region eu-west-1", "eu-west-1")] {
        wire.change(|it| it["assumed_in"] = json!(region));
        let line = "doctor --table idempotency --skew-margin 10min --profile ops";
        let mut command = command(&format!("{line} {words}"));
        command
            .env("AWS_ENDPOINT_URL", wire.url())
            .env("AWS_CONFIG_FILE", &*profiles)
            .env_remove("AWS_REGION");
        Said::of(&command.output().await.unwrap()).ended_with(0);
    }
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let wire = Wire::sound(true).await;
    wire.change(|it| it["missing"] = json!("GetFunctionConfiguration"));
    doctor(&wire, "idempotency", "")
        .await
        .refused(3, "there is no function `worker`");
    wire.change(|it| it["missing"] = json!("DescribeTable"));
    doctor(&wire, "idempotency", "")
        .await
        .refused(3, "the table `idempotency` is not there");
    wire.change(|it| {
        (it["missing"], it["forbidden"]) = (Value::Null, json!("GetFunctionConfiguration"));
    });
    doctor(&wire, "idempotency", "")
        .await
        .refused(3, "allow your role lambda:GetFunctionConfiguration");
    doctor(&wire, "idempotency", "--ignore nothing")
        .await
        .refused(2, "there is no such rule");
    doctor(&wire, "idempotency", "--cargo-lock /nonexistent/Cargo.lock")
        .await
        .refused(2, "/nonexistent/Cargo.lock");
}

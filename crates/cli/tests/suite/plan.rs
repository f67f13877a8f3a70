//! `plan` finds in a template what `doctor` would find when it is deployed.

use std::fmt::Display;

use serde_json::{Value, json};

use crate::support::{Said, Scratch, ended_with, findings, run};

const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../template.yaml");

async fn plan(template: impl Display, words: &str) -> Said {
    run(&format!("plan --json --template '{template}' {words}")).await
}

fn ids(said: &Said) -> Vec<String> {
    findings(&said.json()["check"])
}

/// The repository's template and what it nests, in their own folder, with one text replaced.
fn changed(old: &str, new: &str) -> Scratch {
    let folder = Scratch::folder();
    std::fs::create_dir(folder.join("infra")).unwrap();
    let home = std::path::Path::new(TEMPLATE).parent().unwrap();
    let mut found = 0;
    for file in ["template.yaml", "infra/table.yaml", "infra/policy.yaml"] {
        let text = std::fs::read_to_string(home.join(file)).unwrap();
        found += text.matches(old).count();
        std::fs::write(folder.join(file), text.replacen(old, new, 1)).unwrap();
    }
    assert!(found > 0, "{old:?} is in no template");
    folder
}

/// Plans the template with one text replaced.
async fn plan_changed((old, new): (&str, &str), words: &str) -> Said {
    let folder = changed(old, new);
    plan(folder.join("template.yaml").display(), words).await
}

/// Fails unless a text has a word, or has it not.
#[track_caller]
fn assert_has(text: &str, word: &str, has: bool, case: &str) {
    assert_eq!(text.contains(word), has, "{case}: {word:?}: {text}");
}

#[tokio::test]
async fn the_template_of_the_samples_is_sound() {
    let report = plan(TEMPLATE, "").await.ended_with(0).json();
    let fine = report["check"]["fine"].as_array().unwrap();
    // All but what only a deployment tells, and the reserved concurrency, which it doesn't set.
    for id in ["missing-action", "tls-stack", "clock", "concurrency"] {
        assert!(!fine.contains(&json!(id)), "{id}");
    }
    assert_eq!(fine.len(), 22, "{fine:?}");
    assert_eq!(report["not_read"], json!([]));
}

#[tokio::test]
async fn each_misconfiguration_of_a_template_is_found() {
    for (old, new, id) in [
        (
            "TimeToLiveSpecification: { AttributeName: expiration, Enabled: true }\n      PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: !Ref PointInTimeRecovery }",
            "PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: !Ref PointInTimeRecovery }",
            "ttl-off",
        ),
        (
            "TimeToLiveSpecification: { AttributeName: expiration, Enabled: true }\n      PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: !Ref PointInTimeRecovery }",
            "TimeToLiveSpecification: { AttributeName: ttl, Enabled: true }\n      PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: !Ref PointInTimeRecovery }",
            "ttl-attribute",
        ),
        (
            "KeySchema: [{ AttributeName: id, KeyType: HASH }]",
            "KeySchema: [{ AttributeName: pk, KeyType: HASH }]",
            "key-schema",
        ),
        (
            "PointInTimeRecoveryEnabled: !Ref PointInTimeRecovery",
            "PointInTimeRecoveryEnabled: false",
            "point-in-time-recovery",
        ),
        (
            "RUST_LOG: info",
            "IDEMPOTENCY_DISABLED: \" TRUE \"",
            "kill-switch",
        ),
        (
            "FunctionResponseTypes: [ReportBatchItemFailures]\n            ScalingConfig",
            "ScalingConfig",
            "item-failures",
        ),
        (
            "            BatchSize: 10\n",
            "            BatchSize: 10\n            MaximumBatchingWindowInSeconds: 60\n",
            "visibility-timeout",
        ),
        (
            "            BatchSize: 10\n",
            "            BatchSize: 10\n            Enabled: false\n",
            "mapping-disabled",
        ),
        (
            "      CodeUri: functions/payments-worker\n",
            "      CodeUri: functions/payments-worker\n      ReservedConcurrentExecutions: 3\n",
            "concurrency",
        ),
        (
            "      RedrivePolicy: { deadLetterTargetArn: !GetAtt PaymentsDeadLetters.Arn, maxReceiveCount: !Ref MaxReceiveCount }\n",
            "",
            "dead-letter-queue",
        ),
        (
            "maxReceiveCount: !Ref MaxReceiveCount",
            "maxReceiveCount: 3",
            "receive-count",
        ),
        (
            "so this is no more than the queue's own.\n      MessageRetentionPeriod: 1209600",
            "\n      MessageRetentionPeriod: 345600",
            "dead-letter-retention",
        ),
        (
            "      Idempotency: { RetentionDays: 16 }\n",
            "",
            "async-retention",
        ),
        (
            "# What is discarded in the end is small.\n",
            "\n            TumblingWindowInSeconds: 30\n",
            "tumbling-window",
        ),
        (
            "# What is discarded in the end is small.\n            BisectBatchOnFunctionError: true\n",
            "",
            "bisect",
        ),
        (
            "            MaximumRetryAttempts: 100\n            MaximumRecordAgeInSeconds: 21600\n",
            "",
            "record-age",
        ),
        (
            "            DestinationConfig: { OnFailure: { Type: SQS, Destination: !GetAtt MovementsDiscarded.Arn } }\n",
            "",
            "on-failure",
        ),
    ] {
        let said = plan_changed((old, new), "").await;
        let found = ids(&said);
        assert!(
            found.iter().all(|found| found == id) && !found.is_empty(),
            "{id}: {found:?}"
        );
        // A command would name what isn't there.
        assert!(!said.out.contains("\"aws "), "{said:?}");
    }
}

#[tokio::test]
async fn parameters_and_settings_are_applied() {
    for (words, found) in [
        (
            "--parameter FunctionTimeout=60",
            &["visibility-timeout"; 3][..],
        ),
        (
            "--parameter DeletionProtection=false",
            &["deletion-protection"],
        ),
        // The template's retention of each function takes precedence over the flag's, which is for all.
        (
            "--parameter RetentionDays=7 --retention 56days",
            &["retention"; 3],
        ),
    ] {
        assert_eq!(ids(&plan(TEMPLATE, words).await.ended_with(1)), found);
    }
    let unsaid = (
        "      Idempotency: { RetentionDays: !Ref RetentionDays }\n",
        "",
    );
    let found = plan_changed(unsaid, "").await.ended_with(1);
    assert_eq!(ids(&found), ["retention"; 2]);
    ended_with(plan_changed(unsaid, "--retention 56days"), 0).await;
    plan(TEMPLATE, "--parameter Nothing=1")
        .await
        .refused(2, "has no parameter `Nothing`");
}

#[tokio::test]
async fn a_retention_that_the_template_does_not_tell_is_judged_only_where_it_is_given() {
    let unknown = (
        "RetentionDays: !Ref RetentionDays",
        "RetentionDays: !ImportValue days",
    );
    for (words, found) in [
        ("", &[][..]),
        ("--retention 56days", &[]),
        ("--retention 7days", &["retention"; 2]),
    ] {
        let said = plan_changed(unknown, words).await;
        let said = said.ended_with(i32::from(!found.is_empty()));
        assert_eq!(ids(&said), found, "{words}");
        let not_read = said.json()["not_read"].to_string();
        assert!(not_read.contains("Idempotency.RetentionDays"), "{not_read}");
    }
}

#[tokio::test]
async fn flags_are_judged_and_completed() {
    let words = "--function-timeout 30s --window 5s --visibility 60s --fifo";
    let said = run(&format!("plan --json {words}")).await.ended_with(1);
    assert_eq!(ids(&said), ["retention", "visibility-timeout"]);
    let report = said.json();
    let suggestions = report["suggestions"].as_array().unwrap().iter();
    let least: Vec<_> = suggestions
        .map(|one| [&one["setting"], &one["at_least"]])
        .collect();
    assert_eq!(
        least,
        [
            ["visibility timeout", "3m 5s"],
            ["retention", "36days"],
            ["failure_retention", "6m"],
            ["lease", "31s"]
        ]
    );
}

#[tokio::test]
async fn six_timeouts_hide_a_message_and_one_of_a_managed_instance() {
    for (timeout, least) in [
        ("15m", "1h 30m 5s"),
        ("16m", "16m 5s"),
        ("90m", "1h 30m 5s"),
    ] {
        let words = format!("--function-timeout {timeout} --window 5s");
        let report = run(&format!("plan --json {words}")).await.json();
        let found = &report["suggestions"][0];
        assert_eq!(found["setting"], "visibility timeout");
        assert_eq!(found["at_least"], least, "{timeout}");
    }
}

#[tokio::test]
async fn a_month_has_a_price() {
    let plan = "plan --requests 10000000";
    let said = run(&format!("{plan} --json --duplicate-percent 2")).await;
    let report = said.ended_with(0).json();
    let costs = report["cost"].as_array().unwrap().iter();
    let units: Vec<_> = costs.map(|cost| &cost["write_units"]).collect();
    assert_eq!(units, [19_800_000, 29_600_000, 20_000_000]);
    run(plan).await.refused(0, "A month of 10000000 requests");
}

#[tokio::test]
async fn what_is_no_template_is_said() {
    for (text, words) in [
        ("a: [", "is no template"),
        ("", "the file is empty"),
        ("a: 1", "it has no Resources"),
        (
            "Resources: {}",
            "no such function with the variable IDEMPOTENCY_TABLE",
        ),
        ("Resources: [1, 2]", "it has no Resources"),
    ] {
        plan(Scratch::with(text), "").await.refused(2, words);
    }
    plan("/nonexistent/template.yaml", "")
        .await
        .refused(2, "/nonexistent/template.yaml");
}

/// A template whose values are computed by what it doesn't tell, or written as YAML's own scalars.
const COMPUTED: &str = r#"
Parameters:
  Off: { Type: String, Default: "true" }
Conditions:
  IsOff: !Equals [!Ref Off, true]
  IsThere: !Equals [!ImportValue there, "yes"]
Resources:
  Work:
    Type: AWS::Serverless::Function
    Properties:
      Timeout: !ImportValue seconds
      Environment:
        Variables: { IDEMPOTENCY_TABLE: !Ref Records, IDEMPOTENCY_DISABLED: !If [IsOff, true, !If [IsThere, "no", "no"]] }
      Events:
        Jobs: { Type: SQS, Properties: { Queue: !GetAtt Jobs.Arn, Enabled: !ImportValue enabled, FunctionResponseTypes: [ReportBatchItemFailures] } }
        Broker: { Type: MQ, Properties: { Broker: broker, Queues: [jobs] } }
  Jobs:
    Type: AWS::SQS::Queue
    Properties:
      MessageRetentionPeriod: !ImportValue retention
      RedrivePolicy: { deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: !ImportValue receives }
  Dead: { Type: AWS::SQS::Queue }
  Records: { Type: AWS::DynamoDB::Table, Properties: { KeySchema: [{ AttributeName: id, KeyType: HASH }] } }
"#;

#[tokio::test]
async fn a_value_that_a_template_does_not_tell_is_no_default_and_a_scalar_is_its_text() {
    let report = planned(COMPUTED, "").await;
    let not_read = report["not_read"].to_string();
    for name in [
        "Timeout",
        "MessageRetentionPeriod",
        "maxReceiveCount",
        "Enabled",
    ] {
        assert!(not_read.contains(name), "{name}: {not_read}");
    }
    let found = findings(&report["check"]);
    assert!(found.contains(&"kill-switch".to_owned()), "{found:?}");
    assert!(!found.contains(&"item-failures".to_owned()), "{found:?}");
    let judged = report["check"].to_string();
    for unknown in ["visibility-timeout", "retention", "receive-count"] {
        assert!(!judged.contains(&format!("\"{unknown}\"")), "{judged}");
    }
}

/// A value of another service, and a nested template that isn't here, are told as not read.
#[tokio::test]
async fn what_another_place_has_is_not_read() {
    const TEMPLATE: &str = "Parameters:
  Off: { Type: AWS::SSM::Parameter::Value<String>, Default: /payments/off }
  Kept: { Type: String, Default: '{{resolve:ssm:/payments/off}}' }
Resources:
  Work: { Type: AWS::Lambda::Function, Properties: { Environment: { Variables: { IDEMPOTENCY_TABLE: t, IDEMPOTENCY_DISABLED: @ } } } }
";
    for (value, is_known) in [
        ("!Ref Off", false),
        ("!Ref Kept", false),
        ("'{{resolve:ssm:/payments/off}}'", false),
        ("!Sub '{{resolve:ssm:/payments/off}}'", false),
        ("no", true),
    ] {
        let [_, fine, not_read] = planned_with(TEMPLATE, value).await;
        assert_has(&fine, "kill-switch", is_known, value);
        assert_has(&not_read, "IDEMPOTENCY_DISABLED", !is_known, value);
    }
    for (other, is_read) in [
        ("Other: { Type: AWS::SQS::Queue }", true),
        (
            "Other: { Type: AWS::CloudFormation::Stack, Properties: { TemplateURL: nowhere.yaml } }",
            false,
        ),
        (
            "Other: { Type: AWS::Serverless::Application, Properties: { Location: { ApplicationId: a } } }",
            false,
        ),
        ("Fn::ForEach::Other: [Name, [A], {}]", false),
    ] {
        let template = format!("{}  {other}\n", TEMPLATE.replace('@', "no"));
        let not_read = planned(&template, "").await["not_read"].to_string();
        let told = "Other: what it makes is in no file here";
        assert_has(&not_read, told, !is_read, other);
    }
    let given = planned(&TEMPLATE.replace('@', "!Ref Off"), "--parameter Off=no").await;
    let not_read = given["not_read"].to_string();
    assert_has(&not_read, "IDEMPOTENCY_DISABLED", true, "given");
    let nothing = "Resources: { Other: { Type: AWS::Serverless::Application } }";
    let words = "nothing to look at; Other: what it makes is in no file here";
    plan(Scratch::with(nothing), "").await.refused(2, words);

    let (folder, own) = (Scratch::folder(), TEMPLATE.replace('@', "no"));
    let path = folder.join("own.yaml");
    let own = format!(
        "{own}  Own: {{ Type: AWS::CloudFormation::Stack, Properties: {{ TemplateURL: own.yaml }} }}\n"
    );
    std::fs::write(&path, own).unwrap();
    let not_read = plan(path.display(), "").await.json()["not_read"].to_string();
    let too_deep = "Own/Own/Own/Own/Own: it is nested too deep to be read";
    assert!(not_read.contains(too_deep), "{not_read}");
}

/// Each property that is read, with `@` for its value, or for what it is in.
const READ: &str = r"
Conditions:
  Never: !Equals [a, b]
Resources:
  Work:
    Type: AWS::Serverless::Function
    Metadata: { Idempotency: { RetentionDays: @ } }
    Properties:
      Timeout: @
      ReservedConcurrentExecutions: @
      EventInvokeConfig: { MaximumRetryAttempts: 1, DestinationConfig: { OnFailure: @ } }
      Environment:
        Variables:
          IDEMPOTENCY_TABLE: !Ref Records
          IDEMPOTENCY_DISABLED: @
      Events:
        Jobs:
          Type: SQS
          Properties:
            Queue: !GetAtt Jobs.Arn
            Enabled: @
            FunctionResponseTypes: @
            MaximumBatchingWindowInSeconds: @
            ScalingConfig: { MaximumConcurrency: @ }
        Moves:
          Type: Kinesis
          Properties:
            Stream: !GetAtt Moves.Arn
            FunctionResponseTypes: [ReportBatchItemFailures]
            BisectBatchOnFunctionError: @
            MaximumRetryAttempts: @
            MaximumRecordAgeInSeconds: @
            TumblingWindowInSeconds: @
            DestinationConfig: @
  Jobs:
    Type: AWS::SQS::Queue
    Properties:
      QueueName: jobs
      FifoQueue: @
      VisibilityTimeout: @
      MessageRetentionPeriod: @
      RedrivePolicy: @
  Moves:
    Type: AWS::Kinesis::Stream
    Properties:
      ShardCount: 1
      RetentionPeriodHours: @
  Records:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      KeySchema: @
      TimeToLiveSpecification: { AttributeName: expiration, Enabled: @ }
      PointInTimeRecoverySpecification: @
      DeletionProtectionEnabled: @
";

/// Plans the template of this text.
async fn planned(text: &str, words: &str) -> Value {
    plan(Scratch::with(text), words).await.json()
}

/// The findings, what is fine and what could not be read, as texts.
fn texts(report: &Value) -> [String; 3] {
    let check = &report["check"];
    [&check["findings"], &check["fine"], &report["not_read"]].map(Value::to_string)
}

/// Plans the template with this in place of each `@`.
async fn planned_with(template: &str, own: &str) -> [String; 3] {
    texts(&planned(&template.replace('@', own), "").await)
}

#[tokio::test]
async fn no_value_is_as_if_the_property_were_not_there() {
    let lines = READ.lines().filter(|line| !line.contains('@'));
    let without = lines.collect::<Vec<_>>().join("\n");
    // What is left of it in the template is no property of the function.
    let without = without.replace(
        "      Environment:",
        "      EventInvokeConfig: { MaximumRetryAttempts: 1 }\n      Environment:",
    );
    let without = planned(&without, "").await;
    assert!(findings(&without["check"]).len() > 5);
    assert_eq!(without["not_read"], json!([]));
    for value in ["!Ref AWS::NoValue", "!If [Never, 7, !Ref AWS::NoValue]"] {
        let read = planned(&READ.replace('@', value), "").await;
        assert_eq!(read, without, "{value}");
    }
}

#[tokio::test]
async fn a_value_that_is_not_known_is_judged_by_no_rule() {
    let read = planned(&READ.replace('@', "!ImportValue there"), "").await;
    assert_eq!(read["check"]["findings"], json!([]));
    let not_read = read["not_read"].as_array().unwrap();
    assert_eq!(not_read.len(), READ.matches('@').count(), "{not_read:?}");
}

#[tokio::test]
async fn a_function_has_the_globals_that_it_does_not_set_itself() {
    const TEMPLATE: &str = "Globals: { Function: { Timeout: 60, Environment: { Variables: { IDEMPOTENCY_TABLE: t } } } }
Resources:
  Jobs: { Type: AWS::SQS::Queue }
  Other: { Type: AWS::Lambda::Function, Properties: { Role: r } }
  Work: { Type: AWS::Serverless::Function, Properties: { @ Events: { Jobs: { Type: SQS, Properties: { Queue: !GetAtt Jobs.Arn } } } } }
";
    for (own, is_found) in [
        ("", true),
        ("Timeout: 5,", false),
        ("Timeout: !Ref AWS::NoValue,", false),
        ("Timeout: !ImportValue there,", false),
    ] {
        let [found, fine, _] = planned_with(TEMPLATE, own).await;
        assert_has(&found, "visibility-timeout", is_found, own);
        let is_fine = !is_found && !own.contains("there");
        assert_has(&fine, "visibility-timeout", is_fine, own);
    }
}

#[tokio::test]
async fn the_names_of_the_layout_are_those_that_the_table_should_have() {
    let keys = (
        "KeySchema: [{ AttributeName: id, KeyType: HASH }]",
        "KeySchema: [{ AttributeName: pk, KeyType: HASH }]",
    );
    plan_changed(keys, "--partition-key pk").await.ended_with(0);
    let found = plan(TEMPLATE, "--attribute expiration=ttl").await;
    assert_eq!(ids(&found.ended_with(1)), ["ttl-attribute"]);
}

#[tokio::test]
async fn each_kind_of_a_table_is_read_by_its_own_properties() {
    const TEMPLATE: &str = "Resources:
  Records: @
  Work: { Type: AWS::Serverless::Function, Properties: { Timeout: 5, Environment: { Variables: { IDEMPOTENCY_TABLE: !Ref Records } } } }
";
    let simple =
        "{ Type: AWS::Serverless::SimpleTable, Properties: { PrimaryKey: { Type: String } } }";
    let global = "{ Type: AWS::DynamoDB::GlobalTable, Properties: {
      KeySchema: [{ AttributeName: id, KeyType: HASH }],
      TimeToLiveSpecification: { AttributeName: expiration, Enabled: true },
      Replicas: [
        { Region: eu-central-1, DeletionProtectionEnabled: true, PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: true } },
        { Region: eu-west-1, DeletionProtectionEnabled: true, PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: true } }] } }";
    for (table, of_table) in [
        (
            simple.to_owned(),
            vec!["deletion-protection", "point-in-time-recovery", "ttl-off"],
        ),
        (
            simple.replace("Type: String", "Name: pk, Type: String"),
            vec![
                "deletion-protection",
                "key-schema",
                "point-in-time-recovery",
                "ttl-off",
            ],
        ),
        (global.to_owned(), vec![]),
        (
            global.replacen("Enabled: true } },", "Enabled: false } },", 1),
            vec!["point-in-time-recovery"],
        ),
        (
            global.replacen("ProtectionEnabled: true", "ProtectionEnabled: false", 1),
            vec!["deletion-protection"],
        ),
    ] {
        let read = planned(&TEMPLATE.replace('@', &table), "").await;
        let all = [
            "deletion-protection",
            "key-schema",
            "point-in-time-recovery",
            "ttl-attribute",
            "ttl-off",
        ];
        let mut found = findings(&read["check"]);
        found.retain(|id| all.contains(&&**id));
        found.sort_unstable();
        assert_eq!(found, of_table, "{table}");
    }
}

#[tokio::test]
async fn a_mapping_of_its_own_is_of_the_function_that_it_names_or_is_not_read() {
    const TEMPLATE: &str = "Resources:
  Jobs: { Type: AWS::SQS::Queue }
  Work: { Type: AWS::Serverless::Function, Properties: { AutoPublishAlias: live, Environment: { Variables: { IDEMPOTENCY_TABLE: t } } } }
  Live: { Type: AWS::Lambda::Alias, Properties: { FunctionName: !Ref Work } }
  Built: { Type: AWS::Lambda::Version, Properties: { FunctionName: !Ref Work } }
  Loop: { Type: AWS::Lambda::Alias, Properties: { FunctionName: !Ref Loop } }
  Mapping: { Type: AWS::Lambda::EventSourceMapping, Properties: { FunctionName: @, EventSourceArn: !GetAtt Jobs.Arn } }
";
    for (named, is_found) in [
        ("!Ref Work", true),
        ("!Ref Live", true),
        ("!Ref Work.Alias", true),
        ("!Ref Built", true),
        ("!Ref Work.Version", true),
        ("!Ref Loop", false),
        ("!Ref Jobs", false),
        ("!Sub \"${Work}:live\"", false),
        ("!ImportValue elsewhere", false),
    ] {
        let [found, _, not_read] = planned_with(TEMPLATE, named).await;
        assert_has(&found, "item-failures", is_found, named);
        let told = "Mapping: its function is not in the template";
        assert_has(&not_read, told, !is_found, named);
    }
}

#[tokio::test]
async fn a_queue_in_provisioned_mode_is_bounded_by_its_pollers() {
    const TEMPLATE: &str = "Resources:
  Jobs: { Type: AWS::SQS::Queue }
  Work:
    Type: AWS::Serverless::Function
    Properties:
      ReservedConcurrentExecutions: 30
      Environment: { Variables: { IDEMPOTENCY_TABLE: t } }
      Events: { Jobs: { Type: SQS, Properties: { Queue: !GetAtt Jobs.Arn, ProvisionedPollerConfig: @ } } }
";
    for (pollers, takes) in [
        ("{ MaximumPollers: 3 }", None),
        ("{ MaximumPollers: 4 }", Some("take 40")),
        ("{ MinimumPollers: 2 }", Some("take 2000")),
        ("!Ref AWS::NoValue", Some("take as many as they can")),
    ] {
        let [found, fine, _] = planned_with(TEMPLATE, pollers).await;
        match takes {
            Some(takes) => assert_has(&found, takes, true, pollers),
            None => assert_has(&fine, "concurrency", true, pollers),
        }
    }
}

/// Each function with a table of its own, one of them outside of the template.
#[tokio::test]
async fn each_table_that_a_function_names_is_judged() {
    const TEMPLATE: &str = "Resources:
  Archive: { Type: AWS::DynamoDB::Table, Properties: { KeySchema: [{ AttributeName: id, KeyType: HASH }] } }
  Records: { Type: AWS::DynamoDB::Table, Properties: { KeySchema: [{ AttributeName: pk, KeyType: HASH }] } }
  First: { Type: AWS::Serverless::Function, Properties: { Environment: { Variables: { IDEMPOTENCY_TABLE: !ImportValue t } } } }
  Second: { Type: AWS::Serverless::Function, Properties: { Environment: { Variables: { IDEMPOTENCY_TABLE: elsewhere } } } }
  Third: { Type: AWS::Serverless::Function, Properties: { Environment: { Variables: { IDEMPOTENCY_TABLE: !Ref Records } } } }
  Work: { Type: AWS::Serverless::Function, Properties: { Environment: { Variables: { IDEMPOTENCY_TABLE: !Ref Archive } } } }
";
    for (words, judged) in [
        ("", &["Archive", "Records"][..]),
        ("--function Third --function Second", &["Records"]),
        ("--function Second", &[]),
    ] {
        let read = planned(TEMPLATE, words).await;
        let findings = read["check"]["findings"].as_array().unwrap();
        let of = |id: &str| {
            let found = findings.iter().filter(|finding| finding["id"] == id);
            let mut at: Vec<_> = found.map(|finding| finding["at"].clone()).collect();
            at.sort_by_key(Value::to_string);
            at
        };
        assert_eq!(of("ttl-off"), judged, "{words:?}: {read:#}");
        let keys = judged.iter().filter(|name| **name == "Records").count();
        assert_eq!(of("key-schema").len(), keys, "{words:?}: {read:#}");
        assert_eq!(of("table-variable"), [""; 0], "{words:?}: {read:#}");
    }
}

/// SAM makes the queue or the topic that a function's own configuration doesn't name.
#[tokio::test]
async fn a_destination_that_sam_makes_is_one() {
    const TEMPLATE: &str = "Resources:
  Work:
    Type: AWS::Serverless::Function
    Properties:
      Environment: { Variables: { IDEMPOTENCY_TABLE: t } }
      EventInvokeConfig: { DestinationConfig: { OnFailure: { @ } } }
";
    for (failed, is_found, is_queue) in [
        ("Type: SQS", false, true),
        ("Type: SNS", false, false),
        ("Type: Lambda", true, false),
        ("", true, false),
        ("Type: SQS, Destination: !GetAtt Failed.Arn", false, true),
    ] {
        let template = format!("{TEMPLATE}  Failed: {{ Type: AWS::SQS::Queue }}\n");
        let [found, fine, _] = planned_with(&template, failed).await;
        assert_has(&fine, "async-retention", is_queue, failed);
        assert_has(&found, "async-destination", is_found, failed);
    }
}

#[tokio::test]
async fn a_functions_dead_letter_queue_is_a_destination() {
    const TEMPLATE: &str = "Resources:
  Failed: { Type: AWS::SQS::Queue }
  Work:
    Type: AWS::Serverless::Function
    Properties:
      Environment: { Variables: { IDEMPOTENCY_TABLE: t } }
      @
      Events: { Lines: { Type: CloudWatchLogs, Properties: { LogGroupName: g, FilterPattern: p } } }
";
    let queue = "DeadLetterQueue: { Type: SQS, TargetArn: !GetAtt Failed.Arn }";
    for (property, is_found) in [("Timeout: 5", true), (queue, false)] {
        let [found, ..] = planned_with(TEMPLATE, property).await;
        assert_has(&found, "async-destination", is_found, property);
    }
}

/// SAM's mapping of such a queue doesn't read `batchItemFailures`.
#[tokio::test]
async fn a_topic_with_a_queue_behind_it_is_judged_as_a_queue_and_another_as_asynchronous() {
    const TEMPLATE: &str = "Resources:
  Jobs: { Type: AWS::SQS::Queue }
  Work:
    Type: AWS::Serverless::Function
    Properties:
      Environment: { Variables: { IDEMPOTENCY_TABLE: t } }
      Events: { Source: { @ } }
";
    let named = "SqsSubscription: { QueueArn: !GetAtt Jobs.Arn, QueueUrl: u }";
    for (properties, is_queue) in [
        ("Type: IoTRule, Properties: { Sql: s }".to_owned(), false),
        ("Type: SNS, Properties: { Topic: t }".to_owned(), false),
        (topic("SqsSubscription: false"), false),
        (topic("SqsSubscription: true"), true),
        (topic(named), true),
    ] {
        let [found, _, not_read] = planned_with(TEMPLATE, &properties).await;
        assert_has(&found, "async-destination", !is_queue, &properties);
        assert_has(&found, "item-failures", is_queue, &properties);
        let is_named = properties.contains(named);
        assert_has(&found, "dead-letter-queue", is_named, &properties);
        let told = "Source: its source is not in the template";
        assert_has(&not_read, told, is_queue && !is_named, &properties);
    }
}

fn topic(subscription: &str) -> String {
    format!("Type: SNS, Properties: {{ Topic: t, {subscription} }}")
}

#[tokio::test]
async fn a_destination_that_is_its_own_resource_is_of_the_function_that_it_names() {
    const TEMPLATE: &str = "Resources:
  Failed: { Type: AWS::SQS::Queue }
  Work:
    Type: AWS::Serverless::Function
    Properties:
      Environment: { Variables: { IDEMPOTENCY_TABLE: t } }
      Events: { Lines: { Type: CloudWatchLogs, Properties: { LogGroupName: g, FilterPattern: p } } }
  Other: { Type: AWS::Lambda::Function, Properties: { Role: r } }
  Config:
    Type: AWS::Lambda::EventInvokeConfig
    Properties:
      FunctionName: !Ref @
      Qualifier: $LATEST
      DestinationConfig: { OnFailure: { Destination: !GetAtt Failed.Arn } }
";
    for (function, is_its_own) in [("Work", true), ("Other", false)] {
        let [found, fine, _] = planned_with(TEMPLATE, function).await;
        assert_has(&found, "async-destination", !is_its_own, function);
        assert_has(&fine, "async-retention", is_its_own, function);
    }
}

/// A consumer has no retention, and what another type makes isn't known.
#[tokio::test]
async fn a_stream_is_read_by_its_consumer_and_by_no_other_type() {
    const TEMPLATE: &str = "Resources:
  Moves: { Type: AWS::Kinesis::Stream, Properties: { RetentionPeriodHours: 2000 } }
  Consumer: { Type: AWS::Kinesis::StreamConsumer, Properties: { ConsumerName: c, StreamARN: !GetAtt Moves.Arn } }
  Made: { Type: Custom::Stream, Properties: { ServiceToken: t } }
  Work: { Type: AWS::Serverless::Function, Properties: { Environment: { Variables: { IDEMPOTENCY_TABLE: t } } @ } }
";
    let event = ", Events: { Mapping: { Type: Kinesis, Properties: { Stream: @, StartingPosition: LATEST } } } } }
";
    let mapping = " } }
  Mapping: { Type: AWS::Lambda::EventSourceMapping, Properties: { FunctionName: !Ref Work, EventSourceArn: @ } }
";
    for form in [event, mapping] {
        for (named, is_read) in [
            ("!GetAtt Moves.Arn", true),
            ("!GetAtt Consumer.ConsumerARN", true),
            ("!Ref Consumer", true),
            ("!GetAtt Made.StreamArn", false),
        ] {
            let template = TEMPLATE.replace(" @ } }\n", &form.replace('@', named));
            let read = planned(&template, "--retention 56days").await;
            let [found, fine, not_read] = texts(&read);
            assert_has(&found, "stream-retention", is_read, named);
            assert_has(&fine, "stream-retention", false, named);
            let told = "Mapping: its source is not in the template";
            assert_has(&not_read, told, !is_read, named);
        }
    }
}

#[tokio::test]
async fn conditions_that_refer_to_themselves_are_not_known() {
    const TEMPLATE: &str = "Conditions:
  A: !Condition A
  B: !Not [!Condition C]
  C: !And [!Condition B, !Condition B]
  D: !Equals [!If [D, x, y], x]
  E: !Or [!Condition E, !Condition A]
Resources:
  Work:
    Type: AWS::Serverless::Function
    Condition: B
    Properties:
      Environment: { Variables: { IDEMPOTENCY_TABLE: t, IDEMPOTENCY_DISABLED: !If [@, yes, no] } }
";
    for condition in ["A", "B", "C", "D", "E"] {
        let [.., not_read] = planned_with(TEMPLATE, condition).await;
        assert_has(&not_read, "IDEMPOTENCY_DISABLED", true, condition);
    }
}

#[tokio::test]
async fn each_function_that_is_named_must_be_there() {
    let words = "--function PaymentsWorker --function Typo";
    plan(TEMPLATE, words).await.refused(2, "`Typo`");
}

#[tokio::test]
async fn functions_of_nested_templates_are_read_and_those_that_are_not_made_are_not() {
    let folder = Scratch::folder();
    let function = |disabled: &str| {
        format!(
            "Environment: {{ Variables: {{ IDEMPOTENCY_TABLE: t, IDEMPOTENCY_DISABLED: {disabled} }} }}"
        )
    };
    let root = format!(
        "Parameters: {{ Off: {{ Type: String, Default: yes }} }}
Conditions: {{ Never: !Equals [a, b] }}
Resources:
  Stack: {{ Type: AWS::CloudFormation::Stack, Properties: {{ TemplateURL: nested.yaml, Parameters: {{ Off: !Ref Off }} }} }}
  Unmade: {{ Type: AWS::Lambda::Function, Condition: Never, Properties: {{ {} }} }}
",
        function("1")
    );
    let nested = format!(
        "Parameters: {{ Off: {{ Type: String }} }}
Resources:
  Jobs: {{ Type: AWS::SQS::Queue }}
  Mapping:
    Type: AWS::Lambda::EventSourceMapping
    Properties: {{ FunctionName: !Ref Work, EventSourceArn: !GetAtt Jobs.Arn }}
  Work: {{ Type: AWS::Lambda::Function, Properties: {{ {} }} }}
",
        function("!Ref Off")
    );
    let path = folder.join("root.yaml");
    std::fs::write(&path, root).unwrap();
    std::fs::write(folder.join("nested.yaml"), nested).unwrap();
    for words in ["", "--function Stack/Work"] {
        let said = plan(path.display(), words).await.ended_with(1);
        let report = said.json();
        let at = |id: &str| {
            let findings = report["check"]["findings"].as_array().unwrap();
            let found = findings.iter().filter(|finding| finding["id"] == id);
            found
                .map(|finding| finding["at"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(at("kill-switch"), ["Stack/Work"], "{report:#}");
        assert_eq!(at("dead-letter-queue"), ["Stack/Jobs"], "{report:#}");
    }
}

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::doctor::facts::{
    DeadLetters, Destination, Function, Mapping, Queue, Source, Stream, Table,
};

const DAY: Duration = Duration::from_hours(24);

fn queue(fifo: bool) -> Queue {
    Queue {
        name: "payments".to_owned(),
        fifo,
        visibility: Some(Duration::from_mins(2)),
        retention: Some(DAY * 4),
        dead_letters: Some(Some(DeadLetters {
            destination: Destination {
                name: "payments-dead".to_owned(),
                retention: Some(DAY * 14),
            },
            max_receive_count: Some(5),
        })),
    }
}

fn mapping(source: Source) -> Mapping {
    Mapping {
        id: "uuid".to_owned(),
        enabled: Some(true),
        reports_item_failures: Some(true),
        window: Some(Duration::ZERO),
        maximum_concurrency: Some(Some(5)),
        provisioned: false,
        source,
    }
}

fn sound() -> Deployment {
    let stream = Stream {
        name: "movements".to_owned(),
        retention: Some(DAY),
        tumbling_window: Some(Duration::ZERO),
        bisects: Some(true),
        retries: Some(Some(100)),
        max_age: Some(Some(DAY)),
        on_failure: Some(Some("arn".to_owned())),
    };
    Deployment {
        aws: "aws --region eu-north-1".to_owned(),
        tables: vec![Table {
            name: "idempotency".to_owned(),
            arn: None,
            ttl: Some(Some("expiration".to_owned())),
            expected_ttl: "expiration".to_owned(),
            keys: Some(vec!["id".to_owned()]),
            expected_keys: vec!["id".to_owned()],
            point_in_time_recovery: Some(true),
            deletion_protection: Some(true),
        }],
        functions: vec![Function {
            name: "worker".to_owned(),
            arn: None,
            timeout: Some(Duration::from_secs(20)),
            table: Some(Some("idempotency".to_owned())),
            disabled: Some(false),
            reserved_concurrency: Some(10),
            mappings: vec![
                mapping(Source::Queue(queue(false))),
                mapping(Source::Stream(stream)),
            ],
            asynchronous: Some(Some(Destination {
                name: "worker-failed".to_owned(),
                retention: Some(DAY * 14),
            })),
            missing_actions: Some(Vec::new()),
            retention: Some(None),
        }],
        settings: crate::doctor::facts::Settings {
            retention: Some(DAY * 56),
            ..Default::default()
        },
        clock_ahead_millis: Some(300),
        second_tls: Some(Vec::new()),
    }
}

fn the_queue(deployment: &mut Deployment) -> &mut Queue {
    match &mut deployment.functions[0].mappings[0].source {
        Source::Queue(queue) => queue,
        other => panic!("{other:?}"),
    }
}

fn the_stream(deployment: &mut Deployment) -> &mut Stream {
    match &mut deployment.functions[0].mappings[1].source {
        Source::Stream(stream) => stream,
        other => panic!("{other:?}"),
    }
}

fn the_dead_letters(deployment: &mut Deployment) -> &mut DeadLetters {
    let known = the_queue(deployment).dead_letters.as_mut().unwrap();
    known.as_mut().unwrap()
}

fn the_table(deployment: &mut Deployment) -> &mut Table {
    &mut deployment.tables[0]
}

fn ids(report: &Report) -> Vec<&'static str> {
    report.findings.iter().map(|finding| finding.id).collect()
}

type Plant = (&'static str, fn(&mut Deployment));

const PLANTS: [Plant; 26] = [
    ("ttl-off", |it| the_table(it).ttl = Some(None)),
    ("ttl-attribute", |it| {
        the_table(it).ttl = Some(Some("ttl".to_owned()));
    }),
    ("key-schema", |it| {
        the_table(it).keys = Some(vec!["pk".to_owned(), "sk".to_owned()]);
    }),
    ("point-in-time-recovery", |it| {
        the_table(it).point_in_time_recovery = Some(false);
    }),
    ("deletion-protection", |it| {
        the_table(it).deletion_protection = Some(false);
    }),
    ("table-variable", |it| {
        it.functions[0].table = Some(Some("other".to_owned()));
    }),
    ("kill-switch", |it| it.functions[0].disabled = Some(true)),
    ("missing-action", |it| {
        it.functions[0].missing_actions = Some(vec!["dynamodb:UpdateItem".to_owned()]);
    }),
    ("async-destination", |it| {
        it.functions[0].asynchronous = Some(None);
    }),
    ("async-retention", |it| {
        it.functions[0].retention = Some(Some(DAY * 14));
        it.functions[0].mappings.clear();
    }),
    ("mapping-disabled", |it| {
        it.functions[0].mappings[0].enabled = Some(false);
    }),
    ("item-failures", |it| {
        it.functions[0].mappings[1].reports_item_failures = Some(false);
    }),
    ("concurrency", |it| {
        it.functions[0].reserved_concurrency = Some(2);
    }),
    ("visibility-timeout", |it| {
        it.functions[0].mappings[0].window = Some(Duration::from_secs(1));
    }),
    ("dead-letter-queue", |it| {
        the_queue(it).dead_letters = Some(None);
    }),
    ("receive-count", |it| {
        the_dead_letters(it).max_receive_count = Some(4);
    }),
    ("dead-letter-retention", |it| {
        the_dead_letters(it).destination.retention = Some(DAY * 4);
    }),
    ("retention", |it| it.settings.retention = Some(DAY * 17)),
    ("failure-retention", |it| {
        it.settings.failure_retention = Some(Duration::from_mins(9));
        the_stream(it).max_age = Some(Some(Duration::from_mins(1)));
    }),
    ("tumbling-window", |it| {
        the_stream(it).tumbling_window = Some(Duration::from_secs(30));
    }),
    ("bisect", |it| the_stream(it).bisects = Some(false)),
    ("record-age", |it| {
        (the_stream(it).retries, the_stream(it).max_age) = (Some(None), Some(None));
    }),
    ("on-failure", |it| the_stream(it).on_failure = Some(None)),
    ("stream-retention", |it| {
        the_stream(it).retention = Some(DAY * 365);
    }),
    ("tls-stack", |it| {
        it.second_tls = Some(vec!["rustls 0.21.12".to_owned()]);
    }),
    ("clock", |it| it.clock_ahead_millis = Some(-2_500)),
];

#[test]
fn a_sound_deployment_is_fine_by_every_rule() {
    let report = check(&sound(), &[]);
    assert_eq!(report.findings, []);
    let rules: Vec<_> = RULES.iter().map(|(id, _)| *id).collect();
    assert_eq!(report.fine, rules);
}

#[test]
fn each_misconfiguration_is_found_by_its_word_alone() {
    for (id, plant) in PLANTS {
        let mut deployment = sound();
        plant(&mut deployment);
        let report = check(&deployment, &[]);
        assert_eq!(ids(&report), [id], "{report}");
        let finding = &report.findings[0];
        assert!(
            finding.why.ends_with('.') && !finding.fix.is_empty(),
            "{finding:?}"
        );
        // Each command is one for where the deployment is.
        let of = |words: &str| finding.fix.matches(words).count();
        assert_eq!(of("aws "), of("aws --region eu-north-1 "), "{finding:?}");
        // The command line's own form is cut at commas.
        assert!(!finding.fix.contains("Variables={"), "{finding:?}");
        let report = check(&deployment, &[id.to_owned()]);
        assert_eq!((report.findings.len(), report.ignored), (0, vec![id]));
    }
    let planted: BTreeSet<_> = PLANTS.iter().map(|(id, _)| *id).collect();
    let rules: BTreeSet<_> = RULES.iter().map(|(id, _)| *id).collect();
    assert_eq!(planted, rules, "each rule is seen to find something");
}

/// The go-live checklist names each rule, so that `doctor` ticks its lines off.
#[test]
fn the_checklist_names_each_rule_once() {
    let page = include_str!("../../../../../docs/operations/checklist.md");
    let lines = page.lines().filter(|line| line.starts_with("| "));
    let first_cells: String = lines.filter_map(|line| line.split('|').nth(1)).collect();
    for (id, _) in RULES {
        let times = first_cells.matches(&format!("`{id}`")).count();
        // Queues and streams have a line each.
        let expected = if id == "item-failures" { 2 } else { 1 };
        assert_eq!(times, expected, "{id}");
    }
}

#[test]
fn what_is_not_known_is_no_finding_and_not_fine() {
    let report = check(&Deployment::default(), &[]);
    assert_eq!(report, Report::default());
}

#[test]
fn a_redrive_begins_both_queues_again() {
    for fifo in [false, true] {
        assert_eq!(queue::least_retention(&queue(fifo)), Some(DAY * 36));
    }
}

#[test]
fn an_outcome_outlives_the_queue_of_failed_events_and_the_retries_before() {
    for (hours, found) in [(15 * 24 + 5, 1), (15 * 24 + 6, 0)] {
        let mut deployment = sound();
        let function = &mut deployment.functions[0];
        function.retention = Some(Some(Duration::from_hours(hours)));
        function.mappings.clear();
        let report = check(&deployment, &[]);
        let expected = vec!["async-retention"; found];
        assert_eq!(ids(&report), expected, "{hours}: {report}");
        for finding in report.findings {
            let days = ["--retention 16days", "SNS", "--retention 38days"];
            assert!(
                days.iter().all(|days| finding.fix.contains(days)),
                "{finding:?}"
            );
        }
    }
}

#[test]
fn a_fifo_queues_dead_letter_queue_may_be_as_short_as_it_likes() {
    let mut deployment = sound();
    *the_queue(&mut deployment) = queue(true);
    let dead_letters = the_dead_letters(&mut deployment);
    dead_letters.destination.retention = Some(DAY);
    assert_eq!(check(&deployment, &[]).findings, []);
}

#[test]
fn a_message_of_a_managed_instance_is_hidden_for_one_timeout() {
    let mut deployment = sound();
    deployment.functions[0].timeout = Some(Duration::from_mins(90));
    deployment.functions[0].mappings[0].window = Some(Duration::from_mins(1));
    the_queue(&mut deployment).visibility = Some(Duration::from_mins(91));
    the_stream(&mut deployment).retries = Some(Some(600));
    deployment.settings.failure_retention = Some(DAY * 2);
    let report = check(&deployment, &[]);
    assert!(report.fine.contains(&"visibility-timeout"), "{report}");

    the_queue(&mut deployment).visibility = Some(Duration::from_mins(90));
    let report = check(&deployment, &[]);
    assert_eq!(ids(&report), ["visibility-timeout"]);
    let said = "less than the timeout of worker and the batch window: 1h 31m";
    assert!(report.to_string().contains(said), "{report}");
}

#[test]
fn the_retries_of_a_stream_outlast_the_lease_of_a_dead_attempt() {
    for (minutes, retries, age, found) in [
        (15, Some(100), None, 0),
        (15, Some(99), None, 1),
        (90, Some(100), Some(DAY), 1),
        (90, Some(600), Some(DAY), 0),
        (90, None, Some(Duration::from_hours(1)), 1),
    ] {
        let mut deployment = sound();
        deployment.functions[0].timeout = Some(Duration::from_mins(minutes));
        let stream = the_stream(&mut deployment);
        (stream.retries, stream.max_age) = (Some(retries), Some(age));
        let mut ids = ids(&check(&deployment, &[]));
        ids.retain(|id| *id == "record-age");
        assert_eq!(ids.len(), found, "{minutes}, {retries:?}, {age:?}");
    }
}

#[test]
fn a_table_is_named_by_its_arn_or_by_its_name_in_its_account_and_region() {
    let arn =
        |region: &str, table: &str| format!("arn:aws:dynamodb:{region}:123456789012:table/{table}");
    let here = || arn("eu-central-1", "idempotency");
    for (table, variable, is_found) in [
        ("idempotency".to_owned(), here(), false),
        (
            "idempotency".to_owned(),
            arn("eu-west-1", "idempotency"),
            true,
        ),
        ("idempotency".to_owned(), arn("eu-central-1", "other"), true),
        (here(), "idempotency".to_owned(), false),
        (here(), "other".to_owned(), true),
        (here(), here(), false),
        (
            arn("eu-west-1", "idempotency"),
            "idempotency".to_owned(),
            true,
        ),
        (arn("eu-west-1", "idempotency"), here(), true),
    ] {
        let mut deployment = sound();
        let is_arn = table.starts_with("arn:");
        the_table(&mut deployment).arn = Some(if is_arn { table.clone() } else { here() });
        the_table(&mut deployment).name.clone_from(&table);
        let function = &mut deployment.functions[0];
        let own = "arn:aws:lambda:eu-central-1:123456789012:function:worker";
        function.arn = Some(own.to_owned());
        function.table = Some(Some(variable.clone()));
        let found = !check(&deployment, &[]).findings.is_empty();
        assert_eq!(found, is_found, "{table}, {variable}");
    }
}

/// What is reserved is for all mappings of a function together.
#[test]
fn the_queues_of_a_function_share_what_is_reserved() {
    for (bounds, found) in [
        (&[Some(Some(5)), Some(Some(5))][..], 0),
        (&[Some(Some(6)), Some(Some(5))], 1),
        (&[Some(Some(2)), Some(None)], 1),
        (&[None, Some(None)], 1),
        (&[Some(Some(5)), None], 0),
    ] {
        let mut deployment = sound();
        let mappings = bounds.iter().map(|bound| Mapping {
            maximum_concurrency: *bound,
            ..mapping(Source::Queue(queue(false)))
        });
        deployment.functions[0].mappings = mappings.collect();
        let report = check(&deployment, &[]);
        assert_eq!(report.findings.len(), found, "{bounds:?}: {report}");
        let is_fine = report.fine.contains(&"concurrency");
        let is_known = bounds.iter().all(Option::is_some);
        assert_eq!(is_fine, found == 0 && is_known, "{bounds:?}: {report}");
    }
}

#[test]
fn the_bound_of_a_queue_is_one_that_lambda_takes() {
    for (reserved, provisioned, bound, rest) in [
        (1, false, "MaximumConcurrency=2\n", "Reserve 2 or more"),
        (4, false, "MaximumConcurrency=4\n", "at most what is"),
        (19, true, "MaximumPollers=2\n", "Reserve 20 or more"),
        (45, true, "MaximumPollers=4\n", "at most what is"),
    ] {
        let mut deployment = sound();
        deployment.functions[0].reserved_concurrency = Some(reserved);
        deployment.functions[0].mappings = vec![Mapping {
            maximum_concurrency: Some(Some(2_000)),
            provisioned,
            ..mapping(Source::Queue(queue(false)))
        }];
        let report = check(&deployment, &[]);
        let fix = &report.findings[0].fix;
        assert!(fix.contains(bound) && fix.contains(rest), "{fix}");
    }
}

#[test]
fn a_fix_is_one_that_aws_takes_and_changes_nothing_else() {
    let topic: fn(&mut Deployment) = |it| {
        it.functions[0].mappings = vec![Mapping {
            reports_item_failures: Some(false),
            ..mapping(Source::Other("topic".to_owned()))
        }];
    };
    let of = |id: &str| PLANTS.iter().find(|(of, _)| *of == id).unwrap().1;
    for (plant, words) in [
        (of("ttl-off"), &["# an hour after the last change"][..]),
        (
            of("ttl-attribute"),
            &[
                "'Enabled=false,AttributeName=ttl'\n",
                "'Enabled=true,AttributeName=expiration'      # an hour after",
            ],
        ),
        (of("async-destination"), &[" update-function-event-"]),
        // Its command would be refused.
        (topic, &["in provisioned mode", "--ignore item-failures"]),
    ] {
        let mut deployment = sound();
        plant(&mut deployment);
        let report = check(&deployment, &[]);
        let fix = &report.findings[0].fix;
        assert!(words.iter().all(|words| fix.contains(words)), "{fix}");
        let is_topic = words.contains(&"--ignore item-failures");
        assert_eq!(!fix.contains("aws "), is_topic, "{fix}");
    }
}

#[test]
fn a_stream_is_compared_with_a_failure_retention_that_is_given() {
    for (given, found) in [
        (None, 0),
        (Some(DAY), 1),
        (Some(DAY + Duration::from_mins(1)), 0),
    ] {
        let mut deployment = sound();
        deployment.settings.failure_retention = given;
        let report = check(&deployment, &[]);
        let expected = vec!["failure-retention"; found];
        assert_eq!(ids(&report), expected, "{given:?}: {report}");
    }
    // Records whose age isn't bounded are retried until the stream forgets them.
    for (retention, found) in [
        (Some(DAY), 1),
        (Some(Duration::from_hours(23)), 0),
        (None, 0),
    ] {
        let mut deployment = sound();
        deployment.settings.failure_retention = Some(DAY);
        the_stream(&mut deployment).max_age = Some(None);
        the_stream(&mut deployment).retention = retention;
        let report = check(&deployment, &[]);
        assert_eq!(report.findings.len(), found, "{retention:?}: {report}");
    }
}

/// A message is hidden for two minutes, five times.
#[test]
fn a_queue_is_told_of_a_failure_retention_that_is_no_longer_than_its_receives() {
    for (minutes, found) in [(9, 1), (10, 1), (11, 0)] {
        let mut deployment = sound();
        the_stream(&mut deployment).max_age = Some(Some(Duration::from_mins(1)));
        deployment.settings.failure_retention = Some(Duration::from_mins(minutes));
        let report = check(&deployment, &[]);
        let expected = vec!["failure-retention"; found];
        assert_eq!(ids(&report), expected, "{minutes}: {report}");
        for finding in report.findings {
            assert!(finding.fix.ends_with("11min here"), "{finding:?}");
        }
    }
}

#[test]
fn a_stream_is_told_of_a_retention_that_is_no_longer_than_its_own() {
    for (days, found) in [(55, 0), (56, 1), (57, 1)] {
        let mut deployment = sound();
        the_stream(&mut deployment).retention = Some(DAY * days);
        let report = check(&deployment, &[]);
        assert_eq!(ids(&report), vec!["stream-retention"; found], "{days}");
        let hours = format!("--retention {}h here", days * 24 + 1);
        for finding in report.findings {
            assert!(finding.fix.ends_with(&hours), "{finding:?}");
        }
    }
}

#[test]
fn a_retention_that_is_not_known_is_not_judged_and_one_that_is_assumed_is_said_to_be() {
    let rules = ["async-retention", "retention", "stream-retention"];
    let week = Some(DAY * 7);
    for (own, given, words) in [
        (None, None, None),
        (None, week, Some("kept for 7days, ")),
        (Some(week), Some(DAY * 56), Some("kept for 7days, ")),
        (Some(None), week, Some("kept for 7days, ")),
        (Some(None), None, Some("kept for 7days (assumed), ")),
    ] {
        let mut deployment = sound();
        deployment.functions[0].retention = own;
        deployment.settings.retention = given;
        let report = check(&deployment, &[]);
        let known = rules.map(|rule| report.fine.contains(&rule) || ids(&report).contains(&rule));
        assert_eq!(known, [words.is_some(); 3], "{own:?}, {given:?}: {report}");
        let is_said = |finding: &Finding| words.is_some_and(|words| finding.what.contains(words));
        assert!(report.findings.iter().all(is_said), "{report}");
    }
}

#[test]
fn the_worst_comes_first() {
    let mut deployment = sound();
    the_table(&mut deployment).deletion_protection = Some(false);
    deployment.functions[0].disabled = Some(true);
    let ids = ids(&check(&deployment, &[]));
    assert_eq!(ids, ["kill-switch", "deletion-protection"]);
}

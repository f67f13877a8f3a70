//! Tests of the module above.

use http::header::{CONTENT_TYPE, RETRY_AFTER};

use super::{TYPES, seconds, *};

const ALL: [Problem; 33] = [
    Problem::KeyMissing,
    Problem::KeyEmpty,
    Problem::KeyTooLong,
    Problem::KeyRepeated,
    Problem::KeyParameters,
    Problem::KeyMalformed,
    Problem::KeyNotQuoted,
    Problem::KeyControlCharacter,
    Problem::KeyNotAscii,
    Problem::ScopeMissing,
    Problem::BodyTooLarge,
    Problem::BodyUnreadable,
    Problem::BodyNotJson,
    Problem::CodingNotAccepted,
    Problem::Mismatch,
    Problem::InFlight {
        retry_after: Duration::from_millis(1_001),
    },
    Problem::Interrupted,
    Problem::Exhausted,
    Problem::LeaseLost,
    Problem::OutcomeOmitted { may_be_new: false },
    Problem::TooLate,
    Problem::TimedOut,
    Problem::Overloaded,
    Problem::StoreUnavailable,
    Problem::Unrecorded,
    Problem::ConditionFailed,
    Problem::NotCommitted,
    Problem::OutcomeUnknown,
    Problem::Unreadable,
    Problem::Failed,
    Problem::ResponseBroken,
    Problem::Unprotected,
    Problem::Misconfigured,
];

#[test]
fn each_problem_has_a_section_that_its_type_leads_to() {
    let page = include_str!("../problems.md");
    for problem in ALL {
        let (status, code, ..) = problem.words();
        let section = format!("### {code}\n\n**{status}");
        assert_eq!(page.matches(&section).count(), 1, "{section}");
    }
    assert_eq!(page.matches("\n### ").count(), ALL.len());
}

#[test]
fn no_line_of_the_page_begins_as_an_item_of_a_list() {
    let page = include_str!("../problems.md");
    let begins = |line: &&str| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.len() < line.len() && rest.starts_with(['.', ')'])
    };
    assert_eq!(page.lines().find(begins), None);
}

#[test]
fn the_guide_has_every_problem_under_its_status_and_no_other() {
    let page = include_str!("../../../docs/sources/http-answers.md");
    let (_, section) = page.split_once("\n## What clients get\n").unwrap();
    let rows = section
        .lines()
        .skip_while(|line| !line.starts_with("| ---") && !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    let mut listed: Vec<(u16, &str, bool)> = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split(" | ").collect();
        let (status, codes) = cells[0].trim_start_matches("| ").split_once(' ').unwrap();
        let status = status.parse().unwrap();
        let comes_again = cells[2].contains("after `Retry-After`");
        let codes = codes.split(", ").map(|code| code.trim_matches('`'));
        listed.extend(codes.map(|code| (status, code, comes_again)));
    }
    let mut exist: Vec<_> = ALL
        .iter()
        .map(|problem| {
            let (status, code, ..) = problem.words();
            (status, code, problem.retry_after().is_some())
        })
        .collect();
    listed.sort_unstable();
    exist.sort_unstable();
    assert_eq!(listed, exist);
}

#[test]
fn no_problem_of_a_key_that_may_have_a_record_says_that_nothing_was_ever_done() {
    let of_the_request = [
        Problem::ScopeMissing,
        Problem::BodyTooLarge,
        Problem::BodyNotJson,
    ];
    for problem in ALL {
        let (_, code, _, detail) = problem.words();
        let says_so = detail.contains("Nothing was done.");
        assert_eq!(says_so, of_the_request.contains(&problem), "{code}");
    }
}

#[test]
fn the_page_promises_retry_after_where_it_is_sent() {
    let page = include_str!("../problems.md");
    for problem in ALL {
        let sections: Vec<&str> = page.split("\n### ").collect();
        let section = sections
            .iter()
            .find(|s| s.starts_with(&format!("{}\n", problem.code())));
        let promised = section.unwrap().contains("**, with `Retry-After`");
        let sent = problem
            .details(None)
            .to_response()
            .headers()
            .contains_key(RETRY_AFTER);
        assert_eq!(promised, sent, "{}", problem.code());
    }
}

/// A client may repeat a 409 or a 5xx, unless it is told not to.
#[test]
fn a_conflict_and_an_error_say_that_a_retry_helps_or_that_it_does_not() {
    for problem in ALL {
        let (status, code, ..) = problem.words();
        let is_repeated = status == 409 || status >= 500;
        let is_last = is_repeated && problem.retry_after().is_none();
        assert_eq!(problem.status().is_some(), is_last, "{code}");
    }
}

#[test]
fn a_problem_is_a_complete_document() {
    let response = Problem::Mismatch.details(None).to_response();
    assert_eq!(response.status(), 422);
    assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
    let document: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(document["status"], 422);
    assert_eq!(document["code"], "mismatch");
    assert_eq!(document["type"], format!("{TYPES}mismatch"));
    assert!(document["title"].is_string() && document["detail"].is_string());
}

#[test]
fn a_pause_is_rounded_up_to_whole_seconds_and_never_zero() {
    for (pause, expected) in [
        (Duration::ZERO, "1"),
        (Duration::from_millis(1), "1"),
        (Duration::from_secs(1), "1"),
        (Duration::new(1, 1), "2"),
        (Duration::from_millis(29_500), "30"),
    ] {
        assert_eq!(seconds(pause), expected, "{pause:?}");
    }
    assert_eq!(seconds(Duration::MAX), u64::MAX.to_string());
}

#[test]
fn a_client_is_told_when_to_come_again_where_that_helps() {
    let retry_after = Duration::from_secs(7);
    for (problem, expected) in [
        (Problem::InFlight { retry_after }, Some("7")),
        (Problem::LeaseLost, Some("1")),
        (Problem::TooLate, Some("1")),
        (Problem::StoreUnavailable, Some("5")),
        (Problem::OutcomeUnknown, Some("5")),
        (Problem::Unprotected, None),
        (Problem::Mismatch, None),
        (Problem::Failed, None),
    ] {
        let response = problem.details(None).to_response();
        let header = response.headers().get(RETRY_AFTER);
        assert_eq!(
            header.map(|value| value.to_str().unwrap()),
            expected,
            "{problem:?}"
        );
    }
    let lease = retry_after * 2;
    let in_flight = Error::InFlight { retry_after, lease };
    assert_eq!(Problem::of(&in_flight), Problem::InFlight { retry_after });
    let refused = crate::store::transaction::Refusal::new(0, None);
    assert_eq!(
        Problem::of(&Error::Refused(refused)),
        Problem::ConditionFailed
    );
}

#[test]
fn each_error_of_the_engine_has_a_problem_of_its_own() {
    let too_long = KeyError::TokenTooLong { chars: 3, max: 2 };
    let interrupted = Error::Interrupted {
        since: std::time::SystemTime::now(),
    };
    let omitted = Error::OutcomeOmitted {
        reason: Omission::TooLarge,
        completed_at: None,
        handler_ran: false,
    };
    let timeout = || crate::StoreError::Timeout;
    let cases: [(Obstacle, &str); 20] = [
        (Error::Key(KeyError::Missing), "key-missing"),
        (Error::Key(KeyError::EmptyToken), "key-empty"),
        (Error::Key(too_long), "key-too-long"),
        (
            Error::Key(KeyError::ControlCharacter),
            "key-control-character",
        ),
        (Error::Key(KeyError::BlankScope), "scope-missing"),
        (Error::Mismatch, "mismatch"),
        (interrupted, "interrupted"),
        (Error::Exhausted { attempts: 2 }, "exhausted"),
        (Error::LeaseLost, "lease-lost"),
        (omitted, "outcome-omitted"),
        (Error::TooLate, "too-late"),
        (Error::Overloaded, "overloaded"),
        (Error::Store(timeout()), "store-unavailable"),
        (Error::Unrecorded(timeout()), "unrecorded"),
        (Error::NotCommitted(timeout()), "not-committed"),
        (Error::OutcomeUnknown(timeout()), "outcome-unknown"),
        (Error::Unreadable("why".to_owned()), "unreadable"),
        (Error::Failed(crate::Failure::unknown()), "failed"),
        (Error::Key(KeyError::RawIdWithScope), "misconfigured"),
        (
            Error::Write(crate::store::transaction::WriteError::NotSupported),
            "misconfigured",
        ),
    ];
    for (error, code) in cases {
        let problem = Problem::of(&error);
        assert_eq!(problem.code(), code);
    }
}

#[test]
fn a_request_that_may_never_have_run_is_not_said_to_be_processed() {
    let of = |reason| {
        let omitted = Error::OutcomeOmitted {
            reason,
            completed_at: None,
            handler_ran: false,
        };
        Problem::of(&omitted).details(None)
    };
    let (done, forgotten) = (of(Omission::Lost), of(Omission::Forgotten));
    assert!(done.detail.contains("was answered"), "{}", done.detail);
    let detail = &forgotten.detail;
    assert!(detail.contains("may have been processed"), "{detail}");
    assert_eq!((done.code, done.title), (forgotten.code, forgotten.title));
}

#[test]
fn an_absolute_address_is_kept_as_it_is() {
    for url in [
        "https://docs.example.com",
        "https://docs.example.com/retries?v=2",
    ] {
        assert_eq!(documentation(url).unwrap(), url);
    }
}

#[test]
fn what_cannot_be_linked_to_is_refused() {
    for url in [
        "",
        "/retries",
        "docs.example.com",
        "https://a.example/x#y",
        "https://a.example/>;",
        "https://a b",
    ] {
        let error = documentation(url).unwrap_err().to_string();
        assert!(error.contains("give an absolute address"), "{error}");
    }
}

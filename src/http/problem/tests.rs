use http::header::{CONTENT_TYPE, RETRY_AFTER};

use super::super::details::seconds;
use super::*;

const ALL: [Problem; 28] = [
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
    Problem::Mismatch,
    Problem::InFlight {
        retry_after: Duration::from_millis(1_001),
    },
    Problem::Interrupted,
    Problem::Exhausted,
    Problem::LeaseLost,
    Problem::OutcomeOmitted,
    Problem::TooLate,
    Problem::StoreUnavailable,
    Problem::Unrecorded,
    Problem::ConditionFailed,
    Problem::NotCommitted,
    Problem::OutcomeUnknown,
    Problem::Unreadable,
    Problem::Failed,
    Problem::ResponseBroken,
    Problem::Misconfigured,
];

#[test]
fn each_problem_has_a_section_that_its_type_leads_to() {
    let page = include_str!("../problems.md");
    for problem in ALL {
        let words = problem.words();
        let section = format!("### {}\n\n{}", words.code, words.status.as_u16());
        assert_eq!(page.matches(&section).count(), 1, "{section}");
    }
    assert_eq!(page.matches("\n### ").count(), ALL.len());
}

#[test]
fn the_page_promises_retry_after_where_it_is_sent() {
    let page = include_str!("../problems.md");
    for problem in ALL {
        let sections: Vec<&str> = page.split("\n### ").collect();
        let section = sections
            .iter()
            .find(|s| s.starts_with(&format!("{}\n", problem.code())));
        let promised = section.unwrap().contains("with `Retry-After`");
        let sent = problem
            .details(None)
            .to_response()
            .headers()
            .contains_key(RETRY_AFTER);
        assert_eq!(promised, sent, "{}", problem.code());
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
    for (millis, expected) in [
        (0, "1"),
        (1, "1"),
        (1_000, "1"),
        (1_001, "2"),
        (29_500, "30"),
    ] {
        assert_eq!(seconds(Duration::from_millis(millis)), expected, "{millis}");
    }
    assert_eq!(seconds(Duration::MAX), u64::MAX.to_string());
}

#[test]
fn the_handlers_error_comes_back_out() {
    assert_eq!(Problem::of(Error::Handler("mine")), Err("mine"));
    assert_eq!(Problem::of(Error::<&str>::Mismatch), Ok(Problem::Mismatch));
}

#[test]
fn each_error_of_the_engine_has_a_problem_of_its_own() {
    let too_long = KeyError::TokenTooLong { chars: 3, max: 2 };
    let interrupted = Error::Interrupted {
        since: std::time::SystemTime::now(),
    };
    let omitted = Error::OutcomeOmitted {
        reason: crate::Omission::TooLarge,
        completed_at: None,
    };
    let timeout = || crate::StoreError::Timeout;
    let cases: [(Error<()>, &str); 18] = [
        (Error::Key(KeyError::Missing), "key-missing"),
        (Error::Key(KeyError::EmptyToken), "key-empty"),
        (Error::Key(too_long), "key-too-long"),
        (
            Error::Key(KeyError::ControlCharacter),
            "key-control-character",
        ),
        (Error::Mismatch, "mismatch"),
        (interrupted, "interrupted"),
        (Error::Exhausted { attempts: 2 }, "exhausted"),
        (Error::LeaseLost, "lease-lost"),
        (omitted, "outcome-omitted"),
        (Error::TooLate, "too-late"),
        (Error::Store(timeout()), "store-unavailable"),
        (Error::Unrecorded(timeout()), "unrecorded"),
        (Error::NotCommitted(timeout()), "not-committed"),
        (Error::OutcomeUnknown(timeout()), "outcome-unknown"),
        (Error::Unreadable("why".to_owned()), "unreadable"),
        (Error::Failed(crate::Failure::unknown()), "failed"),
        (Error::Key(KeyError::RawIdWithScope), "misconfigured"),
        (
            Error::Write(crate::transaction::WriteError::NotSupported),
            "misconfigured",
        ),
    ];
    for (error, code) in cases {
        let problem = Problem::of(error).unwrap();
        assert_eq!(problem.code(), code);
    }
}

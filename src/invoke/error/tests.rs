//! Tests of the module above.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::*;
use crate::engine::error::Error;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::KeyError;
use crate::protocol::record::{Failure, Omission};
use crate::store::StoreError;
use crate::store::transaction::WriteError;

type Own = InvokeError<&'static str>;

fn store() -> StoreError {
    StoreError::Unavailable("no route".into())
}

/// One error of each word, and further ones.
fn errors() -> Vec<Own> {
    let no_json = std::collections::HashMap::from([((1, 2), 3)]);
    let obstacles: Vec<Error<Infallible>> = vec![
        Error::Failed(Failure::unknown()),
        Error::InFlight {
            retry_after: Duration::from_secs(1),
            lease: Duration::from_secs(1),
        },
        Error::Mismatch,
        Error::Interrupted {
            since: SystemTime::UNIX_EPOCH,
        },
        Error::Exhausted { attempts: 3 },
        Error::LeaseLost,
        Error::TooLate,
        Error::OutcomeOmitted {
            reason: Omission::TooLarge,
            completed_at: None,
            handler_ran: false,
        },
        Error::Unrecorded(store()),
        Error::NotCommitted(store()),
        Error::OutcomeUnknown(store()),
        Error::Overloaded,
        Error::Unreadable("no JSON".to_owned()),
        KeyError::Missing.into(),
        KeyError::EmptyOperation.into(),
        KeyError::RawIdWithScope.into(),
        KeyError::ControlCharacter.into(),
        Fingerprint::of(&no_json).unwrap_err().into(),
        WriteError::NotSupported.into(),
        Error::TimedOut,
        store().into(),
        StoreError::Denied("no permission".into()).into(),
        StoreError::Misconfigured("no table".into()).into(),
    ];
    let own = [
        Own::WrongEvent {
            reason: "no event".to_owned(),
        },
        Own::Undecodable {
            reason: "no JSON".to_owned(),
        },
        Own::NoKey,
        Own::Panicked,
    ];
    obstacles.into_iter().map(Own::from).chain(own).collect()
}

#[test]
fn what_the_runtime_logs_is_the_text_without_a_stored_failure() {
    for error in errors() {
        let logged = format!("{error:?}");
        if error.error_type() == Some("Idempotency.Failed") {
            assert_eq!(logged, r#"Failed(Failure { kind: "unknown", .. })"#);
        } else {
            assert_eq!(logged, error.to_string());
        }
    }
    assert_eq!(format!("{:?}", Own::Handler("no")), r#"Handler("no")"#);
}

#[test]
fn the_module_page_lists_each_word_and_no_other() {
    let page = include_str!("../../invoke.rs");
    let listed: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `Idempotency.")?.split_once('`'))
        .map(|(word, _)| format!("Idempotency.{word}"))
        .collect();
    let mut words: BTreeSet<_> = errors()
        .iter()
        .map(|error| error.error_type().unwrap().to_owned())
        .collect();
    // A refusal is made by a store alone.
    words.insert("Idempotency.ConditionFailed".to_owned());
    assert_eq!(listed, words);
}

#[test]
fn a_caller_gets_the_word_and_the_text() {
    for error in errors() {
        let (word, text) = (error.error_type().unwrap(), error.to_string());
        let diagnostic = Diagnostic::from(error);
        assert_eq!(diagnostic.error_type, word);
        assert_eq!(diagnostic.error_message, text);
    }
}

#[test]
fn the_handlers_error_is_its_own_diagnostic() {
    let own = Diagnostic::from("account closed");
    let error = Own::Handler("account closed");
    assert_eq!(error.error_type(), None);
    assert_eq!(error.to_string(), "the handler failed: account closed");
    assert_eq!(Diagnostic::from(error), own);
}

#[test]
fn the_log_gives_the_text_of_each_error_but_of_the_handlers() {
    for error in errors() {
        let logged = detail(&error);
        assert!(
            error.to_string().contains(&logged) && !logged.is_empty(),
            "{error:?}"
        );
    }
    assert_eq!(detail(&Own::NoKey), Own::NoKey.to_string());
    assert_eq!(detail(&Own::Panicked), Own::Panicked.to_string());
    assert_eq!(detail(&Own::Handler("hunter2")), "");
}

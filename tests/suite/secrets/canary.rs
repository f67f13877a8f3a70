//! A secret that can be recognised in whatever form it comes out, and everything that it could come out of.

use std::fmt::{Debug, Display};

use data_encoding::{BASE64, HEXLOWER};
use lambda_idempotency::Error;
use metrics_util::debugging::{DebuggingRecorder, Snapshotter};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{Capture, Log};

/// A secret: letters that occur nowhere else, and what needs to be quoted, escaped or encoded.
#[derive(Clone, Debug)]
pub struct Canary {
    letters: String,
    rest: String,
}

impl Canary {
    pub fn new(letters: &str, rest: &str) -> Self {
        Self {
            letters: letters.to_owned(),
            rest: rest.to_owned(),
        }
    }

    /// The whole of it, which may stand in a header.
    pub fn text(&self) -> String {
        format!("{}{}", self.letters, self.rest)
    }

    /// Returns the texts to look for: its letters as they are, in base64 (wherever they begin in a group), in hex, and as a list of bytes.
    fn forms(&self) -> Vec<String> {
        let letters = self.letters.as_bytes();
        let in_base64 = |offset: usize| {
            let padded = [&vec![b'x'; offset][..], letters].concat();
            let text = BASE64.encode(&padded);
            // Without the groups that other bytes share.
            text[4..text.len() - 4].to_owned()
        };
        let bytes: Vec<_> = letters.iter().map(ToString::to_string).collect();
        let mut forms = vec![
            self.letters.clone(),
            HEXLOWER.encode(letters),
            bytes.join(", "),
        ];
        forms.extend((0..3).map(in_base64));
        forms
    }

    /// Returns whether a text holds it, in any case of letters.
    pub fn is_in(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.forms()
            .iter()
            .any(|form| text.contains(&form.to_lowercase()))
    }
}

/// Plays a scenario with any secrets, and judges what was seen of each.
pub fn with_secrets<T>(scenario: impl AsyncFn(&Canary) -> Seen, judge: impl Fn(Seen) -> T) {
    let any = ("[a-z]{12}", "[!-~]{0,6}");
    let any = any.prop_map(|(letters, rest)| Canary::new(&letters, &rest));
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 16,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let played = runner.run(&any, move |canary| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        judge(runtime.block_on(scenario(&canary)));
        Ok(())
    });
    played.unwrap();
}

/// All that was logged, counted and shown while it lived.
pub struct Seen {
    canary: Canary,
    log: Log,
    _capture: Capture,
    metrics: Snapshotter,
    _recorder: metrics::LocalRecorderGuard<'static>,
    shown: Vec<String>,
    codes: Vec<&'static str>,
}

impl Seen {
    pub fn of(canary: &Canary) -> Self {
        let (log, capture) = Log::capture();
        let recorder: &'static DebuggingRecorder = Box::leak(Box::default());
        Self {
            canary: canary.clone(),
            log,
            _capture: capture,
            metrics: recorder.snapshotter(),
            _recorder: metrics::set_default_local_recorder(recorder),
            shown: Vec::new(),
            codes: Vec::new(),
        }
    }

    /// A value, as an operator prints it who looks for a mistake.
    pub fn debug(&mut self, value: &impl Debug) {
        self.shown.push(format!("{value:?}"));
        self.shown.push(format!("{value:#?}"));
    }

    pub fn text(&mut self, text: impl Display) {
        self.shown.push(text.to_string());
    }

    /// An error of this crate's, in all its forms. The handler's own is its own.
    pub fn error<E: Debug + Display>(&mut self, error: Error<E>) {
        self.codes.push(error.code());
        match error {
            Error::Handler(_) => {}
            // Its message is handed to the caller on purpose, and to nobody else.
            Error::Failed(failure) => self.debug(&failure),
            error => {
                self.debug(&error);
                self.text(&error);
            }
        }
    }

    /// A run that ends in such an error.
    pub async fn fails<E: Debug + Display>(
        &mut self,
        run: impl Future<Output = Result<impl Debug, Error<E>>>,
    ) {
        self.error(Box::pin(run).await.unwrap_err());
    }

    /// Errors of other kinds.
    pub fn other(&mut self, error: &(impl std::error::Error + 'static)) {
        self.debug(error);
        let mut error: Option<&dyn std::error::Error> = Some(error);
        while let Some(cause) = error {
            self.text(cause);
            error = cause.source();
        }
    }

    /// Nothing of it holds the secret; these events are among what was logged.
    #[track_caller]
    pub fn assert_silent(self, events: &str) -> Vec<&'static str> {
        let logged = self.log.text();
        let missing = events.split(' ').find(|event| !logged.contains(*event));
        assert_eq!(missing, None, "{logged}");
        let leak = logged.lines().find(|line| self.canary.is_in(line));
        assert_eq!(leak, None, "in the log");
        for (key, ..) in self.metrics.snapshot().into_vec() {
            assert!(!self.canary.is_in(&format!("{:?}", key.key())), "{key:?}");
        }
        for text in &self.shown {
            assert!(!self.canary.is_in(text), "{text}");
        }
        self.codes
    }
}

#[test]
fn a_canary_is_found_in_each_of_its_forms() {
    let canary = Canary::new("abcdefghijkl", "\"7");
    let bytes = |before: &str| format!("{before}{}", canary.text()).into_bytes();
    for before in ["", "1", "12", "{\"a\":\"", "123456"] {
        let bytes = bytes(before);
        for text in [
            String::from_utf8(bytes.clone()).unwrap(),
            format!("{bytes:?}"),
            BASE64.encode(&bytes),
            HEXLOWER.encode(&bytes),
            HEXLOWER.encode(&bytes).to_uppercase(),
            format!("{:?}", String::from_utf8_lossy(&bytes)),
        ] {
            assert!(canary.is_in(&text), "{text}");
        }
    }
    assert!(!canary.is_in("abcdefghijk"));
}

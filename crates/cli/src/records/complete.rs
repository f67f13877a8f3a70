//! `complete`: stores a success, so that duplicates get it and nothing runs again.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Response, StatusCode};
use lambda_idempotency::EpochMillis;
use lambda_idempotency::http::stored_outcome;
use lambda_idempotency::protocol::record::{Record, Status, StoredOutcome};
use serde_json::value::RawValue;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::files;
use crate::records::operate::Ending;
use crate::records::order::{OrderArgs, give, not_final};
use crate::time;

/// The most bytes that an outcome may have in the record, as the engine's `inline_limit` has it at
/// most: an item takes 400 KB.
const MOST_BYTES: usize = 350 * 1_024;

/// The arguments of `complete`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The record, and why.
    #[command(flatten)]
    pub order: OrderArgs,
    /// The outcome that duplicates get.
    #[command(flatten)]
    pub outcome: OutcomeArgs,
    /// The time for which the outcome is kept, at least.
    #[arg(long, default_value = "1day", value_parser = time::duration, value_name = "DURATION")]
    pub keep: Duration,
}

/// The outcome that duplicates get: JSON, as the handler returns it, or an HTTP response.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The outcome")]
#[group(required = true, multiple = true)]
pub struct OutcomeArgs {
    /// The handler's outcome, as JSON: `null` where it returns nothing.
    #[arg(long, alias = "result", allow_negative_numbers = true, conflicts_with_all = ["outcome_file", "status", "header", "body_file"], value_name = "JSON")]
    pub outcome: Option<String>,
    /// The same, from a file.
    #[arg(long, conflicts_with_all = ["status", "header", "body_file"], value_name = "FILE")]
    pub outcome_file: Option<PathBuf>,
    /// The status of an HTTP response.
    #[arg(long, value_name = "CODE", value_parser = status)]
    pub status: Option<StatusCode>,
    /// A header of it; repeat it for more.
    #[arg(long, requires = "status", value_name = "NAME: VALUE", value_parser = header)]
    pub header: Vec<(HeaderName, HeaderValue)>,
    /// The body of it.
    #[arg(long, requires = "status", value_name = "FILE")]
    pub body_file: Option<PathBuf>,
}

fn status(text: &str) -> Result<StatusCode, String> {
    let words = || "a final status has three digits, 200 to 599".to_owned();
    let status: StatusCode = text.parse().map_err(|_| words())?;
    if (200..600).contains(&status.as_u16()) {
        Ok(status)
    } else {
        Err(words())
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or("write a header as `name: value`")?;
    let name = name
        .trim()
        .parse()
        .map_err(|_| format!("`{}` is no header name", name.trim()))?;
    let value = value
        .trim()
        .parse()
        .map_err(|_| "the value holds what no header may".to_owned())?;
    Ok((name, value))
}

impl OutcomeArgs {
    /// The text that the record stores.
    fn text(&self) -> Result<String, Failure> {
        let text = match (&self.outcome, &self.outcome_file, self.status) {
            (Some(text), ..) => json(text)?,
            (_, Some(path), _) => json(&files::text(path)?)?,
            (.., Some(status)) => self.response(status)?,
            _ => {
                return Err(Failure::usage(
                    "say what duplicates get: --outcome JSON, or --status CODE",
                ));
            }
        };
        if text.len() > MOST_BYTES {
            return Err(Failure::usage(format!(
                "the outcome has {} bytes, and a record takes {MOST_BYTES}: store a reference to it",
                text.len()
            )));
        }
        Ok(text)
    }

    fn response(&self, status: StatusCode) -> Result<String, Failure> {
        let body = match &self.body_file {
            Some(path) => files::bytes(path)?,
            None => Vec::new(),
        };
        if !body.is_empty() && matches!(status.as_u16(), 204 | 205 | 304) {
            return Err(Failure::usage(format!(
                "a response with the status {status} has no body: leave out --body-file, or give another --status"
            )));
        }
        let mut response = Response::new(body);
        *response.status_mut() = status;
        for (name, value) in &self.header {
            response.headers_mut().append(name.clone(), value.clone());
        }
        Ok(stored_outcome(&response))
    }
}

/// The text of a JSON value, byte for byte: numbers stay as they are written.
pub(crate) fn json(text: &str) -> Result<String, Failure> {
    let value: &RawValue = serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!(
            "the outcome is no JSON ({error}): quote a text, as in '\"receipt-17\"'"
        ))
    })?;
    Ok(value.get().to_owned())
}

/// Stores a success. Right where the effect happened and its outcome is known.
///
/// # Errors
///
/// When the record is final, is live, or moved; when the outcome is no JSON.
pub async fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let text = args.outcome.text()?;
    let ending = |_: &Record, now: EpochMillis| Ending::Final {
        status: Status::Completed,
        outcome: StoredOutcome::Inline(text),
        expiration: (now + args.keep).ceil_seconds(),
    };
    give(&args.order, "complete", context, ending, not_final).await
}

//! Decides whether and when a request is sent again. Pure, but for the clock.

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::Instant;
use tower::BoxError;

use crate::key::{IdempotencyKey, Unkeyed};

/// The header of the key, as the IETF's draft names it.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The headers by which servers say that an answer is an earlier one: `lambda-idempotency` and Stripe,
/// and others.
const REPLAYED: [&str; 2] = ["idempotent-replayed", "idempotency-replayed"];

/// The header by which `lambda-idempotency` says that no record protects a request (`unprotected`), that its
/// outcome was not recorded (`unrecorded`), or that no retry helps (`final`).
const STATUS: HeaderName = HeaderName::from_static("idempotency-status");

/// The longest pause where the server names no longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The time without which no further attempt begins, where a request has ten times as much: the answer is
/// worth more.
const LEAST_ATTEMPT: Duration = Duration::from_secs(1);

/// A time longer than any request, and far from the largest that a clock can hold.
const LONGEST: Duration = Duration::from_hours(24);

/// The rules by which a request is sent again.
///
/// | the answer | is sent again |
/// |---|---|
/// | none: the connection failed, or the attempt took too long | yes |
/// | 408, 425, 429, 500, 502, 503, 504 | yes |
/// | 408, 500, 502, 503, 504 without `Retry-After`, with `Idempotency-Status: unprotected` or `unrecorded` (nothing keeps it from being done twice) or `final` (no retry helps) | no |
/// | 400 with `Retry-After`: the request broke off | yes |
/// | 409 with `Retry-After`: an attempt with this key is under way | yes |
/// | 409 without `Retry-After` and `Idempotency-Status`, after an attempt that got no answer, or 408, 502, 503 or 504: that attempt may still run | yes |
/// | any other 409: an operator must look, or the request conflicts with another | no |
/// | 422: the key was used with another payload | no |
/// | any other, and any that is a replay: each retry gets it | no |
///
/// Only a request that has a key is sent again, or one that changes nothing (GET, HEAD, OPTIONS, TRACE).
/// The server has to honour the key: `lambda-idempotency` guards a PUT or DELETE only where its layer's
/// `methods` or a route names the method.
///
/// The pauses grow from [`backoff`](Self::backoff) up to 10 seconds, each with a random part, so that
/// clients that failed together don't come together again. None is shorter than `Retry-After` says, in
/// seconds or as a date, which counts from the answer's own `Date`; where less than a second, than a tenth
/// of the request's time and than `attempt_time` would be left, the answer is handed over at once.
#[derive(Clone, Debug)]
#[must_use]
pub struct Policy {
    attempts: u32,
    attempt_time: Duration,
    time: Duration,
    backoff: Duration,
    is_quoted: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: 5,
            attempt_time: Duration::from_secs(30),
            time: Duration::from_mins(2),
            backoff: Duration::from_millis(100),
            is_quoted: false,
        }
    }
}

impl Policy {
    /// Bounds the attempts; at least 1. Default: 5.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Bounds the time of one attempt, up to the head of its answer. Default: 30 seconds, as API Gateway.
    pub fn attempt_time(mut self, time: Duration) -> Self {
        self.attempt_time = time.min(LONGEST);
        self
    }

    /// Bounds the time of all attempts and the pauses between them. Default: 2 minutes.
    pub fn time(mut self, time: Duration) -> Self {
        self.time = time.min(LONGEST);
        self
    }

    /// Sets the first pause where the server names no longer one. Default: 100 milliseconds.
    pub fn backoff(mut self, pause: Duration) -> Self {
        self.backoff = pause.min(LONGEST_PAUSE);
        self
    }

    /// Sends the key in double quotes, as the IETF's draft has it, for servers that insist. A key from
    /// the request's header is sent as it was there.
    pub fn quoted(mut self) -> Self {
        self.is_quoted = true;
        self
    }

    /// Returns the pause after so many attempts; `random` is from 0 to 1.
    fn pause(&self, made: u32, after: Option<Duration>, random: f64) -> Duration {
        let doublings = made.saturating_sub(1).min(16);
        let pause = self.backoff.saturating_mul(1 << doublings);
        let pause = pause.min(LONGEST_PAUSE).mul_f64(0.5 + random / 2.0);
        let part = self.backoff.mul_f64(random);
        after.unwrap_or_default().saturating_add(part).max(pause)
    }

    fn header(&self, key: &IdempotencyKey) -> HeaderValue {
        if !self.is_quoted || key.is_of_header() {
            return key.as_header().clone();
        }
        let quoted = [b"\"", key.as_header().as_bytes(), b"\""].concat();
        HeaderValue::from_bytes(&quoted).unwrap_or_else(|_| key.as_header().clone())
    }
}

/// The facts of a request beside its answer, in the extensions of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// The key that it had; `None` for a request that changes nothing, and for an [`Unkeyed`] one.
    pub key: Option<IdempotencyKey>,
    /// The attempts that were made.
    pub attempts: u32,
    /// The server says that it has done the request before, and that this is the first one's answer.
    pub is_replayed: bool,
}

/// The attempts of one logical request.
#[derive(Debug)]
pub(crate) struct Attempts {
    policy: Policy,
    key: Option<IdempotencyKey>,
    is_repeatable: bool,
    made: u32,
    /// An attempt got no answer, or that of a server between, and may still run.
    may_run: bool,
    end: Instant,
}

impl Attempts {
    /// Begins a request, and gives it a key where it has none and needs one.
    pub(crate) fn of(
        policy: &Policy,
        method: &Method,
        headers: &mut HeaderMap,
        extensions: &Extensions,
    ) -> Self {
        let given = headers.get(IDEMPOTENCY_KEY);
        let given = given.filter(|value| !value.as_bytes().trim_ascii().is_empty());
        let given = given.map(IdempotencyKey::of_header);
        let key = if extensions.get::<Unkeyed>().is_some() || (given.is_none() && method.is_safe())
        {
            None
        } else if given.is_some() {
            given
        } else {
            let key = extensions.get::<IdempotencyKey>().cloned();
            let key = key.unwrap_or_else(IdempotencyKey::random);
            headers.insert(IDEMPOTENCY_KEY, policy.header(&key));
            Some(key)
        };
        Self {
            policy: policy.clone(),
            is_repeatable: key.is_some() || method.is_safe(),
            key,
            made: 0,
            may_run: false,
            end: Instant::now() + policy.time,
        }
    }

    /// Begins an attempt; returns the time that it has.
    pub(crate) fn begin(&mut self) -> Duration {
        self.made += 1;
        let left = self.end.saturating_duration_since(Instant::now());
        left.min(self.policy.attempt_time)
    }

    /// Returns the pause after which the request is sent again; `None` where its answer is the last.
    /// `answer` is `None` where none came.
    pub(crate) fn again(&mut self, answer: Option<(StatusCode, &HeaderMap)>) -> Option<Duration> {
        if !self.is_repeatable || self.made >= self.policy.attempts {
            return None;
        }
        let after = answer.and_then(|(_, headers)| retry_after(headers, SystemTime::now()));
        let status = answer.and_then(|(_, headers)| headers.get(STATUS));
        let is_last = status.is_some_and(|status| {
            ["unprotected", "unrecorded", "final"].contains(&status.to_str().unwrap_or_default())
        });
        let code = answer.map(|(status, _)| status.as_u16());
        let may_repeat = match code {
            None | Some(425 | 429) => true,
            Some(408 | 500 | 502 | 503 | 504) => after.is_some() || !is_last,
            Some(400) => after.is_some(),
            Some(409) => after.is_some() || (self.may_run && !is_last),
            Some(_) => false,
        };
        self.may_run |= matches!(code, None | Some(408 | 502 | 503 | 504));
        if !may_repeat || answer.is_some_and(|(_, headers)| is_replayed(headers)) {
            return None;
        }
        let pause = self.policy.pause(self.made, after, fastrand::f64());
        let left = self.end.saturating_duration_since(Instant::now());
        let Policy {
            attempt_time, time, ..
        } = self.policy;
        let least = answer.map_or(Duration::ZERO, |_| {
            attempt_time.min(time / 10).min(LEAST_ATTEMPT)
        });
        (pause.saturating_add(least) < left).then_some(pause)
    }

    pub(crate) fn delivery(&self, headers: &HeaderMap) -> Delivery {
        Delivery {
            key: self.key.clone(),
            attempts: self.made,
            is_replayed: is_replayed(headers),
        }
    }

    /// Makes the error of a request whose last attempt got no answer.
    pub(crate) fn unanswered(self, cause: Option<BoxError>) -> RequestError {
        RequestError {
            key: self.key,
            attempts: self.made,
            cause,
        }
    }
}

fn is_replayed(headers: &HeaderMap) -> bool {
    let mut values = REPLAYED.iter().filter_map(|name| headers.get(*name));
    values.any(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"true"))
}

/// Reads `Retry-After`: seconds, or a date by the server's clock, which the answer's `Date` shows; `now`
/// stands for one without. A date in the past is no time at all, and a value that can't be read is as if
/// it were not there.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = |name: HeaderName| Some(headers.get(name)?.to_str().ok()?.trim());
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let text = value(RETRY_AFTER)?;
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number has are for ever.
        return Some(text.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let now = value(DATE).and_then(date).unwrap_or(now);
    Some(date(text)?.duration_since(now).unwrap_or_default())
}

/// The last attempt of a request got no answer.
///
/// Where it was sent, it may have had its effect. Send it again with the same [key](Self::key): in a new
/// call, put it into the request's extensions.
#[derive(Debug)]
pub struct RequestError {
    key: Option<IdempotencyKey>,
    attempts: u32,
    cause: Option<BoxError>,
}

impl RequestError {
    /// Returns the key that the request had.
    pub fn key(&self) -> Option<&IdempotencyKey> {
        self.key.as_ref()
    }

    /// Returns how many attempts were made.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the error of the last attempt; `None` where that took too long.
    pub fn into_cause(self) -> Option<BoxError> {
        self.cause
    }
}

impl std::fmt::Display for RequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "attempt {}, the last, got no answer: ", self.attempts)?;
        match &self.cause {
            Some(cause) => write!(f, "{cause}")?,
            None => f.write_str("it took too long")?,
        }
        f.write_str(match &self.key {
            Some(_) => ". The request may have had its effect: send it again with the same key",
            None => "",
        })
    }
}

impl std::error::Error for RequestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref()?.source()
    }
}

#[cfg(test)]
mod tests;

//! Compares this machine's clock with the `Date` of a reply.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use jiff::fmt::rfc2822::DateTimeParser;

/// Keeps how far the clock was ahead when a reply came, in milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<Mutex<Option<i64>>>);

impl Clock {
    pub(crate) fn ahead_millis(&self) -> Option<i64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intercept for Clock {
    fn name(&self) -> &'static str {
        "Clock"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let ahead = date.and_then(ahead_millis);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = ahead;
        Ok(())
    }
}

fn ahead_millis(date: &str) -> Option<i64> {
    let theirs = DateTimeParser::new().parse_timestamp(date).ok()?;
    let own = jiff::Timestamp::try_from(SystemTime::now()).ok()?;
    Some(own.as_millisecond() - theirs.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http_date_is_read() {
        assert!(
            ahead_millis("Sun, 06 Nov 1994 08:49:37 GMT")
                .is_some_and(|ahead| ahead > 1_000_000_000)
        );
        assert_eq!(ahead_millis("yesterday"), None);
    }
}

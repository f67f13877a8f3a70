//! Carries an event as the body of a request: read for the fingerprint, handed on as it was.

use bytes::Bytes;
use lambda_http::Context;

use super::HttpEvent;
use crate::http::{ReadError, RequestBody};

/// Boxed: an event of API Gateway takes kilobytes, and is moved from one future to the next.
pub(super) struct EventBody<E>(Box<(E, Context)>);

impl<E> EventBody<E> {
    pub(super) fn new(event: E, context: Context) -> Self {
        Self(Box::new((event, context)))
    }

    pub(super) fn into_parts(self) -> (E, Context) {
        *self.0
    }
}

impl<E: HttpEvent> RequestBody for EventBody<E> {
    async fn read(self, limit: usize) -> (Result<Bytes, ReadError>, Self) {
        let read = match self.0.0.body() {
            Some(bytes) if bytes.len() > limit => Err(ReadError::TooLarge),
            Some(bytes) => Ok(bytes),
            // It is not the base64 that the event says it is.
            None => Err(ReadError::Failed),
        };
        (read, self)
    }
}

#[cfg(test)]
mod tests {
    use aws_lambda_events::apigw::ApiGatewayV2httpRequest;

    use super::*;

    #[tokio::test]
    async fn a_body_may_be_as_long_as_the_limit() {
        for (limit, fits) in [(4, true), (3, false)] {
            let mut event = ApiGatewayV2httpRequest::default();
            event.body = Some("four".to_owned());
            let context = Context::default();
            let (read, _) = EventBody::new(event, context).read(limit).await;
            assert_eq!(read.is_ok(), fits, "{limit}");
        }
    }
}

//! An event as the body of a request: read for the fingerprint, handed on as it was.

use bytes::Bytes;
use lambda_http::Context;

use super::HttpEvent;
use crate::http::{ReadError, RequestBody};

pub(super) struct EventBody<E> {
    pub(super) event: E,
    pub(super) context: Context,
}

#[derive(Debug, thiserror::Error)]
#[error("the body is not the base64 that the event says it is")]
struct Damaged;

impl<E: HttpEvent> RequestBody for EventBody<E> {
    async fn read(self, limit: usize) -> Result<(Bytes, Self), ReadError> {
        match self.event.body() {
            Some(bytes) if bytes.len() > limit => Err(ReadError::TooLarge),
            Some(bytes) => Ok((bytes, self)),
            None => Err(ReadError::Failed(Damaged.into())),
        }
    }
}

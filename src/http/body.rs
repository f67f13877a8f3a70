//! Reads request bodies for the fingerprint and response bodies for the record, and hands both on
//! intact.

use std::any::Any;
use std::error::Error;
use std::future::Future;
use std::iter::successors;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Full, LengthLimitError};

use crate::store::BoxError;

#[cfg(test)]
mod tests;

/// Reads a request body for the fingerprint, and still gives it to the handler.
///
/// Implemented for `lambda_http::Body` (feature `lambda-http`), which stays the text, binary or
/// empty body that it was, for axum's (feature `axum`), for [`Full`], and for [`UnsyncBoxBody`] and
/// [`BoxBody`]: any other body can be boxed into one of these before the layer, with
/// `tower::ServiceBuilder::map_request`. For a body type of your own:
///
/// ```
/// use bytes::Bytes;
/// use lambda_idempotency::http::{ReadError, RequestBody};
///
/// struct Payload(Vec<u8>);
///
/// impl RequestBody for Payload {
///     async fn read(self, limit: usize) -> (Result<Bytes, ReadError>, Self) {
///         if self.0.len() > limit {
///             return (Err(ReadError::TooLarge), self);
///         }
///         (Ok(Bytes::copy_from_slice(&self.0)), self)
///     }
/// }
/// ```
pub trait RequestBody: Send + Sized + 'static {
    /// Reads all bytes of the body, at most `limit` of them, and gives them with a body that yields
    /// the same.
    ///
    /// Also on an error it returns a body with everything that the original would yield: a handler
    /// that is only [observed](crate::Builder::observe) gets it. It holds at most `limit` bytes and
    /// the piece that exceeded them.
    ///
    /// # Errors
    ///
    /// [`ReadError::TooLarge`] as soon as there are more than `limit` bytes, [`ReadError::Failed`]
    /// where the body broke off.
    fn read(self, limit: usize) -> impl Future<Output = (Result<Bytes, ReadError>, Self)> + Send;
}

#[cfg(feature = "lambda-http")]
impl RequestBody for lambda_http::Body {
    fn read(self, limit: usize) -> impl Future<Output = (Result<Bytes, ReadError>, Self)> + Send {
        let bytes: &[u8] = self.as_ref();
        let read = if bytes.len() > limit {
            Err(ReadError::TooLarge)
        } else {
            Ok(Bytes::copy_from_slice(bytes))
        };
        std::future::ready((read, self))
    }
}

#[cfg(feature = "axum")]
impl RequestBody for axum::body::Body {
    async fn read(self, limit: usize) -> (Result<Bytes, ReadError>, Self) {
        let (read, body) = read_request(self, limit).await;
        (read, Self::new(body))
    }
}

impl RequestBody for Full<Bytes> {
    async fn read(self, limit: usize) -> (Result<Bytes, ReadError>, Self) {
        if self.size_hint().lower() > limit as u64 {
            return (Err(ReadError::TooLarge), self);
        }
        let (read, _) = read(self, limit).await;
        let body = Self::new(read.clone().unwrap_or_default());
        (read, body)
    }
}

impl<E> RequestBody for UnsyncBoxBody<Bytes, E>
where
    E: Into<BoxError> + Send + 'static,
{
    async fn read(self, limit: usize) -> (Result<Bytes, ReadError>, Self) {
        let (read, body) = read_request(self, limit).await;
        (read, Self::new(body))
    }
}

impl<E> RequestBody for BoxBody<Bytes, E>
where
    E: Into<BoxError> + Send + Sync + 'static,
{
    async fn read(self, limit: usize) -> (Result<Bytes, ReadError>, Self) {
        let (read, body) = read_request(self, limit).await;
        (read, Self::new(body))
    }
}

/// Reads the body of a request. One that exceeds the limit of a layer outside is too large, too.
async fn read_request<B>(body: B, limit: usize) -> (Result<Bytes, ReadError>, ResumedBody<B>)
where
    B: Body<Data = Bytes, Error: 'static> + Unpin,
{
    let (read, body) = read(body, limit).await;
    let error = body.next.as_ref().and_then(|next| next.as_ref().err());
    if error.is_some_and(|error| is_limit(error)) {
        return (Err(ReadError::TooLarge), body);
    }
    (read, body)
}

/// Returns whether a body exceeded a limit: one of its error's causes, whose chain may go in a circle, says so.
fn is_limit(error: &dyn Any) -> bool {
    let cause = error.downcast_ref::<BoxError>();
    let cause = cause.map(|error| &**error as &(dyn Error + 'static));
    #[cfg(feature = "axum")]
    let cause = cause.or_else(|| Some(error.downcast_ref::<axum::Error>()?));
    let causes = successors(cause, |cause| (*cause).source());
    causes.take(16).any(<dyn Error>::is::<LengthLimitError>)
}

/// Carries the body of a response: whole, where the layer has read it; else the inner service's
/// own, as it comes.
pub struct ResponseBody<B: Body>(ResumedBody<Pin<Box<B>>>);

impl<B: Body<Data = Bytes>> ResponseBody<B> {
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self::with_trailers(bytes, HeaderMap::new())
    }

    pub(super) fn with_trailers(head: Bytes, trailers: HeaderMap) -> Self {
        let next = (!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers)));
        let rest = None;
        Self(ResumedBody { head, next, rest })
    }

    pub(super) fn passing(body: B) -> Self {
        Self(ResumedBody {
            head: Bytes::new(),
            next: None,
            rest: Some(Box::pin(body)),
        })
    }

    /// Reads a body whole, or as far as the limit allows.
    pub(super) async fn read(body: B, limit: usize) -> (Result<Bytes, ReadError>, Self) {
        let (read, body) = read(Box::pin(body), limit).await;
        (read, Self(body))
    }

    /// Returns the trailers of a body that was read whole.
    pub(super) fn trailers(&self) -> HeaderMap {
        let next = self.0.next.as_ref().and_then(|next| next.as_ref().ok());
        let trailers = next.and_then(Frame::trailers_ref);
        trailers.cloned().unwrap_or_default()
    }
}

debug_fields!([B: Body] ResponseBody<B> {});

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.get_mut().0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Says why a request body could not be read. The reason itself is in the body that is handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is more of it than the limit allows.
    #[error("the request body is larger than the limit{}", see!("body-too-large"))]
    TooLarge,
    /// It broke off.
    #[error("the request body could not be read{}", see!("body-unreadable"))]
    Failed,
}

/// Yields what was read of a body, then what ended the reading, then the rest.
pub(super) struct ResumedBody<B: Body> {
    head: Bytes,
    /// The frame that was one too many, the trailers, or the error.
    next: Option<Result<Frame<Bytes>, B::Error>>,
    /// `None` where the body has ended.
    rest: Option<B>,
}

/// Reads a body whole, or as far as the limit allows.
pub(super) async fn read<B>(body: B, limit: usize) -> (Result<Bytes, ReadError>, ResumedBody<B>)
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut head = Head::default();
    if body.size_hint().lower() > limit as u64 {
        return head.then(Err(ReadError::TooLarge), None, Some(body));
    }
    let mut rest = body;
    loop {
        let frame = match rest.frame().await {
            None => return head.then(Ok(()), None, None),
            Some(Err(error)) => return head.then(Err(ReadError::Failed), Some(Err(error)), None),
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(data) if data.len() > limit - head.len() => {
                let data = Some(Ok(Frame::data(data)));
                return head.then(Err(ReadError::TooLarge), data, Some(rest));
            }
            Ok(data) => head.push(data),
            // Nothing but the end comes after trailers.
            Err(trailers) => return head.then(Ok(()), Some(Ok(trailers)), Some(rest)),
        }
    }
}

/// Gathers the bytes of a body. One in a single piece is not copied.
#[derive(Default)]
struct Head {
    first: Bytes,
    longer: BytesMut,
}

impl Head {
    fn len(&self) -> usize {
        self.first.len() + self.longer.len()
    }

    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
        } else {
            self.longer
                .extend_from_slice(&std::mem::take(&mut self.first));
            self.longer.extend_from_slice(&data);
        }
    }

    fn then<B: Body>(
        self,
        read: Result<(), ReadError>,
        next: Option<Result<Frame<Bytes>, B::Error>>,
        rest: Option<B>,
    ) -> (Result<Bytes, ReadError>, ResumedBody<B>) {
        let head = if self.longer.is_empty() {
            self.first
        } else {
            self.longer.freeze()
        };
        (
            read.map(|()| head.clone()),
            ResumedBody { head, next, rest },
        )
    }
}

/// An error is handed on, and never pinned.
impl<B: Body + Unpin> Unpin for ResumedBody<B> {}

impl<B: Body<Data = Bytes> + Unpin> Body for ResumedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if !this.head.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.head)))));
        }
        match (this.next.take(), &mut this.rest) {
            (Some(next), _) => Poll::Ready(Some(next)),
            (None, Some(rest)) => Pin::new(rest).poll_frame(cx),
            (None, None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_over = self.rest.as_ref().is_none_or(Body::is_end_stream);
        self.head.is_empty() && self.next.is_none() && is_over
    }

    fn size_hint(&self) -> SizeHint {
        let ended = SizeHint::with_exact(0);
        let rest = self.rest.as_ref().map_or(ended, Body::size_hint);
        let (next, upper) = match &self.next {
            // A body that breaks off has no size.
            Some(Err(_)) => return SizeHint::default(),
            // A server that knows the exact size writes a `Content-Length`, and no trailers.
            Some(Ok(frame)) => match frame.data_ref() {
                Some(data) => (data.len(), rest.upper()),
                None => (0, None),
            },
            None => (0, rest.upper()),
        };
        let read = (self.head.len() + next) as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = upper.and_then(|upper| upper.checked_add(read)) {
            hint.set_upper(upper);
        }
        hint
    }
}

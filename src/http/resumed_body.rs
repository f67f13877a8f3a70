//! Reads a body up to a limit, and yields it again from its beginning.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

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
        let next = match &self.next {
            // A body that breaks off has no size.
            Some(Err(_)) => return SizeHint::default(),
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            None => 0,
        };
        let read = (self.head.len() + next) as u64;
        let ended = SizeHint::with_exact(0);
        let rest = self.rest.as_ref().map_or(ended, Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
            hint.set_upper(upper);
        }
        hint
    }
}

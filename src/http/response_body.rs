//! Carries the body of a response: whole where the layer has read it, else the inner service's own.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

/// Carries the body of a response: whole, where the layer has read it; else the inner service's
/// own, as it comes.
pub struct ResponseBody<B>(Inner<B>);

enum Inner<B> {
    /// The trailers come after the bytes.
    Whole(Full<Bytes>, Option<Box<HeaderMap>>),
    /// The body proved too long: the part that was read, then the rest.
    Passing { head: Bytes, rest: Pin<Box<B>> },
}

impl<B> ResponseBody<B> {
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self::with_trailers(bytes, HeaderMap::new())
    }

    pub(super) fn with_trailers(bytes: Bytes, trailers: HeaderMap) -> Self {
        let trailers = (!trailers.is_empty()).then(|| Box::new(trailers));
        Self(Inner::Whole(Full::new(bytes), trailers))
    }

    pub(super) fn passing(body: B) -> Self {
        Self::resumed(Bytes::new(), Box::pin(body))
    }

    pub(super) fn resumed(head: Bytes, rest: Pin<Box<B>>) -> Self {
        Self(Inner::Passing { head, rest })
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Inner::Whole(..) => "ResponseBody(whole)",
            Inner::Passing { .. } => "ResponseBody(passing)",
        })
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match &mut self.get_mut().0 {
            Inner::Whole(body, trailers) => match Pin::new(body).poll_frame(cx) {
                Poll::Ready(None) => {
                    let trailers = trailers.take().map(|trailers| Frame::trailers(*trailers));
                    Poll::Ready(trailers.map(Ok))
                }
                frame => frame.map_err(|never| match never {}),
            },
            Inner::Passing { head, rest } if head.is_empty() => rest.as_mut().poll_frame(cx),
            Inner::Passing { head, .. } => Poll::Ready(Some(Ok(Frame::data(std::mem::take(head))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Whole(body, trailers) => trailers.is_none() && body.is_end_stream(),
            Inner::Passing { head, rest } => head.is_empty() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            // A server that knows the exact size writes a `Content-Length`, and no trailers.
            Inner::Whole(body, Some(_)) => {
                let mut hint = SizeHint::new();
                hint.set_lower(body.size_hint().lower());
                hint
            }
            Inner::Whole(body, None) => body.size_hint(),
            Inner::Passing { head, rest } => {
                let (rest, read) = (rest.size_hint(), head.len() as u64);
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(read));
                if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
                    hint.set_upper(upper);
                }
                hint
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn what_was_read_comes_before_the_rest() {
        let rest = || Box::pin(Full::new(Bytes::from_static(b"cd")));
        let body = ResponseBody::resumed(Bytes::from_static(b"ab"), rest());
        assert_eq!(body.size_hint().exact(), Some(4));
        assert!(!body.is_end_stream());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcd");

        let empty = ResponseBody::passing(Full::new(Bytes::new()));
        assert!(empty.is_end_stream());
        let rest = ResponseBody::passing(Full::new(Bytes::from_static(b"cd")));
        assert!(!rest.is_end_stream());
        let head =
            ResponseBody::resumed(Bytes::from_static(b"ab"), Box::pin(Full::new(Bytes::new())));
        assert!(!head.is_end_stream());
    }

    /// A body that knows its size in part.
    struct Sized(SizeHint);

    impl Body for Sized {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(None)
        }

        fn size_hint(&self) -> SizeHint {
            self.0
        }
    }

    #[test]
    fn the_size_is_that_of_what_was_read_and_of_the_rest_as_far_as_it_is_known() {
        let size = |lower, upper: Option<u64>| {
            let mut hint = SizeHint::new();
            hint.set_lower(lower);
            if let Some(upper) = upper {
                hint.set_upper(upper);
            }
            let body = ResponseBody::resumed(Bytes::from_static(b"ab"), Box::pin(Sized(hint)));
            let whole = body.size_hint();
            (whole.lower(), whole.upper())
        };
        assert_eq!(size(3, Some(5)), (5, Some(7)));
        assert_eq!(size(3, None), (5, None));
        assert_eq!(size(u64::MAX, Some(u64::MAX)), (u64::MAX, None));
    }
}

//! Reads request bodies for the fingerprint, and hands them on intact.

use std::future::Future;

use bytes::Bytes;
use http_body::Body;
use http_body_util::Full;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};

use super::resumed_body::{self, ReadError};
use crate::store::BoxError;

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
    /// With an error, too, it gives a body that yields all that this one would have: a handler that
    /// is only [observed](crate::Builder::observe) gets it. No more than `limit` bytes are held,
    /// and the piece that was one too many.
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
        let (read, body) = resumed_body::read(self, limit).await;
        (read, Self::new(body))
    }
}

impl RequestBody for Full<Bytes> {
    async fn read(self, limit: usize) -> (Result<Bytes, ReadError>, Self) {
        if self.size_hint().lower() > limit as u64 {
            return (Err(ReadError::TooLarge), self);
        }
        let (read, _) = resumed_body::read(self, limit).await;
        let body = Self::new(read.clone().unwrap_or_default());
        (read, body)
    }
}

impl<E> RequestBody for UnsyncBoxBody<Bytes, E>
where
    E: Into<BoxError> + Send + 'static,
{
    async fn read(self, limit: usize) -> (Result<Bytes, ReadError>, Self) {
        let (read, body) = resumed_body::read(self, limit).await;
        (read, Self::new(body))
    }
}

impl<E> RequestBody for BoxBody<Bytes, E>
where
    E: Into<BoxError> + Send + Sync + 'static,
{
    async fn read(self, limit: usize) -> (Result<Bytes, ReadError>, Self) {
        let (read, body) = resumed_body::read(self, limit).await;
        (read, Self::new(body))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http::HeaderMap;
    use http_body::Frame;
    use http_body_util::{BodyExt, StreamBody};
    #[cfg(feature = "lambda-http")]
    use lambda_http::Body as LambdaBody;

    use super::*;

    type Chunk = Result<&'static str, &'static str>;

    /// A body in these pieces, one of which may be an error.
    fn pieces(pieces: Vec<Chunk>) -> UnsyncBoxBody<Bytes, std::io::Error> {
        let frames = pieces.into_iter().map(|piece| match piece {
            Ok(text) => Ok(Frame::data(Bytes::from(text))),
            Err(why) => Err(std::io::Error::other(why)),
        });
        UnsyncBoxBody::new(StreamBody::new(stream::iter(frames)))
    }

    /// All that a body yields, to its end or its error.
    async fn yielded(mut body: UnsyncBoxBody<Bytes, std::io::Error>) -> (Vec<u8>, Option<String>) {
        let mut all = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => all.extend_from_slice(&frame.into_data().unwrap()),
                Err(error) => return (all, Some(error.to_string())),
            }
        }
        (all, None)
    }

    #[tokio::test]
    #[cfg(feature = "lambda-http")]
    async fn a_lambda_body_stays_what_it_was() {
        for body in [
            LambdaBody::Empty,
            LambdaBody::Text("text".to_owned()),
            LambdaBody::Binary(vec![0xff, 0x00]),
        ] {
            let (bytes, back) = body.clone().read(4).await;
            assert_eq!(bytes.unwrap().as_ref(), body.as_ref());
            assert_eq!(back, body);
        }
    }

    #[tokio::test]
    async fn a_boxed_body_yields_its_bytes_and_trailers_again() {
        let mut trailers = HeaderMap::new();
        trailers.insert("checksum", "17".parse().unwrap());
        let sent =
            Full::new(Bytes::from_static(b"abc")).with_trailers(std::future::ready(Some(Ok::<
                _,
                Infallible,
            >(
                trailers.clone(),
            ))));

        let (bytes, back) = UnsyncBoxBody::new(sent).read(3).await;
        assert_eq!(bytes.unwrap(), "abc");
        let whole = back.collect().await.unwrap();
        assert_eq!(whole.trailers(), Some(&trailers));
        assert_eq!(whole.to_bytes(), "abc");
    }

    #[tokio::test]
    async fn one_byte_too_many_is_told_and_the_body_is_handed_on_whole() {
        #[cfg(feature = "lambda-http")]
        {
            let text = LambdaBody::Text("abcd".to_owned());
            assert_eq!(text.clone().read(3).await, (Err(ReadError::TooLarge), text));
        }
        let (read, back) = Full::new(Bytes::from_static(b"abcd")).read(3).await;
        assert_eq!(read, Err(ReadError::TooLarge));
        assert_eq!(back.collect().await.unwrap().to_bytes(), "abcd");
        let (read, back) = BoxBody::new(Full::new(Bytes::from_static(b"abcd")))
            .read(3)
            .await;
        assert_eq!(read, Err(ReadError::TooLarge));
        assert_eq!(back.collect().await.unwrap().to_bytes(), "abcd");

        for sent in [
            vec![Ok("ab"), Ok("c"), Ok("d"), Ok("e")],
            vec![Ok("abcd"), Ok("e")],
        ] {
            let (read, back) = pieces(sent).read(3).await;
            assert_eq!(read, Err(ReadError::TooLarge));
            assert_eq!(yielded(back).await, (b"abcde".to_vec(), None));
        }
        let (read, back) = pieces(vec![Ok("a"), Ok("b"), Ok("c")]).read(3).await;
        assert_eq!(read.unwrap(), "abc");
        assert_eq!(back.size_hint().exact(), Some(3));
        assert_eq!(yielded(back).await, (b"abc".to_vec(), None));
    }

    #[tokio::test]
    async fn what_was_not_read_stays_unread() {
        let endless = stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::from("ab"))));
        let body = UnsyncBoxBody::new(StreamBody::new(endless));
        let (read, mut back) = body.read(3).await;
        assert_eq!(read, Err(ReadError::TooLarge));
        assert_eq!(back.size_hint().lower(), 4, "the limit, and one piece");
        assert!(!back.is_end_stream());
        assert!(back.frame().await.is_some());
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_breaks_off_for_the_handler_too() {
        let (read, back) = pieces(vec![Ok("ab"), Err("cut")]).read(9).await;
        assert_eq!(read, Err(ReadError::Failed));
        assert!(!back.is_end_stream());
        assert_eq!(
            yielded(back).await,
            (b"ab".to_vec(), Some("cut".to_owned()))
        );
    }
}

//! Request bodies: read whole, handed on intact.

use std::future::{Future, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};

use crate::error::BoxError;

/// A request body that can be read whole for the fingerprint and still be given to the handler.
///
/// Implemented for `lambda_http::Body`, which stays the text, binary or empty body that it was, for axum's (feature `axum`), for
/// [`Full`], and for [`UnsyncBoxBody`] and [`BoxBody`]: any other body can be boxed into one of these before the layer, with
/// `tower::ServiceBuilder::map_request`. For a body type of your own:
///
/// ```
/// use bytes::Bytes;
/// use lambda_idempotency::http::{ReadError, RequestBody};
///
/// struct Payload(Vec<u8>);
///
/// impl RequestBody for Payload {
///     async fn read(self, limit: usize) -> Result<(Bytes, Self), ReadError> {
///         if self.0.len() > limit {
///             return Err(ReadError::TooLarge);
///         }
///         Ok((Bytes::copy_from_slice(&self.0), self))
///     }
/// }
/// ```
pub trait RequestBody: Send + Sized + 'static {
    /// All bytes of the body, at most `limit` of them, and a body that yields the same.
    ///
    /// # Errors
    ///
    /// [`ReadError::TooLarge`] as soon as there are more than `limit` bytes.
    fn read(self, limit: usize) -> impl Future<Output = Result<(Bytes, Self), ReadError>> + Send;
}

/// Why a request body could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is more of it than the limit allows.
    #[error("the request body is larger than the limit")]
    TooLarge,
    /// It broke off.
    #[error("the request body could not be read: {0}")]
    Failed(#[source] BoxError),
}

impl RequestBody for lambda_http::Body {
    fn read(self, limit: usize) -> impl Future<Output = Result<(Bytes, Self), ReadError>> + Send {
        let bytes: &[u8] = self.as_ref();
        ready(if bytes.len() > limit {
            Err(ReadError::TooLarge)
        } else {
            Ok((Bytes::copy_from_slice(bytes), self))
        })
    }
}

#[cfg(feature = "axum")]
impl RequestBody for axum::body::Body {
    async fn read(self, limit: usize) -> Result<(Bytes, Self), ReadError> {
        let (bytes, trailers) = collect(self, limit).await?;
        Ok((
            bytes.clone(),
            Self::new(again::<axum::Error>(bytes, trailers)),
        ))
    }
}

impl RequestBody for Full<Bytes> {
    async fn read(self, limit: usize) -> Result<(Bytes, Self), ReadError> {
        let (bytes, _) = collect(self, limit).await?;
        Ok((bytes.clone(), Self::new(bytes)))
    }
}

impl<E> RequestBody for UnsyncBoxBody<Bytes, E>
where
    E: Into<BoxError> + Send + 'static,
{
    async fn read(self, limit: usize) -> Result<(Bytes, Self), ReadError> {
        let (bytes, trailers) = collect(self, limit).await?;
        Ok((bytes.clone(), Self::new(again(bytes, trailers))))
    }
}

impl<E> RequestBody for BoxBody<Bytes, E>
where
    E: Into<BoxError> + Send + Sync + 'static,
{
    async fn read(self, limit: usize) -> Result<(Bytes, Self), ReadError> {
        let (bytes, trailers) = collect(self, limit).await?;
        Ok((bytes.clone(), Self::new(again(bytes, trailers))))
    }
}

fn again<E>(bytes: Bytes, trailers: Option<HeaderMap>) -> impl Body<Data = Bytes, Error = E> {
    let whole = Full::new(bytes).map_err(|never| match never {});
    whole.with_trailers(ready(trailers.map(Ok)))
}

async fn collect<B>(body: B, limit: usize) -> Result<(Bytes, Option<HeaderMap>), ReadError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    match Limited::new(body, limit).collect().await {
        Ok(whole) => {
            let trailers = whole.trailers().cloned();
            Ok((whole.to_bytes(), trailers))
        }
        Err(error) if error.is::<LengthLimitError>() => Err(ReadError::TooLarge),
        Err(error) => Err(ReadError::Failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::StreamBody;
    use lambda_http::Body as LambdaBody;

    use super::*;

    #[tokio::test]
    async fn a_lambda_body_stays_what_it_was() {
        for body in [
            LambdaBody::Empty,
            LambdaBody::Text("text".to_owned()),
            LambdaBody::Binary(vec![0xff, 0x00]),
        ] {
            let (bytes, back) = body.clone().read(4).await.unwrap();
            assert_eq!(bytes.as_ref(), body.as_ref());
            assert_eq!(back, body);
        }
    }

    #[tokio::test]
    async fn a_boxed_body_yields_its_bytes_and_trailers_again() {
        let mut trailers = HeaderMap::new();
        trailers.insert("checksum", "17".parse().unwrap());
        let sent =
            Full::new(Bytes::from_static(b"abc"))
                .with_trailers(ready(Some(Ok::<_, Infallible>(trailers.clone()))));

        let (bytes, back) = UnsyncBoxBody::new(sent).read(3).await.unwrap();
        assert_eq!(bytes, "abc");
        let whole = back.collect().await.unwrap();
        assert_eq!(whole.trailers(), Some(&trailers));
        assert_eq!(whole.to_bytes(), "abc");
    }

    #[tokio::test]
    async fn one_byte_too_many_is_refused() {
        let bytes = || Bytes::from_static(b"abcd");
        let text = LambdaBody::Text("abcd".to_owned());
        assert!(matches!(text.read(3).await, Err(ReadError::TooLarge)));
        assert!(matches!(
            Full::new(bytes()).read(3).await,
            Err(ReadError::TooLarge)
        ));
        let boxed = BoxBody::new(Full::new(bytes()));
        assert!(matches!(boxed.read(3).await, Err(ReadError::TooLarge)));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_an_error() {
        let broken = futures_util::stream::iter([Err(std::io::Error::other("cut"))]);
        let body = UnsyncBoxBody::new(StreamBody::new(broken));
        assert!(matches!(body.read(9).await, Err(ReadError::Failed(_))));
    }
}

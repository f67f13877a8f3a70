//! Tests of the module above.

use std::convert::Infallible;

use futures_util::stream;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt, Limited, StreamBody};

use super::*;

#[cfg(feature = "lambda-http")]
use lambda_http::Body as LambdaBody;

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
    let sent = Full::new(Bytes::from_static(b"abc")).with_trailers(std::future::ready(Some(Ok::<
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

#[derive(Debug, thiserror::Error)]
#[error("the body could not be read")]
struct Wrapped(#[source] BoxError);

#[tokio::test]
async fn a_limit_is_seen_among_the_first_sixteen_errors() {
    for (around, is_seen) in [(0, true), (15, true), (16, false)] {
        let limited = Limited::new(Full::new(Bytes::from_static(b"ab")), 1);
        let mut error = limited.collect().await.unwrap_err();
        for _ in 0..around {
            error = Box::new(Wrapped(error));
        }
        assert_eq!(is_limit(&error), is_seen, "{around}");
    }
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

/// A body of which this was read.
fn resumed<B: Body>(head: &'static str, rest: B) -> ResponseBody<B> {
    ResponseBody(ResumedBody {
        head: head.into(),
        next: None,
        rest: Some(Box::pin(rest)),
    })
}

#[tokio::test]
async fn what_was_read_comes_before_the_rest() {
    let body = resumed("ab", Full::new(Bytes::from_static(b"cd")));
    assert_eq!(body.size_hint().exact(), Some(4));
    assert!(!body.is_end_stream());
    assert_eq!(body.collect().await.unwrap().to_bytes(), "abcd");

    let empty = ResponseBody::passing(Full::new(Bytes::new()));
    assert!(empty.is_end_stream());
    let rest = ResponseBody::passing(Full::new(Bytes::from_static(b"cd")));
    assert!(!rest.is_end_stream());
    assert!(!resumed("ab", Full::new(Bytes::new())).is_end_stream());
}

#[test]
fn a_body_before_trailers_tells_its_length_as_the_least_and_not_as_the_exact_one() {
    let trailers = HeaderMap::from_iter([(http::header::ETAG, "a".parse().unwrap())]);
    let body = ResponseBody::<Full<Bytes>>::with_trailers("abc".into(), trailers);
    let size = body.size_hint();
    assert_eq!((size.lower(), size.upper()), (3, None));
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
        let whole = resumed("ab", Sized(hint)).size_hint();
        (whole.lower(), whole.upper())
    };
    assert_eq!(size(3, Some(5)), (5, Some(7)));
    assert_eq!(size(3, None), (5, None));
    assert_eq!(size(u64::MAX, Some(u64::MAX)), (u64::MAX, None));
}

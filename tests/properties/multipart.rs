//! A form is the same request whatever its boundary, and another one as soon as a part differs; any other body is told apart by its
//! bytes.

use std::convert::Infallible;

use arbitrary::{Arbitrary, Unstructured};
use http::header::HeaderValue;
use http::{Request, Response};
use lambda_http::Body;
use lambda_idempotency::Idempotency;
use lambda_idempotency::http::IdempotencyLayer;
use tower::{Layer, ServiceExt, service_fn};

use super::{block_on, empty};

/// The characters that boundaries are made of.
const CHARACTERS: &[u8] = b"-----=_azAZ09'()+,./:?";

#[derive(Arbitrary, Clone, Debug, PartialEq, Eq)]
enum Piece {
    Bytes(Vec<u8>),
    LineEnd,
    Dashes,
    /// A part of what looks like a delimiter line.
    Boundary(bool, u8),
}

#[derive(Arbitrary, Debug)]
struct Case {
    boundaries: [Vec<u8>; 2],
    one: Vec<Vec<Piece>>,
    other: Vec<Vec<Piece>>,
}

/// Raw: the boundary up to the first line feed, then the body. Made: two forms, with two boundaries.
///
/// # Panics
///
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    block_on(of_bytes(data));
    if let Ok(case) = Case::arbitrary_take_rest(Unstructured::new(data)) {
        block_on(of_forms(&case));
    }
}

async fn of_bytes(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let boundary = lines.next().unwrap_or_default();
    let body = lines.next().unwrap_or_default();
    let once = empty();
    let Some(first) = send(&once, boundary, body).await else {
        return;
    };
    assert_eq!(first, Answer::Ran);
    let retry = send(&once, boundary, body).await;
    assert_eq!(retry, Some(Answer::Replayed), "the same bytes");
    let mut longer = body.to_vec();
    longer.push(b'x');
    let other = send(&once, boundary, &longer).await;
    assert_eq!(other, Some(Answer::Refused), "one byte more");
}

async fn of_forms(case: &Case) {
    let [mine, theirs] = case.boundaries.each_ref().map(|boundary| named(boundary));
    let boundaries = [mine.as_slice(), theirs.as_slice()];
    let parts = |parts: &[Vec<Piece>]| -> Vec<Vec<u8>> {
        parts
            .iter()
            .take(20)
            .map(|part| bytes(part, boundaries))
            .collect()
    };
    let (first, second) = (parts(&case.one), parts(&case.other));
    let is_clear = |part: &Vec<u8>| {
        // With the line ends around it, since a delimiter may begin or end in them.
        let part = [b"\r\n", part.as_slice(), b"\r\n"].concat();
        boundaries
            .iter()
            .all(|boundary| !holds(&part, &[b"--", *boundary].concat()))
    };
    if !first.iter().chain(&second).all(is_clear) {
        return;
    }
    let once = empty();
    let sent = send(&once, &mine, &form(&mine, &first)).await;
    assert_eq!(
        sent,
        Some(Answer::Ran),
        "a boundary of its characters is a header"
    );
    let retry = send(&once, &theirs, &form(&theirs, &first)).await;
    assert_eq!(retry, Some(Answer::Replayed), "{case:?}");
    if first != second {
        let another = send(&once, &theirs, &form(&theirs, &second)).await;
        assert_eq!(another, Some(Answer::Refused), "{case:?}");
    }
}

fn named(bytes: &[u8]) -> Vec<u8> {
    let characters = bytes.iter().take(69);
    let character = |byte: &u8| CHARACTERS[usize::from(*byte) % CHARACTERS.len()];
    std::iter::once(b'b')
        .chain(characters.map(character))
        .collect()
}

fn bytes(pieces: &[Piece], boundaries: [&[u8]; 2]) -> Vec<u8> {
    let piece = |piece: &Piece| match piece {
        Piece::Bytes(bytes) => bytes.clone(),
        Piece::LineEnd => b"\r\n".to_vec(),
        Piece::Dashes => b"--".to_vec(),
        Piece::Boundary(which, length) => {
            let boundary = boundaries[usize::from(*which)];
            boundary[..usize::from(*length).min(boundary.len())].to_vec()
        }
    };
    pieces.iter().flat_map(piece).collect()
}

fn form(boundary: &[u8], parts: &[Vec<u8>]) -> Vec<u8> {
    let part = |part: &Vec<u8>| [b"--", boundary, b"\r\n", part, b"\r\n"].concat();
    let mut form: Vec<u8> = parts.iter().flat_map(part).collect();
    form.extend([b"--", boundary, b"--\r\n"].concat());
    form
}

fn holds(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|at| at == what)
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Ran,
    Replayed,
    Refused,
}

/// `None` for a boundary that no header can hold.
async fn send(once: &Idempotency, boundary: &[u8], body: &[u8]) -> Option<Answer> {
    let content_type = [b"multipart/form-data; boundary=\"", boundary, b"\""].concat();
    let content_type = HeaderValue::from_bytes(&content_type).ok()?;
    let request = Request::post("/forms")
        .header("idempotency-key", "k-1")
        .header("content-type", content_type)
        .body(Body::Binary(body.to_vec()))
        .expect("a request");
    let handler = |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::Empty)) };
    let service = IdempotencyLayer::unscoped(once.clone()).layer(service_fn(handler));
    let answer = service.oneshot(request).await.expect("an answer");
    Some(match answer.status().as_u16() {
        200 if answer.headers().contains_key("idempotent-replayed") => Answer::Replayed,
        200 => Answer::Ran,
        422 => Answer::Refused,
        other => panic!("{other}"),
    })
}

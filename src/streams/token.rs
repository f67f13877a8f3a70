//! Makes the key of a record of the name of its stream and its place in it. Pure.

use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::DEFAULT_MAX_TOKEN_CHARS;

/// Joins the name of a stream, in which no `#` occurs, and the id of a record in it. Of names that
/// are too long for a token, it is a hash of both.
pub(crate) fn token(stream: &str, id: &str) -> String {
    let joined = format!("{stream}#{id}");
    if joined.chars().count() <= DEFAULT_MAX_TOKEN_CHARS && !stream.contains('#') {
        return joined;
    }
    let parts = [stream, id].map(|part| Fingerprint::bytes(part.as_bytes()));
    Fingerprint::combine(&parts).as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "arn:aws:kinesis:eu-central-1:123456789012:stream/movements";

    #[test]
    fn a_token_names_stream_and_record() {
        let expected = format!("{STREAM}#shardId-000:7");
        assert_eq!(token(STREAM, "shardId-000:7"), expected);
    }

    #[test]
    fn no_two_pairs_make_one_token() {
        assert_ne!(token("a", "b#c"), token("a#b", "c"));
        let long = "t".repeat(300);
        assert_eq!(token(&long, "1").len(), 64);
        assert_ne!(token(&long, "1"), token(&long, "2"));
    }
}

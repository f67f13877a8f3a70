//! Holds what the sources of the feature `streams` share: keys, data in Base64, headers, times,
//! replies.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use data_encoding::BASE64;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::batch::BodyError;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::DEFAULT_MAX_TOKEN_CHARS;

/// The bytes of a record, or why there are none. A text that isn't Base64 is an error of its record
/// alone, not of the batch.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Data(pub(crate) Result<Vec<u8>, BodyError>);

impl Data {
    /// Decodes a text; `None` is a record without data.
    pub(crate) fn of(text: Option<&str>) -> Self {
        const NOT_BASE64: BodyError = BodyError::new("the data is not Base64");
        let text = text.ok_or(BodyError::MISSING);
        Self(text.and_then(|text| BASE64.decode(text.as_bytes()).map_err(|_| NOT_BASE64)))
    }

    /// Holds bytes that were decoded.
    pub(crate) fn decoded(bytes: &[u8]) -> Self {
        Self(Ok(bytes.to_vec()))
    }

    pub(crate) fn bytes(&self) -> Result<&[u8], BodyError> {
        self.0.as_deref().map_err(|error| *error)
    }
}

impl Default for Data {
    fn default() -> Self {
        Self(Err(BodyError::MISSING))
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<String>::deserialize(deserializer).map(|text| Self::of(text.as_deref()))
    }
}

/// The reply of a function whose event source mapping has `ReportBatchItemFailures`. An empty list
/// says that the whole batch is done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ItemFailures<Id = String> {
    /// The ids by which the source knows the records that must be delivered again.
    pub batch_item_failures: Vec<Id>,
}

/// Writes `{"batchItemFailures": [{"itemIdentifier": "7"}]}`.
impl<Id: Serialize> Serialize for ItemFailures<Id> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let item = |id| BTreeMap::from([("itemIdentifier", id)]);
        let items: Vec<_> = self.batch_item_failures.iter().map(item).collect();
        BTreeMap::from([("batchItemFailures", items)]).serialize(serializer)
    }
}

impl ItemFailures {
    /// Names the lowest of these sequence numbers: Lambda goes back to it, and delivers it and all
    /// after it again.
    pub(crate) fn lowest(failed: Vec<String>) -> Self {
        let lowest = failed
            .into_iter()
            .min_by(|one, other| by_number(one, other));
        Self::of(lowest)
    }
}

impl<Id> ItemFailures<Id> {
    /// Names each of these ids.
    pub(crate) fn of(failed: impl IntoIterator<Item = Id>) -> Self {
        Self {
            batch_item_failures: failed.into_iter().collect(),
        }
    }
}

/// Compares decimal numbers of any length.
fn by_number(one: &str, other: &str) -> std::cmp::Ordering {
    let significant = |text: &str| text.trim_start_matches('0').to_owned();
    let (one, other) = (significant(one), significant(other));
    one.len().cmp(&other.len()).then_with(|| one.cmp(&other))
}

/// The bytes of a header. Java's bytes are signed, so 200 and -56 are the same byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderBytes(Option<Vec<u8>>);

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Numbers(Vec<i64>),
    Other(IgnoredAny),
}

impl HeaderBytes {
    /// Returns the bytes; `None` where the value is null or is no list of bytes.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    /// Returns the value as text, or in Base64 where it is not UTF-8.
    pub(crate) fn text(&self) -> Option<String> {
        self.bytes().map(text)
    }
}

impl<'de> Deserialize<'de> for HeaderBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = match Written::deserialize(deserializer)? {
            Written::Numbers(numbers) => numbers.into_iter().map(byte).collect(),
            Written::Other(_) => None,
        };
        Ok(Self(bytes))
    }
}

fn byte(number: i64) -> Option<u8> {
    let signed = || i8::try_from(number).map(i8::cast_unsigned);
    u8::try_from(number).or_else(|_| signed()).ok()
}

/// Returns bytes as text, or in Base64 where they are not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => BASE64.encode(bytes),
    }
}

/// Checks the service that a record names. A record that names none passes: its id is still
/// required.
pub(crate) fn check_service(found: Option<&str>, expected: &str) -> Result<(), String> {
    match found {
        Some(found) if found != expected => Err(format!(
            "this is an event of {found}, not of {expected}: connect the function to a source of {expected}, or use the layer for {found}"
        )),
        _ => Ok(()),
    }
}

/// The event of a shard's records.
#[derive(Deserialize)]
pub(crate) struct Shard<R> {
    #[serde(rename = "Records")]
    records: Vec<R>,
    window: Option<IgnoredAny>,
}

impl<R> Shard<R> {
    /// Returns the records, unless the mapping has windows: Lambda takes a reply without the window's
    /// state for a failure, whatever was done.
    pub(crate) fn records(self) -> Result<Vec<R>, &'static str> {
        const WINDOWED: &str = "the event is of a tumbling window, and the reply would have no `state`: take `TumblingWindowInSeconds` out of the event source mapping";
        match self.window {
            Some(_) => Err(WINDOWED),
            None => Ok(self.records),
        }
    }
}

/// Returns the time so many seconds after 1970 began; `None` for a number that is no such time.
pub(crate) fn seconds(since_1970: f64) -> Option<SystemTime> {
    let since_1970 = Duration::try_from_secs_f64(since_1970).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since_1970)
}

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

    fn read(json: &str) -> Data {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn base64_is_decoded_and_anything_else_is_an_error_of_its_record() {
        assert_eq!(read(r#""aGVsbG8=""#).bytes(), Ok(b"hello".as_slice()));
        assert_eq!(read(r#""""#).bytes(), Ok([].as_slice()));
        assert_eq!(read("null").bytes(), Err(BodyError::MISSING));
        let said = read(r#""%%%""#).bytes().unwrap_err().to_string();
        assert_eq!(said, "the data is not Base64");
    }

    #[test]
    fn the_lowest_number_is_named_whatever_the_order() {
        let failed = ["01000", "999", "0998", "9999"].map(str::to_owned).to_vec();
        let reply = serde_json::to_string(&ItemFailures::lowest(failed)).unwrap();
        assert_eq!(
            reply,
            r#"{"batchItemFailures":[{"itemIdentifier":"0998"}]}"#
        );
    }

    #[test]
    fn nothing_failed_is_an_empty_list() {
        let reply = serde_json::to_string(&ItemFailures::lowest(Vec::new())).unwrap();
        assert_eq!(reply, r#"{"batchItemFailures":[]}"#);
    }

    fn header(json: &str) -> HeaderBytes {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn signed_and_unsigned_numbers_are_the_same_bytes() {
        assert_eq!(header("[-56, -1, 0, 127]"), header("[200, 255, 0, 127]"));
        assert_eq!(header("[-56]").bytes(), Some([200].as_slice()));
        assert_eq!(header("[195, -68]").text().as_deref(), Some("ü"));
        assert_eq!(header("[-56]").text().as_deref(), Some("yA=="));
        assert_eq!(header("[]").text().as_deref(), Some(""));
    }

    #[test]
    fn what_is_no_list_of_bytes_is_no_value() {
        for other in ["null", "[256]", "[-129]", "[1.5]", r#""dGV4dA==""#, "{}"] {
            assert_eq!(header(other).text(), None, "{other}");
        }
    }

    #[test]
    fn another_service_is_named_beside_the_expected_one() {
        let of = |service| check_service(Some(service), "aws:kinesis");
        assert_eq!(of("aws:kinesis"), Ok(()));
        assert_eq!(check_service(None, "aws:kinesis"), Ok(()));
        let said = of("aws:sqs").unwrap_err();
        assert!(
            said.starts_with("this is an event of aws:sqs, not of aws:kinesis"),
            "{said}"
        );
    }

    #[test]
    fn seconds_are_a_time_where_they_can_be() {
        let quarter = SystemTime::UNIX_EPOCH + Duration::from_millis(1_545_084_650_250);
        assert_eq!(seconds(1_545_084_650.25), Some(quarter));
        for number in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(seconds(number), None, "{number}");
        }
    }

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
        let stream = "t".repeat(DEFAULT_MAX_TOKEN_CHARS - 2);
        assert_eq!(token(&stream, "1"), format!("{stream}#1"));
        assert_eq!(token(&stream, "12").len(), 64);
    }
}

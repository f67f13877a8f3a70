//! Versions of an item or a row, by which the newest is told.

use std::cmp::Ordering;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::store::transaction::WriteError;

/// The most digits of a sequence number and of a sequencer. Kinesis has 56, DynamoDB Streams 40, S3 18.
const DIGITS: usize = 64;

/// The most bytes of the id of an event.
const ID_BYTES: usize = 256;

/// A version: the greater one is newer. Of two equal versions, the one that is written first stays.
///
/// | source | version | stored as |
/// |---|---|---|
/// | the producer's own counter | `Version::from(7)` | a number |
/// | Kinesis, DynamoDB Streams | [`Version::sequence`] of `SequenceNumber` | text |
/// | Kinesis, with aggregates of the Producer Library (KPL) | [`Version::sequence`] of both numbers: see below | text |
/// | S3 notifications | [`Version::sequencer`] of `s3.object.sequencer` | text |
/// | a time | [`Version::timestamp`], with the event's id, which breaks a tie | text |
/// | Kafka | the producer's counter, or a time | as above |
///
/// Versions of two kinds can't be compared. Sequence numbers are compared within one shard, which is
/// where a key's records are, and sequencers within one object key. Kafka's offsets are compared within one
/// partition of one topic: take an offset as the counter only where the number of partitions never changes,
/// and the topic is never made again.
///
/// ```
/// use lambda_idempotency::store::version::Version;
///
/// # fn versions() -> Result<(), lambda_idempotency::store::transaction::WriteError> {
/// let counted = Version::from(7);
/// let streamed = Version::sequence("49590338271490256608559692538361571095921575989136588898")?;
/// let notified = Version::sequencer("0055AED6DCD90281E5")?;
/// # Ok(()) }
/// # assert!(versions().is_ok());
/// assert!(Version::from(8) > Version::from(7));
/// ```
///
/// The records of a KPL aggregate share their sequence number: of two that change one item, the newer would
/// be dropped. In a stream with aggregates, append to the number of each record its place in the aggregate,
/// with eight digits, and 0 for a record that is in none:
///
/// ```
/// use lambda_idempotency::store::transaction::WriteError;
/// use lambda_idempotency::store::version::Version;
///
/// fn version(sequence_number: &str, sub_sequence_number: Option<usize>) -> Result<Version, WriteError> {
///     let place = sub_sequence_number.unwrap_or_default();
///     Version::sequence(&format!("{sequence_number}{place:08}"))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(Form);

/// The stored form of a version: the store's own comparison tells the newer. Its `Debug` shows the
/// kind alone.
#[derive(Clone, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub enum Form {
    /// A number.
    Number(i64),
    /// Text in the order of its bytes.
    Text {
        /// The beginning of all texts of this kind, and of no other.
        kind: &'static str,
        /// The whole text, the kind with it.
        text: String,
    },
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number(_) => "number",
            Self::Text { kind, .. } => kind.trim_end_matches(':'),
        })
    }
}

impl Version {
    /// Returns the version of a sequence number of decimal digits, as streams give it.
    ///
    /// # Errors
    ///
    /// [`WriteError::Version`].
    pub fn sequence(digits: &str) -> Result<Self, WriteError> {
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        let digits = digits.trim_start_matches('0');
        if !is_number || digits.len() > DIGITS {
            return Err(WriteError::Version(format!(
                "a sequence number has 1 to {DIGITS} decimal digits: take it from the record as it came"
            )));
        }
        Ok(Self::text("sequence:", format_args!("{digits:0>DIGITS$}")))
    }

    /// Returns the version of an S3 notification's sequencer: hexadecimal digits, of which the shorter
    /// counts as filled up with zeros on its right.
    ///
    /// # Errors
    ///
    /// [`WriteError::Version`].
    pub fn sequencer(digits: &str) -> Result<Self, WriteError> {
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if digits.is_empty() || digits.len() > DIGITS || !is_hex {
            return Err(WriteError::Version(format!(
                "a sequencer has 1 to {DIGITS} hexadecimal digits: take `s3.object.sequencer` as it came"
            )));
        }
        let digits = digits.to_ascii_uppercase();
        Ok(Self::text("sequencer:", format_args!("{digits:0<DIGITS$}")))
    }

    /// Returns the version of a time. Of two events at one time, the one with the greater id in the
    /// order of bytes is the newer: the same one in whatever order they come.
    ///
    /// # Errors
    ///
    /// [`WriteError::Version`]: the time is before 1970, or the id is too long.
    pub fn timestamp(time: SystemTime, id: &str) -> Result<Self, WriteError> {
        let since = time.duration_since(UNIX_EPOCH).ok();
        let Some(since) = since.filter(|_| id.len() <= ID_BYTES) else {
            return Err(WriteError::Version(format!(
                "a time is not before 1970, and an id has at most {ID_BYTES} bytes"
            )));
        };
        let (seconds, nanos) = (since.as_secs(), since.subsec_nanos());
        Ok(Self::text(
            "timestamp:",
            format_args!("{seconds:020}.{nanos:09}:{id}"),
        ))
    }

    fn text(kind: &'static str, version: fmt::Arguments<'_>) -> Self {
        let text = format!("{kind}{version}");
        Self(Form::Text { kind, text })
    }

    /// Returns how the version is stored.
    #[doc(hidden)]
    pub fn form(&self) -> &Form {
        &self.0
    }
}

/// Versions of two kinds can't be compared.
impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Form::Number(one), Form::Number(other)) => Some(one.cmp(other)),
            (
                Form::Text { kind, text },
                Form::Text {
                    kind: other_kind,
                    text: other,
                },
            ) => (kind == other_kind).then(|| text.cmp(other)),
            _ => None,
        }
    }
}

impl From<i64> for Version {
    fn from(number: i64) -> Self {
        Self(Form::Number(number))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn text(version: Result<Version, WriteError>) -> String {
        match version.unwrap().0 {
            Form::Text { kind, text } => {
                assert!(text.starts_with(kind));
                text
            }
            Form::Number(_) => panic!("a number"),
        }
    }

    #[test]
    fn the_order_of_texts_is_that_of_versions() {
        let streamed = [
            "0",
            "9",
            "10",
            "49590338271490256608559692538361571095921575989136588898",
        ];
        let streamed = streamed.map(|digits| text(Version::sequence(digits)));
        assert!(streamed.is_sorted(), "{streamed:?}");
        assert_eq!(text(Version::sequence("007")), text(Version::sequence("7")));
        let notified = ["0055AED6", "0055aed6dc", "0055AED6DD", "0056"];
        let notified = notified.map(|digits| text(Version::sequencer(digits)));
        assert!(notified.is_sorted(), "{notified:?}");
        assert_eq!(
            text(Version::sequencer("0a")),
            text(Version::sequencer("0A00"))
        );
        let at = |nanos, id| {
            text(Version::timestamp(
                UNIX_EPOCH + Duration::from_nanos(nanos),
                id,
            ))
        };
        let times = [
            at(0, "b"),
            at(1, "a"),
            at(1, "ab"),
            at(1, "b"),
            at(2_000_000_000, ""),
        ];
        assert!(times.is_sorted(), "{times:?}");
    }

    #[test]
    fn records_of_an_aggregate_are_in_the_order_of_both_their_numbers() {
        let of = |sequence: &str, place: usize| {
            Version::sequence(&format!("{sequence}{place:08}")).unwrap()
        };
        let (first, second) = (
            "49590338271490256608559692538361571095921575989136588898",
            "49590338271490256608559692538361571095921575989136588899",
        );
        let versions = [
            of("9", 32_767),
            of("10", 0),
            of(first, 0),
            of(first, 1),
            of(first, 10),
            of(first, 32_767),
            of(second, 0),
        ];
        assert!(versions.is_sorted_by(|one, other| one < other));
    }

    #[test]
    fn versions_of_one_kind_are_compared_and_those_of_two_are_not() {
        let sequencer = |digits| Version::sequencer(digits).unwrap();
        for (earlier, later) in [
            ("0055AED6DCD90281E5", "0055AED6DD"),
            ("0055", "00551"),
            ("0", "1"),
            ("0A", "A"),
            ("9F", "A"),
        ] {
            assert!(sequencer(earlier) < sequencer(later), "{earlier} {later}");
        }
        assert_eq!(sequencer("0055"), sequencer("005500"));
        assert!(Version::from(-1) < Version::from(7));
        let sequence = Version::sequence("7").unwrap();
        for other in [Version::from(7), sequencer("7")] {
            assert_eq!(sequence.partial_cmp(&other), None);
        }
    }

    #[test]
    fn what_is_no_version_is_refused() {
        let longest = "1".repeat(DIGITS);
        assert_eq!(
            text(Version::sequence(&longest)),
            format!("sequence:{longest}")
        );
        assert!(Version::sequencer(&longest).is_ok());
        assert!(Version::timestamp(UNIX_EPOCH, &"x".repeat(ID_BYTES)).is_ok());
        let refused = |version: Result<Version, WriteError>, words: &str| {
            let refused = version.unwrap_err().to_string();
            assert!(refused.starts_with(words), "{refused}");
        };
        let long = "1".repeat(DIGITS + 1);
        for digits in ["", "-1", "1.5", " 1", "0x1", "１", &long] {
            refused(Version::sequence(digits), "a sequence number has 1 to 64 d");
        }
        for digits in ["", "0g", "0055AED6-", &long] {
            refused(Version::sequencer(digits), "a sequencer has 1 to 64 hex");
        }
        let before = UNIX_EPOCH - Duration::from_nanos(1);
        let long = "x".repeat(ID_BYTES + 1);
        for (time, id) in [(before, ""), (UNIX_EPOCH, long.as_str())] {
            refused(Version::timestamp(time, id), "a time is not before 1970");
        }
    }
}

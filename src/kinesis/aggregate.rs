//! Takes an aggregate of the Kinesis Producer Library apart. Pure.
//!
//! [Its format](https://github.com/awslabs/amazon-kinesis-producer/blob/master/aggregation-format.md)
//! is four bytes, a message of Protocol Buffers and the message's MD5 digest:
//!
//! ```proto
//! message AggregatedRecord {
//!   repeated string partition_key_table = 1;
//!   repeated string explicit_hash_key_table = 2;
//!   repeated Record records = 3;
//! }
//! message Record {
//!   required uint64 partition_key_index = 1;
//!   optional uint64 explicit_hash_key_index = 2;
//!   required bytes data = 3;
//!   repeated Tag tags = 4;
//! }
//! ```

use md5::{Digest, Md5};

use crate::batch::BodyError;

const MAGIC: &[u8] = &[0xf3, 0x89, 0x9a, 0xc2];
const DIGEST_BYTES: usize = 16;

/// The longest key that Kinesis takes, in characters
/// ([PutRecord](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecord.html)).
const LONGEST_KEY: usize = 256;

/// The most records of the aggregates of one event, since each costs a record's memory. In 1 MiB, which is
/// the library's largest aggregate, there are more only where they have less than 32 bytes each.
pub(super) const MOST_RECORDS: usize = 1 << 15;

/// Holds one record of an aggregate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SubRecord<'a> {
    pub(super) partition_key: &'a str,
    pub(super) explicit_hash_key: Option<&'a str>,
    pub(super) data: &'a [u8],
}

/// The digest is right, and the message is none of an aggregate.
const DAMAGED: BodyError =
    BodyError::new("the data is an aggregate of the Kinesis Producer Library that can't be read");

/// Returns the records of an aggregate; `None` for data that is none. As in AWS's own libraries, data
/// is an aggregate where its digest is right.
pub(super) fn open(data: &[u8]) -> Option<Result<Vec<SubRecord<'_>>, BodyError>> {
    let (message, digest) = data
        .strip_prefix(MAGIC)?
        .split_last_chunk::<DIGEST_BYTES>()?;
    let is_right = Md5::digest(message).as_slice() == digest.as_slice();
    is_right.then(|| records(message).ok_or(DAMAGED))
}

fn records(message: &[u8]) -> Option<Vec<SubRecord<'_>>> {
    let (mut keys, mut hash_keys, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for_each_field(message, |number, value| {
        match (number, value) {
            (1, Value::Bytes(key)) => keys.push(key_of(key)?),
            (2, Value::Bytes(key)) => hash_keys.push(key_of(key)?),
            (3, Value::Bytes(record)) if records.len() < MOST_RECORDS => records.push(record),
            (1..=3, _) => return None,
            _ => {}
        }
        Some(())
    })?;
    let record = |message| {
        let (mut key, mut hash_key, mut data) = (None, None, None);
        for_each_field(message, |number, value| {
            match (number, value) {
                (1, Value::Number(index)) => key = Some(index),
                (2, Value::Number(index)) => hash_key = Some(index),
                (3, Value::Bytes(bytes)) => data = Some(bytes),
                (1..=3, _) => return None,
                _ => {}
            }
            Some(())
        })?;
        Some(SubRecord {
            partition_key: at(&keys, key?)?,
            explicit_hash_key: match hash_key {
                Some(index) => Some(at(&hash_keys, index)?),
                None => None,
            },
            data: data?,
        })
    };
    records.into_iter().map(record).collect()
}

/// Reads a key; `None` where it is longer than Kinesis takes one, since each of its records has a copy.
fn key_of(key: &[u8]) -> Option<&str> {
    let key = std::str::from_utf8(key).ok()?;
    (key.chars().count() <= LONGEST_KEY).then_some(key)
}

fn at<'a>(table: &[&'a str], index: u64) -> Option<&'a str> {
    table.get(usize::try_from(index).ok()?).copied()
}

/// The value of a field.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a width that no field here has.
    Fixed,
}

/// Reads the fields of a message in their order; `None` where it is damaged, or `field` returns
/// `None`.
fn for_each_field<'a>(
    mut message: &'a [u8],
    mut field: impl FnMut(u64, Value<'a>) -> Option<()>,
) -> Option<()> {
    while !message.is_empty() {
        let tag = number(&mut message)?;
        let value = match tag & 7 {
            0 => Value::Number(number(&mut message)?),
            1 => take(&mut message, 8).map(|_| Value::Fixed)?,
            2 => {
                let length = number(&mut message)?;
                Value::Bytes(take(&mut message, length)?)
            }
            5 => take(&mut message, 4).map(|_| Value::Fixed)?,
            _ => return None,
        };
        field(tag >> 3, value)?;
    }
    Some(())
}

fn take<'a>(message: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(usize::try_from(length).ok()?)?;
    *message = rest;
    Some(taken)
}

/// Reads a number: seven bits a byte, the lowest first.
fn number(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Packs records as the library does.
#[cfg(test)]
pub(super) fn packed(records: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut length = bytes.len();
        let mut field = vec![number << 3 | 2];
        while length > 0x7f {
            field.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        field.push(u8::try_from(length).unwrap());
        [&field, bytes].concat()
    }
    let mut message = Vec::new();
    for (key, _, _) in records {
        message.extend(field(1, key.as_bytes()));
    }
    let hash_keys = records.iter().filter_map(|(_, hash_key, _)| *hash_key);
    for hash_key in hash_keys {
        message.extend(field(2, hash_key.as_bytes()));
    }
    let mut hash_keys = 0;
    for (index, (_, hash_key, data)) in records.iter().enumerate() {
        let mut record = vec![1 << 3, u8::try_from(index).unwrap()];
        if hash_key.is_some() {
            record.extend([2 << 3, hash_keys]);
            hash_keys += 1;
        }
        record.extend(field(3, data));
        message.extend(field(3, &record));
    }
    digested(&message)
}

/// Makes an aggregate of so many records of six bytes, whose data is empty.
#[cfg(test)]
pub(super) fn packed_small(records: usize) -> Vec<u8> {
    let records = b"\x1a\x04\x08\x00\x1a\x00".repeat(records);
    digested(&[b"\x0a\x01a", &records[..]].concat())
}

#[cfg(test)]
fn digested(message: &[u8]) -> Vec<u8> {
    [MAGIC, message, Md5::digest(message).as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_message(message: &[u8]) -> Option<Result<usize, BodyError>> {
        open(&digested(message)).map(|opened| opened.map(|records| records.len()))
    }

    #[test]
    fn an_aggregate_has_the_keys_and_the_data_of_each_record() {
        let long = "x".repeat(300);
        let data = packed(&[
            ("tea", None, b"1"),
            ("salt", Some("17"), long.as_bytes()),
            ("", Some("18"), b""),
        ]);
        let sub = |partition_key, explicit_hash_key, data| SubRecord {
            partition_key,
            explicit_hash_key,
            data,
        };
        let expected = vec![
            sub("tea", None, b"1".as_slice()),
            sub("salt", Some("17"), long.as_bytes()),
            sub("", Some("18"), b""),
        ];
        assert_eq!(open(&data), Some(Ok(expected)));
        assert_eq!(of_message(b""), Some(Ok(0)));
    }

    #[test]
    fn a_key_that_kinesis_would_not_take_is_damage() {
        for (length, is_taken) in [(LONGEST_KEY, true), (LONGEST_KEY + 1, false)] {
            let key = "k".repeat(length);
            for data in [
                packed(&[(&key, None, b"1")]),
                packed(&[("k", Some(&key), b"1")]),
            ] {
                assert_eq!(open(&data).unwrap().is_ok(), is_taken);
            }
        }
    }

    #[test]
    fn more_records_than_the_memory_is_for_are_damage() {
        let of = |records| {
            let data = packed_small(records);
            open(&data).map(|opened| opened.map(|records| records.len()))
        };
        assert_eq!(of(MOST_RECORDS), Some(Ok(MOST_RECORDS)));
        assert_eq!(of(MOST_RECORDS + 1), Some(Err(DAMAGED)));
    }

    #[test]
    fn data_without_the_first_bytes_or_with_another_digest_is_no_aggregate() {
        let data = packed(&[("tea", None, b"1")]);
        for place in 0..data.len() {
            let mut other = data.clone();
            other[place] ^= 1;
            assert_eq!(open(&other), None, "{place}");
            assert_eq!(open(&data[..place]), None, "{place}");
        }
    }

    #[test]
    fn a_message_of_another_kind_is_damaged() {
        for message in [
            &b"{"[..],
            // A record without data; one without a partition key; one of a key that isn't there.
            b"\x0a\x01a\x1a\x02\x08\x00",
            b"\x0a\x01a\x1a\x02\x1a\x00",
            b"\x0a\x01a\x1a\x04\x08\x01\x1a\x00",
            b"\x0a\x01a\x1a\x06\x08\x00\x10\x00\x1a\x00",
            // One whose hash key is bytes.
            b"\x0a\x01a\x1a\x06\x08\x00\x12\x00\x1a\x00",
            // A key that is no text, or a number; a length beyond the end; an endless number.
            b"\x0a\x01\xff",
            b"\x08\x01",
            b"\x0a\x7f",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(of_message(message), Some(Err(DAMAGED)), "{message:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_behind_a_right_digest_are_records_or_damaged(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            changed in any::<prop::sample::Index>(),
        ) {
            of_message(&bytes).unwrap().ok();
            let aggregate = packed(&[("tea", Some("17"), &bytes), ("salt", None, b"")]);
            let mut message = aggregate[MAGIC.len()..aggregate.len() - DIGEST_BYTES].to_vec();
            prop_assert_eq!(of_message(&message), Some(Ok(2)));
            let place = changed.index(message.len());
            message[place] = message[place].wrapping_add(0x81);
            of_message(&message).unwrap().ok();
        }
    }

    #[test]
    fn fields_that_are_not_known_are_skipped() {
        let record = b"\x0a\x01a\x1a\x0a\x08\x00\x1a\x01z\x22\x03\x0a\x01t";
        assert_eq!(of_message(record), Some(Ok(1)), "tags");
        // `w` begins no field.
        let others = b"\x50\x96\x01\x51wwwwwwww\x55wwww\x52\x01w";
        assert_eq!(of_message(others), Some(Ok(0)));
    }
}

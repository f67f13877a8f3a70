//! Items as they might stand in a table: mostly near to a record, each attribute right, missing, or anything.

use arbitrary::{Arbitrary, Unstructured};
use data_encoding::BASE64;
use lambda_idempotency::Fingerprint;
use lambda_idempotency::protocol::record::Owner;
use serde_json::{Value, json};

use crate::properties::NOW;
use crate::properties::table::Item;

/// The payload of the request under test.
pub const PAYLOAD: &[u8] = br#"{"amount":1250}"#;

/// An attribute of a record, or one that is none.
#[derive(Arbitrary, Debug)]
enum Name {
    Status,
    Expiration,
    Lease,
    Data,
    Validation,
    Owner,
    Attempt,
    StartedAt,
    CompletedAt,
    LastError,
    Omitted,
    Packed,
    Layout,
    Step(String),
    Other(String),
}

impl Name {
    fn text(&self) -> String {
        let name = match self {
            Self::Status => "status",
            Self::Expiration => "expiration",
            Self::Lease => "in_progress_expiration",
            Self::Data => "data",
            Self::Validation => "validation",
            Self::Owner => "owner",
            Self::Attempt => "attempt",
            Self::StartedAt => "started_at",
            Self::CompletedAt => "completed_at",
            Self::LastError => "last_error",
            Self::Omitted => "omitted",
            Self::Packed => "packed",
            Self::Layout => "v",
            Self::Step(name) => return format!("step:{name}"),
            Self::Other(name) => name,
        };
        name.to_owned()
    }
}

/// A text that means something in a record, or any.
#[derive(Arbitrary, Debug)]
enum Word {
    InProgress,
    Completed,
    Failed,
    Pending,
    Confirmed,
    Owner,
    Fingerprint,
    TooLarge,
    NotKept,
    Record,
    Item,
    Object,
    Json,
    Failure,
    Any(String),
}

impl Word {
    fn text(&self) -> String {
        let text = match self {
            Self::InProgress => "INPROGRESS",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Pending => "PENDING",
            Self::Confirmed => "CONFIRMED",
            Self::Owner => "00112233445566778899aabbccddeeff",
            Self::Fingerprint => return Fingerprint::json(PAYLOAD).as_str().to_owned(),
            Self::TooLarge => "too_large",
            Self::NotKept => "not_kept",
            Self::Record => "record",
            Self::Item => "item",
            Self::Object => "object",
            Self::Json => r#"{"receipt":17}"#,
            Self::Failure => r#"{"kind":"Declined","message":"no funds"}"#,
            Self::Any(text) => text,
        };
        text.to_owned()
    }
}

/// Digits around the times that count, or any.
#[derive(Arbitrary, Debug)]
enum Digits {
    Small(i8),
    NearNowInMillis(i32),
    NearNowInSeconds(i32),
    Whole(i64),
    Any(String),
}

impl Digits {
    fn text(&self) -> String {
        match self {
            Self::Small(number) => number.to_string(),
            Self::NearNowInMillis(by) => (NOW.0 + i64::from(*by)).to_string(),
            Self::NearNowInSeconds(by) => (NOW.0 / 1_000 + i64::from(*by)).to_string(),
            Self::Whole(number) => number.to_string(),
            Self::Any(digits) => digits.clone(),
        }
    }
}

/// A value of any of DynamoDB's types.
#[derive(Arbitrary, Debug)]
enum Attribute {
    Text(Word),
    Number(Digits),
    Binary(Vec<u8>),
    Bool(bool),
    Null,
    List(Vec<Attribute>),
    Map(Vec<(Member, Attribute)>),
    Texts(Vec<String>),
    /// A step's entry, near to a right one.
    Entry {
        state: Word,
        revision: Digits,
        tries: Digits,
        at: Digits,
        rest: Vec<(Member, Attribute)>,
    },
    /// A packed outcome, near to a right one.
    Packed {
        place: Word,
        bytes: Digits,
        sha256: Word,
        content: Vec<u8>,
        rest: Vec<(Member, Attribute)>,
    },
}

/// A member of a map.
#[derive(Arbitrary, Debug)]
enum Member {
    State,
    Revision,
    Result,
    Omitted,
    LastError,
    Content,
    Owner,
    Any(String),
}

impl Member {
    fn text(&self) -> String {
        let name = match self {
            Self::State => "state",
            Self::Revision => "revision",
            Self::Result => "result",
            Self::Omitted => "omitted",
            Self::LastError => "last_error",
            Self::Content => "content",
            Self::Owner => "owner",
            Self::Any(name) => name,
        };
        name.to_owned()
    }
}

impl Attribute {
    /// As it goes over the wire.
    fn wire(&self) -> Value {
        match self {
            Self::Text(word) => json!({ "S": word.text() }),
            Self::Number(digits) => json!({ "N": digits.text() }),
            Self::Binary(bytes) => json!({ "B": BASE64.encode(bytes) }),
            Self::Bool(value) => json!({ "BOOL": value }),
            Self::Null => json!({ "NULL": true }),
            Self::List(items) => json!({ "L": items.iter().map(Self::wire).collect::<Vec<_>>() }),
            Self::Map(members) => map(members, json!({})),
            Self::Texts(texts) => json!({ "SS": texts }),
            Self::Entry {
                state,
                revision,
                tries,
                at,
                rest,
            } => map(
                rest,
                json!({
                    "state": { "S": state.text() },
                    "revision": { "N": revision.text() },
                    "tries": { "N": tries.text() },
                    "at": { "N": at.text() },
                }),
            ),
            Self::Packed {
                place,
                bytes,
                sha256,
                content,
                rest,
            } => map(
                rest,
                json!({
                    "in": { "S": place.text() },
                    "bytes": { "N": bytes.text() },
                    "sha256": { "S": sha256.text() },
                    "content": { "B": BASE64.encode(content) },
                    "owner": { "S": Word::Owner.text() },
                }),
            ),
        }
    }
}

fn map(members: &[(Member, Attribute)], mut base: Value) -> Value {
    for (name, value) in members {
        base[name.text()] = value.wire();
    }
    json!({ "M": base })
}

/// The item before single attributes are put into it.
#[derive(Arbitrary, Debug)]
enum Base {
    Empty,
    Claimed,
    Completed,
    Released,
    Foreign,
}

/// An item from bytes; the rest of them are attributes that replace or join those of a record.
pub(super) fn arbitrary(data: &[u8]) -> Item {
    let mut data = Unstructured::new(data);
    let base = Base::arbitrary(&mut data).unwrap_or(Base::Empty);
    let mut item = base.item();
    while let (false, Ok((name, value))) = (
        data.is_empty(),
        <(Name, Option<Attribute>)>::arbitrary(&mut data),
    ) {
        match value {
            Some(value) => item.insert(name.text(), value.wire()),
            None => item.remove(&name.text()),
        };
    }
    // No item is without its key.
    item.insert("id".to_owned(), json!({ "S": "the-only-one" }));
    item
}

impl Base {
    fn item(&self) -> Item {
        let mut item = claimed_by(&Owner::from_stored(Word::Owner.text()));
        match self {
            Self::Empty => item.clear(),
            Self::Claimed => {}
            Self::Released => {
                item.insert("in_progress_expiration".to_owned(), json!({ "N": "0" }));
            }
            Self::Completed => {
                item.insert("status".to_owned(), json!({ "S": "COMPLETED" }));
                item.insert("data".to_owned(), json!({ "S": Word::Json.text() }));
                item.remove("in_progress_expiration");
            }
            Self::Foreign => {
                item.remove("owner");
                item.remove("attempt");
                item.remove("v");
            }
        }
        item
    }
}

/// A record in progress, with time left.
pub(super) fn claimed_by(owner: &Owner) -> Item {
    let attributes = json!({
        "id": { "S": "the-only-one" },
        "status": { "S": "INPROGRESS" },
        "expiration": { "N": (NOW.0 / 1_000 + 86_400).to_string() },
        "in_progress_expiration": { "N": (NOW.0 + 60_000).to_string() },
        "owner": { "S": owner.as_str() },
        "attempt": { "N": "1" },
        "started_at": { "N": NOW.0.to_string() },
        "v": { "N": "1" },
    });
    let members = attributes.as_object().expect("a map").clone();
    members.into_iter().collect()
}

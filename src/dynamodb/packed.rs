//! Encodes and decodes a compressed outcome in a record: its bytes, or the place of them.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use super::members::{Members, unknown};
use super::value::string;
use crate::protocol::packed::{PackedOutcome, Place};
use crate::protocol::record::Owner;

const SHA256: &str = "sha256";
const BYTES: &str = "bytes";
const PLACE: &str = "in";
const CONTENT: &str = "content";
const OWNER: &str = "owner";

const RECORD: &str = "record";
const ITEM: &str = "item";
const OBJECT: &str = "object";

pub(super) fn encode(packed: &PackedOutcome) -> AttributeValue {
    let (place, (member, value)) = match &packed.place {
        Place::Record(content) => {
            let content = AttributeValue::B(Blob::new(content.clone()));
            (RECORD, (CONTENT, content))
        }
        Place::Entry(owner) => (ITEM, (OWNER, string(owner.as_str()))),
        Place::Object(owner) => (OBJECT, (OWNER, string(owner.as_str()))),
    };
    AttributeValue::M(HashMap::from([
        (SHA256.to_owned(), string(&packed.sha256)),
        (
            BYTES.to_owned(),
            AttributeValue::N(packed.bytes.to_string()),
        ),
        (PLACE.to_owned(), string(place)),
        (member.to_owned(), value),
    ]))
}

pub(super) fn decode(value: &AttributeValue) -> Result<PackedOutcome, String> {
    let members = Members::of(value)?;
    let owner = || members.required_text(OWNER).map(Owner::from_stored);
    let place = match members.required_text(PLACE)? {
        RECORD => Place::Record(members.bytes(CONTENT)?.to_vec()),
        ITEM => Place::Entry(owner()?),
        OBJECT => Place::Object(owner()?),
        _ => return Err(unknown(PLACE)),
    };
    let bytes = members.count(BYTES)?;
    let sha256 = members.required_text(SHA256)?;
    Ok(PackedOutcome::from_stored(sha256, bytes, place))
}

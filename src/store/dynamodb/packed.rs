//! A compressed outcome in a record: itself, or where it is.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use super::item::string;
use super::members::{Members, unknown};
use crate::packed::{PackedOutcome, Place};
use crate::record::Owner;

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
        Place::Item(owner) => (ITEM, (OWNER, string(owner.as_str()))),
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
        ITEM => Place::Item(owner()?),
        OBJECT => Place::Object(owner()?),
        _ => return Err(unknown(PLACE)),
    };
    let bytes = members.number(BYTES)?;
    let bytes = u64::try_from(bytes).map_err(|_| format!("`{BYTES}` is no count"))?;
    let sha256 = members.required_text(SHA256)?;
    Ok(PackedOutcome::from_stored(sha256, bytes, place))
}

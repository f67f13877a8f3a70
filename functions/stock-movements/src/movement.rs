//! Defines a movement, as the data of its record has it.

use serde::Deserialize;

#[derive(Deserialize)]
#[allow(clippy::struct_field_names, reason = "the names on the wire")]
pub(crate) struct Movement {
    pub(crate) movement_id: String,
    pub(crate) sku: String,
    /// In pieces: positive where they come in, negative where they leave.
    pub(crate) delta: i64,
}

//! Defines a payment, as its message asks for it.

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[allow(clippy::struct_field_names, reason = "the names on the wire")]
pub(crate) struct Payment {
    pub(crate) payment_id: String,
    pub(crate) order_id: String,
    /// In minor units: cents, say.
    pub(crate) amount: u64,
    pub(crate) currency: String,
}

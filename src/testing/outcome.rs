//! Checks that an outcome survives its way through a record.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TestError;
use crate::engine::claim::faithful;

/// Checks that a handler's outcome, or a step's result, reads back from its record as the same value.
///
/// Stronger than the check in production, which can't compare: it sees a field that the type leaves
/// out, too.
///
/// ```
/// use lambda_idempotency::testing::reads_back;
///
/// #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
/// struct Receipt {
///     cents: u32,
///     #[serde(skip)]
///     printed: bool,
/// }
///
/// assert!(reads_back(&Receipt { cents: 1250, printed: false }).is_ok());
/// assert!(reads_back(&Receipt { cents: 1250, printed: true }).is_err());
/// assert!(reads_back(&Some(())).is_err());
/// assert!(reads_back(&f64::NAN).is_err());
/// ```
///
/// # Errors
///
/// [`TestError::NotKept`] says why it doesn't.
pub fn reads_back<T>(value: &T) -> Result<(), TestError>
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    let text = faithful(value).map_err(TestError::not_kept::<T>)?;
    if serde_json::from_str::<T>(&text)? == *value {
        return Ok(());
    }
    Err(TestError::not_kept::<T>("it reads back as another value"))
}

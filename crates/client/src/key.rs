//! The key of a logical request.

use std::fmt;
use std::hash::{Hash, Hasher};

use http::HeaderValue;
use uuid::Uuid;

/// The most characters of a key. Servers take up to 255.
const MOST_CHARS: usize = 255;

/// The key of a logical request, which is the same in each of its attempts.
///
/// Put one into a request's extensions, where the request has its own identity: an order's
/// number. It is the same after a restart then, so that a request whose answer a crash took can be sent
/// again. Without one, the layer makes a new UUID (version 7) for each request.
///
/// ```
/// use lambda_idempotency_client::IdempotencyKey;
///
/// let mut request = http::Request::post("https://example.com/orders").body(())?;
/// request.extensions_mut().insert(IdempotencyKey::new("order-17")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Eq)]
pub struct IdempotencyKey {
    header: HeaderValue,
    /// It comes from a request's header, and is sent as it was there.
    is_of_header: bool,
}

/// A text can't be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a key has 1 to {MOST_CHARS} characters: letters, digits, and - _ . ~ : / + = @. Derive one from the identity of the request"
)]
pub struct InvalidKey;

/// Compares the texts, wherever they come from.
impl PartialEq for IdempotencyKey {
    fn eq(&self, other: &Self) -> bool {
        self.header == other.header
    }
}

impl Hash for IdempotencyKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.header.hash(state);
    }
}

impl IdempotencyKey {
    /// Creates a key of letters, digits, and `-` `_` `.` `~` `:` `/` `+` `=` `@`, which every server reads
    /// as one key, with or without quotes.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`], where the text has another character, none, or more than 255.
    pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidKey> {
        let text = text.as_ref();
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~:/+=@".contains(&byte);
        if text.is_empty() || text.len() > MOST_CHARS || !text.bytes().all(is_allowed) {
            return Err(InvalidKey);
        }
        HeaderValue::from_str(text)
            .map(Self::made)
            .map_err(|_| InvalidKey)
    }

    /// Creates a new key: a UUID of version 7.
    pub fn random() -> Self {
        let text = Uuid::now_v7().to_string();
        // Hexadecimal digits and hyphens are a header's value.
        Self::made(HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("")))
    }

    fn made(header: HeaderValue) -> Self {
        Self {
            header,
            is_of_header: false,
        }
    }

    /// Takes the key that a request has already, whatever its form.
    pub(crate) fn of_header(value: &HeaderValue) -> Self {
        Self {
            header: value.clone(),
            is_of_header: true,
        }
    }

    pub(crate) fn is_of_header(&self) -> bool {
        self.is_of_header
    }

    /// Returns the header's value.
    pub fn as_header(&self) -> &HeaderValue {
        &self.header
    }
}

/// Shows no key: it may be a secret.
impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdempotencyKey").finish_non_exhaustive()
    }
}

/// Marks a request, in its extensions, as one whose server takes no key: a write is sent once then.
#[derive(Clone, Copy, Debug)]
pub struct Unkeyed;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_every_server_reads_as_one() {
        for text in ["order-17", "a", "2026-11-27T03:00:00+01:00/x_y~z=@."] {
            assert_eq!(IdempotencyKey::new(text).unwrap().as_header(), text);
        }
        for text in [
            "",
            "a b",
            "a,b",
            "a;b",
            "\"a\"",
            "a\n",
            "é",
            &"x".repeat(256),
        ] {
            assert_eq!(IdempotencyKey::new(text), Err(InvalidKey), "{text}");
        }
    }

    #[test]
    fn two_new_keys_differ() {
        let (one, other) = (IdempotencyKey::random(), IdempotencyKey::random());
        assert_ne!(one, other);
        let text = one.as_header().to_str().unwrap();
        assert_eq!(Uuid::parse_str(text).unwrap().get_version_num(), 7);
    }
}

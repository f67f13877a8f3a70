//! The identity of one logical request.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::Serialize;

use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::hash::{Hex, digest};
use crate::setup::BuildError;

pub(super) mod error;
#[cfg(test)]
mod tests;

pub use error::KeyError;

/// The number of characters that a token may have, unless
/// [`Settings::max_token_chars`](crate::Settings::max_token_chars) says otherwise.
pub(crate) const DEFAULT_MAX_TOKEN_CHARS: usize = 255;

/// The number of bytes that a raw id may have. The ids that an engine makes have fewer than 600.
pub(crate) const MAX_ID_BYTES: usize = 2_048;

/// The number of bytes that an operation's readable part gets in an id. The hash covers the whole
/// of it.
const MAX_OPERATION_BYTES_IN_ID: usize = 255;

/// Ends the namespace of the records of an engine that only observes.
const OBSERVED: &str = ".observed";

/// Separates the parts of an event's identity in the form that most ids are derived from.
const SEPARATOR: &str = "\u{1f}";

/// The identity of one logical request: operation, token and scope. The engine adds its namespace.
///
/// The **token** is made by the producer of the request (a client's header, an order number), so
/// that it is the same each time the request arrives. The **operation** names the work, so that one
/// token may serve two of them. The **scope** names the tenant: without one, two clients that
/// choose the same token meet in one record, and one would be answered with the other's outcome.
///
/// A key is checked when it is used, before anything is written. A blank scope is refused with
/// [`Error::Key`](crate::Error::Key), and so are an operation and a token that are empty or have control
/// characters, and a token that is too long.
///
/// ```
/// use lambda_idempotency::Key;
///
/// let key = Key::new("charge", "order-1734").scope("tenant-7");
/// // A token is never printed: it may be a secret of the client's.
/// assert!(!format!("{key:?}").contains("1734"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Shared: each part of a run names it.
    operation: Arc<str>,
    token: Token,
    scope: Option<String>,
    label: Option<String>,
    /// The source made the token, and no setting limits it further.
    is_of_source: bool,
    /// The id of the record doesn't name the operation, so that its fingerprint does.
    is_bound: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Token {
    Text(String),
    RawId(String),
    /// Resolved already.
    #[cfg(feature = "batch")]
    Record(RecordId),
}

impl Key {
    /// Makes a key from an operation and the token that the producer of the request chose.
    pub fn new(operation: impl Into<String>, token: impl Into<String>) -> Self {
        Self::with(operation.into().into(), Token::Text(token.into()))
    }

    fn with(operation: Arc<str>, token: Token) -> Self {
        Self {
            operation,
            token,
            scope: None,
            label: None,
            is_of_source: false,
            is_bound: false,
        }
    }

    /// Makes a key whose token is the canonical form of a value: for identities made of several
    /// fields.
    ///
    /// ```
    /// use lambda_idempotency::Key;
    ///
    /// let key = Key::of("invoice", &("customer-9", 2026, 11))?;
    /// # Ok::<(), lambda_idempotency::KeyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the value can't be serialised as JSON.
    pub fn of<T: Serialize + ?Sized>(
        operation: impl Into<String>,
        identity: &T,
    ) -> Result<Self, KeyError> {
        Ok(Self::new(operation, Fingerprint::of(identity)?.as_str()))
    }

    /// Makes a key that is stored under exactly this id, whatever the namespace: to share records
    /// with another library.
    ///
    /// The id has at most 2,048 bytes, or as many as the store takes: 1,024 in a DynamoDB table with
    /// two keys; and no control character. Its record belongs to the first operation that uses it: for
    /// another one it is [`Error::Mismatch`](crate::Error::Mismatch), unless its fingerprint is another
    /// library's, which has no place for the operation.
    pub fn raw(operation: impl Into<String>, id: impl Into<String>) -> Self {
        let key = Self::with(operation.into().into(), Token::RawId(id.into()));
        let is_bound = true;
        Self { is_bound, ..key }
    }

    /// Ties a raw id to its operation only where somebody has named it: the name of the queue or of the
    /// function may change.
    #[cfg(any(feature = "batch", feature = "invoke"))]
    pub(crate) fn bound_to(self, named: Option<&Arc<str>>) -> Self {
        let is_bound = self.is_bound && named.is_some();
        Self { is_bound, ..self }
    }

    /// Makes a key as [`new`](Self::new) does, of an operation that many keys share.
    #[cfg(any(feature = "batch", feature = "invoke"))]
    pub(crate) fn of_operation(operation: Arc<str>, token: String) -> Self {
        Self::with(operation, Token::Text(token))
    }

    /// Makes a key as [`of_operation`](Self::of_operation) does, of the token that the source gives a
    /// message or an event. The limit of tokens is for those that a caller chooses.
    #[cfg(any(feature = "batch", feature = "invoke"))]
    pub(crate) fn of_source(operation: Arc<str>, token: String) -> Self {
        let is_of_source = true;
        Self {
            is_of_source,
            ..Self::of_operation(operation, token)
        }
    }

    /// Returns the same key, whose record is known already: hashing is done once.
    #[cfg(feature = "batch")]
    pub(crate) fn resolved(&self, id: RecordId) -> Self {
        Self {
            is_bound: self.is_bound,
            ..Self::with(Arc::clone(&self.operation), Token::Record(id))
        }
    }

    /// Confines the key to one tenant. A blank text names none, so that a key with it is
    /// [refused](KeyError::BlankScope). A raw id says all by itself: with a scope it is refused.
    #[must_use]
    pub fn scope(mut self, tenant: impl Into<String>) -> Self {
        self.scope = Some(tenant.into());
        self
    }

    /// Returns the fingerprint as the record has it: with the operation, where its id doesn't name it.
    pub(crate) fn bind(&self, payload: Option<Fingerprint>) -> Option<Fingerprint> {
        if !self.is_bound {
            return payload;
        }
        Some(Fingerprint::of_operation(&self.operation, payload.as_ref()))
    }

    /// Returns the operation's name.
    pub(crate) fn operation(&self) -> &str {
        &self.operation
    }

    pub(crate) fn shared_operation(&self) -> Arc<str> {
        Arc::clone(&self.operation)
    }

    /// Sets the name of the operation in the metrics, where its own is one of too many.
    #[cfg(feature = "http")]
    pub(crate) fn labelled(mut self, label: Option<String>) -> Self {
        self.label = label;
        self
    }

    /// Returns the name of the operation in the metrics.
    pub(crate) fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.operation)
    }

    /// Returns the id of this key's record.
    pub(crate) fn resolve(
        &self,
        namespace: &Namespace,
        max_token_chars: usize,
    ) -> Result<RecordId, KeyError> {
        if self.operation.is_empty() {
            return Err(KeyError::EmptyOperation);
        }
        // An id is one line of a log, a list and a file, and PostgreSQL keeps no NUL in it.
        if self.operation.contains(char::is_control) {
            return Err(KeyError::OperationControlCharacter);
        }
        match &self.token {
            #[cfg(feature = "batch")]
            Token::Record(id) => Ok(id.clone()),
            Token::RawId(_) if self.scope.is_some() => Err(KeyError::RawIdWithScope),
            Token::RawId(id) if id.contains(char::is_control) => Err(KeyError::ControlCharacter),
            Token::RawId(id) => {
                check_id(id)?;
                let hash = hash_of_raw(id);
                let id = if namespace.is_observed() {
                    // The id itself is that of a record which others go by.
                    format!("{}#{hash}", namespace.as_str())
                } else {
                    id.clone()
                };
                Ok(RecordId::new(id, hash))
            }
            Token::Text(_) if self.scope.as_deref().is_some_and(is_blank) => {
                Err(KeyError::BlankScope)
            }
            Token::Text(token) => {
                let max = if self.is_of_source {
                    max_token_chars.max(DEFAULT_MAX_TOKEN_CHARS)
                } else {
                    max_token_chars
                };
                check_token(token, max)?;
                Ok(self.derive_id(namespace, token))
            }
        }
    }

    fn derive_id(&self, namespace: &Namespace, token: &str) -> RecordId {
        // The marker says whether there is a scope.
        let (marker, scope) = match &self.scope {
            Some(scope) => (b"1", scope.as_bytes()),
            None => (b"0", [].as_slice()),
        };
        let hash = digest(
            "lambda-idempotency/key/1",
            [
                namespace.as_str().as_bytes(),
                marker,
                scope,
                self.operation.as_bytes(),
                token.as_bytes(),
            ],
        );
        let readable = truncate(&self.operation, MAX_OPERATION_BYTES_IN_ID);
        let id = [namespace.as_str(), readable, hash.as_str()].join("#");
        RecordId::new(id, hash)
    }
}

debug_fields!([] Key { operation });

fn check_id(id: &str) -> Result<(), KeyError> {
    match id.len() {
        0 => Err(KeyError::EmptyToken),
        bytes if bytes > MAX_ID_BYTES => Err(KeyError::IdTooLong {
            bytes,
            max: MAX_ID_BYTES,
        }),
        _ => Ok(()),
    }
}

fn hash_of_raw(id: &str) -> Hex {
    digest("lambda-idempotency/raw/1", [id.as_bytes()])
}

fn check_token(token: &str, max: usize) -> Result<(), KeyError> {
    if token.is_empty() {
        return Err(KeyError::EmptyToken);
    }
    let chars = token.chars().count();
    if chars > max {
        return Err(KeyError::TokenTooLong { chars, max });
    }
    if token.contains(char::is_control) {
        return Err(KeyError::ControlCharacter);
    }
    Ok(())
}

/// Returns the longest prefix of at most `max` bytes that ends between two characters.
pub(crate) fn truncate(text: &str, max: usize) -> &str {
    let end = text.floor_char_boundary(max);
    text.get(..end).unwrap_or(text)
}

/// The id under which a key's record is stored.
///
/// Its `Debug` and `Display` show the hash alone: an id that the caller supplied may hold a secret.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(Arc<Identity>);

/// Shared, since each write of a record names it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    id: String,
    hash: Hex,
}

/// Hashes a part of the digest, which is enough: two of one id have one digest, too.
impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.as_bytes().first_chunk::<16>().hash(state);
    }
}

impl RecordId {
    /// Returns the id as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0.id
    }

    /// Returns the hash that logs name this key by: 64 hex digits, without token and scope. A
    /// reader who can guess a token can compute its hash.
    pub fn hash(&self) -> &str {
        self.0.hash.as_str()
    }

    fn new(id: String, hash: Hex) -> Self {
        Self(Arc::new(Identity { id, hash }))
    }

    /// Takes the id of a record as its store has it, for a tool that reads the store. Its hash is the
    /// one that the engine names the record by: the last part of an id that an engine made, the digest
    /// of a raw one.
    ///
    /// # Errors
    ///
    /// [`KeyError::EmptyToken`] and [`KeyError::IdTooLong`]: no record has such an id.
    #[doc(hidden)]
    pub fn stored(id: impl Into<String>) -> Result<Self, KeyError> {
        let id = id.into();
        check_id(&id)?;
        let is_made = Self::parts_of(&id).is_some() || Self::observed_in(&id).is_some();
        let made = id.rsplit_once('#').filter(|_| is_made);
        let hash = made.and_then(|(_, hash)| Hex::parse(hash));
        let hash = hash.unwrap_or_else(|| hash_of_raw(&id));
        Ok(Self::new(id, hash))
    }

    /// Returns the namespace, the operation and the hash of an id that an engine made; `None` of a raw
    /// one.
    #[doc(hidden)]
    pub fn parts_of(id: &str) -> Option<(&str, &str, &str)> {
        let (namespace, rest) = id.split_once('#')?;
        let (operation, hash) = rest.rsplit_once('#')?;
        Hex::parse(hash).map(|_| (namespace, operation, hash))
    }

    /// Returns the namespace of the engine that keeps the record with this id, where that engine only
    /// observes; `None` of any other id.
    #[doc(hidden)]
    pub fn observed_in(id: &str) -> Option<&str> {
        let (namespace, _) = id.split_once('#')?;
        let (_, hash) = id.rsplit_once('#')?;
        let namespace = namespace.strip_suffix(OBSERVED)?;
        Hex::parse(hash).map(|_| namespace)
    }

    /// Makes the id of a request without a key: `nonce` makes it unlike any other.
    pub(crate) fn unkeyed(nonce: &str) -> Self {
        let hash = digest("lambda-idempotency/unkeyed/1", [nonce.as_bytes()]);
        Self::new(hash.to_string(), hash)
    }

    /// Derives the key of an effect outside, as [`Claim::derive_key`](crate::Claim::derive_key) gives it
    /// to the handler: for a tool that looks for the effect of a record. SHA-256, in hex, over the id and
    /// the effect's name, and over the generation where it isn't 0: the record's
    /// `Journal::key_generation`.
    #[doc(hidden)]
    pub fn derive_key_in(&self, generation: u32, effect: &str) -> String {
        let (id, effect) = (self.as_str().as_bytes(), effect.as_bytes());
        match generation {
            0 => digest("lambda-idempotency/derived/1", [id, effect]),
            _ => digest(
                "lambda-idempotency/derived/2",
                [id, &generation.to_be_bytes(), effect],
            ),
        }
        .to_string()
    }

    /// Derives the UUID of an effect outside, as [`Claim::derive_uuid`](crate::Claim::derive_uuid)
    /// gives it to the handler.
    #[doc(hidden)]
    pub fn derive_uuid_in(&self, generation: u32, effect: &str) -> String {
        uuid(&self.derive_key_in(generation, effect))
    }

    /// Makes an event's id, a UUID of version 8: no two events of a key have the same one.
    pub(crate) fn derive_event(
        &self,
        generation: u32,
        kind: &str,
        aggregate: &str,
        name: &str,
    ) -> String {
        let parts = [kind, aggregate, name];
        // The separated form is unambiguous where no part holds the separator. It stays, so that a
        // function has the same ids before and after an update of this crate: an event of a record
        // that was forgotten is recognised by its id.
        if !parts.iter().any(|part| part.contains(SEPARATOR)) {
            let event = format!("event{SEPARATOR}{}", parts.join(SEPARATOR));
            return self.derive_uuid_in(generation, &event);
        }
        let id = [self.as_str()].into_iter().chain(parts).map(str::as_bytes);
        let number = generation.to_be_bytes();
        let event = match generation {
            0 => digest("lambda-idempotency/event/1", id),
            _ => digest("lambda-idempotency/event/2", id.chain([&number[..]])),
        };
        uuid(event.as_str())
    }
}

/// Makes a UUID of version 8 from the first bits of a digest in hex. Two digits give way to the
/// version and the variant (RFC 9562, 5.8).
fn uuid(digest: &str) -> String {
    let mut uuid = String::with_capacity(36);
    for (place, digit) in digest.chars().take(32).enumerate() {
        if matches!(place, 8 | 12 | 16 | 20) {
            uuid.push('-');
        }
        uuid.push(match place {
            12 => '8',
            // The variant is the two highest bits, `10`.
            16 => match digit {
                '0' | '4' | '8' | 'c' => '8',
                '1' | '5' | '9' | 'd' => '9',
                '2' | '6' | 'a' | 'e' => 'a',
                _ => 'b',
            },
            _ => digit,
        });
    }
    uuid
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hash())
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({})", self.hash())
    }
}

/// Converts a value to a key's token: a string of any kind, an integer, which becomes its decimal
/// digits, a `Uuid` (feature `uuid`), which becomes its lower-case text with hyphens, or an `Option`
/// of one where it may be missing.
///
/// ```
/// use lambda_idempotency::IntoToken;
///
/// assert_eq!("order-17".into_token().as_deref(), Some("order-17"));
/// assert_eq!(Some(String::from("order-17")).into_token().as_deref(), Some("order-17"));
/// assert_eq!(17_u64.into_token().as_deref(), Some("17"));
/// assert_eq!(None::<&str>.into_token(), None);
/// ```
pub trait IntoToken {
    /// Returns the token; `None` where it is missing.
    fn into_token(self) -> Option<String>;
}

macro_rules! token_of {
    ($($value:ty),* $(,)?) => {$(
        impl IntoToken for $value {
            fn into_token(self) -> Option<String> {
                Some(self.to_string())
            }
        }

        impl IntoToken for Option<$value> {
            fn into_token(self) -> Option<String> {
                self.and_then(IntoToken::into_token)
            }
        }
    )*};
}

token_of!(String, &str, &String, Box<str>, Cow<'_, str>, Arc<str>);
token_of!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize
);

#[cfg(feature = "uuid")]
token_of!(uuid::Uuid);

/// The first part of every id that an engine writes: the boundary between services that share a
/// store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    name: String,
    is_observed: bool,
}

impl Namespace {
    /// # Errors
    ///
    /// When it is empty, longer than 255 bytes, holds a `#` (which would let it reach past the
    /// prefix that a permission confines it to) or a control character.
    pub(crate) fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        let name = name.into();
        let allowed = |c: char| c != '#' && !c.is_control();
        if name.is_empty() || name.len() > 255 || !name.chars().all(allowed) {
            return Err(BuildError::Namespace(name));
        }
        Ok(Self {
            name,
            is_observed: false,
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.is_observed
    }

    /// Makes the namespace of the records that are kept while an engine only observes: raw ids,
    /// too, differ in it.
    pub(crate) fn observed(&self) -> Result<Self, BuildError> {
        Ok(Self {
            is_observed: true,
            ..Self::new(format!("{}{OBSERVED}", self.name))?
        })
    }
}

/// Returns whether a scope names nobody: it is empty, or has no character that is seen. Unicode calls those
/// without a width `Default_Ignorable_Code_Point`.
pub(crate) fn is_blank(text: &str) -> bool {
    let is_unseen = |character: char| {
        let is_ignorable = matches!(
            character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
                | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        );
        // The last one is an empty pattern of Braille.
        is_ignorable
            || character.is_whitespace()
            || character.is_control()
            || character == '\u{2800}'
    };
    text.chars().all(is_unseen)
}

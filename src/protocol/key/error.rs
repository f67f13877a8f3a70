//! Reports what is wrong with a key or a payload. It imports nothing: keys and fingerprints return it.

/// An unusable key, or a payload that can't be fingerprinted. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The source of the request gave no token at all.
    #[error("no idempotency key: the request carries none: have its sender give it one{}", see!("key-missing"))]
    Missing,
    /// There is no token at the place where the layer looks.
    #[error("no idempotency key: nothing, or an empty value, is at {place}: correct the layer's key, or have the sender put a value there{}", see!("key-missing"))]
    MissingAt {
        /// The place as the layer was given it, such as `/order/id` in the body.
        place: String,
    },
    /// The token is empty.
    #[error("the idempotency key is empty: send a value that names this one request{}", see!("key-empty"))]
    EmptyToken,
    /// The token has more characters than allowed.
    #[error("the idempotency key has {chars} characters, {max} are allowed: send a UUID or a hash{}", see!("key-too-long"))]
    TokenTooLong {
        /// Characters found.
        chars: usize,
        /// Characters allowed.
        max: usize,
    },
    /// The token or a raw id holds a control character.
    #[error("the idempotency key holds a control character: use printable text, or a hash{}", see!("key-control-character"))]
    ControlCharacter,
    /// The scope is blank, so that all whose name is blank would share their keys.
    #[error("the scope is blank: have the sender name its tenant, or set no scope where all share their keys{}", see!("scope-missing"))]
    BlankScope,
    /// The operation has no name.
    #[error(
        "the operation is empty: name the work that must take effect once, for example `charge`{}", see!("operation-empty")
    )]
    EmptyOperation,
    /// The operation holds a control character.
    #[error("the operation holds a control character: name it in printable text{}", see!("operation-control-character"))]
    OperationControlCharacter,
    /// A raw id was given a scope, which would change nothing.
    #[error("a raw id takes no scope: put the tenant into the id, or use `Key::new`{}", see!("raw-id-with-scope"))]
    RawIdWithScope,
    /// A raw id has more bytes than allowed.
    #[error("the raw id has {bytes} bytes, {max} are allowed: use a hash of it{}", see!("raw-id-too-long"))]
    IdTooLong {
        /// Bytes found.
        bytes: usize,
        /// Bytes that the store takes.
        max: usize,
    },
    /// A value has no JSON form, so that it has no fingerprint.
    #[error(
        "the payload can't be serialised as JSON ({reason}): pass the received bytes to `Fingerprint::bytes` instead{}", see!("invalid-payload")
    )]
    InvalidPayload {
        /// The serialiser's reason.
        reason: String,
    },
}

impl KeyError {
    /// Returns the word for the error in logs, metrics and reports. With `-` for `_` it is the
    /// section of the page on errors and, where a client can fix it, the code of the HTTP problem.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Missing | Self::MissingAt { .. } => "key_missing",
            Self::EmptyToken => "key_empty",
            Self::TokenTooLong { .. } => "key_too_long",
            Self::ControlCharacter => "key_control_character",
            Self::BlankScope => "scope_missing",
            Self::EmptyOperation => "operation_empty",
            Self::OperationControlCharacter => "operation_control_character",
            Self::RawIdWithScope => "raw_id_with_scope",
            Self::IdTooLong { .. } => "raw_id_too_long",
            Self::InvalidPayload { .. } => "invalid_payload",
        }
    }
}

//! Takes the fingerprint of a message.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::batch::Source;
use crate::batch::content::Content;
use crate::batch::selector::Selector;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::pointer::Pointer;

/// Takes the fingerprint from a decoded body, or from the message as it was delivered.
type Closure<S, T> = dyn Fn(&T, &<S as Source>::Record) -> Option<Fingerprint> + Send + Sync;

/// Says what the fingerprint of a message is of.
pub(super) enum FingerprintSource<S: Source, T> {
    /// The whole content, without these fields.
    Content(Arc<[Pointer]>),
    /// The closure makes it of the decoded body.
    Closure(Arc<Closure<S, T>>),
    /// A value of the message as it was received.
    Selected(Selector),
    /// Nothing: messages of one key are not compared.
    Nothing,
}

impl<S: Source, T> FingerprintSource<S, T> {
    pub(super) fn without(fields: impl IntoIterator<Item = Pointer>) -> Self {
        Self::Content(fields.into_iter().collect())
    }

    pub(super) fn closure<V: Into<Option<Fingerprint>>>(
        fingerprint: impl Fn(&T, &S::Record) -> V + Send + Sync + 'static,
    ) -> Self {
        Self::Closure(Arc::new(move |body, message| {
            fingerprint(body, message).into()
        }))
    }

    /// Takes the fingerprint, and that of the attributes of these names; `None` where the message is not
    /// compared.
    pub(super) fn of(
        &self,
        content: &Content<'_, S>,
        body: &T,
        names: &BTreeSet<String>,
    ) -> Option<Fingerprint> {
        let fingerprint = match self {
            // It would differ from that of the payload, once this is fetched.
            Self::Content(_) if content.is_unknown() && names.is_empty() => return None,
            Self::Content(left_out) => content.fingerprint(left_out),
            Self::Closure(closure) => closure(body, content.message())?,
            Self::Selected(selector) => selector.fingerprint(content),
            Self::Nothing => return None,
        };
        Some(with_attributes(fingerprint, content, names))
    }
}

/// Adds the attributes of these names to a fingerprint; without names, it stays as it is.
fn with_attributes<S: Source>(
    fingerprint: Fingerprint,
    content: &Content<'_, S>,
    names: &BTreeSet<String>,
) -> Fingerprint {
    if names.is_empty() {
        return fingerprint;
    }
    let attributes = names.iter().flat_map(|name| {
        let value = content.attribute(name);
        // An attribute that is not there differs from an empty one.
        let presence: &[u8] = if value.is_some() { b"1" } else { b"0" };
        let texts = [
            name.as_bytes(),
            presence,
            value.as_deref().unwrap_or_default().as_bytes(),
        ];
        texts.map(Fingerprint::bytes)
    });
    let parts: Vec<_> = std::iter::once(fingerprint).chain(attributes).collect();
    Fingerprint::combine(&parts)
}

impl<S: Source, T> Clone for FingerprintSource<S, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Content(left_out) => Self::Content(Arc::clone(left_out)),
            Self::Closure(closure) => Self::Closure(Arc::clone(closure)),
            Self::Selected(selector) => Self::Selected(selector.clone()),
            Self::Nothing => Self::Nothing,
        }
    }
}

impl<S: Source, T> fmt::Debug for FingerprintSource<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(left_out) => f.debug_tuple("Content").field(left_out).finish(),
            Self::Closure(_) => f.write_str("Closure"),
            Self::Selected(selector) => selector.fmt(f),
            Self::Nothing => f.write_str("Nothing"),
        }
    }
}

//! Holds the content of a message: its body and what stands beside it, or what its envelope has of
//! both. Pure.

use std::borrow::Cow;

use crate::batch::Source;
use crate::envelope::{Envelope, EnvelopeError, Opened};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::pointer::Pointer;

/// Holds the content of one message.
pub(super) struct Content<'a, S: Source> {
    message: &'a S::Record,
    body: &'a [u8],
    opened: Option<Opened>,
}

impl<'a, S: Source> Content<'a, S> {
    /// Opens the envelopes around a body, the outermost first. `payload` is what a pointer to S3
    /// among them stands for, where it was fetched.
    pub(super) fn open(
        message: &'a S::Record,
        body: &'a [u8],
        envelopes: &[Envelope],
        payload: Option<&str>,
    ) -> Result<Self, EnvelopeError> {
        Ok(Self {
            message,
            body,
            opened: Envelope::open_all(envelopes, body, payload)?,
        })
    }

    /// Gives the message as its source delivered it.
    pub(super) fn message(&self) -> &'a S::Record {
        self.message
    }

    /// Gives what is decoded for the handler.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.opened {
            Some(opened) => opened.text.as_bytes(),
            None => self.body,
        }
    }

    /// Gives the same as text, which is empty where it is none.
    pub(super) fn text(&self) -> &str {
        match &self.opened {
            Some(opened) => &opened.text,
            None => std::str::from_utf8(self.body).unwrap_or_default(),
        }
    }

    /// Gives the id that is the key, unless a key is set.
    pub(super) fn id(&self) -> Option<Cow<'_, str>> {
        match &self.opened {
            Some(opened) if !opened.keeps_id => opened.id.as_deref().map(Cow::Borrowed),
            _ => S::token(self.message),
        }
    }

    /// Gives the attribute of this name: that of the envelope, else that of the message.
    pub(super) fn attribute(&self, name: &str) -> Option<String> {
        let opened = self.opened.as_ref();
        let inside = opened.and_then(|opened| opened.attributes.get(name).cloned());
        inside.or_else(|| S::attribute(self.message, name))
    }

    /// Tells whether nothing is here of what the message asks for: its payload was not fetched, and no
    /// service says anything of it.
    pub(super) fn is_unknown(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| opened.pointer.is_some() && opened.context.is_empty())
    }

    /// Takes the fingerprint of the text without these fields, and of what its envelope says that
    /// the text asks for. A payload that was fetched has the fingerprint of a body with its text.
    pub(super) fn fingerprint(&self, left_out: &[Pointer]) -> Fingerprint {
        let text = || Fingerprint::json_without(self.bytes(), left_out);
        match &self.opened {
            Some(opened) if opened.pointer.is_some() => Fingerprint::combine(&opened.context),
            Some(opened) if opened.keeps_id => text(),
            Some(opened) => Fingerprint::combine(opened.context.iter().chain([&text()])),
            None => text(),
        }
    }
}

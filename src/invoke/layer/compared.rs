//! Sets what two events of one key are compared by.

use std::sync::Arc;

use super::InvokeLayer;
use crate::invoke::reader::FingerprintSource;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::pointer::Pointer;

impl<T, E> InvokeLayer<T, E> {
    /// Takes the fingerprint from the decoded payload; `None` for an event that is not compared.
    /// Default: the fingerprint of the whole payload, as text.
    ///
    /// Take it from fields that say what the event asks for, not from the whole decoded value: a
    /// field that the type gains would make another request of each event that comes again. Of this,
    /// [`fingerprint_without`](Self::fingerprint_without) and
    /// [`no_fingerprint`](Self::no_fingerprint), the last call counts.
    pub fn fingerprint<V: Into<Option<Fingerprint>>>(
        mut self,
        fingerprint: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> Self {
        let fingerprint = move |payload: &T| fingerprint(payload).into();
        self.config.reader.fingerprint = FingerprintSource::Closure(Arc::new(fingerprint));
        self
    }

    /// Leaves fields of the payload out of the fingerprint, such as `/sent_at` and `/meta/trace`:
    /// they may differ between two events of one request; a pointer to the whole changes nothing.
    /// Default: none.
    ///
    /// An event that differs there gets the answer of the first, so leave out nothing that changes
    /// what it asks for.
    pub fn fingerprint_without(mut self, fields: impl IntoIterator<Item = Pointer>) -> Self {
        let fields = fields.into_iter().collect();
        self.config.reader.fingerprint = FingerprintSource::Content(fields);
        self
    }

    /// Compares events by their key alone: every event of a key that was done gets its answer,
    /// whatever it says.
    ///
    /// For keys that name one piece of work for ever. A key that is used again by mistake gets
    /// another request's answer: there is no mismatch to report.
    pub fn no_fingerprint(mut self) -> Self {
        self.config.reader.fingerprint = FingerprintSource::Nothing;
        self
    }
}

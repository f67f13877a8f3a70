//! Sets the functions of the caller that get messages and errors.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

#[cfg(feature = "visibility")]
use crate::batch::hooks::Defer;
use crate::batch::rejection::{Hook, Rejected};
use crate::batch::{BatchLayer, Source};

impl<Src: Source, T, E> BatchLayer<Src, T, E> {
    /// Takes rejected messages from the source: those that no retry will mend, as
    /// [`Rejection`](crate::batch::Rejection) lists them. Default: they are reported, and the source's
    /// own policy moves them aside.
    ///
    /// The function gets the message as its source delivered it, after all messages have run, and
    /// keeps it somewhere. When it answers `Ok`, the message is acknowledged, and the source
    /// deletes it. After an error, a panic, or no answer 250 ms before the invocation ends, the
    /// message is reported: answer an error for a message that you don't park. The function may get
    /// a message twice, because an acknowledgement can be lost.
    ///
    /// [`Rejected`] says why: its class, a code and a text, the same ones as in the log's event
    /// `rejected`. For a failed handler the text is the error's type; with
    /// [`log_errors`](crate::Builder::log_errors), which allows texts that may quote the message, it
    /// is the error's own text.
    ///
    /// A message that differs from an earlier one of its batch is rejected when that one is done,
    /// and reported until then. One that follows a rejected message shares its fate; the function
    /// gets the first of them.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// # async fn park(class: &str, detail: &str, body: Option<String>) -> Result<(), std::io::Error> { Ok(()) }
    /// let worker = sqs::BatchLayer::new(once)
    ///     .on_rejected(|message, why| async move {
    ///         park(why.rejection.as_str(), &why.detail, message.body).await
    ///     })
    ///     .handler(|message: sqs::Message<u64>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn on_rejected<F, Fut, HookError>(mut self, hook: F) -> Self
    where
        F: Fn(Src::Record, Rejected) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HookError>> + Send + 'static,
        HookError: fmt::Display + 'static,
    {
        let quotes = self.config.once.logs_errors();
        self.config.hooks.on_rejected = Some(Hook::new(hook, quotes));
        self
    }

    /// Shows each error of the handler to this function, with the message as its source delivered
    /// it: to log it, to count it. Default: none, and the log has the error's type.
    ///
    /// The function changes nothing: the message is reported, or rejected where the error is
    /// [permanent](Self::permanent). It is not called for a panic, for an obstacle of the engine's,
    /// or for the error that a write's [condition](crate::store::transaction::Write::or_else)
    /// answers with. With it, each message is cloned before its handler runs.
    ///
    /// An error's text may quote the message. [`log_errors`](crate::Builder::log_errors) logs it as
    /// it is.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let worker = sqs::BatchLayer::new(once)
    ///     .on_error(|message, error: &std::io::Error| {
    ///         eprintln!("{}: {error}", message.message_id.as_deref().unwrap_or_default());
    ///     })
    ///     .handler(|message: sqs::Message<u64>| async move { Err::<(), _>(std::io::Error::other("no route")) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn on_error(mut self, hook: impl Fn(&Src::Record, &E) + Send + Sync + 'static) -> Self {
        self.config.on_error = Some(Arc::new(hook));
        self
    }

    /// Defers messages that are in flight elsewhere until their claim is free.
    #[cfg(feature = "visibility")]
    pub(crate) fn deferring(mut self, deferring: Arc<dyn Defer<Src::Record>>) -> Self {
        self.config.hooks.deferring = Some(deferring);
        self
    }
}

//! The settings of a layer that few workers change.

use std::time::Duration;

use crate::batch::turns::Order;
use crate::protocol::pointer::Pointer;
use crate::protocol::selector::Selector;
use crate::window::Window;

/// The number of keys of a layer's own window: as many as a batch takes out of aggregates.
const WINDOW: usize = 1 << 15;

/// The settings of a layer that few workers change, with their defaults: those that
/// [`BatchLayer::settings`](super::BatchLayer::settings) gives to its closure. The layer has methods for
/// the others.
///
/// ```
/// use std::time::Duration;
/// use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("jobs").build()?;
/// let worker = sqs::BatchLayer::new(once)
///     .settings(|settings| {
///         settings.concurrency = 20;
///         settings.reserve = Some(Duration::from_secs(2));
///     })
///     .handler(|message: sqs::Message<u64>| async move { Ok::<_, std::io::Error>(()) });
/// # Ok::<(), lambda_idempotency::BuildError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The time for which the source may deliver a message again: the retention of a long queue with
    /// its dead-letter queue and a redrive, or of an archive that is replayed. Default: undeclared,
    /// and nothing is compared.
    ///
    /// The layer logs a warning once, `retention_too_short`, where outcomes are kept for a shorter
    /// time. It compares the engine's [retention](crate::Builder::retention), so a
    /// [`retention`](super::BatchLayer::retention) by message switches the comparison off.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// const DAYS_28: Duration = Duration::from_secs(28 * 86_400);
    /// let once = Idempotency::builder(MemoryStore::new()).namespace("jobs").retention(DAYS_28).build()?;
    /// // 14 days in the queue, and 14 more after a redrive.
    /// let worker = sqs::BatchLayer::new(once)
    ///     .settings(|settings| settings.source_retention = Some(DAYS_28))
    ///     .handler(|message: sqs::Message<u64>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub source_retention: Option<Duration>,
    /// The number of messages that run side by side; 0 is 1, and `usize::MAX` is no limit. A message
    /// whose handler is not ready yet, as under tower's `ConcurrencyLimit`, is one of them, and has no
    /// claim, unless messages [wait for other attempts](crate::Builder::in_flight). Default: 10, the default size of a batch.
    pub concurrency: usize,
    /// The window of keys that were met lately, where the source doesn't count deliveries: the
    /// record of a message that is in it is read first, instead of a claim that is refused. It is a
    /// hint, and decides nothing. Default: its own window, of 32,768 keys. Clones of a window share
    /// their keys.
    pub window: Window,
    /// The order in which messages run. Default: by group where the source orders its messages, else
    /// side by side.
    pub order: Order,
    /// The reserve, the last part of the invocation's time. No message starts in it, messages that
    /// didn't start are reported and their claims released, and a running handler can
    /// [wait for it](super::Message::cancelled). A handler that still runs in the middle of the
    /// reserve, or half a second before the deadline where that is later, is ended and its message
    /// reported; in a short reserve, 250 ms or a twentieth of the time before the deadline, and no
    /// message starts from then on. Where work [goes on](crate::AtDeadline::GoOn) after the
    /// deadline, no handler is ended. Default: a tenth of the time that the invocation has, at most
    /// 1 second. At most half of that time, whatever is set.
    pub reserve: Option<Duration>,
    /// Sends each claim and each completion as its own request. Default: off.
    ///
    /// By default those of up to 25 messages leave in one request, which costs the same capacity
    /// and a fraction of the time. In DynamoDB that needs the permissions `dynamodb:PartiQLInsert`,
    /// `dynamodb:PartiQLUpdate` and `dynamodb:BatchGetItem`, too; where the function lacks one,
    /// requests leave one by one, with a warning.
    pub single_writes: bool,
    /// Fails the whole invocation where a message must be delivered again, instead of naming the
    /// message in the reply: for an event source mapping without `ReportBatchItemFailures`, which
    /// ignores the reply and takes *every* message of an invocation that succeeded for done. Default:
    /// off. Where the source [reads no reply](super::Source::READS_REPLY), the invocation fails in
    /// any case.
    ///
    /// Every message of the batch is delivered again then; those that are done are replayed, and
    /// their effects don't happen twice.
    pub without_item_failures: bool,
    /// The fields of the body, or of what is in its [envelope](super::BatchLayer::envelope), that are
    /// left out of the fingerprint, such as `/sent_at` and `/meta/trace`: they may differ between two
    /// messages of one request; a pointer to the whole changes nothing. Default: none.
    ///
    /// A message that differs there is a duplicate of the first, so leave out nothing that changes
    /// what it asks for.
    ///
    /// Set it before a worker goes live, or with another key: a record that was written without it
    /// is a mismatch for the same message, delivered again.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Payment { order_id: String }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// let left_out = vec!["/sent_at".parse()?, "/meta/trace".parse()?];
    /// let worker = sqs::BatchLayer::new(once)
    ///     .key(|payment: &Payment| payment.order_id.clone())
    ///     .settings(|settings| settings.fingerprint_without = left_out)
    ///     .handler(|message: sqs::Message<Payment>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fingerprint_without: Vec<Pointer>,
    /// The one part of the message as it was received that is compared: what the selector finds.
    /// Messages in which it finds nothing are equal to each other, and differ from all in which it
    /// finds something; of a body that isn't JSON, such as a compressed one, the whole is compared. It
    /// takes precedence over
    /// [`fingerprint_without`](Settings::fingerprint_without). To compare an attribute alone, name it in
    /// [`fingerprint_attributes`](Settings::fingerprint_attributes), and let
    /// [`fingerprint`](super::BatchLayer::fingerprint) give the same for each message. Default: none, and
    /// the whole is compared.
    ///
    /// Set it before a worker goes live, or with another key: a record that was written without it
    /// is a mismatch for the same message, delivered again.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, Selector, sqs, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
    /// // Events of a bus, with the handler in need of the whole event.
    /// let compared = Selector::pointer("/detail")?;
    /// let worker = sqs::BatchLayer::new(once)
    ///     .key_from(Selector::pointer("/detail/order_id")?)
    ///     .settings(|settings| settings.fingerprint_from = Some(compared))
    ///     .handler(|message: sqs::Message<serde_json::Value>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fingerprint_from: Option<Selector>,
    /// The names of the attributes of the message that are compared, too: the text of each, in
    /// Base64 where it is bytes. An attribute of the [envelope](super::BatchLayer::envelope) counts
    /// before one of the message, as in [`key_attribute`](super::BatchLayer::key_attribute). Default: none.
    ///
    /// Two messages that differ in one of these are no duplicates: under one key, the second is a
    /// mismatch. So is a message that lacks an attribute which the other has. Leave out what
    /// differs between two sends of one message, such as a trace id. A message that is not
    /// compared, since [`fingerprint`](super::BatchLayer::fingerprint) gives `None` for it, stays so.
    ///
    /// Set it before a worker goes live, or with another key: a record that was written without it
    /// is a mismatch for the same message, delivered again.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
    /// # #[derive(serde::Deserialize)] struct Order { order_id: String }
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("orders").build()?;
    /// // An order's `placed` and `cancelled` have the same body.
    /// let worker = sqs::BatchLayer::new(once)
    ///     .key(|order: &Order| order.order_id.clone())
    ///     .settings(|settings| settings.fingerprint_attributes = vec!["event_type".into()])
    ///     .handler(|message: sqs::Message<Order>| async move { Ok::<_, std::io::Error>(()) });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fingerprint_attributes: Vec<String>,
}

impl Settings {
    pub(super) fn new() -> Self {
        Self {
            source_retention: None,
            concurrency: 10,
            window: Window::new(WINDOW),
            order: Order::BySource,
            reserve: None,
            single_writes: false,
            without_item_failures: false,
            fingerprint_without: Vec::new(),
            fingerprint_from: None,
            fingerprint_attributes: Vec::new(),
        }
    }
}

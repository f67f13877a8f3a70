//! Runs batches of messages from any source: decodes each message, takes its key, and runs its
//! handler once.
//!
//! A [`Source`] describes one kind of event: what its messages are, and which reply has some of
//! them delivered again. [`BatchLayer`] does the rest for each source alike: it decodes, compares,
//! claims, orders, runs and reports. `sqs` has the first source, and the documentation of keys,
//! order, time and logs.
//!
//! # A source of your own
//!
//! 1. Declare the type of the event, as Lambda hands it to the function. Where it is another
//!    crate's, wrap it in a struct of your own with `#[serde(transparent)]`.
//! 2. Implement [`Source`] for it. Choose [`Reply`](Source::Reply), what Lambda expects of the
//!    function, and [`Record`](Source::Record), one message as the source delivers it. Where a
//!    message needs something of the event around it, such as its position or its topic, let
//!    `Record` be a struct of your own with both.
//! 3. Write [`records`](Source::records), [`id`](Source::id) and [`body`](Source::body). An id
//!    names its message in the reply, so a batch with a message that has none fails before anything
//!    runs. It is the message's key, too, where the user sets none: where two streams may have equal
//!    ids, write [`token`](Source::token).
//! 4. Write [`reply`](Source::reply). It gets the ids of the messages that must be delivered again, and no
//!    others. Ask yourself what Lambda does with each message that the reply leaves out. Where Lambda
//!    ignores the reply, set [`READS_REPLY`](Source::READS_REPLY) to `false`.
//! 5. Write what the source knows of a message besides: [`origin`](Source::origin),
//!    [`order_key`](Source::order_key), [`is_ordered`](Source::is_ordered),
//!    [`deliveries`](Source::deliveries) and [`attribute`](Source::attribute). All but the first
//!    have a default, for a source that knows nothing.
//! 6. Write the spans, [`batch_span`](Source::batch_span) and [`record_span`](Source::record_span).
//!    No body and no key belongs into them.
//! 7. Use the layer: `BatchLayer::<YourEvent, _, _>::new(once)`. A type alias, as
//!    `sqs::BatchLayer` is, spares your users the first parameter.
//!
//! Here an event is a list of JSON texts. The same order arrives twice in one batch, and a third
//! text is no order:
//!
//! ```
//! use std::convert::Infallible;
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! use lambda_idempotency::batch::{BatchLayer, BodyError, Message, Source};
//! use lambda_idempotency::{Idempotency, store::MemoryStore};
//! use lambda_runtime::{Context, LambdaEvent};
//! use tower::Service;
//! use tracing::{Span, info_span};
//!
//! #[derive(serde::Deserialize)]
//! #[serde(transparent)]
//! struct Lines(Vec<String>);
//!
//! /// A text with its position in the event, which is its id.
//! #[derive(Clone)]
//! struct Line {
//!     id: String,
//!     text: String,
//! }
//!
//! impl Source for Lines {
//!     type Record = Line;
//!     type Reply = Vec<String>;
//!     const NAME: &'static str = "lines";
//!
//!     fn records(self) -> Vec<Line> {
//!         let line = |(position, text): (usize, String)| Line { id: position.to_string(), text };
//!         self.0.into_iter().enumerate().map(line).collect()
//!     }
//!     fn id(line: &Line) -> Option<&str> {
//!         Some(&line.id)
//!     }
//!     fn body(line: &Line) -> Result<&[u8], BodyError> {
//!         Ok(line.text.as_bytes())
//!     }
//!     fn reply(failed: Vec<String>) -> Vec<String> {
//!         failed
//!     }
//!     // A line comes from nowhere in particular.
//!     fn origin(_: &Line) -> Option<&str> {
//!         None
//!     }
//!     fn batch_span(lines: &[Line], context: &Context) -> Span {
//!         info_span!("lines", count = lines.len(), request_id = context.request_id)
//!     }
//!     fn record_span(line: &Line) -> Span {
//!         info_span!("line", id = line.id)
//!     }
//! }
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     id: String,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let once = Idempotency::builder(MemoryStore::new()).namespace("orders").build()?;
//! let shipped = Arc::new(AtomicU32::new(0));
//! let count = Arc::clone(&shipped);
//! let mut worker = BatchLayer::<Lines, _, _>::new(once)
//!     .operation("ship")
//!     .key(|order: &Order| order.id.clone())
//!     .handler(move |_: Message<Lines, Order>| {
//!         count.fetch_add(1, Ordering::Relaxed);
//!         async { Ok::<_, Infallible>(()) }
//!     });
//! let event = Lines([r#"{"id": "A-17"}"#, r#"{"id": "A-17"}"#, "no order"].map(str::to_owned).to_vec());
//! let again = worker.call(LambdaEvent::new(event, Context::default())).await?;
//! assert_eq!(shipped.load(Ordering::Relaxed), 1); // the second message follows the first
//! assert_eq!(again, ["2"]); // and the third must be delivered again
//! # Ok(()) }
//! ```
//!
//! # What the reply names
//!
//! The reply names each message whose work is not known to be done: its handler failed, panicked or
//! did not start, its body is not in the declared [`Envelope`], isn't fetched or doesn't decode, its key
//! can't be used, another attempt is at work on it, or the store failed. A message that does the same
//! request as an earlier one of its batch follows that one, and is done when that one is. In an
//! ordered group all messages after a reported one are reported, too. A
//! [hook](BatchLayer::on_rejected) may take the messages that no retry will fix.
//!
//! The invocation fails as a whole, with a [`BatchError`], where a message has no id, where the
//! store's table, its schema, a permission or the layer's set-up kept every message from being done,
//! and where a message must be delivered again and the layer replies
//! [without item failures](Settings::without_item_failures).

mod hooks;
mod key;
mod layer;
mod message;
mod reader;
mod report;
mod run;
mod service;
mod settings;
mod source;
mod turns;

pub use crate::engine::rejection::Rejection;
pub use crate::envelope::{Envelope, S3Pointer};
#[cfg(feature = "visibility")]
pub(crate) use hooks::Deferral;
pub use hooks::Rejected;
pub use layer::BatchLayer;
pub use message::Message;
pub use service::{BatchError, BatchService};
pub use settings::Settings;
pub use source::{BodyError, Source};
pub use turns::Order;

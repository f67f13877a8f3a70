//! The library's layer for batches of a source, as a function would use it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lambda_idempotency::Idempotency;
use lambda_idempotency::batch::{BatchLayer, Message, Source};
use lambda_idempotency::kinesis::KinesisEvent;
use lambda_idempotency::sqs::SqsEvent;
use lambda_idempotency::store::Store;
use lambda_runtime::{Context, LambdaEvent};
use tower::Service;

use crate::Error;
use crate::messages::Payment;

type Reply<Src> = Pin<Box<dyn Future<Output = Result<<Src as Source>::Reply, Error>> + Send>>;

/// A source whose layer is measured.
pub trait Measured: Source {
    /// Returns the number of records that a reply asks for again.
    fn failures(reply: &Self::Reply) -> usize;
}

impl Measured for SqsEvent {
    fn failures(reply: &Self::Reply) -> usize {
        reply.batch_item_failures.len()
    }
}

impl Measured for KinesisEvent {
    fn failures(reply: &Self::Reply) -> usize {
        reply.batch_item_failures.len()
    }
}

/// A worker whose handler does nothing.
pub struct Layer<Src: Measured> {
    worker: Box<dyn FnMut(LambdaEvent<Src>) -> Reply<Src>>,
    runs: Arc<AtomicUsize>,
}

impl<Src: Measured> Layer<Src> {
    /// With the layer's own settings; a key is all that it is told.
    pub fn new(store: impl Store) -> Result<Self, Error> {
        let once = Idempotency::builder(store).namespace("bench").build()?;
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let mut service = BatchLayer::<Src, _, _>::new(once)
            .operation("charge")
            .key(|payment: &Payment| payment.payment_id.clone())
            .handler(move |message: Message<Src, Payment>| {
                counted.fetch_add(1, Ordering::Relaxed);
                std::hint::black_box(message.body.amount);
                async { Ok::<_, Infallible>("done".to_owned()) }
            });
        let worker = Box::new(move |event: LambdaEvent<Src>| -> Reply<Src> {
            let reply = service.call(event);
            Box::pin(async move { Ok(reply.await?) })
        });
        Ok(Self { worker, runs })
    }

    /// Takes a batch through, and returns the number of its messages that ran. All must have been acknowledged.
    pub async fn batch(&mut self, event: Src) -> Result<usize, Error> {
        let reply = (self.worker)(LambdaEvent::new(event, context()?)).await?;
        let failures = Src::failures(&reply);
        if failures > 0 {
            return Err(format!("{failures} messages failed").into());
        }
        Ok(self.runs.swap(0, Ordering::Relaxed))
    }
}

/// An invocation that has a minute.
pub fn context() -> Result<Context, Error> {
    let end = SystemTime::now().duration_since(UNIX_EPOCH)? + Duration::from_mins(1);
    let mut context = Context::default();
    context.deadline = end.as_millis().try_into()?;
    Ok(context)
}

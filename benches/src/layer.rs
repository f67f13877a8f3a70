//! The library's SQS layer, as a function would use it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lambda_idempotency::Idempotency;
use lambda_idempotency::sqs::{BatchLayer, Message, SqsBatchResponse, SqsEvent};
use lambda_idempotency::store::Store;
use lambda_runtime::{Context, LambdaEvent};
use tower::Service;

use crate::Error;
use crate::messages::Payment;

type Reply = Pin<Box<dyn Future<Output = Result<SqsBatchResponse, Error>> + Send>>;

/// A worker whose handler does nothing.
pub struct Layer {
    worker: Box<dyn FnMut(LambdaEvent<SqsEvent>) -> Reply>,
    runs: Arc<AtomicUsize>,
}

impl Layer {
    /// With the layer's own settings; a key is all that it is told.
    pub fn new(store: impl Store) -> Result<Self, Error> {
        let once = Idempotency::builder(store).namespace("bench").build()?;
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let mut service = BatchLayer::new(once)
            .operation("charge")
            .key(|payment: &Payment| payment.payment_id.clone())
            .handler(move |message: Message<Payment>| {
                counted.fetch_add(1, Ordering::Relaxed);
                std::hint::black_box(message.body.amount);
                async { Ok::<_, Infallible>("done".to_owned()) }
            });
        let worker = Box::new(move |event| -> Reply {
            let reply = service.call(event);
            Box::pin(async move { Ok(reply.await?) })
        });
        Ok(Self { worker, runs })
    }

    /// Takes a batch through; how many of its messages ran. All must have been acknowledged.
    pub async fn batch(&mut self, event: SqsEvent) -> Result<usize, Error> {
        let reply = (self.worker)(LambdaEvent::new(event, context()?)).await?;
        if !reply.batch_item_failures.is_empty() {
            return Err(format!("{} messages failed", reply.batch_item_failures.len()).into());
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

//! The layer writes the documents of an invocation when its handler ends.

use std::pin::Pin;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::exporter::Exporter;

impl<S> Layer<S> for Exporter {
    type Service = Flushing<S>;

    fn layer(&self, inner: S) -> Flushing<S> {
        Flushing {
            exporter: self.clone(),
            inner,
        }
    }
}

/// A service whose metrics are written before it answers. [`Exporter`] is the layer that makes it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Flushing<S> {
    exporter: Exporter,
    inner: S,
}

/// Writes when it is dropped: after an answer, an error, a panic or a timeout.
struct AtTheEnd(Exporter);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        self.0.flush();
    }
}

impl<S, Event> Service<Event> for Flushing<S>
where
    S: Service<Event>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, event: Event) -> Self::Future {
        let at_the_end = AtTheEnd(self.exporter.clone());
        let running = self.inner.call(event);
        Box::pin(async move {
            let _at_the_end = at_the_end;
            running.await
        })
    }
}

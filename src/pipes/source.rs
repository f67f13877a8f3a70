//! Implements [`Source`] for a pipe around another source.

use std::borrow::Cow;
use std::marker::PhantomData;

use lambda_runtime::Context;
use tracing::Span;

use crate::batch::{BodyError, Source};
use crate::sqs::Sqs;
use crate::streams::ItemFailures;

/// Names an EventBridge Pipe as the [`Source`] of a batch, by the source that the pipe reads.
#[derive(Clone, Copy, Debug)]
pub struct Pipe<Src>(PhantomData<Src>);

/// Marks the sources whose records a pipe delivers as the source itself does. Only this crate
/// implements it.
pub trait PipeSource: Source + sealed::Sealed {}

impl PipeSource for Sqs {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Sqs {}
}

impl<Src: PipeSource> Source for Pipe<Src> {
    type Event = Vec<Src::Record>;
    type Record = Src::Record;
    type Reply = ItemFailures;

    const NAME: &'static str = "pipe";

    fn records(event: Self::Event) -> Vec<Src::Record> {
        event
    }

    fn id(record: &Src::Record) -> Option<&str> {
        Src::id(record)
    }

    fn token(record: &Src::Record) -> Option<Cow<'_, str>> {
        Src::token(record)
    }

    fn body(record: &Src::Record) -> Result<&[u8], BodyError> {
        Src::body(record)
    }

    fn origin(record: &Src::Record) -> Option<&str> {
        Src::origin(record)
    }

    fn order_key(record: &Src::Record) -> Option<&str> {
        Src::order_key(record)
    }

    fn is_ordered(record: &Src::Record) -> bool {
        Src::is_ordered(record)
    }

    fn deliveries(record: &Src::Record) -> Option<u32> {
        Src::deliveries(record)
    }

    fn attribute(record: &Src::Record, name: &str) -> Option<String> {
        Src::attribute(record, name)
    }

    fn reply(failed: Vec<String>) -> ItemFailures {
        ItemFailures::of(failed)
    }

    fn batch_span(records: &[Src::Record], context: &Context) -> Span {
        Src::batch_span(records, context)
    }

    fn record_span(record: &Src::Record) -> Span {
        Src::record_span(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_passes_on_how_often_its_source_has_delivered() {
        let record = |count: &str| {
            let mut message = aws_lambda_events::event::sqs::SqsMessage::default();
            let name = "ApproximateReceiveCount".to_owned();
            message.attributes.insert(name, count.to_owned());
            message
        };
        assert_eq!(Pipe::<Sqs>::deliveries(&record("3")), Some(3));
        assert_eq!(Pipe::<Sqs>::deliveries(&record("")), None);
    }
}

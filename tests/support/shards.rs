//! An event source mapping of a data stream, as Lambda's: shards in order, a checkpoint for each, retries, split batches, and records that
//! are given up.
//!
//! It knows nothing of this crate: a function takes an event, and gives JSON or fails. Lambda's behaviour is on these pages:
//! [polling](https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html),
//! [replies](https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-batchfailurereporting.html),
//! [discarded records](https://docs.aws.amazon.com/lambda/latest/dg/kinesis-on-failure-destination.html).

mod mapping;
mod record;
mod verdict;

pub use mapping::{Discarded, Invoked, Mapping, Why};
pub use record::{DataStream, Record, event};
pub use verdict::{Verdict, verdict};

//! Reads a stream: in batches, side by side, again and again.

use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::sleep;

use super::record::number_of;
use super::{DataStream, Record, Verdict, verdict};

/// The settings of an event source mapping, with AWS's names. `ReportBatchItemFailures` is always on.
#[derive(Clone, Debug)]
pub struct Mapping {
    pub batch_size: usize,
    pub bisect_batch_on_function_error: bool,
    /// `None` retries until the record expires, as AWS's default does.
    pub maximum_retry_attempts: Option<u32>,
    pub maximum_record_age: Option<Duration>,
    /// So many batches of one shard run side by side. Records of one partition key are always in the same of them, in order.
    pub parallelization_factor: usize,
    /// The pause before a retry.
    pub pause: Duration,
    /// Lets the mapping lose checkpoints, after one batch in eight, and go back by up to two batches: with this seed.
    pub forgets: Option<u64>,
}

/// The result of an invocation.
#[derive(Debug)]
pub enum Invoked {
    Answered(Value),
    /// An error, a timeout, a process that ended.
    Failed,
}

/// Records that were given up. Lambda sends their numbers to the on-failure destination.
#[derive(Debug, PartialEq, Eq)]
pub struct Discarded {
    pub records: Vec<Record>,
    pub why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    RetriesExhausted,
    TooOld,
}

/// A batch, or what a failure left of it.
struct Part<'a> {
    records: &'a [Record],
    retries: u32,
}

impl Default for Mapping {
    /// AWS's defaults.
    fn default() -> Self {
        Self {
            batch_size: 100,
            bisect_batch_on_function_error: false,
            maximum_retry_attempts: None,
            maximum_record_age: None,
            parallelization_factor: 1,
            pause: Duration::from_millis(100),
            forgets: None,
        }
    }
}

impl Mapping {
    /// Reads the whole stream, until each record is done or discarded, and returns the discarded ones.
    pub async fn read<F>(&self, stream: &DataStream, function: &F) -> Vec<Discarded>
    where
        F: AsyncFn(&[Record]) -> Invoked,
    {
        let lanes = stream.shards.iter().flat_map(|shard| self.lanes(shard));
        let lanes = lanes
            .zip(0..)
            .map(|(records, lane)| self.read_lane(records, lane, function));
        join_all(lanes).await.into_iter().flatten().collect()
    }

    fn lanes(&self, shard: &[Record]) -> Vec<Vec<Record>> {
        let mut lanes = vec![Vec::new(); self.parallelization_factor];
        for record in shard {
            // Not by the hash alone: it chose the shard, too.
            let salted = format!("lane of {}", record.partition_key);
            lanes[number_of(&salted, self.parallelization_factor)].push(record.clone());
        }
        lanes
    }

    async fn read_lane<F>(&self, records: Vec<Record>, lane: u64, function: &F) -> Vec<Discarded>
    where
        F: AsyncFn(&[Record]) -> Invoked,
    {
        let mut dice = self.forgets.map(|seed| Rng::with_seed(seed ^ lane));
        let mut discarded = Vec::new();
        let mut checkpoint = 0;
        while checkpoint < records.len() {
            let end = records.len().min(checkpoint + self.batch_size);
            self.settle(&records[checkpoint..end], function, &mut discarded)
                .await;
            checkpoint = end;
            if let Some(dice) = &mut dice
                && dice.u8(..8) == 0
            {
                checkpoint = checkpoint.saturating_sub(dice.usize(..=2 * self.batch_size));
            }
        }
        discarded
    }

    /// Delivers a batch until each of its records is done or discarded. Nothing behind it is delivered before.
    async fn settle<F>(&self, batch: &[Record], function: &F, discarded: &mut Vec<Discarded>)
    where
        F: AsyncFn(&[Record]) -> Invoked,
    {
        // The earliest is the last.
        let mut parts = vec![Part {
            records: batch,
            retries: 0,
        }];
        while let Some(part) = parts.pop() {
            let records = self.without_old(part.records, discarded);
            if records.is_empty() {
                continue;
            }
            let verdict = match function(records).await {
                Invoked::Answered(answer) => verdict(&answer, records),
                Invoked::Failed => Verdict::Failed,
            };
            match verdict {
                Verdict::Done => continue,
                // Splitting a batch uses up no retry.
                Verdict::Failed if self.bisect_batch_on_function_error && records.len() > 1 => {
                    let (first, second) = records.split_at(records.len() / 2);
                    let half = |records| Part {
                        records,
                        retries: part.retries,
                    };
                    parts.extend([half(second), half(first)]);
                }
                // A partial success is split at its checkpoint, and no page says that it gives back retries.
                Verdict::From(_) | Verdict::Failed => {
                    let from = if let Verdict::From(from) = verdict {
                        from
                    } else {
                        0
                    };
                    let records = &records[from..];
                    if self
                        .maximum_retry_attempts
                        .is_some_and(|most| part.retries >= most)
                    {
                        discarded.push(Discarded {
                            records: records.to_vec(),
                            why: Why::RetriesExhausted,
                        });
                        continue;
                    }
                    let retries = part.retries + 1;
                    parts.push(Part { records, retries });
                }
            }
            sleep(self.pause).await;
        }
    }

    /// Discards those that are too old; the others.
    fn without_old<'a>(
        &self,
        records: &'a [Record],
        discarded: &mut Vec<Discarded>,
    ) -> &'a [Record] {
        let is_old = |record: &Record| {
            self.maximum_record_age
                .is_some_and(|age| record.arrival.elapsed() > age)
        };
        let old = records.iter().take_while(|record| is_old(record)).count();
        let (old, rest) = records.split_at(old);
        if !old.is_empty() {
            discarded.push(Discarded {
                records: old.to_vec(),
                why: Why::TooOld,
            });
        }
        rest
    }
}

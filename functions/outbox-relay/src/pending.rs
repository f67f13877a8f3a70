//! Merges the buckets of the index by time, a page of one bucket at a time.

use std::collections::VecDeque;

use lambda_idempotency::dynamodb::outbox::PENDING_BUCKETS;

use crate::table::{EventKey, Item, Page};

/// The pending events of all buckets, oldest first, as far as they have been read.
pub(crate) struct Pending {
    buckets: Vec<Bucket>,
}

struct Bucket {
    name: &'static str,
    keys: VecDeque<(i64, EventKey)>,
    /// No event before this time is still unread.
    read_until: i64,
    next: Next,
}

enum Next {
    At(Option<Item>),
    End,
}

/// The next step of a sweep.
pub(crate) enum Need {
    /// These keys are next, oldest first.
    Taken(Vec<EventKey>),
    /// This bucket must be read from here before it is known which event is next.
    Read(&'static str, Option<Item>),
    /// All buckets are read, and all keys were taken.
    Nothing,
}

impl Pending {
    pub(crate) fn new() -> Self {
        let bucket = |name| Bucket {
            name,
            keys: VecDeque::new(),
            read_until: i64::MIN,
            next: Next::At(None),
        };
        Self {
            buckets: PENDING_BUCKETS.map(bucket).into(),
        }
    }

    /// Takes every key that is older than whatever may still be unread.
    pub(crate) fn next(&mut self) -> Need {
        let open = self.buckets.iter();
        let open = open.filter(|bucket| matches!(bucket.next, Next::At(_)));
        let behind = open.min_by_key(|bucket| bucket.read_until);
        let limit = behind.map(|bucket| bucket.read_until);
        let read = behind.map(|bucket| match &bucket.next {
            Next::At(from) => Need::Read(bucket.name, from.clone()),
            Next::End => Need::Nothing,
        });
        let is_next = |recorded: i64| limit.is_none_or(|limit| recorded < limit);
        let mut taken = Vec::new();
        for bucket in &mut self.buckets {
            let count = bucket
                .keys
                .partition_point(|(recorded, _)| is_next(*recorded));
            taken.extend(bucket.keys.drain(..count));
        }
        if taken.is_empty() {
            return read.unwrap_or(Need::Nothing);
        }
        taken.sort_by_key(|(recorded, _)| *recorded);
        Need::Taken(taken.into_iter().map(|(_, key)| key).collect())
    }

    /// Takes in what a bucket had.
    pub(crate) fn read(&mut self, name: &str, page: Page) {
        let Some(bucket) = self.buckets.iter_mut().find(|bucket| bucket.name == name) else {
            return;
        };
        if let Some((recorded, _)) = page.keys.last() {
            bucket.read_until = *recorded;
        }
        bucket.keys.extend(page.keys);
        bucket.next = page.next.map_or(Next::End, |next| Next::At(Some(next)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Reads buckets of these times, two at a time; the times as they were taken, and how often a bucket was read.
    fn taken(buckets: &[(&str, &[i64])]) -> (Vec<i64>, usize) {
        let (mut pending, mut times, mut reads) = (Pending::new(), Vec::new(), 0);
        let mut left: HashMap<_, Vec<i64>> = buckets
            .iter()
            .map(|(name, times)| ((*name).to_owned(), times.to_vec()))
            .collect();
        loop {
            match pending.next() {
                Need::Nothing => return (times, reads),
                Need::Taken(keys) => {
                    times.extend(keys.iter().map(|(_, id)| id.parse::<i64>().unwrap()));
                }
                Need::Read(name, _) => {
                    reads += 1;
                    let left = left.entry(name.to_owned()).or_default();
                    let rest = left.split_off(left.len().min(2));
                    let page = std::mem::replace(left, rest);
                    let key = |time: i64| (time, ("a".to_owned(), time.to_string()));
                    let next = (!left.is_empty()).then(Item::new);
                    let keys = page.into_iter().map(key).collect();
                    pending.read(name, Page { keys, next });
                }
            }
        }
    }

    #[test]
    fn events_of_all_buckets_come_in_the_order_of_their_times() {
        let (times, _) = taken(&[("0", &[1, 4, 6, 9]), ("3", &[2, 3, 5, 8, 10]), ("f", &[7])]);
        assert_eq!(times, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn more_events_of_one_time_than_a_page_holds_are_all_taken() {
        let (times, _) = taken(&[("0", &[5, 5, 5, 5, 5]), ("1", &[5, 5, 5]), ("2", &[1, 9])]);
        assert_eq!(times, [1, 5, 5, 5, 5, 5, 5, 5, 5, 9]);
    }

    #[test]
    fn an_empty_index_costs_a_read_for_each_bucket() {
        assert_eq!(taken(&[]), (vec![], 16));
    }
}

//! The poller of these tests reads replies, retries and discards as AWS's pages say.

use std::cell::RefCell;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::advance;

use crate::support::shards::{
    DataStream, Discarded, Invoked, Mapping, Record, Verdict, Why, verdict,
};

/// A stream of one shard with so many records, which count from 0.
fn stream(records: usize) -> DataStream {
    let mut stream = DataStream::new("movements", 1);
    for n in 0..records {
        stream.put(&format!("key-{n}"), &json!(n));
    }
    stream
}

fn numbers(records: &[Record]) -> Vec<usize> {
    let number = |record: &Record| record.data.parse().unwrap();
    records.iter().map(number).collect()
}

fn failures(ids: &[&str]) -> Value {
    let item = |id: &&str| json!({ "itemIdentifier": id });
    json!({ "batchItemFailures": ids.iter().map(item).collect::<Vec<_>>() })
}

/// The reply that names these records of a batch, where it has them.
fn failing(batch: &[Record], poison: &[usize]) -> Invoked {
    let has_failed = |record: &&Record| poison.contains(&record.data.parse().unwrap());
    let failed: Vec<_> = batch.iter().filter(has_failed).collect();
    let ids: Vec<_> = failed
        .iter()
        .map(|record| record.sequence_number.as_str())
        .collect();
    Invoked::Answered(failures(&ids))
}

/// Reads a stream, and returns the records that were delivered, batch by batch, and those that were discarded.
async fn read(
    mapping: &Mapping,
    stream: &DataStream,
    function: impl Fn(&[Record]) -> Invoked,
) -> (Vec<Vec<usize>>, Vec<Discarded>) {
    let delivered = RefCell::new(Vec::new());
    let discarded = mapping
        .read(stream, &async |batch: &[Record]| {
            delivered.borrow_mut().push(numbers(batch));
            function(batch)
        })
        .await;
    (delivered.into_inner(), discarded)
}

#[test]
fn what_says_nothing_is_success() {
    let stream = stream(3);
    for answer in [
        json!(null),
        json!({}),
        json!({ "batchItemFailures": null }),
        json!({ "batchItemFailures": [] }),
    ] {
        assert_eq!(
            verdict(&answer, &stream.shards[0]),
            Verdict::Done,
            "{answer}"
        );
    }
}

#[test]
fn the_lowest_number_is_the_checkpoint_whatever_the_order() {
    let stream = stream(5);
    let batch = &stream.shards[0];
    let id = |place: usize| batch[place].sequence_number.as_str();
    for (ids, expected) in [
        (vec![id(0)], 0),
        (vec![id(4)], 4),
        (vec![id(3), id(1), id(4)], 1),
    ] {
        assert_eq!(verdict(&failures(&ids), batch), Verdict::From(expected));
    }
}

#[test]
fn an_id_that_is_empty_missing_or_unknown_fails_the_batch() {
    let stream = stream(3);
    let batch = &stream.shards[0];
    let known = json!({ "itemIdentifier": batch[1].sequence_number });
    for item in [
        json!({ "itemIdentifier": "" }),
        json!({ "itemIdentifier": null }),
        json!({ "itemIdentifier": 7 }),
        json!({ "itemIdentifier": "7" }),
        json!({ "itemId": batch[2].sequence_number }),
        json!({}),
    ] {
        let answer = json!({ "batchItemFailures": [known.clone(), item] });
        assert_eq!(verdict(&answer, batch), Verdict::Failed, "{answer}");
    }
    for answer in [json!("done"), json!([]), json!({ "batchItemFailures": "" })] {
        assert_eq!(verdict(&answer, batch), Verdict::Failed, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_comes_again_from_its_checkpoint_and_holds_up_what_is_behind_it() {
    let mapping = Mapping {
        batch_size: 4,
        maximum_retry_attempts: Some(2),
        ..Mapping::default()
    };
    let (delivered, discarded) = read(&mapping, &stream(6), |batch| failing(batch, &[2])).await;
    let expected = [vec![0, 1, 2, 3], vec![2, 3], vec![2, 3], vec![4, 5]];
    assert_eq!(delivered, expected);
    let [discarded] = discarded.as_slice() else {
        panic!("{discarded:?}");
    };
    assert_eq!(discarded.why, Why::RetriesExhausted);
    assert_eq!(
        numbers(&discarded.records),
        [2, 3],
        "with what never started"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_batch_is_split_until_the_poison_is_alone_and_splitting_takes_no_retry() {
    let mapping = Mapping {
        batch_size: 4,
        bisect_batch_on_function_error: true,
        maximum_retry_attempts: Some(1),
        ..Mapping::default()
    };
    let (delivered, discarded) = read(&mapping, &stream(4), |batch| {
        if numbers(batch).contains(&1) {
            Invoked::Failed
        } else {
            Invoked::Answered(json!(null))
        }
    })
    .await;
    let expected = [
        vec![0, 1, 2, 3],
        vec![0, 1],
        vec![0],
        vec![1],
        vec![1],
        vec![2, 3],
    ];
    assert_eq!(delivered, expected);
    assert_eq!(discarded.len(), 1);
    assert_eq!(numbers(&discarded[0].records), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_too_old_is_not_delivered_any_more() {
    let mut stream = stream(2);
    advance(Duration::from_secs(50)).await;
    stream.put("young", &json!(2));
    let mapping = Mapping {
        maximum_record_age: Some(Duration::from_mins(1)),
        pause: Duration::from_secs(4),
        ..Mapping::default()
    };
    let (delivered, discarded) = read(&mapping, &stream, |batch| failing(batch, &[0])).await;
    let expected = [vec![0, 1, 2], vec![0, 1, 2], vec![0, 1, 2], vec![2]];
    assert_eq!(delivered, expected);
    assert_eq!(discarded.len(), 1);
    assert_eq!(discarded[0].why, Why::TooOld);
    assert_eq!(numbers(&discarded[0].records), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn parallel_batches_of_a_shard_keep_a_partition_key_together_and_in_order() {
    let mut stream = DataStream::new("movements", 2);
    for n in 0..200 {
        stream.put(&format!("key-{}", n % 20), &json!(n));
    }
    let mapping = Mapping {
        batch_size: 7,
        parallelization_factor: 3,
        ..Mapping::default()
    };
    let delivered = RefCell::new(vec![Vec::new(); 20]);
    let (running, most) = (RefCell::new(0), RefCell::new(0));
    let discarded = mapping
        .read(&stream, &async |batch: &[Record]| {
            *running.borrow_mut() += 1;
            most.replace_with(|most| (*most).max(*running.borrow()));
            for n in numbers(batch) {
                delivered.borrow_mut()[n % 20].push(n);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            *running.borrow_mut() -= 1;
            Invoked::Answered(json!({}))
        })
        .await;
    assert_eq!(discarded, []);
    assert!(most.into_inner() > 2, "batches of a shard run side by side");
    for (key, delivered) in delivered.into_inner().into_iter().enumerate() {
        let expected: Vec<_> = (key..200).step_by(20).collect();
        assert_eq!(delivered, expected, "key {key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mapping_that_forgets_delivers_again_and_comes_to_an_end() {
    let mapping = Mapping {
        batch_size: 5,
        forgets: Some(7),
        ..Mapping::default()
    };
    let (delivered, _) = read(&mapping, &stream(100), |_| Invoked::Answered(json!(null))).await;
    let mut all: Vec<_> = delivered.concat();
    assert!(all.len() > 100, "{} deliveries", all.len());
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}

//! The time until which messages start.

use aws_lambda_events::event::sqs::SqsMessage;
use proptest::prelude::*;

use super::*;
use crate::sqs::SqsEvent;

fn groups(names: &str) -> Vec<Option<String>> {
    let group = |name: char| (name != '.').then(|| name.to_string());
    names.chars().map(group).collect()
}

/// Takes every message whose turn it is.
fn take_all(turns: &mut Turns) -> Vec<usize> {
    std::iter::from_fn(|| turns.take()).collect()
}

#[test]
fn groups_run_side_by_side_and_their_messages_one_after_the_other() {
    let mut turns = Turns::of(&groups("aab.ba"));
    // The longest group first, then the order of the batch.
    assert_eq!(take_all(&mut turns), [0, 2, 3]);
    turns.done(2);
    turns.done(0);
    assert_eq!(take_all(&mut turns), [1, 4]);
    turns.done(1);
    assert_eq!(take_all(&mut turns), [5]);
    turns.done(5);
    assert!(turns.is_empty());
}

#[test]
fn a_message_without_a_group_comes_after_one_with_another_behind_it() {
    let mut turns = Turns::of(&groups("..aa"));
    assert_eq!(take_all(&mut turns), [2, 0, 1]);
}

#[test]
fn what_is_behind_a_reported_message_never_gets_its_turn() {
    let mut turns = Turns::of(&groups("abaab"));
    take_all(&mut turns);
    assert_eq!(turns.stopped(0), [2, 3]);
    turns.done(1);
    assert_eq!(take_all(&mut turns), [4]);
    assert!(turns.stopped(4).is_empty());
}

#[test]
fn a_group_waits_for_the_message_that_its_own_one_follows() {
    for is_done in [true, false] {
        let mut turns = Turns::of(&groups("aabb"));
        assert_eq!(take_all(&mut turns), [0, 2]);
        turns.wait_for(0, 2);
        assert!(turns.is_empty());
        if is_done {
            turns.done(0);
            assert_eq!(take_all(&mut turns), [1, 3]);
        } else {
            let mut stopped = turns.stopped(0);
            stopped.sort_unstable();
            assert_eq!(stopped, [1, 3]);
        }
    }
}

/// Returns the time that the batch takes where messages start in turn, so many at once.
fn makespan(groups: &[Option<String>], takes: &[u64], places: usize) -> u64 {
    let mut turns = Turns::of(groups);
    let (mut now, mut running) = (0, Vec::new());
    loop {
        while running.len() < places
            && let Some(position) = turns.take()
        {
            running.push((now + takes[position], position));
        }
        let Some(&(end, position)) = running.iter().min() else {
            return now;
        };
        now = end;
        running.retain(|(_, other)| *other != position);
        turns.done(position);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// No schedule is shorter than the work of each place, than the longest group, or than the
    /// messages that one place must take: of `k * places + 1` messages, one place takes `k + 1`.
    /// The least that is found so may be shorter than any schedule, the more so the fewer messages
    /// there are.
    #[test]
    fn the_time_of_a_batch_is_near_the_least(
        names in prop::collection::vec(prop_oneof![1 => Just('.'), 3 => prop::char::range('a', 'h')], 80..160),
        takes in prop::collection::vec(20_u64..100, 160),
        places in 1_usize..12,
    ) {
        let groups = groups(&names.into_iter().collect::<String>());
        let takes = &takes[..groups.len()];
        let mut of_group: HashMap<&str, u64> = HashMap::new();
        for (group, takes) in groups.iter().zip(takes) {
            if let Some(group) = group {
                *of_group.entry(group).or_default() += takes;
            }
        }
        let longest = of_group.into_values().chain(takes.iter().copied()).max().unwrap_or_default();
        let all: u64 = takes.iter().sum();
        let mut descending = takes.to_vec();
        descending.sort_unstable_by(|one, other| other.cmp(one));
        let on_one_place = (1..)
            .map_while(|k| descending.get(k * places - k..=k * places))
            .map(|messages| messages.iter().sum())
            .max()
            .unwrap_or_default();
        let least = longest.max(all.div_ceil(places as u64)).max(on_one_place);
        let found = makespan(&groups, takes, places);
        prop_assert!(found * 10 <= least * 12, "{found} instead of {least}");
    }
}

fn message(queue: &str, group: Option<&str>) -> SqsMessage {
    let mut message = SqsMessage::default();
    message.event_source_arn = Some(format!("arn:aws:sqs:eu-central-1:123456789012:{queue}"));
    let group = group.map(|group| ("MessageGroupId".to_owned(), group.to_owned()));
    message.attributes = group.into_iter().collect();
    message
}

#[test]
fn a_message_is_in_the_group_that_its_source_names_where_groups_are_ordered() {
    let messages = [
        message("payments.fifo", Some("a")),
        message("payments", Some("b")),
        message("payments", None),
    ];
    for (order, expected) in [
        (Order::BySource, [Some("a"), None, None]),
        (Order::Unordered, [None; 3]),
        (Order::Groups, [Some("a"), Some("b"), Some("")]),
        (Order::Batch, [Some(""); 3]),
    ] {
        let groups = order.groups::<SqsEvent>(&messages);
        let groups: Vec<_> = groups.iter().map(Option::as_deref).collect();
        assert_eq!(groups, expected, "{order:?}");
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn the_reserve_is_a_tenth_of_the_time_and_at_most_a_second() {
    let stops_in = |remaining, reserve| limits(remaining, reserve).0 - Instant::now();
    assert_eq!(stops_in(seconds(5), None), Duration::from_millis(4_500));
    assert_eq!(stops_in(seconds(60), None), seconds(59));
    assert_eq!(stops_in(seconds(60), Some(seconds(7))), seconds(53));
    assert_eq!(stops_in(seconds(6), Some(seconds(7))), seconds(3));
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_ended_in_the_middle_of_the_reserve_and_early_enough_for_the_reply() {
    let ends_before = |remaining, reserve| {
        let (_, times) = limits(remaining, reserve);
        let left = Instant::now() + remaining - times.end;
        assert_eq!(times.give_up - times.end, left / 2);
        left.as_millis()
    };
    assert_eq!(ends_before(seconds(3), None), 150);
    assert_eq!(ends_before(seconds(60), None), 500);
    assert_eq!(ends_before(seconds(60), Some(seconds(20))), 500);
    assert_eq!(ends_before(seconds(60), Some(Duration::ZERO)), 250);
    assert_eq!(ends_before(seconds(1), Some(Duration::ZERO)), 50);
}

#[tokio::test(start_paused = true)]
async fn no_message_starts_when_handlers_are_ended_however_short_the_reserve() {
    for remaining in [1, 100, 3_000, 60_000, 900_000].map(Duration::from_millis) {
        for reserve in [0, 1, 100, 400, 3_000].map(Duration::from_millis) {
            let (stop, times) = limits(remaining, Some(reserve));
            assert!(stop <= times.end, "{remaining:?}, {reserve:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_starts_until_the_reserve_begins() {
    let (stop, _) = limits(seconds(3), Some(seconds(1)));
    tokio::time::advance(Duration::from_millis(1_999)).await;
    assert!(!is_over(Some(stop)));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(is_over(Some(stop)));
}

//! Tests of the module above.

use super::*;
use crate::protocol::clock::EpochMillis;
use crate::protocol::record::{NewClaim, Owner};

/// The keys from `from` on that the window takes for met.
fn met(window: &Window, from: u64, keys: u64) -> usize {
    let keys = from..from + keys;
    keys.filter(|key| window.look(key) != Seen::No).count()
}

#[test]
fn a_window_knows_its_last_keys_and_forgets_those_of_long_ago() {
    for keys in [1, 2, 1_000, 1_024, 1_025, 5_000] {
        let window = Window::new(keys);
        let count = u64::try_from(keys).unwrap();
        for key in 0..10 * count {
            window.insert(&key);
            let known = key.saturating_sub(count - 1);
            assert_ne!(window.look(&known), Seen::No, "{known} of {key} in {keys}");
        }
        assert_eq!(window.look(&(10 * count - 1)), Seen::Yes);
        // At most the exact ones and two full filters.
        let most = 2 * keys + EXACT.min(keys);
        let known = met(&window, 0, 10 * count);
        let wrong = keys / 10 + 10;
        assert!((keys..=most + wrong).contains(&known), "{known} of {keys}");
    }
}

#[test]
fn a_key_that_is_used_stays_exact() {
    let window = Window::new(5_000);
    for key in 0..10_000_u64 {
        window.insert("used");
        window.insert(&key);
    }
    assert_eq!(window.insert("used"), Seen::Yes);
    assert_eq!(window.look(&0_u64), Seen::Probably);
}

#[test]
fn keys_that_come_again_push_no_other_out() {
    let keys = 4_000;
    let window = Window::new(keys);
    let first = 1_000;
    for key in 0..first {
        window.insert(&key);
    }
    // More than are known exactly, so that each comes again as one that leaves.
    for key in (first..3_000).cycle().take(10 * keys) {
        window.insert(&key);
    }
    assert_eq!(met(&window, 0, first), 1_000, "of 3,000 keys in {keys}");
}

#[test]
fn a_window_is_wrong_as_often_as_it_was_made_to_be_and_takes_four_bytes_a_key() {
    for (keys, rate, bytes) in [(500_000, RATE, 2 << 20), (100_000, 0.01, 420_000)] {
        let window = Window::with_rate(keys, rate).unwrap();
        let count = u64::try_from(keys).unwrap();
        // Both filters are full.
        for key in 0..2 * count + 1_024 {
            window.insert(&key);
        }
        let looks = 200_000;
        let wrong = met(&window, 1 << 40, looks);
        let expected = rate * f64::from(u32::try_from(looks).unwrap());
        let wrong = f64::from(u32::try_from(wrong).unwrap());
        // Six standard deviations of so many looks.
        let most = expected + 6.0 * expected.sqrt();
        assert!(
            wrong <= most,
            "{wrong} wrong of {looks}, {expected} expected"
        );
        assert!(
            wrong >= expected / 4.0,
            "{wrong}: it takes more memory than it must"
        );
        let memory = lock(&window.memory);
        let (new, old) = memory.filters.as_ref().unwrap();
        // A node of the list has hash and two pointers; the table a pointer and a byte for each place.
        let exact = EXACT * (24 + 8) + 2 * EXACT * (16 + 1);
        let taken = (new.num_bits() + old.num_bits()) / 8 + exact;
        assert!(taken <= bytes, "{taken} bytes for {keys} keys");
    }
}

#[test]
fn a_window_that_cannot_be_made_says_what_can() {
    for keys in [0, MOST_KEYS + 1, usize::MAX] {
        let refused = Window::with_rate(keys, RATE).unwrap_err();
        assert_eq!(refused, BuildError::WindowKeys(keys));
        let said = format!("choose 1 to {MOST_KEYS}. See");
        assert!(refused.to_string().contains(&said), "{refused}");
    }
    for rate in [0.0, -1.0, 0.2, 1.0, f64::NAN, f64::INFINITY] {
        let refused = Window::lossy(10, rate).unwrap_err().to_string();
        let said = format!(
            "{rate} is no share of keys to be wrong about: choose more than 0, and at most {LARGEST_RATE}. See"
        );
        assert!(refused.starts_with(&said), "{refused}");
    }
    assert_eq!(lock(&Window::new(0).memory).keys, 1);
    assert_eq!(lock(&Window::new(usize::MAX).memory).keys, MOST_KEYS);
    for keys in [1, MOST_KEYS] {
        assert!(Window::with_rate(keys, LARGEST_RATE).is_ok());
    }
    assert!(
        lock(&Window::new(usize::MAX).memory).filters.is_none(),
        "nothing is allocated yet"
    );
}

#[tokio::test]
async fn claims_that_have_expired_are_forgotten() {
    let store = LossyStore::new(Window::new(10));
    for second in 0..1_000 {
        let id = RecordId::stored(second.to_string()).unwrap();
        let (now, end) = (EpochMillis(second * 1_000), EpochSeconds(second + 1));
        let claim = NewClaim::new(id, Owner::from_stored("me"), now, end.to_millis(), end);
        let claimed = store.write(&claim.into(), Instant::now()).await.unwrap();
        assert!(claimed.is_applied());
    }
    assert!(lock(&store.claims).len() < 10, "{store:?}");
}

#[test]
fn clones_share_what_is_known() {
    let window = Window::new(10);
    window.clone().insert("a");
    assert_eq!(window.look("a"), Seen::Yes);
}

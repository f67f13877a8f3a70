//! Compares the sequencers of S3 notifications. Pure.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::iter::repeat;

use serde::{Deserialize, Serialize};

/// Holds the sequencer of a notification. Of two notifications on *one* object, the one with the
/// greater sequencer happened later; those of two objects say nothing about each other.
///
/// Sequencers may have different lengths. They are compared [as AWS documents][page]: the shorter
/// one is padded with zeros on the right, then both are compared as text.
///
/// ```
/// use lambda_idempotency::s3_events::Sequencer;
///
/// let (stored, arrived) = (Sequencer::new("0055AED6DCD90281E5"), Sequencer::new("0055AED6DD"));
/// assert!(arrived > stored); // the object changed since
/// assert_eq!(Sequencer::new("0055"), Sequencer::new("005500"));
/// ```
///
/// [page]: https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequencer(String);

impl Sequencer {
    /// Takes the text of a sequencer.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Gives the text, as S3 sent it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn significant(&self) -> &str {
        self.0.trim_end_matches('0')
    }
}

impl Ord for Sequencer {
    fn cmp(&self, other: &Self) -> Ordering {
        let length = self.0.len().max(other.0.len());
        let padded = |text: &Self| -> Vec<u8> {
            let bytes = text.0.bytes().chain(repeat(b'0'));
            bytes.take(length).collect()
        };
        padded(self).cmp(&padded(other))
    }
}

impl PartialOrd for Sequencer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Sequencer {
    fn eq(&self, other: &Self) -> bool {
        self.significant() == other.significant()
    }
}

impl Eq for Sequencer {}

impl Hash for Sequencer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.significant().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_shorter_one_is_padded_on_the_right() {
        for (earlier, later) in [
            ("0055AED6DCD90281E5", "0055AED6DD"),
            ("0055", "00551"),
            ("", "1"),
            ("0A", "A"),
            ("9F", "A"),
        ] {
            assert!(
                Sequencer::new(earlier) < Sequencer::new(later),
                "{earlier} {later}"
            );
        }
        assert_eq!(Sequencer::new("00"), Sequencer::new(""));
    }

    proptest! {
        #[test]
        fn equal_is_what_compares_as_equal(one in "[01]{0,4}", other in "[01]{0,4}") {
            let (one, other) = (Sequencer::new(one), Sequencer::new(other));
            prop_assert_eq!(one == other, one.cmp(&other) == Ordering::Equal);
        }
    }
}

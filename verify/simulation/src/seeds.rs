//! The seeds that are played.

use std::env;

/// Takes a number from an environment variable.
pub fn variable(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`")),
    )
}

/// Draws a seed to begin with from the operating system's entropy, so that each run plays new nights. It is far from the fixed
/// seeds, which begin at 0, and so far from the end of the numbers that a run never gets there.
pub fn base() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("entropy");
    (u64::from_le_bytes(bytes) >> 4) | (1 << 59)
}

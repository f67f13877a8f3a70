//! How long records are kept.

use std::time::Duration;

use super::Server;
use super::lambda::number;

const DAY_MS: i64 = 86_400_000;

pub fn for_days(days: u64) -> Duration {
    Duration::from_hours(24 * days)
}

/// Returns the days for which each completed record of the table is kept, sorted.
pub async fn days(server: &Server, table: &str) -> Vec<i64> {
    let records = server.client().scan().table_name(table).send().await;
    let records = records.expect("a reply");
    let kept = records.items().iter().map(|record| {
        let kept = number(record, "expiration") * 1_000 - number(record, "completed_at");
        assert!(kept % DAY_MS < 1_000, "{kept} ms");
        kept / DAY_MS
    });
    let mut days: Vec<_> = kept.collect();
    days.sort_unstable();
    days
}

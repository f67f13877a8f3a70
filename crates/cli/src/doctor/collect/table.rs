//! Asks DynamoDB for the table.

use aws_sdk_dynamodb::types::{KeyType, PointInTimeRecoveryStatus, TimeToLiveStatus};

use super::Asking;
use crate::args::Layout;
use crate::connect::Table as Place;
use crate::doctor::facts::Table;
use crate::failure::Failure;
use crate::records::classify;

/// The facts of the table, and how far this clock is ahead.
pub(super) async fn ask(
    asking: &mut Asking,
    place: &Place,
    names: &Layout,
) -> Result<(Table, Option<i64>), Failure> {
    let (client, name) = (&place.client, &place.name);
    let described = client.describe_table().table_name(name).send().await;
    let ahead = place.clock.ahead_millis();
    let described = described.map_err(|error| classify(place, "dynamodb:DescribeTable", &error))?;
    let mut table = Table {
        name: name.clone(),
        ..Table::expected(names)
    };
    if let Some(described) = described.table {
        table.arn = described.table_arn;
        let mut keys = described.key_schema.unwrap_or_default();
        keys.sort_by_key(|key| key.key_type != KeyType::Hash);
        table.keys = Some(keys.into_iter().map(|key| key.attribute_name).collect());
        table.deletion_protection = Some(described.deletion_protection_enabled.unwrap_or(false));
    }
    let answer = client.describe_time_to_live().table_name(name).send().await;
    let reply = asking.answered("time to live", "dynamodb:DescribeTimeToLive", answer);
    table.ttl = reply.map(|reply| {
        let on = reply.time_to_live_description.filter(|ttl| {
            let status = ttl.time_to_live_status.as_ref();
            matches!(
                status,
                Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
            )
        });
        on.map(|ttl| ttl.attribute_name.unwrap_or_default())
    });
    let asked = client.describe_continuous_backups().table_name(name);
    let (answer, action) = (asked.send().await, "dynamodb:DescribeContinuousBackups");
    let reply = asking.answered("point-in-time recovery", action, answer);
    table.point_in_time_recovery = reply.map(|reply| {
        let backups = reply.continuous_backups_description;
        let recovery = backups.and_then(|backups| backups.point_in_time_recovery_description);
        let status = recovery.and_then(|recovery| recovery.point_in_time_recovery_status);
        status == Some(PointInTimeRecoveryStatus::Enabled)
    });
    Ok((table, ahead))
}

use std::time::Duration;

use aws_sdk_dynamodb::config::BehaviorVersion;

use super::*;
use crate::store::transaction::{Write, WriteError};

/// A store that reaches nothing: what it answers, it answers by itself.
fn store() -> DynamoDbStore {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .build();
    DynamoDbStore::new(aws_sdk_dynamodb::Client::from_conf(config), "records")
}

async fn committed(writes: &[Write], deadline: Instant) -> Result<Committed, StoreError> {
    let all = Commit {
        token: "token",
        record: None,
        writes,
    };
    commit(&store(), all, deadline).await
}

fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

#[tokio::test]
async fn a_write_of_another_store_is_refused() {
    let refused = committed(&[Write::new("theirs")], soon()).await;
    let Err(StoreError::Rejected(reason)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(
        reason.downcast_ref::<WriteError>(),
        Some(&WriteError::NotSupported)
    );
}

#[tokio::test]
async fn nothing_to_write_is_written_at_once() {
    assert!(matches!(
        committed(&[], soon()).await,
        Ok(Committed::Applied)
    ));
    assert!(matches!(
        committed(&[], Instant::now()).await,
        Err(StoreError::NotSent)
    ));
}

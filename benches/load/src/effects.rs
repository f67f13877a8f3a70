//! The tables, and what the handlers left in them.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType,
};

use crate::Error;

/// The number of times that each order was placed.
pub type Effects = HashMap<u32, u64>;

/// The text before an order's number, wherever the number is written.
pub const PREFIX: &str = "order-";

/// A client for an emulator.
pub fn client(endpoint: &str) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("load", "load", None, None, "load"))
        .endpoint_url(endpoint);
    Client::from_conf(config.build())
}

/// Makes a table with this key.
pub async fn create(client: &Client, table: &str, key: &str) -> Result<(), Error> {
    let attribute = AttributeDefinition::builder()
        .attribute_name(key)
        .attribute_type(ScalarAttributeType::S);
    let hash = KeySchemaElement::builder()
        .attribute_name(key)
        .key_type(KeyType::Hash);
    client
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute.build()?)
        .key_schema(hash.build()?)
        .send()
        .await?;
    Ok(())
}

/// Counts how often each order was placed: its items, by the attribute `name`, each as often as its `runs` say.
pub async fn count(client: &Client, table: &str, name: &str) -> Result<Effects, Error> {
    let mut effects = Effects::new();
    let mut items = client
        .scan()
        .table_name(table)
        .consistent_read(true)
        .into_paginator()
        .items()
        .send();
    while let Some(item) = items.next().await {
        let item = item?;
        let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok());
        let number = |value: &AttributeValue| value.as_n().ok()?.parse().ok();
        let order = text(name).and_then(|text| text.strip_prefix(PREFIX));
        let order: u32 = order.ok_or("an item that no order left")?.parse()?;
        *effects.entry(order).or_default() += item.get("runs").and_then(number).unwrap_or(1);
    }
    Ok(effects)
}

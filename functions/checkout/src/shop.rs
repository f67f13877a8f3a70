//! The warehouse, the bank and the carrier. A table stands for them, with an item for each thing that they did.

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::AttributeValue::{self, N, S};
use aws_sdk_dynamodb::{Client, Config, Error as TableError};
use lambda_idempotency::Claim;

use crate::Order;

/// The largest amount, in minor units, that the bank takes from a card.
const LIMIT: u64 = 1_000_000;

/// The largest number of pieces that the carrier takes.
const LARGEST_PARCEL: u32 = 100;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ShopError {
    #[error("the card was declined")]
    Declined,
    #[error("no carrier takes so much")]
    NoCarrier,
    #[error("no answer: {0}")]
    NoAnswer(#[from] TableError),
}

impl ShopError {
    /// Returns whether no retry will fix it.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Declined | Self::NoCarrier)
    }

    /// Returns whether it may have been done, though no answer came.
    pub(crate) fn may_be_done(&self) -> bool {
        matches!(self, Self::NoAnswer(_))
    }
}

#[derive(Clone)]
pub(crate) struct Shop {
    client: Client,
    table: String,
}

impl Shop {
    pub(crate) fn new(client: Client, table: String) -> Self {
        Self { client, table }
    }

    pub(crate) async fn reserve(
        &self,
        claim: &Claim,
        order: &Order,
        key: String,
    ) -> Result<String, ShopError> {
        if self.once("reserve", &order.id, &key).await? {
            claim.duplicate_at_provider("reserve");
        }
        Ok(key)
    }

    pub(crate) async fn release(&self, reservation: String, key: String) -> Result<(), ShopError> {
        self.once("release", &reservation, &key).await?;
        Ok(())
    }

    /// Honours no keys: asked twice, it charges twice.
    pub(crate) async fn charge(&self, order: &Order, key: String) -> Result<String, ShopError> {
        if order.amount > LIMIT {
            return Err(ShopError::Declined);
        }
        let update = self.client.update_item().table_name(&self.table);
        let update = update
            .key("effect_id", S(key.clone()))
            .update_expression("SET #what = :what, #of = :of ADD times :one")
            .expression_attribute_names("#what", "what")
            .expression_attribute_names("#of", "of")
            .expression_attribute_values(":what", S("charge".to_owned()))
            .expression_attribute_values(":of", S(order.id.clone()))
            .expression_attribute_values(":one", N("1".to_owned()));
        // The SDK would send it again where it had no answer.
        let once = Config::builder().retry_config(RetryConfig::disabled());
        let update = update.customize().config_override(once);
        update.send().await.map_err(TableError::from)?;
        Ok(key)
    }

    /// Returns the charge that was made under this key; `None` where there is none.
    pub(crate) async fn charged(&self, key: String) -> Result<Option<String>, ShopError> {
        let get = self.client.get_item().table_name(&self.table);
        let get = get.key("effect_id", S(key.clone())).consistent_read(true);
        let found = get.send().await.map_err(TableError::from)?;
        Ok(found.item.map(|_| key))
    }

    pub(crate) async fn refund(&self, receipt: String, key: String) -> Result<(), ShopError> {
        self.once("refund", &receipt, &key).await?;
        Ok(())
    }

    pub(crate) async fn ship(
        &self,
        claim: &Claim,
        order: &Order,
        key: String,
    ) -> Result<String, ShopError> {
        if order.quantity > LARGEST_PARCEL {
            return Err(ShopError::NoCarrier);
        }
        if self.once("ship", &order.id, &key).await? {
            claim.duplicate_at_provider("ship");
        }
        Ok(key)
    }

    pub(crate) async fn call_back(&self, parcel: String, key: String) -> Result<(), ShopError> {
        self.once("call_back", &parcel, &key).await?;
        Ok(())
    }

    /// Does something once for each key, and tells whether it was done before.
    async fn once(&self, what: &str, of: &str, key: &str) -> Result<bool, ShopError> {
        let put = self.client.put_item().table_name(&self.table);
        let put = put
            .item("effect_id", S(key.to_owned()))
            .item("what", S(what.to_owned()))
            .item("of", S(of.to_owned()))
            .item("times", AttributeValue::N("1".to_owned()))
            .condition_expression("attribute_not_exists(effect_id)");
        match put.send().await {
            Ok(_) => Ok(false),
            Err(SdkError::ServiceError(refused))
                if refused.err().is_conditional_check_failed_exception() =>
            {
                Ok(true)
            }
            Err(error) => Err(TableError::from(error).into()),
        }
    }
}

//! A table of records behind a failing wire.

use aws_sdk_dynamodb::types::AttributeValue::{self, N, S};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::store::Store;
use lambda_idempotency::{Builder, Idempotency};

use super::lambda::Item;
use super::{Proxy, Server, VirtualClock};

/// Begins an engine on this store, in virtual time.
pub fn builder_on(store: impl Store, namespace: &str) -> Builder {
    Idempotency::builder(store)
        .clock(VirtualClock)
        .namespace(namespace)
}

pub fn string(text: &str) -> AttributeValue {
    S(text.into())
}

pub fn number(number: i64) -> AttributeValue {
    N(number.to_string())
}

pub struct Bench {
    pub proxy: Proxy,
    /// The server, past the wire.
    pub direct: Server,
    pub table: String,
}

impl Bench {
    pub async fn on(server: &Server) -> Self {
        Self {
            proxy: Proxy::before(server).await,
            direct: server.clone(),
            table: server.idempotency_table().await,
        }
    }

    pub fn store(&self) -> DynamoDbStore {
        DynamoDbStore::new(self.proxy.server().client(), &self.table)
    }

    pub fn builder(&self) -> Builder {
        builder_on(self.store(), "bench")
    }

    pub fn once(&self) -> Idempotency {
        self.once_with(|builder| builder)
    }

    pub fn once_with(&self, settings: impl FnOnce(Builder) -> Builder) -> Idempotency {
        settings(self.builder()).build().expect("an engine")
    }

    /// Returns the item as it stands, read past the wire.
    pub async fn item(&self, id: &str) -> Item {
        let get = self.direct.client().get_item().table_name(&self.table);
        let reply = get.key("id", S(id.into())).consistent_read(true).send();
        reply.await.expect("a reply").item.unwrap_or_default()
    }

    /// Writes an item past the wire.
    pub async fn put<N: Into<String>>(
        &self,
        id: &str,
        attributes: impl IntoIterator<Item = (N, AttributeValue)>,
    ) {
        let put = self.direct.client().put_item().table_name(&self.table);
        let mut put = put.item("id", S(id.into()));
        for (name, value) in attributes {
            put = put.item(name, value);
        }
        put.send().await.expect("a reply");
    }
}

//! Records in Redis or Valkey: what reads all of them, and the server's clock.

use std::collections::BTreeSet;
use std::time::Duration;

use lambda_idempotency::protocol::record::Found;
use lambda_idempotency::store::Store as _;
use lambda_idempotency::{RecordId, StoreError};
use lambda_idempotency_redis::{Problem, RedisStore, RedisStoreError};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Cmd, FromRedisValue, cmd};
use serde::{Deserialize, Serialize};

use crate::args::Global;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{WARNING, note};

/// The number of keys that the server looks at for one page. The file of a scan has the ids
/// of a page until all were read.
const PAGE: u32 = 100;

/// The prefix of the ids, unless `--table` gives another.
const DEFAULT_PREFIX: &str = "idempotency";

/// A server, and the records that begin with a prefix.
#[derive(Clone)]
pub(crate) struct Redis {
    pub(crate) store: RedisStore,
    connection: ConnectionManager,
    pub(crate) prefix: String,
    /// The server and the database, without a password.
    pub(crate) place: String,
    timeout: Duration,
}

/// Returns whether an address is one of a server of Redis or Valkey.
pub(crate) fn is_address(url: &str) -> bool {
    url.starts_with("redis://") || url.starts_with("rediss://")
}

impl Redis {
    pub(crate) async fn connect(url: &str, global: &Global) -> Result<Self, Failure> {
        let failed = |error: RedisStoreError| match error.problem() {
            Problem::Address => Failure::usage(format!("--store: {error}")),
            _ => Failure::service("connect to Redis", &error),
        };
        let connect = async {
            // The first connection says clearly what is wrong.
            let store = RedisStore::connect(url).await?;
            let client = redis::Client::open(url)?;
            // Each request has the command line's own time.
            let config = ConnectionManagerConfig::new().set_response_timeout(None);
            let connection = client.get_connection_manager_with_config(config).await?;
            Ok((store, client, connection))
        };
        let connected = tokio::time::timeout(global.timeout, connect).await;
        let late = |_| Failure::no_answer("connect to Redis", global.timeout);
        let (store, client, connection) = connected.map_err(late)?.map_err(failed)?;
        let prefix = global.table.as_deref().unwrap_or(DEFAULT_PREFIX);
        let info = client.get_connection_info();
        Ok(Self {
            store: store.prefix(prefix),
            connection,
            prefix: prefix.to_owned(),
            place: format!("{}/{}", info.addr(), info.redis_settings().db()),
            timeout: global.timeout,
        })
    }

    /// The id of the server's process: another one has other cursors.
    pub(crate) async fn process(&self) -> Result<String, Failure> {
        let mut info = cmd("INFO");
        info.arg("server");
        let doing = "ask for the server's process, which a user with `+info` may";
        let server: String = self.ask(doing, info).await?;
        let id = server.lines().find_map(|line| line.strip_prefix("run_id:"));
        Ok(id.unwrap_or_default().to_owned())
    }

    /// Returns whether other nodes have records, too: of a cluster, one is read.
    pub(crate) async fn is_one_of_several(&self) -> Result<bool, Failure> {
        let doing =
            "ask for the server's cluster, which a user with `+info` and `+cluster|info` may";
        let server: String = self.ask(doing, cmd("INFO").arg("cluster").clone()).await?;
        if !server.contains("cluster_enabled:1") {
            return Ok(false);
        }
        let cluster: String = self.ask(doing, cmd("CLUSTER").arg("INFO").clone()).await?;
        Ok(cluster.lines().all(|line| line != "cluster_size:1"))
    }

    /// Prints that the records of other nodes are not read, where there may be any.
    pub(crate) async fn note_one_of_several(&self) {
        let is = match self.is_one_of_several().await {
            Ok(false) => return,
            Ok(true) => "is one node of a cluster".to_owned(),
            Err(error) => format!("may be one node of a cluster ({error})"),
        };
        note(format_args!(
            "{WARNING}the server {is}: the records of the others are not read{WARNING:#}"
        ));
    }

    async fn ask<T: FromRedisValue>(&self, doing: &str, command: Cmd) -> Result<T, Failure> {
        let mut connection = self.connection.clone();
        let asked = command.query_async(&mut connection);
        let answer = tokio::time::timeout(self.timeout, asked).await;
        let answer = answer.map_err(|_| StoreError::Timeout)?;
        answer.map_err(|error| Failure::service(doing, &RedisStoreError::from(error)))
    }

    /// The server's time, in epoch milliseconds.
    pub(crate) async fn now(&self) -> Result<i64, Failure> {
        let (seconds, micros): (i64, i64) = self.ask("read Redis's clock", cmd("TIME")).await?;
        Ok(seconds * 1_000 + micros / 1_000)
    }

    /// The number of keys, of which the records are some.
    pub(crate) async fn keys(&self) -> Result<u64, Failure> {
        self.ask("count the keys", cmd("DBSIZE")).await
    }

    /// Reads the records of a page that were not read from it before, and returns the next one; `None`
    /// behind the last. Which keys a cursor stands for depends on how many the server has. A key that
    /// can't be a record's is skipped.
    pub(crate) async fn page(
        &self,
        at: Page,
        context: &Context,
    ) -> Result<(Vec<Row<Page>>, Option<Page>), Failure> {
        let Page { cursor, mut read } = at;
        let begin = format!("{}:{{", self.prefix);
        let mut scan = cmd("SCAN");
        scan.arg(&cursor)
            .arg("MATCH")
            .arg(format!("{}*", escaped(&begin)));
        scan.arg("COUNT").arg(PAGE);
        let (next, keys): (String, Vec<Vec<u8>>) = self.ask("look for records", scan).await?;
        // A server may name a key twice. An outcome's own key doesn't end so.
        let named = keys.into_iter().filter(|key| key.ends_with(b"}"));
        let named: BTreeSet<Vec<u8>> = named.collect();
        let on_page = named.iter().filter_map(|key| self.store.id_of(key));
        let on_page: Vec<RecordId> = on_page.collect();
        context.skip_strays(named.len() - on_page.len());
        let mut ids = on_page.clone();
        ids.retain(|id| !read.iter().any(|read| read == id.as_str()));
        let found = self.store.load_all(&ids, context.deadline()).await;
        let mut rows = Vec::new();
        for (id, found) in ids.iter().zip(found) {
            // It may have expired meanwhile.
            if let Some(found) = found? {
                let id = id.as_str().to_owned();
                read.push(id.clone());
                let behind = Page {
                    cursor: cursor.clone(),
                    read: read.clone(),
                };
                rows.push(Row { id, found, behind });
            }
        }
        // The page has become smaller where it no longer names one.
        read.retain(|read| !on_page.iter().any(|id| read == id.as_str()));
        let next = (next != START).then_some(Page { cursor: next, read });
        Ok((rows, next))
    }
}

/// The first cursor, and the one behind the last.
const START: &str = "0";

/// A page of a scan, and the ids of records that were read from it, or from the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Page {
    cursor: String,
    read: Vec<String>,
}

impl Page {
    pub(crate) fn first() -> Self {
        Self {
            cursor: START.to_owned(),
            read: Vec::new(),
        }
    }
}

/// A record that was read, and what is left to read behind it.
pub(crate) struct Row<B> {
    pub(crate) id: String,
    pub(crate) found: Found,
    pub(crate) behind: B,
}

/// A text as a pattern that fits nothing else.
fn escaped(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

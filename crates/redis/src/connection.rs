//! The connections that a store may have.

use std::future::Future;

use redis::aio::{ConnectionLike, ConnectionManager, MultiplexedConnection};
#[cfg(feature = "cluster")]
use redis::{ErrorKind, RedisError, ServerErrorKind};
use redis::{Pipeline, RedisResult, Value};

/// A connection to a server, to the primary that Sentinel names, or to a cluster. A clone is the same connection.
pub trait Connection: Clone + Send + Sync + 'static {
    /// Whether one server answers all requests in their order, and the client sends none again by itself.
    #[doc(hidden)]
    const IN_ORDER: bool = false;

    /// Sends the commands over one connection, to the primary that has this key, and returns the answer of each.
    fn send(
        &self,
        key: &[u8],
        commands: Pipeline,
    ) -> impl Future<Output = RedisResult<Vec<Value>>> + Send;
}

macro_rules! one_server {
    ($($connection:ty),*) => {$(
        impl Connection for $connection {
            const IN_ORDER: bool = true;

            async fn send(&self, _: &[u8], commands: Pipeline) -> RedisResult<Vec<Value>> {
                let count = commands.len();
                self.clone().req_packed_commands(&commands, 0, count).await
            }
        }
    )*};
}

one_server!(ConnectionManager, MultiplexedConnection);

#[cfg(feature = "cluster")]
#[cfg_attr(docsrs, doc(cfg(feature = "cluster")))]
impl Connection for redis::cluster_async::ClusterConnection {
    async fn send(&self, key: &[u8], commands: Pipeline) -> RedisResult<Vec<Value>> {
        use redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};

        let count = commands.len();
        let to = Route::with_key(key, SlotAddr::Master);
        let to = SingleNodeRoutingInfo::SpecificNode(to);
        let answers = self.clone().route_pipeline(commands, 0, count, to).await;
        // The client has followed the slot as often as it may. By these kinds, it would be a connection to one node.
        answers.map_err(|error| match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
                let down = ErrorKind::Server(ServerErrorKind::ClusterDown);
                RedisError::from((down, "the cluster is changing", error.to_string()))
            }
            _ => error,
        })
    }
}

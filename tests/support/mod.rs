//! The ground of the tests: real servers, a wire that can be counted and cut, and nothing else.

pub mod alone;
pub mod bench;
pub mod bucket;
pub mod crash;
pub mod events;
pub mod gateway;
pub mod lambda;
pub mod loopback;
pub mod pages;
pub mod provider;
pub mod proxy;
pub mod queue_api;
pub mod recorder;
pub mod retention;
pub mod server;
pub mod shards;
pub mod stream;
pub mod tls;
pub mod virtual_time;

pub use bench::{Bench, builder_on, number, string};
pub use bucket::Bucket;
pub use crash::Begun;
pub use proxy::{Fault, Proxy};
pub use queue_api::QueueApi;
pub use server::Server;
pub use stream::Stream;
pub use tls::Tls;
pub use virtual_time::VirtualClock;

/// Declares a test that runs on each DynamoDB there is: `name::dynoxide`, in process, and `name::dynamodb_local`, AWS's own.
///
/// Their time is [virtual](virtual_time); `start_paused = false` is for sockets that the test itself waits for.
///
/// The second needs `DYNAMODB_LOCAL_ENDPOINT` and fails without it: a lane that skips itself proves nothing. `make test`
/// starts the server and sets the variable.
#[macro_export]
macro_rules! on_each_server {
    ($name:ident) => {
        $crate::on_each_server!($name, start_paused = true);
    };
    ($name:ident, start_paused = $paused:literal) => {
        mod $name {
            #[tokio::test(start_paused = $paused)]
            async fn dynoxide() {
                super::$name($crate::support::Server::dynoxide().await).await;
            }

            #[tokio::test(start_paused = $paused)]
            async fn dynamodb_local() {
                super::$name($crate::support::Server::dynamodb_local().await).await;
            }
        }
    };
}

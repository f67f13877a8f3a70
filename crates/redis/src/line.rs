//! The connection of a store, and another one where it leads to no primary any more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, Pipeline, RedisError, RedisResult, Value};

use crate::connection::Connection;
use crate::error::is_of_replica;

/// The time after which a host that acknowledges nothing is gone.
#[cfg(target_os = "linux")]
const GONE: Duration = Duration::from_secs(15);

/// The time after which the system asks a silent host whether it is there.
const SILENT: Duration = Duration::from_secs(5);

/// Makes another connection, which connects with its first request.
type Anew<C> = Box<dyn Fn() -> RedisResult<C> + Send + Sync>;

/// A connection that the clones of a store share.
pub(crate) struct Line<C> {
    current: Mutex<Arc<C>>,
    anew: Option<Anew<C>>,
    answers: AtomicU64,
}

impl Line<ConnectionManager> {
    /// Connects to where the client's address leads.
    pub(crate) async fn to(client: Client) -> RedisResult<Self> {
        let asks = TcpKeepalive::new().with_time(SILENT).with_interval(SILENT);
        let settings = TcpSettings::default().set_nodelay(true).set_keepalive(asks);
        #[cfg(target_os = "linux")]
        let settings = settings.set_user_timeout(GONE);
        let address = client.get_connection_info().clone();
        let client = Client::open(address.set_tcp_settings(settings))?;
        // The engine's deadlines count.
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(None)
            .set_number_of_retries(2);
        let first = ConnectionManager::new_with_config(client.clone(), config.clone()).await?;
        let anew = move || ConnectionManager::new_lazy_with_config(client.clone(), config.clone());
        Ok(Self {
            anew: Some(Box::new(anew)),
            ..Self::over(first)
        })
    }
}

impl<C> Line<C> {
    /// Keeps to a connection that somebody else has made.
    pub(crate) fn over(connection: C) -> Self {
        Self {
            current: Mutex::new(Arc::new(connection)),
            anew: None,
            answers: AtomicU64::new(0),
        }
    }

    /// Counts the requests so far that had an answer.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    fn current(&self) -> Arc<C> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces this connection, unless another request has done so.
    fn replace(&self, used: &Arc<C>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(anew) = self.anew.as_ref().filter(|_| Arc::ptr_eq(&current, used))
            && let Ok(other) = anew()
        {
            *current = Arc::new(other);
        }
    }
}

impl<C: Connection> Line<C> {
    /// Sends the commands, and returns the answer of each.
    pub(crate) async fn send(&self, key: &[u8], commands: Pipeline) -> RedisResult<Vec<Value>> {
        let used = self.current();
        let answers = used.send(key, commands).await;
        if answers.is_ok() {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
        let is_over = match &answers {
            // The manager connects again by itself where it has lost its connection. It keeps one for ever that the server refused, while it
            // loaded its data or had no room for another one.
            Err(error) => !error.is_connection_dropped(),
            Ok(answers) => answers.iter().any(|answer| {
                matches!(answer, Value::ServerError(error) if is_of_replica(&RedisError::from(error.clone())))
            }),
        };
        if is_over {
            self.replace(&used);
        }
        answers
    }
}

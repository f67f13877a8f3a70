//! The connection of a store, and another one where it leads to no primary any more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, Pipeline, ProtocolVersion, RedisError, RedisResult, Value};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::error::{Problem, is_of_replica, problem_of};

/// The time after which a host that acknowledges nothing, or makes no connection, is gone: three tries of one request end before the engine's default
/// `store_timeout` of 10 s, and before the first phase of a Lambda function does.
const GONE: Duration = Duration::from_secs(3);

/// The time after which the system asks a silent host whether it is there.
const SILENT: Duration = Duration::from_secs(5);

/// The time for which a `WAIT` may last beyond its own: the server looks ten times a second for those that are over.
const LATE: Duration = Duration::from_millis(100);

/// Makes another connection, which connects with its first request.
type Anew<C> = Box<dyn Fn() -> RedisResult<C> + Send + Sync>;

/// A connection that the clones of a store share.
pub(crate) struct Line<C> {
    current: Mutex<Arc<C>>,
    anew: Option<Anew<C>>,
    waits: Mutex<Waits>,
}

/// The `WAIT`s of a connection whose server answers one request after the other: each holds up all that is sent after it, also
/// where nobody waits for its own answer any more.
///
/// An answer ends those before it. Without answers they end when their time is over: until then, a server that is silent is
/// taken for one that waits, and nothing runs under `FailOpen` either.
struct Waits {
    /// When the server began with the first that is not over.
    since: Instant,
    /// The time of all that were sent.
    sent: Duration,
    /// The time of those that are over.
    over: Duration,
}

/// The place of a request among the `WAIT`s of its connection.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// The longest time for which those before it may hold it up.
    pub(crate) ahead: Duration,
    /// The time of all `WAIT`s up to its own.
    sum: Duration,
}

impl Waits {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            sent: Duration::ZERO,
            over: Duration::ZERO,
        }
    }

    /// Adds a request, with the time of its own `WAIT`.
    fn add(&mut self, wait: Option<Duration>, now: Instant) -> Turn {
        let end = self.since + self.sent.saturating_sub(self.over);
        let ahead = end.saturating_duration_since(now);
        if ahead.is_zero() {
            (self.since, self.over) = (now, self.sent);
        }
        self.sent += wait.map_or(Duration::ZERO, |wait| wait + LATE);
        let sum = self.sent;
        Turn { ahead, sum }
    }

    /// Notes that a request had its answers, and so did all before it.
    fn note(&mut self, answers: &RedisResult<Vec<Value>>, turn: Turn, now: Instant) {
        // A lost connection has no `WAIT`s any more; after a response timeout of the connection's own, they go on.
        if !answers.as_ref().is_err_and(RedisError::is_timeout) {
            self.since = now;
            self.over = self.over.max(turn.sum);
        }
    }
}

impl Line<ConnectionManager> {
    /// Connects to where the client's address leads.
    pub(crate) async fn to(client: Client) -> RedisResult<Self> {
        let asks = TcpKeepalive::new().with_time(SILENT).with_interval(SILENT);
        let settings = TcpSettings::default().set_nodelay(true).set_keepalive(asks);
        #[cfg(target_os = "linux")]
        let settings = settings.set_user_timeout(GONE);
        let address = client.get_connection_info().clone();
        let address = address.set_tcp_settings(settings);
        // A server without room for a client answers once, whatever it is sent, and closes the connection. The client reads an answer to each
        // command that it sends at first before it looks at any: so it sends one, with which the newer protocol begins. `SELECT` would be a second one.
        let to = |protocol| {
            let greeting = address.redis_settings().clone().set_skip_set_lib_name();
            let greeting = greeting.set_protocol(protocol);
            Client::open(address.clone().set_redis_settings(greeting))
        };
        // The engine's deadlines count.
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(Some(GONE))
            .set_number_of_retries(2);
        let mut client = to(ProtocolVersion::RESP3)?;
        let mut first = ConnectionManager::new_with_config(client.clone(), config.clone()).await;
        // A proxy may know the older one alone, or answer nothing but the older one's `AUTH`.
        let has_password = address.redis_settings().password().is_some();
        let is_unknown = |error: &RedisError| {
            problem_of(error) == Problem::Refused
                || (has_password && error.code() == Some("NOAUTH"))
        };
        if first.as_ref().is_err_and(is_unknown) {
            client = to(ProtocolVersion::RESP2)?;
            first = ConnectionManager::new_with_config(client.clone(), config.clone()).await;
        }
        let first = first?;
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
            waits: Mutex::new(Waits::new(Instant::now())),
        }
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Arc<C> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a lost connection is made again.
    pub(crate) fn is_made_anew(&self) -> bool {
        self.anew.is_some()
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
    /// Takes the turn of a request, with the time of its own `WAIT`.
    pub(crate) fn turn(&self, wait: Option<Duration>) -> Turn {
        let mut turn = self.waits().add(wait, Instant::now());
        if !C::IN_ORDER {
            // An answer of one node says nothing of the `WAIT`s at another.
            turn.ahead = Duration::MAX;
        }
        turn
    }

    /// Sends the commands, and returns the answer of each.
    pub(crate) async fn send(
        &self,
        key: &[u8],
        commands: Pipeline,
        turn: Turn,
    ) -> RedisResult<Vec<Value>> {
        let used = self.current();
        let answers = used.send(key, commands).await;
        self.waits().note(&answers, turn, Instant::now());
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

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use super::*;

    #[test]
    fn each_wait_holds_up_what_is_sent_after_it_until_that_has_an_answer() {
        const SECOND: Option<Duration> = Some(Duration::from_secs(1));
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let ahead = |waits: &mut Waits, now| waits.add(None, at(now)).ahead.as_millis();
        let mut waits = Waits::new(start);
        let first = waits.add(SECOND, start);
        assert_eq!(first.ahead, Duration::ZERO);
        assert_eq!(waits.add(SECOND, start).ahead.as_millis(), 1_100);
        let last = waits.add(None, at(100));
        assert_eq!(last.ahead.as_millis(), 2_100);
        waits.note(&Ok(Vec::new()), first, at(200));
        assert_eq!(ahead(&mut waits, 200), 1_100);
        // Nobody waits for the second's own answer.
        waits.note(&Ok(Vec::new()), last, at(300));
        assert_eq!(ahead(&mut waits, 300), 0);
        waits.add(SECOND, at(400));
        assert_eq!(ahead(&mut waits, 500), 1_000);
        assert_eq!(ahead(&mut waits, 1_500), 0);
    }

    #[test]
    fn a_wait_goes_on_after_a_response_timeout_and_ends_with_its_connection() {
        let start = Instant::now();
        let mut waits = Waits::new(start);
        let turn = waits.add(Some(Duration::ZERO), start);
        for (kind, ahead) in [
            (ErrorKind::TimedOut, LATE),
            (ErrorKind::BrokenPipe, Duration::ZERO),
        ] {
            let failed = Err(RedisError::from(io::Error::from(kind)));
            waits.note(&failed, turn, start);
            assert_eq!(waits.add(None, start).ahead, ahead, "{kind}");
        }
    }
}

//! The store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use lambda_idempotency::protocol::packed::{LargeOutcome, Place};
use lambda_idempotency::protocol::record::{Found, RecordWrite, Version};
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::{RecordId, StoreError};
use redis::aio::ConnectionManager;
use redis::{
    Client, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, Script, ServerErrorKind,
    Value,
};
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::Connection;
use crate::error::{Problem, RedisStoreError};
use crate::line::Line;
use crate::record::{Fields, decode};
use crate::script::{Instructions, end_of};

static WRITE: LazyLock<(Script, &str)> = LazyLock::new(|| hashed(include_str!("write.lua")));

/// Reads a key's value. A cluster's client asks the primary for it, as for all scripts.
static FETCH: LazyLock<(Script, &str)> =
    LazyLock::new(|| hashed("return redis.call('GET', KEYS[1])"));

/// Keeps a value until a time.
static KEEP: LazyLock<(Script, &str)> =
    LazyLock::new(|| hashed("return redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])"));

/// Returns a script's hash, by which a server that has met it knows it, and its text.
fn hashed(text: &'static str) -> (Script, &'static str) {
    (Script::new(text), text)
}

/// The longest time for which [`RedisStore::verify`] waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest outcome that is kept. The server takes [512 MB](https://redis.io/docs/latest/develop/data-types/strings/) in one value.
const LARGEST: usize = 256 * 1_024 * 1_024;

/// The reason why nobody can tell of a write's replicas.
const BEHIND: &str = "no answer came in time: writes before it may have waited for their replicas, or the server is silent";

/// The place that a write must have reached before it counts as applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// In the primary's memory. A failover can lose what it has acknowledged: the next delivery of a message then runs again.
    #[default]
    Primary,
    /// In the memory of this number of replicas, too, within this time (`WAIT`). A write that they don't acknowledge is an error, which
    /// leaves it open whether it applied: a claim is released then, and nothing runs. It makes a lost write less likely, and Redis not
    /// [strongly consistent](https://redis.io/docs/latest/commands/wait/): a replica that lacks the write may still be promoted.
    ///
    /// `WAIT` blocks its connection: other requests over it wait meanwhile. A write that gets no answer while others may wait, or on a
    /// cluster, counts as one that the replicas don't acknowledge. With 0 replicas it is [`Primary`](Self::Primary).
    Replicas(u32, Duration),
}

/// The findings of [`RedisStore::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// `maxmemory-policy`; `None` where the server doesn't tell.
    pub eviction: Option<String>,
    /// The number of replicas of the primary that was asked.
    pub replicas: u32,
}

/// Keeps records in Redis or Valkey.
///
/// A clone shares the connection.
#[derive(Clone)]
pub struct RedisStore<C = ConnectionManager> {
    line: Arc<Line<C>>,
    prefix: Arc<str>,
    durability: Durability,
}

impl RedisStore {
    /// Connects to a server, by an address such as `redis://user:password@host:6379/0`, or `rediss://` for TLS (feature `tls`). The connection
    /// is made again whenever it is lost, also without a word, or its server has become a replica: to where the address leads then. A read
    /// or a write that finds it lost is sent once more.
    ///
    /// # Errors
    ///
    /// When the text is no address, or the server can't be reached, refuses the user, or has no room for another client: over TLS, or with a
    /// database in the address, such a server counts as one that can't be reached.
    pub async fn connect(address: &str) -> Result<Self, RedisStoreError> {
        #[cfg(feature = "tls")]
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another thread may be first, with the same.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let line = Line::to(Client::open(address)?).await;
        let line = line.map_err(|error| RedisStoreError::from(error).of_connecting())?;
        Ok(Self::over(line))
    }
}

impl<C: Connection> RedisStore<C> {
    /// Makes a store over a connection: a [`ConnectionManager`], a [`MultiplexedConnection`](redis::aio::MultiplexedConnection), also one that
    /// Sentinel led to, or a `ClusterConnection` (feature `cluster`). Where its server has become a replica, or refuses it,
    /// [`connect`](RedisStore::connect) makes another connection, and this store doesn't; a server without room for another client counts as one
    /// that can't be reached.
    ///
    /// Give a connection no response timeout of its own that is shorter than the engine's
    /// [`store_timeout`](lambda_idempotency::Settings::store_timeout): the default of the first two is 500 ms. Give a cluster's client a longer
    /// connection timeout than its default of 1 s, and few retries with short pauses, such as `retries(3)`: with its 16, a cluster that isn't ready
    /// counts as one that gives no answer.
    pub fn new(connection: C) -> Self {
        Self::over(Line::over(connection))
    }

    fn over(line: Line<C>) -> Self {
        Self {
            line: Arc::new(line),
            prefix: "idempotency".into(),
            durability: Durability::Primary,
        }
    }

    /// Sets the prefix. A record's key is `PREFIX:{ID}`, braces included; in the ID, `%`, `{` and `}` become `%25`, `%7B` and `%7D`.
    /// Default: `idempotency`. A prefix with braces may put all records into one slot of a cluster.
    /// Set it before a service goes live: records under another prefix aren't found, and their duplicates run again.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets where a write must be before it counts as applied. Default: [`Durability::Primary`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Asks the server whether it keeps records: at start, since an engine on it can't. Of a cluster one primary is asked.
    ///
    /// # Errors
    ///
    /// It doesn't: it deletes records when its memory is full ([`Problem::Evicts`]), or is a replica ([`Problem::Replica`]); or it gives no
    /// answer within five seconds.
    pub async fn verify(&self) -> Result<Verified, RedisStoreError> {
        let mut asked = Pipeline::new();
        asked.cmd("INFO");
        let key = self.key_of("verify");
        let sent = self.line.send(key.as_bytes(), asked, self.line.turn(None));
        let sent = timeout(PATIENCE, sent).await;
        let answers = sent.map_err(|_| Problem::Unreachable)??;
        let info = answered(answers.into_iter().next())?;
        let info = String::from_redis_value(info).map_err(RedisError::from)?;
        let line = |name: &str| {
            let mut lines = info.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        if line("role") == Some("slave") {
            return Err(Problem::Replica.into());
        }
        let eviction = line("maxmemory_policy").map(str::to_owned);
        if let Some(policy) = eviction.clone().filter(|policy| policy != "noeviction") {
            return Err(Problem::Evicts { policy }.into());
        }
        let replicas = line("connected_slaves").and_then(|count| count.parse().ok());
        Ok(Verified {
            eviction,
            replicas: replicas.unwrap_or_default(),
        })
    }

    /// Returns the key of the record with this id. The id is the hash tag, so that what belongs to one record is in one slot; a brace in it
    /// would end the tag.
    fn key_of(&self, id: &str) -> String {
        let id = id.replace('%', "%25").replace('{', "%7B");
        let id = id.replace('}', "%7D");
        format!("{}:{{{id}}}", self.prefix)
    }

    /// Returns the id of the record with this key; `None` where the key is no record's.
    #[doc(hidden)]
    #[must_use]
    pub fn id_of(&self, key: &[u8]) -> Option<RecordId> {
        let key = str::from_utf8(key).ok()?;
        let id = key.strip_prefix(&*self.prefix)?.strip_prefix(":{")?;
        let id = id.strip_suffix('}')?.replace("%7B", "{");
        let id = id.replace("%7D", "}").replace("%25", "%");
        let id = RecordId::stored(id).ok()?;
        (self.key_of(id.as_str()) == key).then_some(id)
    }

    fn outcome_key(&self, id: &RecordId, owner: &str) -> String {
        format!("{}:outcome:{owner}", self.key_of(id.as_str()))
    }

    /// Returns how many replicas must acknowledge a write, and within which time.
    fn replicas(&self) -> (u32, Duration) {
        match self.durability {
            Durability::Replicas(wanted, patience) => (wanted, patience),
            Durability::Primary => (0, Duration::ZERO),
        }
    }

    /// Runs a script on the primary that has this key, and waits for the replicas where `is_write` and the setting say so. Returns its answer,
    /// and whether enough replicas have what it left.
    async fn run(
        &self,
        (script, text): &(Script, &str),
        key: &str,
        arguments: &[Vec<u8>],
        is_write: bool,
        deadline: Instant,
    ) -> Result<(Value, Result<(), RedisStoreError>), StoreError> {
        if Instant::now() >= deadline {
            return Err(StoreError::NotSent);
        }
        let replicas = if is_write {
            self.replicas()
        } else {
            (0, Duration::ZERO)
        };
        let commands = |command: &str, script: &str| {
            let mut commands = Pipeline::new();
            commands
                .cmd(command)
                .arg(script)
                .arg(1)
                .arg(key)
                .arg(arguments);
            commands
        };
        let mut lost = None;
        let asked = loop {
            let asked = async {
                let by_hash = commands("EVALSHA", script.get_hash());
                let mut answers = self.ask(key, by_hash, replicas, deadline).await?;
                let is_unknown = matches!(answers.first(), Some(Value::ServerError(error)) if error.kind() == Some(ServerErrorKind::NoScript));
                if is_unknown {
                    if Instant::now() >= deadline {
                        return Err(StoreError::NotSent);
                    }
                    // A server that was started meanwhile, or a node that has not met the script.
                    let whole = commands("EVAL", text);
                    answers = self.ask(key, whole, replicas, deadline).await?;
                }
                let mut answers = answers.into_iter();
                Ok((answered(answers.next())?, answers.next()))
            };
            let asked: Result<_, StoreError> = asked.await;
            let may_go_again =
                lost.is_none() && self.line.is_made_anew() && Instant::now() < deadline;
            if !may_go_again || !asked.as_ref().is_err_and(is_of_connection) {
                break asked;
            }
            // The connection may have died while nothing was sent. A write that has applied meets its own owner then.
            lost = asked.err();
        };
        let is_again = lost.is_some();
        // The first error tells the cause.
        let asked = match (asked, lost) {
            (Err(StoreError::Timeout | StoreError::NotSent), Some(lost)) => Err(lost),
            (asked, _) => asked,
        };
        let (answer, heard) = asked.map_err(|error| {
            // A request that was sent again, as a cluster's client does by itself, may have applied before it was refused.
            if !is_write || (C::IN_ORDER && !is_again) || error.may_have_applied() {
                error
            } else {
                error.uncertain()
            }
        })?;
        let (wanted, _) = replicas;
        if wanted == 0 {
            return Ok((answer, Ok(())));
        }
        // The script has been carried out, whatever the server says to this.
        let replicated = match acknowledged(heard) {
            Err(error) => Err(RedisStoreError::not_replicated(wanted, error)),
            Ok(acknowledged) if acknowledged < i64::from(wanted) => Err(Problem::NotReplicated {
                acknowledged,
                wanted,
            }
            .into()),
            Ok(_) => Ok(()),
        };
        Ok((answer, replicated))
    }

    /// Sends a script, and the `WAIT` for its replicas where any are wanted. Returns the answer of each.
    async fn ask(
        &self,
        key: &str,
        mut commands: Pipeline,
        (wanted, patience): (u32, Duration),
        deadline: Instant,
    ) -> Result<Vec<Value>, StoreError> {
        let left = deadline.saturating_duration_since(Instant::now());
        // The answer must arrive in time: without one, the server counts as not reached.
        let wait = (wanted > 0).then(|| patience.min(left / 2));
        if let Some(wait) = wait {
            let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            // 0 would wait for ever.
            commands.cmd("WAIT").arg(wanted).arg(wait.max(1));
        }
        let turn = self.line.turn(wait);
        let sent = self.line.send(key.as_bytes(), commands, turn);
        match timeout_at(deadline, sent).await {
            Ok(answers) => answers.map_err(|error| RedisStoreError::from(error).into()),
            // Half of its time is for its own `WAIT`, and a quarter for the answer.
            Err(_) if wanted > 0 && turn.ahead > left / 4 => {
                let source = RedisError::from((ErrorKind::Client, BEHIND));
                Err(RedisStoreError::not_replicated(wanted, source).into())
            }
            Err(_) => Err(StoreError::Timeout),
        }
    }

    async fn apply(
        &self,
        id: &RecordId,
        instructions: Instructions,
        write: Option<&RecordWrite>,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let key = self.key_of(id.as_str());
        let (wanted, _) = self.replicas();
        let instructions = match write {
            Some(write) if wanted > 0 => instructions.or_again(left_by(write)),
            _ => instructions,
        };
        let (answer, replicated) = self
            .run(&WRITE, &key, &instructions.0, write.is_some(), deadline)
            .await?;
        let unknown = || StoreError::from(RedisStoreError::from(Problem::Answer));
        let Value::Array(parts) = answer else {
            return Err(unknown());
        };
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next()) {
            (Some(Value::Int(0)), Some(met)) => {
                let met = decode(&fields(met)?);
                // It may have applied before, where its client has sent it again.
                let owner = met.as_ref().and_then(|met| met.version.owner.as_deref());
                if owner.is_some_and(|owner| write.map(left_by) == Some(owner)) {
                    // The replicas were asked about nothing where it could not be written again.
                    if let Some(failure) = parts.next() {
                        let failure = String::from_redis_value(failure).unwrap_or_default();
                        let source =
                            RedisError::from((ErrorKind::Client, "not written again", failure));
                        return Err(RedisStoreError::not_replicated(wanted, source).into());
                    }
                    replicated?;
                }
                Ok(Answer::Refused(met))
            }
            (Some(Value::Int(1)), Some(left)) => {
                let left = decode(&fields(left)?);
                replicated?;
                Ok(Answer::Applied(left))
            }
            (Some(Value::Int(2)), Some(kind)) => {
                let kind = String::from_redis_value(kind).unwrap_or_default();
                let reason = format!(
                    "the key of the record {id} under the prefix `{}` holds a {kind}, and no record: give the store its own prefix",
                    self.prefix
                );
                Ok(Answer::Refused(Some(Found::unreadable(
                    Version::default(),
                    reason,
                ))))
            }
            (Some(Value::Int(3)), Some(failure)) => {
                let failure = String::from_redis_value(failure).unwrap_or_default();
                let source = RedisError::from((ErrorKind::Client, "applied in part", failure));
                Err(StoreError::from(RedisStoreError::from(source)).uncertain())
            }
            _ => Err(unknown()),
        }
    }
}

/// The requests of a group leave at once: over one connection together, of a cluster each to its node.
impl<C: Connection> Store for RedisStore<C> {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        let instructions = Instructions::of(write)?;
        self.apply(write.id(), instructions, Some(write), deadline)
            .await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        let answer = self.apply(id, Instructions::load(), None, deadline).await?;
        Ok(match answer {
            Answer::Applied(found) | Answer::Refused(found) => found,
        })
    }

    fn answers_in_order(&self) -> bool {
        C::IN_ORDER
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        if outcome.content.len() > LARGEST {
            return Err(StoreError::TooLarge);
        }
        let key = self.outcome_key(&outcome.id, outcome.owner.as_str());
        let end = end_of(outcome.expiration, None).to_string().into_bytes();
        let arguments = vec![outcome.content.clone(), end];
        let (_, replicated) = self.run(&KEEP, &key, &arguments, true, deadline).await?;
        replicated?;
        Ok(Place::Entry(outcome.owner.clone()))
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let Place::Entry(owner) = place else {
            return Ok(None);
        };
        let key = self.outcome_key(id, owner.as_str());
        let (answer, _) = self.run(&FETCH, &key, &[], false, deadline).await?;
        Ok(match answer {
            Value::BulkString(content) => Some(content),
            _ => None,
        })
    }
}

/// The owner of the record that a write leaves.
fn left_by(write: &RecordWrite) -> &str {
    match write {
        RecordWrite::Release(release) => release.tombstone.as_str(),
        write => write.owner().as_str(),
    }
}

/// Reads the answer to `WAIT`.
fn acknowledged(answer: Option<Value>) -> RedisResult<i64> {
    let answer = answer.unwrap_or(Value::Nil).extract_error()?;
    Ok(i64::from_redis_value(answer)?)
}

/// Returns whether the server gave no answer because there is no connection.
fn is_of_connection(error: &StoreError) -> bool {
    let StoreError::Unavailable(source) = error else {
        return false;
    };
    let own = source.downcast_ref::<RedisStoreError>();
    own.is_some_and(|own| *own.problem() == Problem::Unreachable)
}

/// Returns the answer to a command, or its error.
fn answered(answer: Option<Value>) -> Result<Value, RedisStoreError> {
    match answer {
        Some(Value::ServerError(error)) => Err(RedisError::from(error).into()),
        Some(answer) => Ok(answer),
        None => Err(Problem::Answer.into()),
    }
}

fn fields(hash: Value) -> Result<Fields, StoreError> {
    let fields = BTreeMap::<Vec<u8>, Vec<u8>>::from_redis_value(hash)
        .map_err(|error| RedisStoreError::from(RedisError::from(error)))?;
    // A name that is no text is none of a record.
    let fields = fields
        .into_iter()
        .map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), value));
    Ok(fields.collect())
}

/// Shows no address: it may have a password.
impl<C> fmt::Debug for RedisStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.prefix)
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}

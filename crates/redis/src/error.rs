//! The store's own errors, by what an operator does about them.

use std::error::Error as StdError;
use std::fmt;

use lambda_idempotency::StoreError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// A request to the server failed. It is the source of the [`StoreError`] that the engine reports.
#[derive(Debug)]
pub struct RedisStoreError {
    problem: Problem,
    source: Option<RedisError>,
}

/// The cause of a failed request. Its `Display` says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The server could not be reached, or gave no answer. The write may have applied.
    #[error(
        "the server could not be reached: check its address, its port, the security group, and whether the server and the address agree about TLS (`rediss://`)"
    )]
    Unreachable,
    /// The server speaks TLS, and the client doesn't, or the other way round.
    #[error(
        "the server and the client disagree about TLS: use `rediss://` with the feature `tls`, or `redis://` where the server has none"
    )]
    Tls,
    /// The user's name or password is wrong, or one is missing.
    #[error(
        "the server refused the user or the password: correct them in the address, `redis://user:password@host`"
    )]
    NotLetIn,
    /// The user lacks a permission (`NOPERM`).
    #[error(
        "the user lacks a permission: allow it EVALSHA, EVAL, TYPE, EXISTS, HGET, HMGET, HGETALL, HEXISTS, HKEYS, HSET, HDEL, PEXPIREAT, GET and SET on the keys of the store, and WAIT for `Durability::Replicas`"
    )]
    NoPermission,
    /// The server takes no writes (`READONLY`): it is a replica, or was the primary until a moment ago.
    #[error("the server is a replica: connect to the primary, or to the primary's endpoint")]
    Replica,
    /// The server's memory is full (`OOM`). Nothing applied.
    #[error("the server's memory is full: give it more, or shorten the retention")]
    Full,
    /// The server loads its data, or its cluster or its primary is not there at the moment. Nothing applied.
    #[error("the server isn't ready: it loads its data, or its cluster is changing")]
    NotReady,
    /// The cluster moved the key's slot meanwhile. Nothing applied, and a moment later it may.
    #[error("the cluster moved the key to another node meanwhile")]
    Moved,
    /// A connection to one node, where there is a cluster.
    #[error("the server is one of a cluster: connect with `ClusterClient`, feature `cluster`")]
    Cluster,
    /// Fewer replicas than asked for have acknowledged the write. It applied on the primary.
    #[error(
        "{acknowledged} replicas have acknowledged the write, and {wanted} must: look at the replicas, or lower `Durability::Replicas`"
    )]
    NotReplicated {
        /// The replicas that have.
        acknowledged: i64,
        /// Those that must.
        wanted: u32,
    },
    /// The server deletes what it was told to keep.
    #[error(
        "the server deletes records when its memory is full (`maxmemory-policy` is `{policy}`): set it to `noeviction`"
    )]
    Evicts {
        /// The policy.
        policy: String,
    },
    /// The server's answer is none that the store knows.
    #[error("the server's answer is unknown: is it Redis 6.2 or later, or Valkey?")]
    Answer,
    /// The server refused the request for another reason.
    #[error("the server refused the request")]
    Refused,
}

impl RedisStoreError {
    /// Returns what went wrong.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl From<Problem> for RedisStoreError {
    fn from(problem: Problem) -> Self {
        Self {
            problem,
            source: None,
        }
    }
}

impl From<RedisError> for RedisStoreError {
    fn from(source: RedisError) -> Self {
        let text = source.to_string();
        let problem = match source.kind() {
            ErrorKind::AuthenticationFailed => Problem::NotLetIn,
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Problem::Replica,
            ErrorKind::Server(ServerErrorKind::NoPerm) => Problem::NoPermission,
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown,
            ) => Problem::NotReady,
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => Problem::Cluster,
            ErrorKind::Server(ServerErrorKind::TryAgain) => Problem::Moved,
            _ => match source.code() {
                Some("OOM") => Problem::Full,
                Some("NOAUTH" | "WRONGPASS") => Problem::NotLetIn,
                _ if text.contains("TLS")
                    || text.contains("InvalidContentType")
                    || text.contains("certificate") =>
                {
                    Problem::Tls
                }
                _ if source.is_io_error()
                    || source.is_connection_dropped()
                    || source.is_timeout() =>
                {
                    Problem::Unreachable
                }
                // As a script reports it.
                _ if text.contains("OOM ") => Problem::Full,
                _ if text.contains("READONLY") => Problem::Replica,
                _ if matches!(
                    source.kind(),
                    ErrorKind::Parse | ErrorKind::UnexpectedReturnType
                ) =>
                {
                    Problem::Answer
                }
                _ if matches!(source.kind(), ErrorKind::ClusterConnectionNotFound) => {
                    Problem::NotReady
                }
                _ => Problem::Refused,
            },
        };
        Self {
            problem,
            source: Some(source),
        }
    }
}

impl fmt::Display for RedisStoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl StdError for RedisStoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<RedisStoreError> for StoreError {
    fn from(error: RedisStoreError) -> Self {
        match error.problem {
            Problem::Moved => Self::Conflict,
            Problem::Full | Problem::NotReady => Self::Throttled(error.into()),
            Problem::Unreachable | Problem::NotReplicated { .. } => Self::Unavailable(error.into()),
            Problem::NotLetIn => Self::Unauthenticated(error.into()),
            Problem::NoPermission | Problem::Tls => Self::Denied(error.into()),
            Problem::Replica | Problem::Cluster | Problem::Evicts { .. } => {
                Self::Misconfigured(error.into())
            }
            Problem::Answer | Problem::Refused => Self::Rejected(error.into()),
        }
    }
}

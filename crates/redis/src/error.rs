//! The store's own errors, by what an operator does about them.

use std::error::Error as StdError;
use std::fmt;

use lambda_idempotency::StoreError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// A request to the server failed. It is the source of the [`StoreError`] that the engine reports, or
/// that one's source, where the write may have applied although the server answered.
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
    /// The server takes no writes (`READONLY`, `MASTERDOWN`): it is a replica, or was the primary until a moment ago. Nothing applied.
    #[error("the server is a replica: connect to the primary, or to the primary's endpoint")]
    Replica,
    /// The server's memory is full (`OOM`). Nothing applied.
    #[error("the server's memory is full: give it more, or shorten the retention")]
    Full,
    /// The server takes no writes at the moment: it loads its data (`LOADING`), its cluster is changing (`CLUSTERDOWN`), too few replicas follow
    /// it (`NOREPLICAS`), it can't save (`MISCONF`), runs another script (`BUSY`), or has no room for another client. Nothing applied.
    #[error(
        "the server isn't ready: it loads its data, its cluster is changing, it has too few replicas, or it can't save"
    )]
    NotReady,
    /// The cluster moved the key's slot meanwhile. Nothing applied, and a moment later it may.
    #[error("the cluster moved the key to another node meanwhile")]
    Moved,
    /// A connection to one node, where there is a cluster.
    #[error("the server is one of a cluster: connect with `ClusterClient`, feature `cluster`")]
    Cluster,
    /// Fewer replicas than asked for have acknowledged the write, or the primary couldn't tell. It may have applied there.
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
    /// The server's answer is none that the store knows. The write may have applied.
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

impl RedisStoreError {
    /// The error of a write whose replicas nobody can tell.
    pub(crate) fn not_replicated(wanted: u32, source: RedisError) -> Self {
        let problem = Problem::NotReplicated {
            acknowledged: 0,
            wanted,
        };
        Self {
            problem,
            source: Some(source),
        }
    }
}

impl From<RedisError> for RedisStoreError {
    fn from(source: RedisError) -> Self {
        Self {
            problem: problem_of(&source),
            source: Some(source),
        }
    }
}

fn problem_of(error: &RedisError) -> Problem {
    match error.kind() {
        ErrorKind::AuthenticationFailed => return Problem::NotLetIn,
        ErrorKind::ClusterConnectionNotFound => return Problem::Unreachable,
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => {
            return Problem::Replica;
        }
        ErrorKind::Server(ServerErrorKind::NoPerm) => return Problem::NoPermission,
        ErrorKind::Server(ServerErrorKind::BusyLoading | ServerErrorKind::ClusterDown) => {
            return Problem::NotReady;
        }
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            return Problem::Cluster;
        }
        ErrorKind::Server(ServerErrorKind::TryAgain) => return Problem::Moved,
        _ => {}
    }
    match error.code() {
        Some("OOM") => return Problem::Full,
        Some("NOAUTH" | "WRONGPASS") => return Problem::NotLetIn,
        Some("NOREPLICAS" | "MISCONF" | "BUSY") => return Problem::NotReady,
        _ => {}
    }
    let text = error.to_string();
    let has = |part: &str| text.contains(part);
    // An error that has no detail is the system's own: the connection was lost, whatever its words say of TLS.
    let is_lost = error.is_timeout() || (error.is_connection_dropped() && error.detail().is_none());
    // A cluster's client has the words alone.
    if is_lost || has("close_notify") {
        Problem::Unreachable
    } else if has("TLS") || has("InvalidContentType") || has("certificate") {
        Problem::Tls
    } else if error.is_io_error() {
        Problem::Unreachable
    // As a script reports them: Redis until 7.0, Redis from 7.2 and Valkey, and the command's own answer.
    } else if has("The user executing the script can't")
        || has("ACL failure in script")
        || has("NOPERM")
    {
        Problem::NoPermission
    } else if has("OOM ") {
        Problem::Full
    } else if has("READONLY") {
        Problem::Replica
    } else if has("MISCONF") || has("NOREPLICAS") || has("max number of clients") {
        Problem::NotReady
    } else if matches!(
        error.kind(),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType
    ) {
        Problem::Answer
    } else {
        Problem::Refused
    }
}

/// Tells whether only a replica answers so.
pub(crate) fn is_of_replica(error: &RedisError) -> bool {
    // `WAIT` has other words for it.
    problem_of(error) == Problem::Replica || error.to_string().contains("replica instances")
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
            Problem::Full | Problem::NotReady | Problem::Replica => Self::Throttled(error.into()),
            Problem::NotReplicated { .. } => Self::Unavailable(error.into()).uncertain(),
            Problem::Unreachable | Problem::Answer => Self::Unavailable(error.into()),
            Problem::NotLetIn => Self::Unauthenticated(error.into()),
            Problem::NoPermission | Problem::Tls => Self::Denied(error.into()),
            Problem::Cluster | Problem::Evicts { .. } => Self::Misconfigured(error.into()),
            Problem::Refused => Self::Rejected(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io;

    use redis::{Value, parse_redis_value};

    use super::*;

    fn answered(line: &str) -> RedisError {
        match parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap() {
            Value::ServerError(error) => RedisError::from(error),
            other => RedisError::from((ErrorKind::Client, "no error", format!("{other:?}"))),
        }
    }

    #[test]
    fn what_a_server_refuses_for_now_has_not_applied() {
        for line in [
            "READONLY You can't write against a read only replica.",
            "ERR Error running script (call to f_1): @user_script:40: @user_script: 40: -READONLY You can't write against a read only replica.",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "LOADING Redis is loading the dataset in memory",
            "CLUSTERDOWN The cluster is down",
            "NOREPLICAS Not enough good replicas to write.",
            "ERR user_script:79: NOREPLICAS Not enough good replicas to write. script: f_1, on @user_script:79.",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "ERR Error running script (call to f_1): @user_script:40: @user_script: 40: -MISCONF Redis is configured to save RDB snapshots.",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "ERR Error running script (call to f_1): @user_script:40: @user_script: 40: -OOM command not allowed when used memory > 'maxmemory'.",
            "ERR max number of clients reached",
        ] {
            let error = StoreError::from(RedisStoreError::from(answered(line)));
            assert!(
                matches!(error, StoreError::Throttled(_)),
                "{line}: {error:?}"
            );
        }
        let moves = StoreError::from(RedisStoreError::from(answered("TRYAGAIN Multiple keys")));
        assert!(matches!(moves, StoreError::Conflict), "{moves:?}");
    }

    #[test]
    fn a_connection_that_is_lost_under_tls_is_no_disagreement_about_it() {
        let closed = "peer closed connection without sending TLS close_notify";
        let lost = |kind| RedisError::from(io::Error::new(kind, closed));
        let by_a_cluster = (ErrorKind::Io, "no connection", closed.to_owned());
        for error in [
            lost(io::ErrorKind::UnexpectedEof),
            lost(io::ErrorKind::ConnectionReset),
            lost(io::ErrorKind::ConnectionAborted),
            lost(io::ErrorKind::BrokenPipe),
            lost(io::ErrorKind::TimedOut),
            RedisError::from(by_a_cluster),
        ] {
            let error = StoreError::from(RedisStoreError::from(error));
            assert!(error.may_have_applied(), "{error:?}");
        }
        for words in [
            "received corrupt message of type InvalidContentType",
            "invalid peer certificate: UnknownIssuer",
        ] {
            let refused = io::Error::new(io::ErrorKind::InvalidData, words);
            for error in [
                RedisError::from(refused),
                RedisError::from((ErrorKind::Io, "no connection", words.to_owned())),
            ] {
                let error = RedisStoreError::from(error);
                assert_eq!(*error.problem(), Problem::Tls, "{error}");
            }
        }
    }

    #[test]
    fn a_permission_that_a_script_lacks_is_named() {
        for line in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "ERR Error running script (call to f_1): @user_script:40: @user_script: 40: The user executing the script can't run this command or subcommand",
            "ERR user_script:92: ERR The user executing the script can't run this command or subcommand script: f_1, on @user_script:92.",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: f_1, on @user_script:92.",
            "ERR ACL failure in script: User app has no permissions to run the 'hmget' command script: f_1, on @user_script:92.",
            "ERR user_script:92: NOPERM No permissions to access a key script: f_1, on @user_script:92.",
        ] {
            let error = RedisStoreError::from(answered(line));
            assert_eq!(*error.problem(), Problem::NoPermission, "{line}");
            let error = StoreError::from(error);
            assert!(matches!(error, StoreError::Denied(_)), "{line}: {error:?}");
        }
    }

    #[test]
    fn a_connection_to_a_replica_is_known_by_its_answers() {
        for (line, is_replica) in [
            (
                "READONLY You can't write against a read only replica.",
                true,
            ),
            ("MASTERDOWN Link with MASTER is down", true),
            ("ERR WAIT cannot be used with replica instances.", true),
            ("LOADING Redis is loading the dataset in memory", false),
            ("NOREPLICAS Not enough good replicas to write.", false),
        ] {
            assert_eq!(is_of_replica(&answered(line)), is_replica, "{line}");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_read_may_stand_for_a_write() {
        let garbled = parse_redis_value(b"?\r\n").unwrap_err();
        let error = StoreError::from(RedisStoreError::from(garbled));
        assert!(error.is_unreachable(), "{error:?}");
    }
}

//! The store's own errors, by what an operator does about them.

use std::error::Error as StdError;
use std::sync::Arc;
use std::{fmt, io};

use lambda_idempotency::StoreError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// A request to the server failed. It is the source of the [`StoreError`] that the engine reports, or
/// that one's source, where the write may have applied although the server answered.
///
/// Its `Display` and its `Debug` show the client's own error, its source, without a key or a value.
pub struct RedisStoreError {
    problem: Problem,
    source: Option<RedisError>,
}

/// The cause of a failed request. Its `Display` says what to do about it. Where [`StoreError::may_have_applied`] is false, nothing
/// applied.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The server could not be reached, or gave no answer. The write may have applied.
    #[error(
        "the server could not be reached: check its address, its port, the security group, whether the server and the address agree about TLS (`rediss://`), and whether the server has room for another client (`maxclients`)"
    )]
    Unreachable,
    /// The address can't be used.
    #[error(
        "the address can't be used: give one such as `redis://user:password@host:6379/0`, or `rediss://` for TLS (feature `tls`)"
    )]
    Address,
    /// The connection could not be made: one side speaks TLS and the other doesn't, or the client doesn't trust the server's certificate.
    #[error(
        "the server and the client disagree about TLS: use `rediss://` and a certificate that this system trusts, or `redis://` where the server has none"
    )]
    Tls,
    /// The user's name or password is wrong, or one is missing.
    #[error(
        "the server refused the user or the password: correct them in the address, `redis://user:password@host`"
    )]
    NotLetIn,
    /// The user lacks a permission (`NOPERM`).
    #[error(
        "the user lacks a permission: allow it EVALSHA, EVAL, TYPE, EXISTS, HGET, HMGET, HGETALL, HEXISTS, HKEYS, HSET, HDEL, PEXPIREAT, GET and SET on the keys of the store, WAIT for `Durability::Replicas`, INFO for `verify`, SELECT for a database in the address, and CLUSTER SLOTS and PING for a cluster"
    )]
    NoPermission,
    /// The server takes no writes (`READONLY`, `MASTERDOWN`): it is a replica, or was the primary until a moment ago.
    #[error("the server is a replica: connect to the primary, or to the primary's endpoint")]
    Replica,
    /// The server's memory is full (`OOM`).
    #[error("the server's memory is full: give it more, or shorten the retention")]
    Full,
    /// The server takes no writes at the moment: it loads its data (`LOADING`), its cluster is changing (`CLUSTERDOWN`), too few replicas follow
    /// it (`NOREPLICAS`), it can't save (`MISCONF`), runs another script (`BUSY`), or has no room for another client.
    #[error(
        "the server isn't ready: it loads its data, its cluster is changing, it has too few replicas, it can't save, or it has no room for another client (`maxclients`)"
    )]
    NotReady,
    /// The cluster moved the key's slot meanwhile. A moment later it may apply.
    #[error("the cluster moved the key to another node meanwhile")]
    Moved,
    /// A connection to one node, where there is a cluster.
    #[error(
        "another node of the cluster has the key: give `RedisStore::new` a `ClusterConnection` (feature `cluster`); on the command line, give that node's own address"
    )]
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

    /// Returns the error of a connection that could not be made, with TLS as its problem where that is the cause. In a session, which both
    /// sides have agreed on, such an error is a lost connection.
    pub(crate) fn of_connecting(self) -> Self {
        let source = self.source.as_ref().and_then(StdError::source);
        let source =
            source.and_then(<dyn StdError>::downcast_ref::<Arc<dyn StdError + Send + Sync>>);
        // `rustls` refuses a server by this kind, and what it can't begin with by an error of its own.
        let is_of_tls = source.is_some_and(|source| {
            let io = source.downcast_ref::<io::Error>();
            io.is_none_or(|error| error.kind() == io::ErrorKind::InvalidData)
        });
        if is_of_tls {
            Self {
                problem: Problem::Tls,
                ..self
            }
        } else {
            self
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

pub(crate) fn problem_of(error: &RedisError) -> Problem {
    match error.kind() {
        ErrorKind::AuthenticationFailed => return Problem::NotLetIn,
        ErrorKind::InvalidClientConfig => return Problem::Address,
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => return Problem::Unreachable,
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => return Problem::Answer,
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
    let detail = error.detail().unwrap_or_default();
    // This answer quotes the key, which may have any of the words below.
    if detail.starts_with("unknown command") {
        return Problem::Refused;
    }
    let has = |part: &str| detail.contains(part);
    // As a script reports them: Redis until 7.0, Redis from 7.2 and Valkey, and the command's own answer. The client keeps no code of the answer
    // to its `SELECT`.
    if has("The user executing the script can't")
        || has("has no permissions to run")
        || has("ACL failure in script")
        || has("NOPERM")
    {
        Problem::NoPermission
    } else if has("Authentication required") {
        Problem::NotLetIn
    } else if has("OOM ") {
        Problem::Full
    } else if has("READONLY") {
        Problem::Replica
    } else if has("MISCONF")
        || has("NOREPLICAS")
        || has("CLUSTERDOWN")
        || has("cluster is down")
        || has("max number of clients")
    {
        Problem::NotReady
    } else {
        Problem::Refused
    }
}

/// Returns whether only a replica answers so.
pub(crate) fn is_of_replica(error: &RedisError) -> bool {
    // `WAIT` has other words for it.
    problem_of(error) == Problem::Replica || error.to_string().contains("replica instances")
}

impl fmt::Display for RedisStoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)?;
        match &self.source {
            // The client quotes an answer that it can't read.
            Some(source) if self.problem != Problem::Answer => {
                // The server quotes what follows a command that it doesn't know.
                let words = source.to_string();
                let shown = words.split_once(", with args");
                write!(f, ": {}", shown.map_or(&*words, |(before, _)| before))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for RedisStoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStoreError({self})")
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
            Problem::NotReplicated { .. } | Problem::Answer => {
                Self::Unavailable(error.into()).uncertain()
            }
            Problem::Unreachable => Self::Unavailable(error.into()),
            Problem::NotLetIn => Self::Unauthenticated(error.into()),
            Problem::NoPermission | Problem::Tls => Self::Denied(error.into()),
            Problem::Address | Problem::Cluster | Problem::Evicts { .. } => {
                Self::Misconfigured(error.into())
            }
            Problem::Refused => Self::Rejected(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use redis::{FromRedisValue, Value, parse_redis_value};

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
            "ERR user_script:79: Script attempted to execute a write command while the cluster is down and readonly script: f_1, on @user_script:79.",
            "ERR Error running script (call to f_1): @user_script:40: @user_script: 40: Lua script attempted to execute a command while the cluster is down",
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
    fn an_error_of_tls_is_a_lost_connection_unless_it_keeps_one_from_being_made() {
        use std::io::ErrorKind::{ConnectionReset, InvalidData, UnexpectedEof};

        let closed = "peer closed connection without sending TLS close_notify";
        let plain = "received corrupt message of type InvalidContentType";
        let alert = "received fatal alert: HandshakeFailure";
        for (kind, words, problem) in [
            (UnexpectedEof, closed, Problem::Unreachable),
            (ConnectionReset, closed, Problem::Unreachable),
            (InvalidData, plain, Problem::Tls),
            (InvalidData, alert, Problem::Tls),
        ] {
            let error = || RedisStoreError::from(RedisError::from(io::Error::new(kind, words)));
            assert_eq!(*error().of_connecting().problem(), problem, "{words}");
            assert_eq!(*error().problem(), Problem::Unreachable, "{words}");
        }
    }

    #[test]
    fn a_key_that_an_answer_quotes_says_nothing_and_is_not_shown() {
        let line = "ERR unknown command 'EVALSHA', with args beginning with: '1f' '1' 'idempotency:{READONLY NOPERM OOM }'";
        let error = RedisStoreError::from(answered(line));
        assert_eq!(*error.problem(), Problem::Refused, "{error}");
        let said = format!("{error} {error:?}");
        assert!(!said.contains("idempotency:"), "{said}");
        assert!(error.to_string().ends_with("'EVALSHA'"), "{said}");
    }

    #[test]
    fn an_answer_that_is_none_of_the_stores_is_not_shown() {
        let record = Value::BulkString(b"4111-1111".to_vec());
        let unread = RedisError::from(i64::from_redis_value(record).unwrap_err());
        assert!(unread.to_string().contains("4111"), "{unread}");
        let error = RedisStoreError::from(unread);
        assert_eq!(*error.problem(), Problem::Answer, "{error}");
        let said = format!("{error} {error:?}");
        assert!(!said.contains("4111"), "{said}");
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
    fn what_keeps_a_client_from_a_database_is_known_without_a_code() {
        let denied = "this user has no permissions to run the 'select' command";
        for (words, problem) in [
            ("Authentication required.", Problem::NotLetIn),
            (denied, Problem::NoPermission),
        ] {
            let kind = ErrorKind::Server(ServerErrorKind::ResponseError);
            let error = RedisError::from((kind, "refused to switch database", words.to_owned()));
            assert_eq!(problem_of(&error), problem, "{words}");
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
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    }
}

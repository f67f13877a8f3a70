//! The store's own errors, by what an operator does about them.

use std::error::Error as StdError;
use std::sync::Arc;
use std::{fmt, io, iter};

use lambda_idempotency::StoreError;

/// An error of a request to PostgreSQL. It is the source of the [`StoreError`] that the engine reports.
///
/// Its `Display` and its `Debug` show the server's message where that quotes no value, and never the row that
/// it adds. Its own source is the driver's error, which has both.
#[derive(Clone)]
pub struct PostgresError {
    problem: Problem,
    /// What the server answered, fit for logs.
    answer: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The cause of a failed request. Its `Display` says what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The table is missing, or a column of it (`42P01`, `42703`).
    #[error(
        "the idempotency table, or a column of it, is missing: run `PostgresStore::create_tables` once, or the statements of `schema::statements`, with the same table name; if only a column is missing, add it by hand"
    )]
    NoTable,
    /// The tables were made by a release of this crate that has another layout.
    #[error("the idempotency tables have another layout: {}", if *found < *known {
        "change them, and their version, to what `schema::statements` of this release has"
    } else {
        "update lambda-idempotency-postgres in this program"
    })]
    OtherSchema {
        /// The version of the tables.
        found: i64,
        /// The version of this release.
        known: i64,
    },
    /// The server takes no writes (`25006`): it is a replica, or `default_transaction_read_only` is on.
    #[error(
        "the server is read-only: connect to the primary (the cluster's writer endpoint), or turn `default_transaction_read_only` off"
    )]
    ReadOnly,
    /// The role lacks a privilege (`42501`).
    #[error(
        "the role lacks a privilege: grant it SELECT, INSERT, UPDATE and DELETE on the idempotency tables, and let a role that may create tables run `create_tables`; a handler that has SET another role sends `RESET ROLE` last"
    )]
    NoPrivilege,
    /// The server didn't let the role in (`28000`, `28P01`).
    #[error(
        "the server refused the connection: check the role's name and its password, and the server's `pg_hba.conf`; a token of RDS holds for 15 minutes, so make one for each connection"
    )]
    NotLetIn,
    /// The server has no database of this name (`3D000`).
    #[error("the server has no database of this name: correct the name, or create it")]
    NoDatabase,
    /// The database's encoding is neither `UTF8` nor `SQL_ASCII`, so that it lacks characters.
    #[error(
        "the database's encoding lacks characters, so that it can't store every text: use a database with `ENCODING 'UTF8'`"
    )]
    Encoding,
    /// One side asks for encryption and the other has none, or the client doesn't trust the server's
    /// certificate.
    #[error(
        "the server and the client disagree about TLS: give the pool a TLS connector that trusts the server's certificate, and `sslmode=require` or `verify-full`"
    )]
    Tls,
    /// No connection of the pool became free in time.
    #[error(
        "no connection of the pool became free: raise the pool's size to the number of requests that run at once"
    )]
    PoolExhausted,
    /// The pool was closed, or has no runtime.
    #[error("the pool is closed: keep it for as long as the store")]
    PoolClosed,
    /// The server has no room for another connection, or no memory or disk (`53…`).
    #[error(
        "the server is out of connections, memory or disk: lower the pools' sizes, or put a proxy between"
    )]
    OutOfResources,
    /// A statement took longer than `statement_timeout` allows, or was cancelled (`57014`).
    #[error("the server cancelled the statement: raise the role's `statement_timeout`")]
    Cancelled,
    /// Another transaction held the row, or the table, for longer than the request could wait
    /// (`55P03`).
    #[error(
        "another transaction holds the row or the table: look for one that stays open (`pg_stat_activity`, `pg_locks`), or give the request more time"
    )]
    Locked,
    /// There was no answer in [`PostgresStore::timeout`](crate::PostgresStore::timeout).
    #[error(
        "no connection, or no answer of the server, within `PostgresStore::timeout`: is the pool full, does the server hang?"
    )]
    NoAnswer,
    /// A claim, and a transaction that sees the state of its beginning.
    #[error(
        "a claim's record changes while its handler works (steps, renewals), which a REPEATABLE READ or SERIALIZABLE transaction can't commit over: use the claimless form, or READ COMMITTED"
    )]
    Isolation,
    /// Two transactions could not both go on (`40001`, `40P01`).
    #[error("another transaction was in the way: send the request again")]
    Conflict,
    /// A statement had failed in the transaction, and the handler went on (`25P02`).
    #[error(
        "a statement of the handler had failed, so that its transaction could not commit: return the statement's error from the handler, or set a savepoint around it"
    )]
    Aborted,
    /// The open transaction has ended before the handler did.
    #[error(
        "the transaction is over: its connection was lost, its end was tried before, or the handler sent ROLLBACK itself, which is the engine's task; send the request again"
    )]
    Over,
    /// The handler had returned, and something still held its transaction.
    #[error("the transaction is still in use: drop it before the handler returns")]
    InUse,
    /// A statement of [`Sql`](crate::Sql), of a guard or of an outbox failed by itself.
    #[error("a statement of the transaction failed")]
    Statement,
    /// The row has a version of another kind than the guard's.
    #[error(
        "the row has a version of another kind, so that the two can't be compared: write each row with versions of one kind"
    )]
    Version,
    /// A statement changed another number of rows than [`Sql::affects`](crate::Sql::affects) says.
    #[error("the statement changed {rows} rows, and not {expected}: its condition doesn't hold")]
    Rows {
        /// The number of rows that it must change.
        expected: u64,
        /// The number that it changed.
        rows: u64,
    },
    /// A constraint of a table refused a row (class `23`).
    #[error(
        "a constraint of a table refused the row (a deferred one in COMMIT, where no write is named: `SET CONSTRAINTS ALL IMMEDIATE` as the last statement has it checked before)"
    )]
    Constraint,
    /// A text has a NUL character, which PostgreSQL doesn't take (`22021`).
    #[error(
        "PostgreSQL takes no NUL character in a text: leave it out of the key, the statement, or the value that is bound"
    )]
    Nul,
    /// A value of the server's answer has another type than the tables give it. The write may have applied.
    #[error(
        "the server's answer can't be read: does a column have another type than in `schema::statements`?"
    )]
    Answer,
    /// The server could not be reached, or the connection was lost: what was sent may have applied.
    #[error("the server could not be reached")]
    Unreachable,
    /// Anything else.
    #[error("the server refused the request")]
    Refused,
}

impl PostgresError {
    pub(crate) fn new(
        problem: Problem,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::from(problem).caused_by(source)
    }

    pub(crate) fn caused_by(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            source: Some(Arc::from(source.into())),
            ..self
        }
    }

    /// The error of a connection that was given away already.
    pub(crate) fn over() -> Self {
        Problem::Over.into()
    }

    /// Reads an error that the server answered with, perhaps about a place in the statement's text. `names` are
    /// those of a table, a column and a constraint.
    pub(crate) fn of_code(
        code: &str,
        message: &str,
        severity: &str,
        is_of_text: bool,
        names: [Option<&str>; 3],
    ) -> Self {
        let ends_session = ["FATAL", "PANIC"].contains(&severity);
        let problem = match code {
            // A server whose log can't be written, on a full disk say, may find a commit in it when it starts again.
            _ if severity == "PANIC" => Problem::Unreachable,
            "42P01" | "42703" | "3F000" => Problem::NoTable,
            "25006" => Problem::ReadOnly,
            // To `BEGIN ISOLATION LEVEL SERIALIZABLE`.
            "0A000" if message.to_lowercase().contains("hot standby") => Problem::ReadOnly,
            "42501" => Problem::NoPrivilege,
            // Where the client uses TLS, the message ends with `SSL encryption` or `SSL on`. The last one is Azure's.
            "28000"
                if ["no encryption", "SSL off", "SSL connection is required"]
                    .iter()
                    .any(|part| message.contains(part)) =>
            {
                Problem::Tls
            }
            "28000" | "28P01" => Problem::NotLetIn,
            "3D000" => Problem::NoDatabase,
            "57014" => Problem::Cancelled,
            "55P03" => Problem::Locked,
            "40001" | "40P01" => Problem::Conflict,
            "25P02" => Problem::Aborted,
            // The session has ended, or nobody knows what became of the statement.
            "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04" | "40003" => {
                Problem::Unreachable
            }
            "22021" => Problem::Nul,
            // A statement has another number of parameters than it was given values. `PgBouncer` says the same of a connection that it closes:
            // in its statement mode, of each that begins a transaction.
            "08P01" if !ends_session || message.contains("statement pooling") => Problem::Refused,
            _ if code.starts_with("23") => Problem::Constraint,
            _ if code.starts_with("53") => Problem::OutOfResources,
            _ if code.starts_with("08") => Problem::Unreachable,
            // Others refuse the session from its beginning: a setting that the server doesn't know, say.
            _ if ends_session
                && ["57", "58", "XX"]
                    .iter()
                    .any(|class| code.starts_with(class)) =>
            {
                Problem::Unreachable
            }
            _ => Problem::Refused,
        };
        let mut text = format!("SQLSTATE {code}");
        let places = ["table", "column", "constraint"].into_iter().zip(names);
        text.extend(places.filter_map(|(kind, name)| Some(format!(", {kind} `{}`", name?))));
        // Of the statement's text, a message of class 22 quotes a value.
        if ends_session
            || (is_of_text && !code.starts_with("22"))
            || UNQUOTING.iter().any(|class| code.starts_with(class))
        {
            text.push_str(": ");
            text.push_str(message);
        }
        Self {
            answer: Some(text),
            ..Self::from(problem)
        }
    }

    /// Returns the error of a connection that could not be made, with its cause as its problem: TLS, or a refused
    /// login. In a session, which both sides have agreed on, an error that names TLS is a lost connection.
    pub(crate) fn of_connecting(self) -> Self {
        let words = self.to_string();
        let says = |word: &str| words.contains(word);
        let io = iter::successors(self.source(), |error| (*error).source())
            .find_map(|error| error.downcast_ref::<io::Error>());
        let is_of_tls = match io.map(io::Error::kind) {
            // `rustls` refuses a certificate by this kind.
            Some(io::ErrorKind::InvalidData) => true,
            // `OpenSSL`'s errors have no kind: their words tell.
            None | Some(io::ErrorKind::Other) => {
                (says("TLS") || says("SSL")) && !says("unexpected eof")
            }
            Some(_) => false,
        };
        let problem = match self.problem {
            Problem::Unreachable if is_of_tls => Problem::Tls,
            Problem::Unreachable => refused_login(&words).unwrap_or(Problem::Unreachable),
            problem => problem,
        };
        Self { problem, ..self }
    }

    /// The error of a statement that is not the store's own, where the driver knows no answer to it. Of another one, such an answer would leave
    /// it open what applied.
    pub(crate) fn of_copy(self) -> Self {
        if self.problem != Problem::Unreachable
            || self.answer.is_some()
            || !self.to_string().contains("unexpected message")
        {
            return self;
        }
        let words =
            "`COPY` from or to the client is a call of the driver's, in an open transaction";
        Self {
            problem: Problem::Refused,
            answer: Some(words.to_owned()),
            ..self
        }
    }

    /// The engine's error for a problem that sending the same again doesn't fix.
    pub(crate) fn rejected(problem: Problem) -> StoreError {
        StoreError::Rejected(Self::from(problem).into())
    }

    /// Returns what went wrong.
    pub fn problem(&self) -> Problem {
        self.problem
    }

    /// Returns whether its connection may serve another request: once the server has answered, nothing is open on it. One to a server that reads
    /// only may not: after a failover another is the primary.
    pub(crate) fn keeps_connection(&self) -> bool {
        !matches!(self.problem, Problem::Unreachable | Problem::ReadOnly)
    }

    /// The error of a statement on tables that aren't the store's own: whatever it failed with, the same
    /// statement will fail with again.
    pub(crate) fn of_statement(self) -> Self {
        match self.problem {
            Problem::NoTable | Problem::NoPrivilege | Problem::Refused => Self {
                problem: Problem::Statement,
                ..self
            },
            _ => self,
        }
    }
}

/// The SQLSTATEs, or their classes, whose messages quote no value: the connection, the state of the transaction,
/// conflicts, privileges, the target of `ON CONFLICT`, resources, locks, the operator.
const UNQUOTING: [&str; 8] = ["08", "25", "40", "42501", "42P10", "53", "55", "57"];

/// Reads a login that was refused without a code of its own: by a driver, or by `PgBouncer`, which has one code for its own words and the
/// server's, and translates neither. `None` where nothing says that anybody has answered.
fn refused_login(words: &str) -> Option<Problem> {
    const PARTS: [(&str, Problem); 9] = [
        ("too many ", Problem::OutOfResources),
        ("no more connections allowed", Problem::OutOfResources),
        ("unsupported startup parameter", Problem::Refused),
        ("authentication", Problem::NotLetIn),
        ("login rejected", Problem::NotLetIn),
        // Of `tokio-postgres`, where the password is missing.
        ("password missing", Problem::NotLetIn),
        ("role \"", Problem::NotLetIn),
        ("no such database", Problem::NoDatabase),
        ("does not exist", Problem::NoDatabase),
    ];
    let found = PARTS.iter().find(|(part, _)| words.contains(part));
    found.map(|(_, problem)| *problem)
}

impl From<Problem> for PostgresError {
    fn from(problem: Problem) -> Self {
        Self {
            problem,
            answer: None,
            source: None,
        }
    }
}

impl fmt::Debug for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresError({self})")
    }
}

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)?;
        if let Some(answer) = &self.answer {
            return write!(f, ": {answer}");
        }
        // A driver's own error names its kind alone: the cause is its source.
        let mut source = self.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl StdError for PostgresError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<PostgresError> for StoreError {
    fn from(error: PostgresError) -> Self {
        match error.problem {
            Problem::Conflict => Self::Conflict,
            Problem::NoAnswer => Self::Timeout,
            Problem::PoolExhausted
            | Problem::OutOfResources
            | Problem::Cancelled
            | Problem::Locked
            | Problem::ReadOnly => Self::Throttled(error.into()),
            Problem::Unreachable => Self::Unavailable(error.into()),
            Problem::NotLetIn => Self::Unauthenticated(error.into()),
            Problem::NoPrivilege | Problem::Tls => Self::Denied(error.into()),
            Problem::NoTable
            | Problem::NoDatabase
            | Problem::Encoding
            | Problem::OtherSchema { .. }
            | Problem::Isolation
            | Problem::PoolClosed => Self::Misconfigured(error.into()),
            Problem::Aborted
            | Problem::Over
            | Problem::InUse
            | Problem::Statement
            | Problem::Version
            | Problem::Constraint
            | Problem::Rows { .. }
            | Problem::Nul
            | Problem::Refused => Self::Rejected(error.into()),
            Problem::Answer => Self::Rejected(error.into()).uncertain(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `tokio-postgres` says it.
    #[derive(Debug, thiserror::Error)]
    #[error("error performing TLS handshake")]
    struct Handshake(#[source] io::Error);

    fn connecting(source: impl StdError + Send + Sync + 'static) -> PostgresError {
        PostgresError::new(Problem::Unreachable, source).of_connecting()
    }

    #[test]
    fn a_connection_that_is_lost_under_tls_is_no_disagreement_about_it() {
        let closed = "peer closed connection without sending TLS close_notify";
        for (kind, words) in [
            (io::ErrorKind::UnexpectedEof, closed),
            (io::ErrorKind::ConnectionReset, closed),
            (
                io::ErrorKind::Other,
                "error:0A000126:SSL routines::unexpected eof while reading",
            ),
        ] {
            let lost = || io::Error::new(kind, words);
            for error in [
                connecting(sqlx::Error::Io(lost())),
                connecting(sqlx::Error::Tls(lost().into())),
                connecting(Handshake(lost())),
            ] {
                assert_eq!(error.problem(), Problem::Unreachable, "{error}");
            }
        }
    }

    #[test]
    fn a_refused_login_is_an_answer_whatever_its_code() {
        for (words, problem) in [
            ("password authentication failed", Problem::NotLetIn),
            ("login rejected", Problem::NotLetIn),
            (r#"role "app" does not exist"#, Problem::NotLetIn),
            ("invalid configuration: password missing", Problem::NotLetIn),
            (r#"database "shop" does not exist"#, Problem::NoDatabase),
            ("no such database: shop", Problem::NoDatabase),
            (
                r#"too many connections for role "app""#,
                Problem::OutOfResources,
            ),
            (
                "no more connections allowed (max_client_conn)",
                Problem::OutOfResources,
            ),
            ("unsupported startup parameter: options", Problem::Refused),
            ("server login has been failing", Problem::Unreachable),
            ("query_wait_timeout", Problem::Unreachable),
        ] {
            let error = PostgresError::of_code("08P01", words, "FATAL", false, [None; 3]);
            assert_eq!(error.problem(), Problem::Unreachable, "{words}");
            assert_eq!(error.of_connecting().problem(), problem, "{words}");
        }
    }

    #[test]
    fn what_a_server_applied_before_it_panicked_is_open() {
        // Its disk is full, or takes no writes.
        for code in ["53100", "42501", "58030", "XX000"] {
            let of = |severity| PostgresError::of_code(code, "no", severity, false, [None; 3]);
            let panicked = of("PANIC");
            assert_eq!(panicked.problem(), Problem::Unreachable, "{code}");
            assert!(!panicked.keeps_connection(), "{code}");
            assert!(StoreError::from(panicked).may_have_applied(), "{code}");
            assert_ne!(of("ERROR").problem(), Problem::Unreachable, "{code}");
        }
    }

    #[test]
    fn a_message_that_may_quote_a_value_is_left_out() {
        for (code, severity, is_of_text, is_shown) in [
            ("22P02", "ERROR", true, false),
            // Of a text search's query, and of a statement.
            ("42601", "ERROR", false, false),
            ("42601", "ERROR", true, true),
            ("42501", "ERROR", false, true),
            ("42P10", "ERROR", false, true),
            ("54000", "ERROR", false, false),
            ("53100", "ERROR", false, true),
            ("XX000", "ERROR", false, false),
            ("XX000", "FATAL", false, true),
        ] {
            let names = [None, Some("email"), None];
            let error = PostgresError::of_code(code, "jane", severity, is_of_text, names);
            let said = error.to_string();
            assert_eq!(said.contains("jane"), is_shown, "{said}");
            let place = format!("SQLSTATE {code}, column `email`");
            assert!(said.contains(&place), "{said}");
        }
    }

    #[test]
    fn a_server_that_wants_tls_is_told_from_one_that_refuses_a_client_with_it() {
        for (words, problem) in [
            ("no pg_hba.conf entry for host, no encryption", Problem::Tls),
            ("no pg_hba.conf entry for host, SSL off", Problem::Tls),
            ("SSL connection is required. Please specify", Problem::Tls),
            (
                "no pg_hba.conf entry for host, SSL encryption",
                Problem::NotLetIn,
            ),
            ("no pg_hba.conf entry for host, SSL on", Problem::NotLetIn),
        ] {
            let error = PostgresError::of_code("28000", words, "FATAL", false, [None; 3]);
            assert_eq!(error.of_connecting().problem(), problem, "{words}");
        }
    }

    #[test]
    fn a_server_without_tls_and_one_that_is_not_trusted_are_named() {
        let untrusted = || {
            let words = "invalid peer certificate: UnknownIssuer";
            io::Error::new(io::ErrorKind::InvalidData, words)
        };
        let refused = "error:0A00045C:SSL routines::tlsv13 alert certificate required";
        for error in [
            connecting(sqlx::Error::Tls("server does not support TLS".into())),
            connecting(sqlx::Error::Io(untrusted())),
            connecting(sqlx::Error::Io(io::Error::other(refused))),
            connecting(Handshake(untrusted())),
        ] {
            assert_eq!(error.problem(), Problem::Tls, "{error}");
        }
    }
}

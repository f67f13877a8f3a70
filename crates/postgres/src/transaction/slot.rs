//! The place of an open transaction among the writes of its run.

use std::sync::Arc;

use lambda_idempotency::EpochSeconds;
use lambda_idempotency::protocol::packed::LargeOutcome;
use lambda_idempotency::protocol::record::Found;
use tokio::sync::{Mutex, OwnedMappedMutexGuard, OwnedMutexGuard};

use super::ids::OpenId;
use crate::driver::{Connection, Pool};
use crate::error::{PostgresError, Problem};

/// The place or the record that the transaction holds in the table of records.
#[derive(Debug)]
pub(crate) enum Footing {
    /// The place of a record that isn't there yet, with this expiration.
    Place(EpochSeconds),
    /// A record that has expired or was released, locked in the transaction of this id.
    Locked(Found, Xid),
    /// Nothing: a claim was written before, and the transaction has this id, or nothing protects the run.
    Nothing(Option<Xid>),
}

impl Footing {
    /// Returns the id of a transaction that doesn't have the record's place.
    pub(crate) fn xid(&self) -> Option<Xid> {
        match self {
            Self::Place(_) => None,
            Self::Locked(_, xid) => Some(*xid),
            Self::Nothing(xid) => *xid,
        }
    }
}

/// The server's id of a transaction, by which one that the handler has ended is known.
pub(crate) type Xid = i64;

/// The connection of a transaction while the handler works on it.
pub(super) type Lent<P> =
    OwnedMappedMutexGuard<Option<<P as Pool>::Connection>, <P as Pool>::Target>;

/// An open transaction. Its run keeps it among its writes; the handler borrows it, and the commit
/// takes it. Dropped, it closes the connection, and the server rolls back.
pub(crate) struct Slot<P: Pool> {
    connection: Arc<Mutex<Option<P::Connection>>>,
    about: Arc<About>,
}

struct About {
    footing: Footing,
    /// Keeps other runs of this process from waiting on connections of the pool.
    id: Option<OpenId>,
}

impl<P: Pool> Clone for Slot<P> {
    fn clone(&self) -> Self {
        Self {
            connection: Arc::clone(&self.connection),
            about: Arc::clone(&self.about),
        }
    }
}

impl<P: Pool> Slot<P> {
    pub(super) fn new(connection: P::Connection, footing: Footing, id: Option<OpenId>) -> Self {
        Self {
            connection: Arc::new(Mutex::new(Some(connection))),
            about: Arc::new(About { footing, id }),
        }
    }

    pub(crate) fn footing(&self) -> &Footing {
        &self.about.footing
    }

    /// Takes the large outcome that the commit is to write.
    pub(crate) fn large_outcome(&self) -> Option<LargeOutcome> {
        self.about.id.as_ref()?.large_outcome()
    }

    pub(super) fn lend(&self) -> Result<Lent<P>, PostgresError> {
        let connection = self.locked()?;
        let lent = OwnedMutexGuard::try_map(connection, |connection| {
            connection
                .as_mut()
                .and_then(|connection| connection.session().ok())
        });
        lent.map_err(|_| Problem::Over.into())
    }

    /// Takes the connection, to end the transaction.
    pub(crate) fn close(&self) -> Result<P::Connection, PostgresError> {
        self.locked()?.take().ok_or_else(PostgresError::over)
    }

    /// Puts the connection back: the transaction goes on.
    pub(crate) fn put_back(&self, connection: P::Connection) -> Result<(), PostgresError> {
        *self.locked()? = Some(connection);
        Ok(())
    }

    fn locked(&self) -> Result<OwnedMutexGuard<Option<P::Connection>>, PostgresError> {
        let locked = Arc::clone(&self.connection).try_lock_owned();
        locked.map_err(|_| Problem::InUse.into())
    }
}

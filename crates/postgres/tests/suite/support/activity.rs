//! The activity of the server's connections, and commits that are held up.

use deadpool_postgres::Pool;

use super::{eventually, name, pool_of, sql, url};

/// Stands before each `COMMIT` of a row of one table.
pub(crate) struct Gate {
    pub(crate) name: String,
}

/// Holds these up until it is dropped. Its lock is the session's of the pool's one connection.
pub(crate) struct Closed {
    _connection: Pool,
}

impl Gate {
    pub(crate) async fn before_commits_to(rows: &str) -> Self {
        let name = name("gate");
        sql(&format!(
            "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             PERFORM pg_advisory_xact_lock_shared(hashtext('{name}')); RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER {name} AFTER INSERT ON {rows} \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {name}()"
        ))
        .await;
        Self { name }
    }

    pub(crate) async fn close(&self) -> Closed {
        let connection = pool_of(&url(), 1);
        let lock = format!("SELECT pg_advisory_lock(hashtext('{}'))", self.name);
        let client = connection.get().await.unwrap();
        client.batch_execute(&lock).await.unwrap();
        Closed {
            _connection: connection,
        }
    }
}

/// The connections of an application that are in `COMMIT`.
pub(crate) fn committing(application: &str) -> String {
    format!("application_name = '{application}' AND query = 'COMMIT' AND state = 'active'")
}

/// The connections whose statement names this, and that wait for another transaction.
pub(crate) fn waiting_for(name: &str) -> String {
    format!("wait_event_type = 'Lock' AND position('{name}' IN query) > 0")
}

/// Selects this of each connection of these, once there is one.
pub(crate) async fn once_there_is(connections: &str, what: &str) {
    let client = pool_of(&url(), 1).get().await.unwrap();
    let select = format!("SELECT {what} FROM pg_stat_activity WHERE {connections}");
    let look = async || {
        let found = client.query(&select, &[]).await.unwrap();
        (!found.is_empty()).then_some(())
    };
    eventually(connections, look).await;
}

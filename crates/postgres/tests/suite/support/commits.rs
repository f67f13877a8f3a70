//! Commits that are held up, and connections that are in one.

use std::time::Duration;

use deadpool_postgres::Pool;

use super::{name, pool_of, sql, url};

/// Stands before each `COMMIT` of a row of one table.
pub(crate) struct Gate {
    name: String,
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

/// Selects this of each connection that is in `COMMIT`, once there is one.
pub(crate) async fn select_of_commits(what: &str, application: &str) {
    let client = pool_of(&url(), 1).get().await.unwrap();
    let select = format!(
        "SELECT {what} FROM pg_stat_activity \
         WHERE application_name = $1 AND query = 'COMMIT' AND state = 'active'"
    );
    for _ in 0..20_000 {
        let found = client.query(&select, &[&application]).await.unwrap();
        if !found.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("no commit was seen");
}

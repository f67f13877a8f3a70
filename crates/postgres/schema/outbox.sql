-- The outbox of lambda-idempotency-postgres. Each statement may run again.

CREATE TABLE IF NOT EXISTS {table} (
    -- The order of events; those of one aggregate are committed and published in it.
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The same in each attempt: consumers recognise a repetition by it.
    id text NOT NULL UNIQUE,
    type text NOT NULL,
    aggregate text NOT NULL,
    -- JSON
    data text NOT NULL,
    -- Milliseconds since 1970
    recorded_at bigint NOT NULL,
    published_at bigint,
    -- The last publication that failed: events that never failed come before.
    failed_at bigint
);

CREATE INDEX IF NOT EXISTS {name}_pending ON {table} (aggregate, position) WHERE published_at IS NULL;
CREATE INDEX IF NOT EXISTS {name}_published ON {table} (published_at) WHERE published_at IS NOT NULL;

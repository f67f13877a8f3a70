-- The tables of lambda-idempotency-postgres, version 1. Each statement may run again.

CREATE TABLE IF NOT EXISTS {table} (
    id text PRIMARY KEY,
    -- INPROGRESS (also: released, with the lease 0), COMPLETED or FAILED
    status text NOT NULL,
    -- Seconds since 1970; from then on the record counts as absent.
    expiration bigint NOT NULL,
    -- The version of a claim: the fence compares it.
    owner text,
    -- Milliseconds since 1970; from then on another attempt may take over.
    lease bigint,
    attempt bigint NOT NULL,
    fingerprint text,
    -- One of the next three, once the record is final: JSON text, why there is none, or where the compressed text is.
    outcome text,
    omitted text,
    packed text,
    content bytea,
    last_error text,
    -- JSON: the steps, by name.
    journal text NOT NULL,
    started_at bigint,
    completed_at bigint,
    layout bigint
);

CREATE INDEX IF NOT EXISTS {name}_expiration ON {table} (expiration);

-- Compressed outcomes that are too large for their record.
CREATE TABLE IF NOT EXISTS {table}_outcomes (
    id text NOT NULL,
    owner text NOT NULL,
    content bytea NOT NULL,
    expiration bigint NOT NULL,
    PRIMARY KEY (id, owner)
);

CREATE INDEX IF NOT EXISTS {name}_outcomes_expiry ON {table}_outcomes (expiration);

CREATE TABLE IF NOT EXISTS {table}_schema (version bigint PRIMARY KEY);

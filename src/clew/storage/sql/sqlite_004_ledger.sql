-- The ledger: runs, effects, requests, waits (docs/design/runtime.md). Each BLOB but a digest begins with a checksum of
-- its place and content; times are microseconds since 1970.

CREATE TABLE run (
    seq         INTEGER PRIMARY KEY,
    tenant      INTEGER NOT NULL,
    id          TEXT NOT NULL,
    thread      INTEGER NOT NULL,
    branch      TEXT NOT NULL,
    agent       TEXT NOT NULL,
    status      TEXT NOT NULL CHECK (status IN (
        'queued', 'running', 'waiting', 'sleeping', 'paused', 'done', 'failed', 'cancelled', 'dead')),
    key         TEXT,                            -- the caller's: one key, one run
    input_step  INTEGER,
    step        INTEGER,
    parent      TEXT,                            -- the run that a fork came from
    parent_step INTEGER,
    priority    INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    crashes     INTEGER NOT NULL DEFAULT 0,
    wanted      TEXT,                            -- word left for whoever runs it
    wake        INTEGER,                         -- when it is due; NULL: not by itself
    epoch       INTEGER NOT NULL DEFAULT 0,      -- of the lease that it last ran under
    created     INTEGER NOT NULL,
    updated     INTEGER NOT NULL,
    input       BLOB,
    context     BLOB,
    error       BLOB,
    UNIQUE (tenant, id)
) STRICT;
CREATE UNIQUE INDEX run_holding ON run (tenant, thread, branch)
    WHERE status IN ('running', 'waiting', 'sleeping', 'paused');
CREATE UNIQUE INDEX run_key ON run (tenant, thread, agent, key);
CREATE INDEX run_status ON run (tenant, status, seq);
CREATE INDEX run_wake ON run (tenant, wake) WHERE wake IS NOT NULL;

-- One row for each claim, so that a late result finds its own.
CREATE TABLE effect (
    seq        INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    thread     INTEGER NOT NULL,
    key        TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    name       TEXT NOT NULL,
    args       BLOB NOT NULL,                    -- a digest
    state      TEXT NOT NULL CHECK (state IN ('claimed', 'done', 'failed', 'unknown', 'compensated')),
    token      TEXT NOT NULL,
    run        TEXT,
    activation TEXT,
    branch     TEXT NOT NULL,
    step       INTEGER,
    epoch      INTEGER NOT NULL,
    created    INTEGER NOT NULL,
    updated    INTEGER NOT NULL,
    shown      BLOB,
    value      BLOB
) STRICT;
CREATE UNIQUE INDEX effect_key ON effect (tenant, thread, key, attempt);

CREATE TABLE request (
    seq        INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    number     INTEGER NOT NULL,                 -- R-12; from `counter`
    thread     INTEGER NOT NULL,
    branch     TEXT NOT NULL,
    run        TEXT,
    step       INTEGER,
    activation TEXT NOT NULL,
    ask        TEXT NOT NULL,
    digest     BLOB NOT NULL,
    assignee   TEXT,
    approvals  INTEGER NOT NULL,
    answers    INTEGER NOT NULL DEFAULT 0,
    status     TEXT NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'answered', 'expired', 'withdrawn')),
    created    INTEGER NOT NULL,
    expires    INTEGER,
    decided    INTEGER,
    question   BLOB NOT NULL,
    schema     BLOB,
    fallback   BLOB,                             -- what an expiry decides
    value      BLOB,
    UNIQUE (tenant, number)
) STRICT;
CREATE INDEX request_status ON request (tenant, status, number);
CREATE INDEX request_assignee ON request (tenant, assignee, status, number) WHERE assignee IS NOT NULL;
CREATE INDEX request_ask ON request (tenant, thread, activation, ask, number);
CREATE INDEX request_expires ON request (tenant, expires) WHERE status = 'open' AND expires IS NOT NULL;

CREATE TABLE answer (
    tenant  INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    person  TEXT NOT NULL,
    reason  TEXT,
    created INTEGER NOT NULL,
    value   BLOB NOT NULL,
    PRIMARY KEY (tenant, number, person)
) STRICT, WITHOUT ROWID;

-- A wait for a signal, or for time alone (name NULL). Its deadline is fixed when it begins.
CREATE TABLE wait (
    seq        INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    run        TEXT NOT NULL,
    activation TEXT NOT NULL,
    id         TEXT NOT NULL,
    name       TEXT,
    state      TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'signalled', 'over')),
    signal     INTEGER,                          -- the one that it took
    created    INTEGER NOT NULL,
    expires    INTEGER,
    UNIQUE (tenant, run, activation, id)
) STRICT;
CREATE INDEX wait_name ON wait (tenant, name) WHERE state = 'open' AND name IS NOT NULL;

CREATE TABLE signal (
    seq     INTEGER PRIMARY KEY,
    tenant  INTEGER NOT NULL,
    name    TEXT NOT NULL,
    key     TEXT,
    taken   INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    value   BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX signal_key ON signal (tenant, name, key) WHERE key IS NOT NULL;
CREATE INDEX signal_free ON signal (tenant, name, seq) WHERE taken = 0;

-- Open requests that somebody has to be told of.
CREATE TABLE notice (
    tenant   INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    event    TEXT NOT NULL,
    due      INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    token    TEXT,                               -- of whoever is telling it now
    PRIMARY KEY (tenant, number, event)
) STRICT, WITHOUT ROWID;
CREATE INDEX notice_due ON notice (tenant, due);

-- Numbers that people see; never given twice.
CREATE TABLE counter (
    tenant INTEGER NOT NULL,
    name   TEXT NOT NULL,
    last   INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

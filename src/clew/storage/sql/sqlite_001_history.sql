-- Threads, checkpoints and payload. Row keys are thread << 32 | step: clustered, small, and never shown.

CREATE TABLE tenant (
    tenant INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE thread (
    thread  INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused: a cached key cannot come to mean another thread
    tenant  INTEGER NOT NULL,
    id      TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    step    INTEGER NOT NULL DEFAULT 0,          -- the last step given, if it is not the thread's newest row's
    lane    INTEGER NOT NULL DEFAULT 0,          -- the last lane given
    UNIQUE (tenant, id)
) STRICT;
CREATE INDEX thread_updated ON thread (tenant, updated);

-- Branches, tags, and the automatic names of tips left behind by a rewind, in one namespace.
-- One tree, not a table beside an index: each commit looks up and updates one of these rows.
CREATE TABLE ref (
    thread   INTEGER NOT NULL,
    name     TEXT NOT NULL,
    tenant   INTEGER NOT NULL,
    kind     TEXT NOT NULL CHECK (kind IN ('branch', 'tag', 'auto')),
    step     INTEGER,
    lane     INTEGER NOT NULL DEFAULT 0,         -- the lane this branch grows; 0: its next commit opens one
    unfolded INTEGER NOT NULL DEFAULT 0,         -- payload rows of that lane since the last fold
    epoch    INTEGER NOT NULL DEFAULT 0,
    owner    INTEGER,                            -- the process that holds the lease
    PRIMARY KEY (thread, name)
) STRICT, WITHOUT ROWID;

-- No index on id: its random pages cost a third of a commit. Looking for an id walks the thread, newest first;
-- the check for a lost reply walks only the steps given after the base (see sqlite.py, invariant 4).
CREATE TABLE checkpoint (
    key      INTEGER PRIMARY KEY,
    tenant   INTEGER NOT NULL,
    id       TEXT NOT NULL,
    parent   INTEGER,                            -- a step of the same thread
    lane     INTEGER NOT NULL,
    kind     INTEGER NOT NULL,
    label    TEXT,
    run      TEXT,
    next     BLOB,
    created  INTEGER NOT NULL,
    metadata BLOB,
    crc      INTEGER NOT NULL,
    save_key TEXT,
    manifest BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX checkpoint_save_key ON checkpoint (key >> 32, save_key) WHERE save_key IS NOT NULL;

-- What one commit brought; replaced by chunks when its lane is folded.
CREATE TABLE payload (
    key    INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    lane   INTEGER NOT NULL,
    data   BLOB NOT NULL
) STRICT;

-- Folded payload: a run of positions of one log.
CREATE TABLE chunk (
    key    INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    lane   INTEGER NOT NULL,
    log    INTEGER NOT NULL,
    start  INTEGER NOT NULL,
    stop   INTEGER NOT NULL,
    data   BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX chunk_place ON chunk (thread, lane, log, start);

-- Large values, once per tenant, by content; blob_use says which threads refer to them.
CREATE TABLE blob (
    blob   INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    digest TEXT NOT NULL,
    data   BLOB NOT NULL,
    UNIQUE (tenant, digest)
) STRICT;
CREATE TABLE blob_use (
    thread INTEGER NOT NULL,
    blob   INTEGER NOT NULL,
    tenant INTEGER NOT NULL,
    PRIMARY KEY (thread, blob)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_use_blob ON blob_use (blob);

-- One row per process that holds, or held, a lease. `expires` is in nanoseconds of the named boot's clock.
CREATE TABLE owner (
    owner   INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant  INTEGER NOT NULL,
    host    TEXT NOT NULL,
    boot    TEXT NOT NULL,
    pidns   INTEGER NOT NULL,
    pid     INTEGER NOT NULL,
    started INTEGER NOT NULL,
    nonce   TEXT NOT NULL,
    expires INTEGER NOT NULL
) STRICT;

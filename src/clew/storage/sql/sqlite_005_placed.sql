-- Checkpoints that a framework places: under its own id, in a namespace, on any parent, with its control data.

CREATE TABLE placed (
    thread  INTEGER NOT NULL,
    ns      TEXT NOT NULL,
    id      TEXT NOT NULL,                       -- the greatest of a namespace is its latest
    tenant  INTEGER NOT NULL,
    step    INTEGER NOT NULL,
    leans   INTEGER NOT NULL,                    -- 1: it cannot be read without its parent's records
    crc     INTEGER NOT NULL,
    control BLOB NOT NULL,
    PRIMARY KEY (thread, ns, id)
) STRICT, WITHOUT ROWID;

-- The lanes that placed checkpoints grow. `tip` is the only step that the lane may go on from.
CREATE TABLE lane (
    thread   INTEGER NOT NULL,
    lane     INTEGER NOT NULL,
    tenant   INTEGER NOT NULL,
    tip      INTEGER NOT NULL,
    unfolded INTEGER NOT NULL,
    PRIMARY KEY (thread, lane)
) STRICT, WITHOUT ROWID;

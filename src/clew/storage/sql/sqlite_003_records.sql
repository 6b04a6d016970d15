-- What tasks have finished with, beside a checkpoint. The place names the checkpoint; it may be written later than the
-- record. One tree, not a table beside an index: a place's records are read together.

CREATE TABLE record (
    thread INTEGER NOT NULL,
    place  TEXT NOT NULL,
    task   TEXT NOT NULL,
    idx    INTEGER NOT NULL,
    tenant INTEGER NOT NULL,
    step   INTEGER,                              -- the checkpoint, where the writer knew it: the record goes with it
    crc    INTEGER NOT NULL,
    path   TEXT NOT NULL,
    name   TEXT NOT NULL,
    value  BLOB NOT NULL,
    PRIMARY KEY (thread, place, task, idx)
) STRICT, WITHOUT ROWID;

-- Cross-thread items. A place is scope and namespace in one BLOB that sorts as they do (state/namespace.py).
-- The full-text index is made by the first item that has words (items.sql): it takes five tables.

CREATE TABLE item (
    item      INTEGER PRIMARY KEY,
    tenant    INTEGER NOT NULL,
    place     BLOB NOT NULL,
    key       TEXT NOT NULL,
    created   INTEGER NOT NULL,                  -- microseconds since 1970, as all times here
    updated   INTEGER NOT NULL,
    expires   INTEGER,
    ttl       INTEGER,
    crc       INTEGER NOT NULL,
    words     INTEGER NOT NULL,                  -- how many different ones it has
    fields    BLOB,                              -- what is searched, as given; NULL: all of it
    embedding TEXT,                              -- what made the vectors; NULL: none were made
    vectors   BLOB,
    value     BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX item_place ON item (tenant, place, key);
CREATE INDEX item_expires ON item (tenant, expires) WHERE expires IS NOT NULL;

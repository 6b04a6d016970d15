-- Cross-thread items, as in sqlite_002_items.sql. `text` holds the words of an item, made by Clew and not by a parser of
-- PostgreSQL, so that every backend finds the same. It has no GIN index: under row-level security PostgreSQL may not use
-- one (the operator @@ is not leakproof), so a search reads the rows of its own scope and prefix, found by the key.

CREATE TABLE clew.item (
    tenant    integer NOT NULL,
    words     integer NOT NULL,
    created   bigint NOT NULL,
    updated   bigint NOT NULL,
    expires   bigint,
    ttl       bigint,
    crc       bigint NOT NULL,
    place     bytea NOT NULL,
    key       text COLLATE "C" NOT NULL,
    fields    bytea,
    embedding text,
    text      tsvector,
    vectors   bytea,
    value     bytea NOT NULL,
    PRIMARY KEY (tenant, place, key)
);
ALTER TABLE clew.item ALTER COLUMN place SET STORAGE PLAIN;
ALTER TABLE clew.item ALTER COLUMN vectors SET STORAGE EXTERNAL;
ALTER TABLE clew.item ALTER COLUMN value SET STORAGE EXTERNAL;
CREATE INDEX item_expires ON clew.item (tenant, expires) WHERE expires IS NOT NULL;

SELECT clew.confine('clew.item');

-- The earlier function grants what it knows of, this one the rest.
ALTER FUNCTION clew.grant_to(name) RENAME TO grant_history_to;
CREATE FUNCTION clew.grant_to(role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM clew.grant_history_to(role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON clew.item TO %I', role);
END $$;
REVOKE ALL ON FUNCTION clew.grant_to FROM PUBLIC;

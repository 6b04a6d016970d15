-- Placed checkpoints, as in sqlite_005_placed.sql.

CREATE TABLE clew.placed (
    tenant  integer NOT NULL,
    thread  bigint NOT NULL,
    step    integer NOT NULL,
    leans   integer NOT NULL,
    crc     bigint NOT NULL,
    ns      text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    control bytea NOT NULL,
    PRIMARY KEY (tenant, thread, ns, id)
);
ALTER TABLE clew.placed ALTER COLUMN control SET STORAGE EXTERNAL;

CREATE TABLE clew.lane (
    tenant   integer NOT NULL,
    thread   bigint NOT NULL,
    lane     integer NOT NULL,
    tip      integer NOT NULL,
    unfolded integer NOT NULL,
    PRIMARY KEY (tenant, thread, lane)
) WITH (fillfactor = 60);

SELECT clew.confine('clew.placed'), clew.confine('clew.lane');

ALTER FUNCTION clew.grant_to(name) RENAME TO grant_before_placed_to;
CREATE FUNCTION clew.grant_to(role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM clew.grant_before_placed_to(role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON clew.placed, clew.lane TO %I', role);
END $$;
REVOKE ALL ON FUNCTION clew.grant_to FROM PUBLIC;

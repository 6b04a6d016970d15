-- Records, as in sqlite_003_records.sql, and the open end of a commit.
--
-- A *change* is a row that is written in one transaction with a checkpoint, or with other changes. It is a function
-- clew.<name>(p_tenant, p_thread, p_step, …) that is called in the same statement, after clew.commit or
-- clew.enter_thread: one statement, one round trip, all or nothing. It may raise, which undoes everything. It must be
-- the same done twice: a statement whose reply was lost is sent again.

CREATE TABLE clew.record (
    tenant integer NOT NULL,
    thread bigint NOT NULL,
    step   integer,
    idx    integer NOT NULL,
    crc    bigint NOT NULL,
    place  text COLLATE "C" NOT NULL,
    task   text COLLATE "C" NOT NULL,
    path   text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    value  bytea NOT NULL,
    PRIMARY KEY (tenant, thread, place, task, idx)
);
ALTER TABLE clew.record ALTER COLUMN value SET STORAGE EXTERNAL;

SELECT clew.confine('clew.record');

-- Opens a transaction of changes without a checkpoint: locks the thread, which is made when it is new, and checks the
-- lease that the changes are made under, if any (KL004: it has passed on).
CREATE FUNCTION clew.enter_thread(
    p_tenant integer, p_strict boolean, p_thread text, p_created bigint, p_branch text, p_epoch bigint, p_owner bigint,
    OUT thread bigint, OUT step integer
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_thread bigint;
BEGIN
    PERFORM clew.enter(p_tenant, p_strict);
    PERFORM clew.lock_thread(p_tenant, p_thread);
    SELECT t.thread INTO v_thread FROM clew.thread t WHERE t.tenant = p_tenant AND t.id = p_thread;
    IF v_thread IS NULL THEN
        INSERT INTO clew.thread (tenant, id, created, updated) VALUES (p_tenant, p_thread, p_created, p_created)
        RETURNING clew.thread.thread INTO v_thread;
        INSERT INTO clew.ref (tenant, thread, name, kind) VALUES (p_tenant, v_thread, p_branch, 'branch');
    END IF;
    IF p_epoch IS NOT NULL AND NOT EXISTS (
        SELECT FROM clew.ref r
         WHERE r.tenant = p_tenant AND r.thread = v_thread AND r.name = p_branch AND r.owner = p_owner AND r.epoch = p_epoch
    ) THEN
        RAISE EXCEPTION 'the lease has passed on' USING ERRCODE = 'KL004';
    END IF;
    thread := v_thread;
END $$;
REVOKE ALL ON FUNCTION clew.enter_thread FROM PUBLIC;

-- The first of its key stays. Answers whether what is stored now is what was given.
CREATE FUNCTION clew.put_record(
    p_tenant integer, p_thread bigint, p_step integer, p_beside integer, p_place text, p_task text, p_idx integer,
    p_path text, p_name text, p_value bytea, p_crc bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO clew.record (tenant, thread, step, idx, crc, place, task, path, name, value)
    VALUES (p_tenant, p_thread, p_beside, p_idx, p_crc, p_place, p_task, p_path, p_name, p_value)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN true;
    END IF;
    RETURN EXISTS (
        SELECT FROM clew.record r WHERE r.tenant = p_tenant AND r.thread = p_thread AND r.place = p_place
           AND r.task = p_task AND r.idx = p_idx AND r.name = p_name AND r.value = p_value);
END $$;
REVOKE ALL ON FUNCTION clew.put_record FROM PUBLIC;

-- The last of its key stays.
CREATE FUNCTION clew.set_record(
    p_tenant integer, p_thread bigint, p_step integer, p_beside integer, p_place text, p_task text, p_idx integer,
    p_path text, p_name text, p_value bytea, p_crc bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO clew.record (tenant, thread, step, idx, crc, place, task, path, name, value)
    VALUES (p_tenant, p_thread, p_beside, p_idx, p_crc, p_place, p_task, p_path, p_name, p_value)
    ON CONFLICT (tenant, thread, place, task, idx) DO UPDATE
       SET step = excluded.step, crc = excluded.crc, path = excluded.path, name = excluded.name, value = excluded.value;
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION clew.set_record FROM PUBLIC;

CREATE FUNCTION clew.drop_records(p_tenant integer, p_thread bigint, p_step integer, p_place text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM clew.record r WHERE r.tenant = p_tenant AND r.thread = p_thread AND r.place = p_place;
END $$;
REVOKE ALL ON FUNCTION clew.drop_records FROM PUBLIC;

ALTER FUNCTION clew.grant_to(name) RENAME TO grant_items_to;
CREATE FUNCTION clew.grant_to(role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM clew.grant_items_to(role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON clew.record TO %I', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION clew.enter_thread, clew.put_record, clew.set_record, clew.drop_records TO %I',
                   role);
END $$;
REVOKE ALL ON FUNCTION clew.grant_to FROM PUBLIC;

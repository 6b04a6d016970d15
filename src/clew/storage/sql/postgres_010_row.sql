-- One commit, one row: what it brings stands in the checkpoint's own row.
--
-- A row of its own took a header, a key and an entry in an index, 110 bytes in all, and a commit a statement more. What
-- a checkpoint that goes had brought, and others still see, moves to clew.payload; there stands also what was written
-- before this migration. Readers look in both places.

ALTER TABLE clew.checkpoint ADD COLUMN payload bytea;
ALTER TABLE clew.checkpoint ALTER COLUMN payload SET STORAGE EXTERNAL;

DROP FUNCTION clew.commit;
-- One step, written whole or not at all: as in postgres_001_history.sql, which tells the protocol and the refusals.
--
-- Gives thread, step, lane and unfolded, as an array: what a record consists of is looked up at each call.
--
-- The statements are kept plain, for the expressions in them are compiled at each call. What the update of the branch
-- asks for is the common case: a lane goes on (only branches have lanes), under this lease or under none. That the base
-- is there need not be asked: a checkpoint that a branch points at is never deleted.
CREATE FUNCTION clew.commit(
    p_tenant integer, p_strict boolean, p_thread text, p_branch text, p_id text, p_base integer, p_lane integer,
    p_kind integer, p_label text, p_run text, p_next bytea, p_created bigint, p_metadata bytea, p_manifest bytea,
    p_crc bigint, p_payload bytea, p_key text, p_epoch bigint, p_owner bigint, p_release boolean,
    p_dead bigint, p_digests text[], p_blobs bytea[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_thread bigint;
    v_step integer;
    v_lane integer;
    v_unfolded integer;
    v_opens integer := (p_lane = 0)::int;
    v_brings integer := (p_payload IS NOT NULL)::int;
    v_owner bigint := CASE WHEN p_release THEN NULL ELSE p_owner END;
    v_key bigint;
    ignored boolean;
BEGIN
    ignored := clew.enter(p_tenant, p_strict);

    LOOP
        UPDATE clew.thread t
           SET step = t.step + 1, lane = t.lane + v_opens, updated = p_created
         WHERE t.tenant = p_tenant AND t.id = p_thread
        RETURNING t.thread, t.step, t.lane INTO v_thread, v_step, v_lane;
        EXIT WHEN FOUND;
        IF p_base IS NOT NULL THEN
            RAISE EXCEPTION 'no such thread' USING ERRCODE = 'KL005';
        END IF;
        PERFORM clew.lock_thread(p_tenant, p_thread);
        INSERT INTO clew.thread (tenant, id, created, updated) VALUES (p_tenant, p_thread, p_created, p_created)
        ON CONFLICT (tenant, id) DO NOTHING;
    END LOOP;
    IF p_lane <> 0 THEN
        v_lane := p_lane;
    END IF;
    v_key := (v_thread << 32) + v_step;

    -- Written before, the checkpoint would be newer than its base; so there is nothing to look for behind the last step.
    IF v_step - 1 <> coalesce(p_base, 0) OR p_key IS NOT NULL THEN
        PERFORM clew.refuse_written(p_tenant, v_thread, p_id, coalesce(p_base, 0), p_key, p_branch);
    END IF;

    IF p_lane <> 0 AND p_kind <> 3 THEN
        IF p_epoch IS NULL THEN
            UPDATE clew.ref r SET step = v_step, unfolded = r.unfolded + v_brings
             WHERE r.tenant = p_tenant AND r.thread = v_thread AND r.name = p_branch
               AND r.step = p_base AND r.lane = p_lane AND r.owner IS NULL
            RETURNING r.unfolded INTO v_unfolded;
        ELSE
            UPDATE clew.ref r SET step = v_step, unfolded = r.unfolded + v_brings, owner = v_owner
             WHERE r.tenant = p_tenant AND r.thread = v_thread AND r.name = p_branch
               AND r.step = p_base AND r.lane = p_lane AND r.owner = p_owner AND r.epoch = p_epoch
            RETURNING r.unfolded INTO v_unfolded;
        END IF;
    END IF;
    IF v_unfolded IS NULL THEN
        v_unfolded := clew.advance(p_tenant, v_thread, v_step, v_lane, p_branch, p_base, p_lane, p_payload IS NOT NULL,
                                   p_epoch, p_owner, p_release, p_dead, p_kind = 3 AND p_base IS NOT NULL);
    END IF;

    INSERT INTO clew.checkpoint
        (tenant, key, id, parent, lane, kind, label, run, next, created, metadata, manifest, crc, save_key, payload)
    VALUES (p_tenant, v_key, p_id, p_base, v_lane, p_kind, p_label, p_run, p_next, p_created, p_metadata, p_manifest, p_crc,
            p_key, p_payload);
    IF p_digests IS NOT NULL THEN
        PERFORM clew.keep_blobs(p_tenant, v_thread, p_digests, p_blobs);
    END IF;
    RETURN ARRAY[v_thread, v_step, v_lane, v_unfolded];
END $$;
REVOKE ALL ON FUNCTION clew.commit FROM PUBLIC;

CREATE OR REPLACE FUNCTION clew.pieces(p_tenant integer, p_low bigint, p_upto bigint, p_lanes bigint[])
RETURNS TABLE (key bigint, lane integer, data bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT p.key, p.lane, p.data FROM clew.payload p
    WHERE p.tenant = p_tenant AND p.key > p_low AND p.key <= p_low + p_upto AND p.lane = ANY (p_lanes) ORDER BY p.key;
    RETURN QUERY
    SELECT c.key, c.lane, c.payload FROM clew.checkpoint c
    WHERE c.tenant = p_tenant AND c.key > p_low AND c.key <= p_low + p_upto AND c.lane = ANY (p_lanes)
      AND c.payload IS NOT NULL ORDER BY c.key;
END $$;

-- A commit that costs less.
--
-- * A CHECK of a column is read from the catalog and compiled anew by each update of the table.
-- * PERFORM runs an executor where an assignment only evaluates: clew.enter gives a value now.
-- * (Defaults for what most commits leave out would cost more than sending it: they, too, are compiled at each call.)

ALTER TABLE clew.ref DROP CONSTRAINT ref_kind_check;

DROP FUNCTION clew.enter;
-- Opens a transaction that writes: whose rows it sees, how durable it is, how long it may wait for another.
CREATE FUNCTION clew.enter(p_tenant integer, p_strict boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    ignored text;
BEGIN
    ignored := set_config('clew.tenant', p_tenant::text, true);
    ignored := set_config('lock_timeout', '10s', true);
    -- Plans are kept; one made while a table was a page long must not read all of it when it has grown.
    ignored := set_config('enable_seqscan', 'off', true);
    IF NOT p_strict THEN
        ignored := set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        ignored := set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION clew.enter FROM PUBLIC;

-- One step, written whole or not at all: as in postgres_001_history.sql, which tells the protocol and the refusals.
CREATE OR REPLACE FUNCTION clew.commit(
    p_tenant integer, p_strict boolean, p_thread text, p_branch text, p_id text, p_base integer, p_lane integer,
    p_kind integer, p_label text, p_run text, p_next bytea, p_created bigint, p_metadata bytea, p_manifest bytea,
    p_crc bigint, p_payload bytea, p_key text, p_epoch bigint, p_owner bigint, p_release boolean,
    p_dead bigint, p_digests text[], p_blobs bytea[],
    OUT thread bigint, OUT step integer, OUT lane integer, OUT unfolded integer
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_thread bigint;
    v_step integer;
    v_lane integer;
    v_unfolded integer;
    v_first bigint;
    v_key bigint;
    ignored boolean;
BEGIN
    ignored := clew.enter(p_tenant, p_strict);

    LOOP
        UPDATE clew.thread t
           SET step = t.step + 1, lane = t.lane + (p_lane = 0)::int, updated = p_created
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
    v_first := v_thread << 32;
    v_key := v_first + v_step;

    -- Written before, the checkpoint would be newer than its base; so there is nothing to look for behind the last step.
    IF v_step - 1 <> coalesce(p_base, 0) OR p_key IS NOT NULL THEN
        PERFORM clew.refuse_written(p_tenant, v_thread, p_id, coalesce(p_base, 0), p_key, p_branch);
    END IF;

    UPDATE clew.ref r
       SET step = v_step, lane = v_lane,
           unfolded = CASE WHEN p_lane = 0 THEN 0 ELSE r.unfolded END + (p_payload IS NOT NULL)::int,
           owner = CASE WHEN p_release THEN NULL ELSE r.owner END
     WHERE r.tenant = p_tenant AND r.thread = v_thread AND r.name = p_branch AND r.kind = 'branch'
       AND r.step IS NOT DISTINCT FROM p_base
       AND NOT (p_kind = 3 AND p_base IS NOT NULL)  -- a fork makes its branch
       AND (p_lane = 0 OR r.lane = p_lane)
       AND CASE WHEN p_epoch IS NULL THEN r.owner IS NULL ELSE r.owner = p_owner AND r.epoch = p_epoch END
       AND (p_base IS NULL
            OR EXISTS (SELECT FROM clew.checkpoint c WHERE c.tenant = p_tenant AND c.key = v_first + p_base))
    RETURNING r.unfolded INTO v_unfolded;
    IF NOT FOUND THEN
        v_unfolded := clew.advance(p_tenant, v_thread, v_step, v_lane, p_branch, p_base, p_lane, p_payload IS NOT NULL,
                                   p_epoch, p_owner, p_release, p_dead, p_kind = 3 AND p_base IS NOT NULL);
    END IF;

    INSERT INTO clew.checkpoint
        (tenant, key, id, parent, lane, kind, label, run, next, created, metadata, manifest, crc, save_key)
    VALUES (p_tenant, v_key, p_id, p_base, v_lane, p_kind, p_label, p_run, p_next, p_created, p_metadata, p_manifest, p_crc,
            p_key);
    IF p_payload IS NOT NULL THEN
        INSERT INTO clew.payload (tenant, key, lane, data) VALUES (p_tenant, v_key, v_lane, p_payload);
    END IF;
    IF p_digests IS NOT NULL THEN
        PERFORM clew.keep_blobs(p_tenant, v_thread, p_digests, p_blobs);
    END IF;
    thread := v_thread;
    step := v_step;
    lane := v_lane;
    unfolded := v_unfolded;
END $$;

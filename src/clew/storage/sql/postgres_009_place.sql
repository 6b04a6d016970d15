-- A placed checkpoint in one call, when everything is as its writer believes: storage/placed.py tells the rules.

-- Anything out of the ordinary is refused whole with KL011, and the client goes the long way, query by query, which
-- knows them all: an id that is there, a parent that is not the latest, a lane that has grown, open questions, a `main`
-- that points elsewhere. Called alone, in autocommit. Sent twice, the second call finds the id and is refused.
CREATE FUNCTION clew.place(
    p_tenant integer, p_strict boolean, p_thread text, p_ns text, p_id text, p_place text, p_base integer,
    p_lane integer, p_kind integer, p_label text, p_run text, p_next bytea, p_created bigint, p_metadata bytea,
    p_manifest bytea, p_crc bigint, p_payload bytea, p_control bytea, p_control_crc bigint, p_leans integer,
    p_expected text, p_digests text[], p_blobs bytea[],
    OUT thread bigint, OUT step integer, OUT lane integer, OUT unfolded integer
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_thread bigint;
    v_step integer;
    v_lane integer;
    v_unfolded integer := (p_payload IS NOT NULL)::int;
    v_latest text;
    v_at integer;
    v_key bigint;
    ignored boolean;
BEGIN
    ignored := clew.enter(p_tenant, p_strict);

    UPDATE clew.thread t
       SET step = t.step + 1, lane = t.lane + (p_lane = 0)::int, updated = p_created
     WHERE t.tenant = p_tenant AND t.id = p_thread
    RETURNING t.thread, t.step, t.lane INTO v_thread, v_step, v_lane;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'a new thread' USING ERRCODE = 'KL011';
    END IF;
    v_key := (v_thread << 32) + v_step;

    SELECT p.id, p.step INTO v_latest, v_at FROM clew.placed p
     WHERE p.tenant = p_tenant AND p.thread = v_thread AND p.ns = p_ns ORDER BY p.id DESC LIMIT 1;
    IF v_at IS DISTINCT FROM p_base OR v_latest >= p_id OR v_latest <> p_expected THEN
        RAISE EXCEPTION 'not on the latest' USING ERRCODE = 'KL011';
    END IF;
    IF EXISTS (
        SELECT FROM clew.record r WHERE r.tenant = p_tenant AND r.thread = v_thread AND r.idx = -3
           AND r.place IN (p_place, length(p_ns) || ':' || p_ns || v_latest)
    ) THEN
        RAISE EXCEPTION 'a task has asked something' USING ERRCODE = 'KL011';
    END IF;
    IF p_lane = 0 THEN
        INSERT INTO clew.lane (tenant, thread, lane, tip, unfolded)
        VALUES (p_tenant, v_thread, v_lane, v_step, v_unfolded);
    ELSE
        v_lane := p_lane;
        UPDATE clew.lane l SET tip = v_step, unfolded = l.unfolded + v_unfolded
         WHERE l.tenant = p_tenant AND l.thread = v_thread AND l.lane = p_lane AND l.tip = p_base
        RETURNING l.unfolded INTO v_unfolded;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the lane has grown' USING ERRCODE = 'KL011';
        END IF;
    END IF;
    IF p_ns = '' THEN
        UPDATE clew.ref r SET step = v_step, lane = 0, unfolded = 0
         WHERE r.tenant = p_tenant AND r.thread = v_thread AND r.name = 'main' AND r.kind = 'branch'
           AND r.step IS NOT DISTINCT FROM p_base;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'main points elsewhere' USING ERRCODE = 'KL011';
        END IF;
    END IF;

    INSERT INTO clew.checkpoint
        (tenant, key, id, parent, lane, kind, label, run, next, created, metadata, manifest, crc, payload)
    VALUES (p_tenant, v_key, p_id, p_base, v_lane, p_kind, p_label, p_run, p_next, p_created, p_metadata, p_manifest, p_crc,
            p_payload);
    INSERT INTO clew.placed (tenant, thread, ns, id, step, leans, crc, control)
    VALUES (p_tenant, v_thread, p_ns, p_id, v_step, p_leans, p_control_crc, p_control);
    IF p_digests IS NOT NULL THEN
        PERFORM clew.keep_blobs(p_tenant, v_thread, p_digests, p_blobs);
    END IF;
    thread := v_thread;
    step := v_step;
    lane := v_lane;
    unfolded := v_unfolded;
END $$;
REVOKE ALL ON FUNCTION clew.place FROM PUBLIC;

-- The state has taken in what a record holds: from now on it refers to the item there, unless it has changed meanwhile.
CREATE FUNCTION clew.refer_record(
    p_tenant integer, p_thread bigint, p_step integer, p_place text, p_task text, p_idx integer, p_value bytea,
    p_crc bigint, p_was bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE clew.record r SET value = p_value, crc = p_crc
     WHERE r.tenant = p_tenant AND r.thread = p_thread AND r.place = p_place AND r.task = p_task AND r.idx = p_idx
       AND r.crc = p_was;
    RETURN FOUND;
END $$;
REVOKE ALL ON FUNCTION clew.refer_record FROM PUBLIC;

ALTER FUNCTION clew.grant_to(name) RENAME TO grant_before_place_to;
CREATE FUNCTION clew.grant_to(role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM clew.grant_before_place_to(role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION clew.place, clew.refer_record TO %I', role);
END $$;
REVOKE ALL ON FUNCTION clew.grant_to FROM PUBLIC;

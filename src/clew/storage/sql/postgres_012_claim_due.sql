-- Claim one run, whoever it was left to; it waits for its thread. Not forced: only if it is due by now, or was left by a
-- process that is gone. (A queue of somebody else's may ask for a run twice, or early.)

DROP FUNCTION clew.claim_run(integer, boolean, bigint, bigint, text);
CREATE FUNCTION clew.claim_run(
    p_tenant integer, p_strict boolean, p_owner bigint, p_expiry bigint, p_id text, p_forced boolean
) RETURNS SETOF clew.run LANGUAGE plpgsql AS $$
DECLARE
    v_run clew.run;
    ignored boolean;
BEGIN
    ignored := clew.enter(p_tenant, p_strict);
    UPDATE clew.owner o SET expires = clew.now() + p_expiry WHERE o.tenant = p_tenant AND o.owner = p_owner;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such owner' USING ERRCODE = 'KL011';
    END IF;
    PERFORM FROM clew.thread t WHERE t.tenant = p_tenant AND t.thread = (
        SELECT r.thread FROM clew.run r WHERE r.tenant = p_tenant AND r.id = p_id) FOR UPDATE;
    SELECT * INTO v_run FROM clew.run r WHERE r.tenant = p_tenant AND r.id = p_id;
    -- One that stands in line is not its turn.
    IF v_run.seq IS NULL OR (v_run.status = 'queued' AND v_run.wake IS NULL) THEN
        RETURN;
    END IF;
    v_run := clew.take_run(p_tenant, p_owner, v_run.seq, p_forced, NULL);
    IF v_run.seq IS NOT NULL THEN
        RETURN NEXT v_run;
    END IF;
END $$;
REVOKE ALL ON FUNCTION clew.claim_run FROM PUBLIC;

-- The name of a thread, as it stands now. A claim that selects it in its own statement would look with the snapshot that
-- the statement began with: a run of a thread that was made since, which the function within has found, had none.

CREATE FUNCTION clew.thread_name(p_tenant integer, p_thread bigint) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT t.id FROM clew.thread t WHERE t.tenant = p_tenant AND t.thread = p_thread);
END $$;
REVOKE ALL ON FUNCTION clew.thread_name FROM PUBLIC;

-- As before; and one that is left alone for a moment, because somebody has its branch, keeps its place in the line.
CREATE OR REPLACE FUNCTION clew.take_run(
    p_tenant integer, p_owner bigint, p_seq bigint, p_forced boolean, p_group_limit integer
) RETURNS clew.run LANGUAGE plpgsql AS $$
DECLARE
    v_run clew.run;
    v_ref record;
    v_now bigint := clew.stamp();
    v_together bigint;
BEGIN
    SELECT * INTO v_run FROM clew.run r
     WHERE r.tenant = p_tenant AND r.seq = p_seq
       AND (r.status = 'running' OR (r.status IN ('queued', 'waiting', 'sleeping', 'paused') AND (p_forced OR r.wake <= v_now)));
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    LOOP
        SELECT x.step, x.owner, (SELECT o.expires FROM clew.owner o WHERE o.tenant = x.tenant AND o.owner = x.owner) AS expires
          INTO v_ref FROM clew.ref x
         WHERE x.tenant = p_tenant AND x.thread = v_run.thread AND x.name = v_run.branch;
        EXIT WHEN FOUND;
        INSERT INTO clew.ref (tenant, thread, name, kind) VALUES (p_tenant, v_run.thread, v_run.branch, 'branch');
    END LOOP;
    IF v_run.status = 'queued' AND EXISTS (
        SELECT FROM clew.run h WHERE h.tenant = p_tenant AND h.thread = v_run.thread AND h.branch = v_run.branch
           AND h.status IN ('running', 'waiting', 'sleeping', 'paused')
    ) THEN
        UPDATE clew.run r SET wake = NULL WHERE r.tenant = p_tenant AND r.seq = p_seq;
        RETURN NULL;
    END IF;
    IF v_ref.owner IS NOT NULL AND v_ref.expires > clew.now() THEN
        IF v_run.status <> 'running' AND v_run.wake <= v_now THEN  -- somebody edits the branch, or has not let go yet
            UPDATE clew.run r SET wake = v_now + 100000, grace = greatest(r.grace, 1) WHERE r.tenant = p_tenant AND r.seq = p_seq;
        END IF;
        RETURN NULL;
    END IF;
    IF v_run.status = 'queued' AND p_group_limit IS NOT NULL AND v_run.group_key IS NOT NULL THEN
        SELECT count(*) INTO v_together FROM clew.run g
         WHERE g.tenant = p_tenant AND g.status = 'running' AND g.group_key = v_run.group_key;
        IF v_together >= p_group_limit THEN
            UPDATE clew.run r SET wake = NULL WHERE r.tenant = p_tenant AND r.seq = p_seq;
            RETURN NULL;
        ELSIF v_together + 1 < p_group_limit THEN
            PERFORM clew.call_group(p_tenant, v_run.group_key);
        END IF;
    END IF;
    WITH taken AS (
        UPDATE clew.ref x SET owner = p_owner, epoch = x.epoch + 1
         WHERE x.tenant = p_tenant AND x.thread = v_run.thread AND x.name = v_run.branch RETURNING x.epoch
    )
    UPDATE clew.run r
       SET status = 'running', wake = NULL, epoch = taken.epoch, attempts = r.attempts + 1, updated = v_now, stood = v_ref.step,
           failures = CASE WHEN r.stood IS DISTINCT FROM v_ref.step THEN 0 ELSE r.failures END,
           crashes = CASE WHEN r.status <> 'running' THEN 0
                          WHEN r.stood IS DISTINCT FROM v_ref.step THEN 1 ELSE r.crashes + 1 END
      FROM taken WHERE r.tenant = p_tenant AND r.seq = p_seq
    RETURNING r.* INTO v_run;
    RETURN v_run;
END $$;

ALTER FUNCTION clew.grant_to(name) RENAME TO grant_before_claims_to;
CREATE FUNCTION clew.grant_to(role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM clew.grant_before_claims_to(role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION clew.thread_name TO %I', role);
END $$;
REVOKE ALL ON FUNCTION clew.grant_to FROM PUBLIC;

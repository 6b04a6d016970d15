-- The two entries that ride on commits of every run, as calls within the commit's own statement: the same as Enter and
-- Move(…, 'done', ('running',)) in ledger_entries.py, in one trip instead of four and nine.

CREATE FUNCTION clew.enter_run(
    p_tenant integer, p_thread bigint, p_step integer, p_run text, p_parent text, p_parent_step bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE clew.run r SET input_step = p_step, step = p_step, input = NULL, updated = clew.stamp(), parent = p_parent,
           parent_step = p_parent_step
     WHERE r.tenant = p_tenant AND r.thread = p_thread AND r.id = p_run AND r.status = 'running';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such run' USING ERRCODE = 'KL012', DETAIL = p_run;
    END IF;
END $$;
REVOKE ALL ON FUNCTION clew.enter_run FROM PUBLIC;

CREATE FUNCTION clew.end_run(p_tenant integer, p_thread bigint, p_step integer, p_run text, p_epoch bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_branch text;
    v_group text;
    v_gone bigint[];
BEGIN
    UPDATE clew.run r SET status = 'done', step = coalesce(p_step, r.step), error = NULL, wanted = NULL, wake = NULL,
           epoch = p_epoch, updated = clew.stamp()
     WHERE r.tenant = p_tenant AND r.thread = p_thread AND r.id = p_run AND r.status = 'running'
    RETURNING r.branch, r.group_key INTO v_branch, v_group;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such run' USING ERRCODE = 'KL012', DETAIL = p_run;
    END IF;
    WITH gone AS (
        UPDATE clew.request q SET status = 'withdrawn', decided = clew.stamp()
         WHERE q.tenant = p_tenant AND q.thread = p_thread AND q.status = 'open' AND q.run = p_run
           AND (q.expires IS NULL OR q.expires > clew.stamp())
        RETURNING q.number
    )
    SELECT array_agg(g.number) INTO v_gone FROM gone g;
    IF v_gone IS NOT NULL THEN
        DELETE FROM clew.notice n WHERE n.tenant = p_tenant AND n.number = ANY (v_gone);
    END IF;
    UPDATE clew.wait w SET state = 'over' WHERE w.tenant = p_tenant AND w.run = p_run AND w.state = 'open';
    UPDATE clew.run r SET wake = clew.stamp() + r.grace, grace = greatest(r.grace, 1)
     WHERE r.tenant = p_tenant AND r.seq = (
        SELECT n.seq FROM clew.run n
         WHERE n.tenant = p_tenant AND n.thread = p_thread AND n.branch = v_branch AND n.status = 'queued' AND n.wake IS NULL
           AND NOT EXISTS (SELECT FROM clew.run q WHERE q.tenant = p_tenant AND q.thread = p_thread AND q.branch = v_branch
                              AND q.status = 'queued' AND (q.wake <= clew.stamp() OR q.grace > 0) AND q.wake IS NOT NULL)
         ORDER BY n.priority DESC, n.seq LIMIT 1);
    IF v_group IS NOT NULL THEN
        PERFORM clew.call_group(p_tenant, v_group);
    END IF;
END $$;
REVOKE ALL ON FUNCTION clew.end_run FROM PUBLIC;

ALTER FUNCTION clew.grant_to(name) RENAME TO grant_before_ends_to;
CREATE FUNCTION clew.grant_to(role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM clew.grant_before_ends_to(role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION clew.enter_run, clew.end_run TO %I', role);
END $$;
REVOKE ALL ON FUNCTION clew.grant_to FROM PUBLIC;

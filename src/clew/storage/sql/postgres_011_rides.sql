-- What every run goes through, in one trip each instead of seven, four and nine: the same as Start of a queued run, Enter and
-- Move(…, 'done', ('running',)) in ledger_entries.py. The last two ride on commits, as calls within the commit's own statement.

-- Admit a run that would rather wait than disturb (if_busy 'enqueue'). Gives when that was, and when it is due (NULL: it
-- stands in line). A run of its id or key that is there already is a unique_violation: the client goes the long way then.
CREATE FUNCTION clew.admit_run(
    p_tenant integer, p_strict boolean, p_thread text, p_created bigint, p_id text, p_branch text, p_agent text, p_key text,
    p_input bytea, p_context bytea, p_trace text, p_priority integer, p_group text, p_at bigint, p_delay bigint, p_grace bigint
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_thread bigint;
    v_now bigint;
    v_wake bigint;
    v_grace bigint := greatest(p_grace, 1);  -- in line now, whatever the clocks of others say
    ignored boolean;
BEGIN
    ignored := clew.enter(p_tenant, p_strict);
    SELECT t.thread INTO v_thread FROM clew.thread t WHERE t.tenant = p_tenant AND t.id = p_thread FOR UPDATE;
    IF v_thread IS NULL THEN
        PERFORM clew.lock_thread(p_tenant, p_thread);
        INSERT INTO clew.thread (tenant, id, created, updated) VALUES (p_tenant, p_thread, p_created, p_created)
        ON CONFLICT (tenant, id) DO NOTHING RETURNING thread INTO v_thread;
        IF v_thread IS NULL THEN
            SELECT t.thread INTO v_thread FROM clew.thread t WHERE t.tenant = p_tenant AND t.id = p_thread FOR UPDATE;
        ELSE
            INSERT INTO clew.ref (tenant, thread, name, kind) VALUES (p_tenant, v_thread, 'main', 'branch');
        END IF;
    END IF;
    v_now := clew.stamp();
    IF coalesce(p_at > v_now, p_delay > 0) THEN
        v_wake := coalesce(p_at, v_now + p_delay);
        v_grace := p_grace;
    ELSIF NOT EXISTS (
        SELECT FROM clew.run h WHERE h.tenant = p_tenant AND h.thread = v_thread AND h.branch = p_branch
           AND h.status IN ('running', 'waiting', 'sleeping', 'paused')
    ) AND NOT EXISTS (
        SELECT FROM clew.run q WHERE q.tenant = p_tenant AND q.thread = v_thread AND q.branch = p_branch
           AND q.status = 'queued'
           AND CASE WHEN q.wake IS NULL THEN q.priority >= p_priority ELSE q.wake <= v_now OR q.grace > 0 END
    ) THEN
        v_wake := v_now + p_grace;
    END IF;
    INSERT INTO clew.run (tenant, id, thread, branch, agent, status, key, priority, wake, created, updated, input, context,
                          trace, group_key, grace)
    VALUES (p_tenant, p_id, v_thread, p_branch, p_agent, 'queued', p_key, p_priority, v_wake, v_now, v_now, p_input, p_context,
            p_trace, p_group, v_grace);
    RETURN ARRAY[v_now, v_wake];
END $$;
REVOKE ALL ON FUNCTION clew.admit_run FROM PUBLIC;

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
    v_asks boolean;
    v_waits boolean;
    v_calls boolean;
BEGIN
    UPDATE clew.run r SET status = 'done', step = coalesce(p_step, r.step), error = NULL, wanted = NULL, wake = NULL,
           epoch = p_epoch, updated = clew.stamp()
     WHERE r.tenant = p_tenant AND r.thread = p_thread AND r.id = p_run AND r.status = 'running'
    RETURNING r.branch, r.group_key INTO v_branch, v_group;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such run' USING ERRCODE = 'KL012', DETAIL = p_run;
    END IF;
    -- Most have nothing open and nobody behind them: one look costs less than three updates of nothing.
    SELECT EXISTS (SELECT FROM clew.request q WHERE q.tenant = p_tenant AND q.thread = p_thread AND q.status = 'open'
                      AND q.run = p_run),
           EXISTS (SELECT FROM clew.wait w WHERE w.tenant = p_tenant AND w.run = p_run AND w.state = 'open'),
           EXISTS (SELECT FROM clew.run n WHERE n.tenant = p_tenant AND n.thread = p_thread AND n.branch = v_branch
                      AND n.status = 'queued' AND n.wake IS NULL)
      INTO v_asks, v_waits, v_calls;
    IF v_asks THEN
        WITH gone AS (
            UPDATE clew.request q SET status = 'withdrawn', decided = clew.stamp()
             WHERE q.tenant = p_tenant AND q.thread = p_thread AND q.status = 'open' AND q.run = p_run
               AND (q.expires IS NULL OR q.expires > clew.stamp())
            RETURNING q.number
        )
        SELECT array_agg(g.number) INTO v_gone FROM gone g;
        DELETE FROM clew.notice n WHERE n.tenant = p_tenant AND n.number = ANY (v_gone);
    END IF;
    IF v_waits THEN
        UPDATE clew.wait w SET state = 'over' WHERE w.tenant = p_tenant AND w.run = p_run AND w.state = 'open';
    END IF;
    IF v_calls THEN
        PERFORM clew.call_next(p_tenant, p_thread, v_branch, 0);
    END IF;
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
    EXECUTE format('GRANT EXECUTE ON FUNCTION clew.admit_run, clew.enter_run, clew.end_run TO %I', role);
END $$;
REVOKE ALL ON FUNCTION clew.grant_to FROM PUBLIC;

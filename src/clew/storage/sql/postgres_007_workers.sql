-- Lines of runs, and what workers count (docs/design/workers.md), as in sqlite_007_workers.sql; and the claim.

ALTER TABLE clew.run ADD COLUMN group_key text COLLATE "C";
ALTER TABLE clew.run ADD COLUMN failures integer NOT NULL DEFAULT 0;
ALTER TABLE clew.run ADD COLUMN stood integer;
ALTER TABLE clew.run ADD COLUMN grace bigint NOT NULL DEFAULT 0;

DROP INDEX clew.run_wake;
CREATE INDEX run_up ON clew.run (tenant, agent, priority, wake, seq) WHERE wake IS NOT NULL;
CREATE INDEX run_line ON clew.run (tenant, thread, branch, priority, seq) WHERE status = 'queued';
CREATE INDEX run_group ON clew.run (tenant, group_key, priority, seq) WHERE status = 'queued' AND group_key IS NOT NULL;

-- The server's clock, in the unit that runs are due by.
CREATE FUNCTION clew.stamp() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint
$$;
REVOKE ALL ON FUNCTION clew.stamp FROM PUBLIC;

-- Tells workers that a run is due, or that word was left for a running one. The number of its tenant is all it says.
--
-- Each notification wakes every worker, and commits that notify wait for each other. So nobody is told of a run that stands
-- behind another one: whoever serves that agent has been told, and asks again until nothing is due. (That one may be taken
-- before this one can be seen. So workers also look again a little later.) What has been due for more than ten seconds
-- counts for nothing: beside a transaction that stays open for hours, all that was done meanwhile would be walked through.
CREATE FUNCTION clew.tell_of_run() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := clew.stamp();
    ignored text;
BEGIN
    IF NEW.wake <= v_now THEN
        IF NOT EXISTS (SELECT FROM clew.run r WHERE r.tenant = NEW.tenant AND r.agent = NEW.agent AND r.priority = NEW.priority
                          AND r.wake > v_now - 10000000 AND r.wake <= v_now AND r.seq <> NEW.seq) THEN
            ignored := pg_notify('clew_due', NEW.tenant::text);
        END IF;
    END IF;
    IF NEW.wanted IS NOT NULL AND NEW.status = 'running' THEN
        ignored := pg_notify('clew_wanted', NEW.tenant::text);
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION clew.tell_of_run FROM PUBLIC;
CREATE TRIGGER tell_of_run AFTER INSERT OR UPDATE OF wake, wanted ON clew.run
    FOR EACH ROW WHEN (NEW.wake IS NOT NULL OR NEW.wanted IS NOT NULL) EXECUTE FUNCTION clew.tell_of_run();

-- The name of a thread, as it stands now. A claim that selects it in its own statement would look with the snapshot that
-- the statement began with: a run of a thread that was made since, which the function within has found, had none.
CREATE FUNCTION clew.thread_name(p_tenant integer, p_thread bigint) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT t.id FROM clew.thread t WHERE t.tenant = p_tenant AND t.thread = p_thread);
END $$;
REVOKE ALL ON FUNCTION clew.thread_name FROM PUBLIC;

-- The branch is free: the first of its line is up, unless somebody has been called already, or it is p_but.
CREATE FUNCTION clew.call_next(p_tenant integer, p_thread bigint, p_branch text, p_but bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE clew.run r SET wake = clew.stamp() + r.grace, grace = greatest(r.grace, 1)
     WHERE r.tenant = p_tenant AND r.seq <> p_but AND r.seq = (
        SELECT n.seq FROM clew.run n
         WHERE n.tenant = p_tenant AND n.thread = p_thread AND n.branch = p_branch AND n.status = 'queued' AND n.wake IS NULL
           AND NOT EXISTS (SELECT FROM clew.run h WHERE h.tenant = p_tenant AND h.thread = p_thread AND h.branch = p_branch
                              AND h.status IN ('running', 'waiting', 'sleeping', 'paused'))
           AND NOT EXISTS (SELECT FROM clew.run q WHERE q.tenant = p_tenant AND q.thread = p_thread AND q.branch = p_branch
                              AND q.status = 'queued' AND (q.wake <= clew.stamp() OR q.grace > 0) AND q.wake IS NOT NULL)
         ORDER BY n.priority DESC, n.seq LIMIT 1);
END $$;
REVOKE ALL ON FUNCTION clew.call_next FROM PUBLIC;

-- A run of the group has left a place: call the first one up that waits for nothing else. The lock is shared by those who
-- leave; a claim that finds the group full has it alone, so that nobody begins to wait while somebody leaves unseen.
CREATE FUNCTION clew.call_group(p_tenant integer, p_group text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1129071963, hashtext(p_tenant || ' ' || p_group));
    UPDATE clew.run r SET wake = clew.stamp() + r.grace WHERE r.tenant = p_tenant AND r.seq = (
        SELECT q.seq FROM clew.run q
         WHERE q.tenant = p_tenant AND q.group_key = p_group AND q.status = 'queued' AND q.wake IS NULL
           AND NOT EXISTS (SELECT FROM clew.run h WHERE h.tenant = p_tenant AND h.thread = q.thread AND h.branch = q.branch
                              AND h.status IN ('running', 'waiting', 'sleeping', 'paused'))
           AND NOT EXISTS (SELECT FROM clew.run b WHERE b.tenant = p_tenant AND b.thread = q.thread AND b.branch = q.branch
                              AND b.status = 'queued' AND b.seq <> q.seq
                              AND (b.priority > q.priority OR b.priority = q.priority AND b.seq < q.seq)
                              AND (b.wake IS NULL OR b.wake <= clew.stamp() OR b.grace > 0))
         ORDER BY q.priority DESC, q.seq LIMIT 1 FOR UPDATE SKIP LOCKED);
END $$;
REVOKE ALL ON FUNCTION clew.call_group FROM PUBLIC;

-- Take one run up, whose thread is locked: its branch's lease passes to this owner. NULL: it cannot go on now.
CREATE FUNCTION clew.take_run(
    p_tenant integer, p_owner bigint, p_seq bigint, p_forced boolean, p_group_limit integer
) RETURNS clew.run LANGUAGE plpgsql AS $$
DECLARE
    v_run clew.run;
    v_status text;
    v_thread bigint;
    v_branch text;
    v_wake bigint;
    v_group text;
    v_step integer;
    v_epoch bigint;
    v_together bigint;
    v_now bigint := clew.stamp();
BEGIN
    SELECT r.status, r.thread, r.branch, r.wake, r.group_key INTO v_status, v_thread, v_branch, v_wake, v_group
      FROM clew.run r WHERE r.tenant = p_tenant AND r.seq = p_seq;
    IF v_status IS NULL OR v_status IN ('done', 'failed', 'cancelled', 'dead') THEN
        RETURN NULL;
    END IF;
    IF v_status <> 'running' AND NOT p_forced AND (v_wake IS NULL OR v_wake > v_now) THEN
        RETURN NULL;
    END IF;
    IF v_status = 'queued' THEN
        IF EXISTS (
            SELECT FROM clew.run h WHERE h.tenant = p_tenant AND h.thread = v_thread AND h.branch = v_branch
               AND h.status IN ('running', 'waiting', 'sleeping', 'paused')
        ) THEN
            UPDATE clew.run r SET wake = NULL WHERE r.tenant = p_tenant AND r.seq = p_seq;
            RETURN NULL;
        END IF;
        IF p_group_limit IS NOT NULL AND v_group IS NOT NULL THEN
            SELECT count(*) INTO v_together FROM clew.run g
             WHERE g.tenant = p_tenant AND g.status = 'running' AND g.group_key = v_group;
            IF v_together >= p_group_limit
               AND pg_try_advisory_xact_lock(1129071963, hashtext(p_tenant || ' ' || v_group)) THEN
                SELECT count(*) INTO v_together FROM clew.run g  -- who has left since has not seen this one wait
                 WHERE g.tenant = p_tenant AND g.status = 'running' AND g.group_key = v_group;
                IF v_together >= p_group_limit THEN
                    UPDATE clew.run r SET wake = NULL WHERE r.tenant = p_tenant AND r.seq = p_seq;
                    PERFORM clew.call_next(p_tenant, v_thread, v_branch, p_seq);
                END IF;
            END IF;
            IF v_together >= p_group_limit THEN
                RETURN NULL;
            ELSIF v_together + 1 < p_group_limit THEN
                PERFORM clew.call_group(p_tenant, v_group);
            END IF;
        END IF;
    END IF;
    UPDATE clew.ref x SET owner = p_owner, epoch = x.epoch + 1
     WHERE x.tenant = p_tenant AND x.thread = v_thread AND x.name = v_branch AND x.owner IS NULL
    RETURNING x.step, x.epoch INTO v_step, v_epoch;
    IF NOT FOUND THEN
        IF EXISTS (
            SELECT FROM clew.ref x JOIN clew.owner o ON o.tenant = x.tenant AND o.owner = x.owner
             WHERE x.tenant = p_tenant AND x.thread = v_thread AND x.name = v_branch AND o.expires > clew.now()
        ) THEN
            IF v_status <> 'running' AND v_wake <= v_now THEN  -- somebody edits the branch, or has not let go yet; the place stays
                UPDATE clew.run r SET wake = v_now + 100000, grace = greatest(r.grace, 1)
                 WHERE r.tenant = p_tenant AND r.seq = p_seq;
            END IF;
            RETURN NULL;
        END IF;
        INSERT INTO clew.ref AS x (tenant, thread, name, kind, owner, epoch)
        VALUES (p_tenant, v_thread, v_branch, 'branch', p_owner, 1)
        ON CONFLICT (tenant, thread, name) DO UPDATE SET owner = p_owner, epoch = x.epoch + 1
        RETURNING x.step, x.epoch INTO v_step, v_epoch;
    END IF;
    UPDATE clew.run r
       SET status = 'running', wake = NULL, epoch = v_epoch, attempts = r.attempts + 1, updated = v_now, stood = v_step,
           failures = CASE WHEN r.stood IS DISTINCT FROM v_step THEN 0 ELSE r.failures END,
           crashes = CASE WHEN v_status <> 'running' THEN 0
                          WHEN r.stood IS DISTINCT FROM v_step THEN 1 ELSE r.crashes + 1 END
     WHERE r.tenant = p_tenant AND r.seq = p_seq
    RETURNING r.* INTO v_run;
    RETURN v_run;
END $$;
REVOKE ALL ON FUNCTION clew.take_run FROM PUBLIC;

-- Claim up to p_count runs of these agents: those that are up, best first; with p_sweep those that were left as well.
-- `p_limits` says how many of each agent may run at once (NULL: any number). With limits, claims of a tenant queue up.
-- (Its search would be planned anew at each call, for it seems to gain by that: twice the time of all the rest.)
CREATE FUNCTION clew.claim_runs(
    p_tenant integer, p_strict boolean, p_owner bigint, p_expiry bigint, p_agents text[], p_limits integer[], p_count integer,
    p_sweep boolean, p_tenant_limit integer, p_group_limit integer
) RETURNS SETOF clew.run LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_found record;
    v_run clew.run;
    v_now bigint;
    v_left integer := p_count;
    v_room jsonb := '{}';
    v_limited boolean := p_tenant_limit IS NOT NULL OR p_group_limit IS NOT NULL OR array_remove(p_limits, NULL) <> '{}';
    ignored boolean;
BEGIN
    ignored := clew.enter(p_tenant, p_strict);
    UPDATE clew.owner o SET expires = clew.now() + p_expiry WHERE o.tenant = p_tenant AND o.owner = p_owner;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such owner' USING ERRCODE = 'KL011';
    END IF;
    IF v_limited THEN
        PERFORM pg_advisory_xact_lock(1129071962, p_tenant);
        IF p_tenant_limit IS NOT NULL THEN
            v_left := least(v_left, p_tenant_limit - (
                SELECT count(*)::integer FROM clew.run r WHERE r.tenant = p_tenant AND r.status = 'running'));
        END IF;
        SELECT coalesce(jsonb_object_agg(a.agent, a.room), '{}') INTO v_room FROM (
            SELECT l.agent, l.room - (SELECT count(*) FROM clew.run r
                                       WHERE r.tenant = p_tenant AND r.status = 'running' AND r.agent = l.agent) AS room
              FROM unnest(p_agents, p_limits) AS l (agent, room) WHERE l.room IS NOT NULL) AS a;
    END IF;
    v_now := clew.stamp();
    FOR v_found IN
        WITH RECURSIVE level AS (
            SELECT a.agent, (SELECT max(r.priority) FROM clew.run r
                              WHERE r.tenant = p_tenant AND r.agent = a.agent AND r.wake IS NOT NULL) AS priority
              FROM unnest(p_agents) AS a (agent)
            UNION ALL
            SELECT l.agent, (SELECT max(r.priority) FROM clew.run r
                              WHERE r.tenant = p_tenant AND r.agent = l.agent AND r.wake IS NOT NULL AND r.priority < l.priority)
              FROM level l WHERE l.priority IS NOT NULL
        ), up AS (
            SELECT u.* FROM level l CROSS JOIN LATERAL (
                SELECT r.seq, r.thread, r.agent, r.priority, r.wake FROM clew.run r
                 WHERE r.tenant = p_tenant AND r.agent = l.agent AND r.priority = l.priority AND r.wake <= v_now
                 ORDER BY r.wake, r.seq LIMIT 4 * p_count + 16) AS u
        ), abandoned AS (
            SELECT r.seq, r.thread, r.agent, r.priority, 0 AS wake FROM clew.run r
             WHERE p_sweep AND r.tenant = p_tenant AND r.status = 'running' AND r.agent = ANY (p_agents)
               AND NOT EXISTS (SELECT FROM clew.ref x JOIN clew.owner o ON o.tenant = x.tenant AND o.owner = x.owner
                                WHERE x.tenant = p_tenant AND x.thread = r.thread AND x.name = r.branch
                                  AND o.expires > clew.now())
        )
        SELECT * FROM (SELECT * FROM abandoned UNION ALL SELECT * FROM up) AS f
         ORDER BY f.priority DESC, f.wake, f.seq LIMIT 4 * p_count + 16
    LOOP
        EXIT WHEN v_left <= 0;
        CONTINUE WHEN (v_room ->> v_found.agent)::integer <= 0;
        PERFORM FROM clew.thread t WHERE t.tenant = p_tenant AND t.thread = v_found.thread FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_run := clew.take_run(p_tenant, p_owner, v_found.seq, false, p_group_limit);
        CONTINUE WHEN v_run.seq IS NULL;
        v_left := v_left - 1;
        IF v_room ? v_found.agent THEN
            v_room := jsonb_set(v_room, ARRAY[v_found.agent], to_jsonb((v_room ->> v_found.agent)::integer - 1));
        END IF;
        RETURN NEXT v_run;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION clew.claim_runs FROM PUBLIC;

-- Claim one run, whoever it was left to; it waits for its thread. Not forced: only if it is due by now, or was left by a
-- process that is gone. (A queue of somebody else's may ask for a run twice, or early.)
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

-- What an idle worker asks: when the next run is due (now: 0 or less), whether one was left, which runs this owner has.
CREATE FUNCTION clew.look_for_runs(
    p_tenant integer, p_owner bigint, p_agents text[],
    OUT due_in bigint, OUT abandoned boolean, OUT owners jsonb, OUT mine jsonb
) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ignored boolean;
    v_now bigint := clew.stamp();
BEGIN
    ignored := clew.enter(p_tenant, false);
    SELECT min(l.wake) - v_now INTO due_in FROM (
        WITH RECURSIVE level AS (
            SELECT a.agent, (SELECT max(r.priority) FROM clew.run r
                              WHERE r.tenant = p_tenant AND r.agent = a.agent AND r.wake IS NOT NULL) AS priority
              FROM unnest(p_agents) AS a (agent)
            UNION ALL
            SELECT l.agent, (SELECT max(r.priority) FROM clew.run r
                              WHERE r.tenant = p_tenant AND r.agent = l.agent AND r.wake IS NOT NULL AND r.priority < l.priority)
              FROM level l WHERE l.priority IS NOT NULL
        )
        SELECT (SELECT min(r.wake) FROM clew.run r WHERE r.tenant = p_tenant AND r.agent = l.agent
                   AND r.priority = l.priority AND r.wake IS NOT NULL) AS wake
          FROM level l WHERE l.priority IS NOT NULL) AS l;
    SELECT coalesce(bool_or(x.owner IS NULL OR o.expires IS NULL OR o.expires <= clew.now()), false),
           coalesce(jsonb_agg(jsonb_build_array(r.id, t.id, r.branch, x.epoch)) FILTER (WHERE x.owner = p_owner), '[]')
      INTO abandoned, mine
      FROM clew.run r JOIN clew.thread t ON t.tenant = p_tenant AND t.thread = r.thread
      LEFT JOIN clew.ref x ON x.tenant = p_tenant AND x.thread = r.thread AND x.name = r.branch
      LEFT JOIN clew.owner o ON o.tenant = p_tenant AND o.owner = x.owner
     WHERE r.tenant = p_tenant AND r.status = 'running' AND r.agent = ANY (p_agents);
    SELECT coalesce(jsonb_agg(jsonb_build_array(
               o.owner, o.host, o.boot, o.pidns, o.pid, o.started, o.nonce, o.expires - clew.now())), '[]')
      INTO owners FROM clew.owner o WHERE o.tenant = p_tenant AND o.expires > clew.now();
END $$;
REVOKE ALL ON FUNCTION clew.look_for_runs FROM PUBLIC;

ALTER FUNCTION clew.grant_to(name) RENAME TO grant_before_workers_to;
CREATE FUNCTION clew.grant_to(role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM clew.grant_before_workers_to(role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION clew.stamp, clew.tell_of_run, clew.thread_name, clew.call_next, clew.call_group,'
                   ' clew.take_run, clew.claim_runs, clew.claim_run, clew.look_for_runs TO %I', role);
END $$;
REVOKE ALL ON FUNCTION clew.grant_to FROM PUBLIC;

-- Queries of the ledger, read together with queries.sql.

-- name: lock_signal (sqlite)
SELECT 1

-- name: lock_signal (postgres)
SELECT clew.lock_signal(:tenant::integer, :name::text)

-- part: for_update (sqlite)
-- part: for_update (postgres)
FOR UPDATE

-- part: skip_locked (sqlite)
-- part: skip_locked (postgres)
FOR UPDATE SKIP LOCKED

-- part: run_columns
r.id, (SELECT t.id FROM thread t WHERE t.tenant = r.tenant AND t.thread = r.thread), r.branch, r.agent, r.status, r.key,
r.input_step, r.step, r.parent, r.parent_step, r.priority, r.attempts, r.crashes, r.wanted, r.wake, r.epoch, r.created,
r.updated, r.input, r.context, r.error, r.trace, r.group_key, r.failures, r.stood

-- name: run
SELECT {run_columns} FROM run r WHERE r.tenant = :tenant AND r.id = :id

-- name: run_locked
-- Locked before anything is worked out from what it waits for: a signal that comes now waits for us, or we for it.
SELECT r.status, r.epoch, r.wanted, r.branch, r.wake, r.group_key FROM run r WHERE r.tenant = :tenant AND r.id = :id AND r.thread = :thread {for_update}

-- name: run_with_key
SELECT {run_columns} FROM run r
WHERE r.tenant = :tenant AND r.thread = (SELECT t.thread FROM thread t WHERE t.tenant = :tenant AND t.id = :thread_id)
  AND r.agent = :agent AND r.key = :key

-- name: run_holding
SELECT {run_columns} FROM run r
WHERE r.tenant = :tenant AND r.thread = (SELECT t.thread FROM thread t WHERE t.tenant = :tenant AND t.id = :thread_id)
  AND r.branch = :branch AND r.status IN ('running', 'waiting', 'sleeping', 'paused')

-- part: runs_after
r.tenant = :tenant AND r.seq < coalesce(
    (SELECT p.seq FROM run p WHERE p.tenant = :tenant AND p.id = CAST(:after AS text)), 9223372036854775807)

-- name: runs
SELECT {run_columns} FROM run r WHERE {runs_after} ORDER BY r.seq DESC LIMIT :limit

-- name: runs_with_status
SELECT {run_columns} FROM run r WHERE {runs_after} AND r.status = :status ORDER BY r.seq DESC LIMIT :limit

-- name: runs_of_thread
SELECT {run_columns} FROM run r
WHERE {runs_after} AND r.thread = (SELECT t.thread FROM thread t WHERE t.tenant = :tenant AND t.id = :thread_id)
  AND (CAST(:status AS text) IS NULL OR r.status = CAST(:status AS text))
ORDER BY r.seq DESC LIMIT :limit

-- name: runs_due
SELECT {run_columns} FROM run r WHERE r.tenant = :tenant AND r.wake <= {stamp} ORDER BY r.wake, r.seq LIMIT :limit

-- name: count_runs
-- What is not over, or ended badly; the others are many, and of no urgency.
SELECT r.status, count(*) FROM run r
WHERE r.tenant = :tenant AND r.status IN ('queued', 'running', 'waiting', 'sleeping', 'paused', 'failed', 'dead')
GROUP BY r.status

-- name: count_due
SELECT count(*) FROM run r WHERE r.tenant = :tenant AND r.wake <= {stamp}

-- name: count_requests
-- Open ones, without those whose time has run out. Each is counted by its own index.
SELECT (SELECT count(*) FROM request q WHERE q.tenant = :tenant AND q.status = 'open')
    - (SELECT count(*) FROM request q WHERE q.tenant = :tenant AND q.status = 'open' AND q.expires <= {stamp})

-- name: runs_running
-- With the owner of each one's branch: whether that lives is for the caller to say.
SELECT r.seq, x.epoch, {owner_columns}, {run_columns} FROM run r
LEFT JOIN ref x ON x.tenant = r.tenant AND x.thread = r.thread AND x.name = r.branch
LEFT JOIN owner o ON o.tenant = r.tenant AND o.owner = x.owner
WHERE r.tenant = :tenant AND r.status = 'running' AND r.seq > :after ORDER BY r.seq LIMIT :limit

-- name: start_run
INSERT INTO run (tenant, id, thread, branch, agent, status, key, input_step, step, parent, parent_step, priority, attempts,
    wanted, wake, epoch, created, updated, input, context, trace, group_key, grace)
VALUES (:tenant, :id, :thread, :branch, :agent, :status, :key, :step, :step, :parent, :parent_step, :priority, :attempts,
    CAST(:wanted AS text), coalesce(CAST(:at AS bigint), {stamp} + CAST(:delay AS bigint)), :epoch, {stamp}, {stamp}, :input,
    :context, :trace, CAST(:group AS text), :grace)

-- part: stands
(SELECT x.step FROM ref x WHERE x.tenant = :tenant AND x.thread = run.thread AND x.name = run.branch)

-- name: move_run
-- Failures are counted since the last checkpoint; a person who lets it go on lets it fail as often again.
UPDATE run SET status = :status, step = coalesce(CAST(:step AS bigint), step), error = :error, wanted = :wanted,
    attempts = attempts + :attempted,
    crashes = CASE WHEN status IN ('failed', 'dead') THEN 0 ELSE crashes + :crashed END, epoch = :epoch, updated = {stamp},
    failures = CASE WHEN status IN ('failed', 'dead') THEN 0 WHEN :failed = 0 THEN failures
                    WHEN stood IS DISTINCT FROM {stands} THEN 1 ELSE failures + 1 END,
    stood = CASE WHEN :failed = 0 THEN stood ELSE {stands} END,
    wake = coalesce({stamp} + CAST(:delay AS bigint), CAST(:wake AS bigint))
WHERE tenant = :tenant AND id = :id

-- name: want_of_run
-- A run that nobody runs is due, so that somebody sees it.
UPDATE run SET wanted = :wanted,
    wake = CASE WHEN CAST(:wanted AS text) IS NOT NULL AND status IN ('waiting', 'sleeping', 'paused') THEN {stamp} ELSE wake END
WHERE tenant = :tenant AND thread = :thread AND id = :id AND status NOT IN ('done', 'failed', 'cancelled', 'dead')
RETURNING id

-- part: called
(q.wake <= {stamp} OR q.wake IS NOT NULL AND q.grace > 0)

-- name: line
-- Who has the branch, whether others stand in line for it, whether any of them goes before one of this priority, and
-- whether a run that is to come at a time is still to come. (The first of a line may wait for a place in its group.)
SELECT h.id, h.status, h.wanted, h.agent,
    EXISTS (SELECT 1 FROM run q WHERE q.tenant = :tenant AND q.thread = :thread AND q.branch = :branch
            AND q.status = 'queued' AND (q.wake IS NULL OR {called})),
    EXISTS (SELECT 1 FROM run q WHERE q.tenant = :tenant AND q.thread = :thread AND q.branch = :branch
            AND q.status = 'queued' AND (q.wake IS NULL AND q.priority >= :priority OR {called})),
    coalesce(CAST(:at AS bigint) > {stamp}, CAST(:delay AS bigint) > 0)
FROM (SELECT 1 AS one) AS x LEFT JOIN run h ON h.tenant = :tenant AND h.thread = :thread AND h.branch = :branch
    AND h.status IN ('running', 'waiting', 'sleeping', 'paused')

-- name: interrupt_line
UPDATE run AS q SET wanted = 'interrupt'
WHERE q.tenant = :tenant AND q.thread = :thread AND q.branch = :branch AND q.status = 'queued'
  AND (q.wake IS NULL OR {called})

-- name: cancel_line
UPDATE run AS q SET status = 'cancelled', wake = NULL, wanted = NULL, updated = {stamp}
WHERE q.tenant = :tenant AND q.thread = :thread AND q.branch = :branch AND q.status = 'queued'
  AND (q.wake IS NULL OR {called})

-- name: call_next (postgres)
SELECT clew.call_next(:tenant::integer, :thread::bigint, :branch::text, :but::bigint)

-- name: call_next (sqlite)
-- The branch is free: the first of its line is up, unless somebody has been called already, or it is `but`.
UPDATE run SET wake = {stamp} + grace, grace = CASE WHEN grace > 0 THEN grace ELSE 1 END WHERE tenant = :tenant AND seq <> :but AND seq = (
    SELECT n.seq FROM run n
    WHERE n.tenant = :tenant AND n.thread = :thread AND n.branch = :branch AND n.status = 'queued' AND n.wake IS NULL
      AND NOT EXISTS (SELECT 1 FROM run h WHERE h.tenant = :tenant AND h.thread = :thread AND h.branch = :branch
                      AND h.status IN ('running', 'waiting', 'sleeping', 'paused'))
      AND NOT EXISTS (SELECT 1 FROM run q WHERE q.tenant = :tenant AND q.thread = :thread AND q.branch = :branch
                      AND q.status = 'queued' AND {called})
    ORDER BY n.priority DESC, n.seq LIMIT 1)

-- name: call_group (postgres)
SELECT clew.call_group(:tenant::integer, :group::text)

-- name: call_group (sqlite)
UPDATE run SET wake = {stamp} + grace, grace = CASE WHEN grace > 0 THEN grace ELSE 1 END WHERE seq = (
    SELECT n.seq FROM run n
    WHERE n.tenant = :tenant AND n.group_key = :group AND n.status = 'queued' AND n.wake IS NULL
      AND NOT EXISTS (SELECT 1 FROM run h WHERE h.tenant = :tenant AND h.thread = n.thread AND h.branch = n.branch
                      AND h.status IN ('running', 'waiting', 'sleeping', 'paused'))
      AND NOT EXISTS (SELECT 1 FROM run q WHERE q.tenant = :tenant AND q.thread = n.thread AND q.branch = n.branch
                      AND q.status = 'queued' AND q.seq <> n.seq
                      AND (q.priority > n.priority OR q.priority = n.priority AND q.seq < n.seq)
                      AND (q.wake IS NULL OR {called}))
    ORDER BY n.priority DESC, n.seq LIMIT 1)

-- name: groups_of_running
SELECT DISTINCT r.group_key FROM run r
WHERE r.tenant = :tenant AND r.thread = :thread AND r.status = 'running' AND r.group_key IS NOT NULL

-- name: enter_input
UPDATE run SET input_step = :step, step = :step, input = NULL, updated = {stamp}, parent = CAST(:parent AS text),
    parent_step = CAST(:parent_step AS bigint)
WHERE tenant = :tenant AND thread = :thread AND id = :run AND status = 'running' RETURNING id

-- name: taken_in
-- Word of more inputs stays, if there are more by now.
UPDATE run SET wanted = NULL WHERE tenant = :tenant AND thread = :thread AND id = :id AND wanted = 'inject'
  AND NOT EXISTS (SELECT 1 FROM run q WHERE q.tenant = :tenant AND q.thread = :thread AND q.branch = run.branch
                  AND q.agent = run.agent AND q.status = 'queued' AND q.wanted = 'inject')

-- name: runs_to_take_in
SELECT {run_columns} FROM run r
WHERE r.tenant = :tenant AND r.status = 'queued' AND r.wanted = 'inject'
  AND (r.thread, r.branch, r.agent) = (SELECT h.thread, h.branch, h.agent FROM run h WHERE h.tenant = :tenant AND h.id = :id)
ORDER BY r.priority DESC, r.seq

-- name: runs_wanted
SELECT r.id, r.wanted FROM run r
WHERE r.tenant = :tenant AND r.id IN ({each_text:runs}) AND r.wanted IS NOT NULL AND r.status = 'running'

-- name: rename_run
UPDATE run SET agent = :agent, updated = {stamp} WHERE tenant = :tenant AND thread = :thread AND id = :id

-- name: is_due
SELECT 1 FROM run r WHERE r.tenant = :tenant AND r.id = :id AND r.wake <= {stamp}

-- name: expire_owner
UPDATE owner SET expires = 0 WHERE tenant = :tenant AND owner = :owner AND nonce = :nonce

-- name: live_owners (sqlite)
SELECT {owner_columns} FROM owner o WHERE o.tenant = :tenant AND {live}

-- name: next_level (sqlite)
SELECT max(r.priority) FROM run r
WHERE r.tenant = :tenant AND r.agent = :agent AND r.wake IS NOT NULL AND r.priority < :below

-- name: runs_up (sqlite)
SELECT r.priority, r.wake, r.seq, r.agent FROM run r
WHERE r.tenant = :tenant AND r.agent = :agent AND r.priority = :priority AND r.wake <= {stamp}
ORDER BY r.wake, r.seq LIMIT :limit

-- name: next_wake (sqlite)
SELECT min(r.wake) - {stamp} FROM run r
WHERE r.tenant = :tenant AND r.agent = :agent AND r.priority = :priority AND r.wake IS NOT NULL

-- name: count_running (sqlite)
SELECT count(*) FROM run r WHERE r.tenant = :tenant AND r.status = 'running'
  AND (:agent IS NULL OR r.agent = :agent) AND (:group IS NULL OR r.group_key = :group)

-- name: run_to_claim (sqlite)
SELECT r.status, r.thread, (SELECT t.id FROM thread t WHERE t.thread = r.thread), r.branch, r.group_key, r.wake,
    coalesce(r.wake <= {stamp}, 0),
    EXISTS (SELECT 1 FROM run h WHERE h.tenant = r.tenant AND h.thread = r.thread AND h.branch = r.branch
            AND h.status IN ('running', 'waiting', 'sleeping', 'paused'))
FROM run r WHERE r.tenant = :tenant AND r.seq = :seq

-- name: set_wake (sqlite)
-- One that is left alone for a moment keeps its place: it counts as called.
UPDATE run SET wake = {stamp} + :delay, grace = CASE WHEN :delay IS NULL THEN grace ELSE max(grace, 1) END WHERE tenant = :tenant AND seq = :seq

-- name: take_run (sqlite)
UPDATE run SET status = 'running', wake = NULL, epoch = :epoch, attempts = attempts + 1, updated = {stamp}, stood = :stood,
    failures = CASE WHEN stood IS NOT :stood THEN 0 ELSE failures END,
    crashes = CASE WHEN status <> 'running' THEN 0 WHEN stood IS NOT :stood THEN 1 ELSE crashes + 1 END
WHERE tenant = :tenant AND seq = :seq

-- name: run_with_seq (sqlite)
SELECT {run_columns} FROM run r WHERE r.tenant = :tenant AND r.seq = :seq

-- name: seq_of_run (sqlite)
SELECT r.seq FROM run r WHERE r.tenant = :tenant AND r.id = :id

-- name: claim_runs (postgres)
SELECT {run_columns} FROM clew.claim_runs(:tenant, :strict, :owner, :expiry, :agents::text[], :limits::integer[], :count, :sweep,
    :tenant_limit::integer, :group_limit::integer) AS r

-- name: claim_run (postgres)
SELECT {run_columns} FROM clew.claim_run(:tenant, :strict, :owner, :expiry, :id, :forced) AS r

-- name: look_for_runs (postgres)
SELECT due_in, abandoned, owners, mine FROM clew.look_for_runs(:tenant, :owner::bigint, :agents::text[])

-- name: wake_run
UPDATE run SET wake = {stamp} WHERE tenant = :tenant AND id = :id AND status = 'waiting'

-- name: wake_askers
-- What they have asked is not asked any more: they look at it again.
UPDATE run SET wake = {stamp} WHERE tenant = :tenant AND status = 'waiting' AND id IN (
    SELECT q.run FROM request q WHERE q.tenant = :tenant AND q.number IN ({each:numbers}))

-- name: waited_for
-- What a run that is about to wait waits for: now, whether any of it has happened, and when the first of it runs out.
SELECT EXISTS (SELECT 1 FROM request q WHERE q.tenant = :tenant AND q.number IN ({each:numbers})
               AND (q.status <> 'open' OR q.expires <= {stamp})),
    EXISTS (SELECT 1 FROM wait w JOIN signal s ON s.tenant = w.tenant AND s.name = w.name AND s.taken = 0
            WHERE w.tenant = :tenant AND w.run = :id AND w.state = 'open' AND (w.expires IS NULL OR s.created < w.expires)),
    (SELECT min(q.expires) FROM request q WHERE q.tenant = :tenant AND q.number IN ({each:numbers}) AND q.status = 'open'),
    (SELECT min(w.expires) FROM wait w WHERE w.tenant = :tenant AND w.run = :id AND w.state = 'open')

-- part: effect_columns
e.key, e.attempt, e.name, e.args, e.state, e.token, e.run, e.activation, e.branch, e.step, e.epoch, e.created, e.updated,
e.shown, e.value

-- name: claims
SELECT {effect_columns} FROM effect e WHERE e.tenant = :tenant AND e.thread = :thread AND e.key = :key
ORDER BY e.attempt DESC

-- name: claim_effect
INSERT INTO effect (tenant, thread, key, attempt, name, args, state, token, run, activation, branch, step, epoch, created,
    updated, shown)
VALUES (:tenant, :thread, :key, :attempt, :name, :args, 'claimed', :token, :run, :activation, :branch, :step, :epoch,
    {stamp}, {stamp}, :shown)
RETURNING key, attempt, name, args, state, token, run, activation, branch, step, epoch, created, updated, shown, value

-- name: effect_with_token
SELECT {effect_columns} FROM effect e WHERE e.tenant = :tenant AND e.thread = :thread AND e.key = :key AND e.token = :token
{for_update}

-- name: complete_effect
UPDATE effect SET state = :state, value = :value, updated = {stamp}
WHERE tenant = :tenant AND thread = :thread AND key = :key AND token = :token RETURNING key

-- part: effects_after
e.tenant = :tenant AND e.thread = (SELECT t.thread FROM thread t WHERE t.tenant = :tenant AND t.id = :thread_id)
AND (e.key, e.attempt) > (:key, :attempt)

-- name: effects
SELECT {effect_columns} FROM effect e WHERE {effects_after} ORDER BY e.key, e.attempt LIMIT :limit

-- name: effects_with_key
SELECT {effect_columns} FROM effect e WHERE {effects_after} AND e.key = :wanted ORDER BY e.key, e.attempt LIMIT :limit

-- name: effects_with_name
SELECT {effect_columns} FROM effect e WHERE {effects_after} AND e.name = :name ORDER BY e.key, e.attempt LIMIT :limit

-- part: request_status
CASE WHEN q.status = 'open' AND q.expires <= {stamp} THEN 'expired' ELSE q.status END

-- part: request_columns
q.number, (SELECT t.id FROM thread t WHERE t.tenant = q.tenant AND t.thread = q.thread), q.branch, q.run, q.step,
q.activation, q.ask, q.digest, q.assignee, q.approvals, q.answers, {request_status}, q.created, q.expires,
CASE WHEN q.status = 'open' AND q.expires <= {stamp} THEN q.expires ELSE q.decided END, q.question, q.schema, q.fallback,
CASE WHEN q.status = 'open' AND q.expires <= {stamp} THEN q.fallback ELSE q.value END

-- name: request
SELECT {request_columns} FROM request q WHERE q.tenant = :tenant AND q.number = :number

-- name: request_asked
SELECT {request_columns} FROM request q
WHERE q.tenant = :tenant AND q.thread = :thread AND q.activation = :activation AND q.ask = :ask
ORDER BY q.number DESC LIMIT 1

-- name: next_number
INSERT INTO counter (tenant, name, last) VALUES (:tenant, :name, 1)
ON CONFLICT (tenant, name) DO UPDATE SET last = counter.last + 1 RETURNING last

-- name: open_request
INSERT INTO request (tenant, number, thread, branch, run, step, activation, ask, digest, assignee, approvals, created,
    expires, question, schema, fallback)
VALUES (:tenant, :number, :thread, :branch, :run, :step, :activation, :ask, :digest, :assignee, :approvals, {stamp},
    {stamp} + CAST(:ttl AS bigint), :question, :schema, :fallback)

-- part: requests_rest
AND (CAST(:run AS text) IS NULL OR q.run = CAST(:run AS text))

-- name: requests
SELECT {request_columns} FROM request q WHERE q.tenant = :tenant AND q.number > :after {requests_rest}
ORDER BY q.number LIMIT :limit

-- name: requests_open
SELECT {request_columns} FROM request q WHERE q.tenant = :tenant AND q.status = 'open' AND q.number > :after
  AND (q.expires IS NULL OR q.expires > {stamp}) {requests_rest}
ORDER BY q.number LIMIT :limit

-- name: requests_closed
SELECT {request_columns} FROM request q WHERE q.tenant = :tenant AND q.status = :status AND q.number > :after {requests_rest}
ORDER BY q.number LIMIT :limit

-- name: requests_expired
-- Those that are noted, and those that nobody has noted yet.
SELECT {request_columns} FROM request q WHERE q.tenant = :tenant AND q.number IN (
    SELECT n.number FROM (SELECT number FROM request WHERE tenant = :tenant AND status = 'expired' AND number > :after
                          ORDER BY number LIMIT :limit) AS n
    UNION ALL
    SELECT m.number FROM (SELECT number FROM request WHERE tenant = :tenant AND status = 'open' AND number > :after
                          AND expires <= {stamp} ORDER BY number LIMIT :limit) AS m)
  {requests_rest}
ORDER BY q.number LIMIT :limit

-- name: requests_of_assignee
SELECT {request_columns} FROM request q WHERE q.tenant = :tenant AND q.assignee = :assignee AND q.number > :after
  AND (CAST(:status AS text) IS NULL OR {request_status} = CAST(:status AS text)) {requests_rest}
ORDER BY q.number LIMIT :limit

-- name: requests_open_of_assignee
SELECT {request_columns} FROM request q WHERE q.tenant = :tenant AND q.assignee = :assignee AND q.status = 'open'
  AND q.number > :after AND (q.expires IS NULL OR q.expires > {stamp}) {requests_rest}
ORDER BY q.number LIMIT :limit

-- name: requests_of_thread
SELECT {request_columns} FROM request q
WHERE q.tenant = :tenant AND q.thread = (SELECT t.thread FROM thread t WHERE t.tenant = :tenant AND t.id = :thread_id)
  AND q.number > :after AND (CAST(:status AS text) IS NULL OR {request_status} = CAST(:status AS text))
  AND (CAST(:assignee AS text) IS NULL OR q.assignee = CAST(:assignee AS text)) {requests_rest}
ORDER BY q.number LIMIT :limit

-- name: answers
SELECT a.person, a.value, a.reason, a.created FROM answer a
WHERE a.tenant = :tenant AND a.number = :number ORDER BY a.created, a.person

-- name: record_answer
INSERT INTO answer (tenant, number, person, reason, created, value)
VALUES (:tenant, :number, :person, :reason, {stamp}, :value)

-- name: count_answer
UPDATE request SET answers = answers + 1
WHERE tenant = :tenant AND number = :number AND status = 'open' AND (expires IS NULL OR expires > {stamp}) RETURNING answers

-- name: decide_request
UPDATE request SET status = 'answered', value = :value, decided = {stamp}
WHERE tenant = :tenant AND number = :number AND status = 'open' RETURNING run

-- name: withdraw_requests
UPDATE request SET status = 'withdrawn', decided = {stamp}
WHERE tenant = :tenant AND thread = :thread AND status = 'open' AND (expires IS NULL OR expires > {stamp})
  AND (number IN ({each:numbers}) OR run = CAST(:run AS text) OR activation = CAST(:activation AS text))
RETURNING number

-- name: expire_requests (sqlite)
UPDATE request SET status = 'expired', value = fallback, decided = expires
WHERE seq IN (SELECT q.seq FROM request q WHERE q.tenant = :tenant AND q.status = 'open' AND q.expires <= {stamp}
              ORDER BY q.expires LIMIT :limit)
RETURNING number

-- name: expire_requests (postgres)
WITH gone AS MATERIALIZED (
    SELECT q.seq FROM request q WHERE q.tenant = :tenant AND q.status = 'open' AND q.expires <= {stamp}
    ORDER BY q.expires LIMIT :limit FOR UPDATE SKIP LOCKED
)
UPDATE request r SET status = 'expired', value = r.fallback, decided = r.expires
FROM gone WHERE r.tenant = :tenant AND r.seq = gone.seq RETURNING r.number

-- name: begin_wait
INSERT INTO wait (tenant, run, activation, id, name, created, expires)
VALUES (:tenant, :run, :activation, :id, :name, {stamp}, {stamp} + CAST(:ttl AS bigint))
ON CONFLICT (tenant, run, activation, id) DO NOTHING

-- name: wait
SELECT w.seq, w.state, w.name, w.expires, coalesce(w.expires <= {stamp}, 1 = 0), s.value FROM wait w
LEFT JOIN signal s ON s.tenant = w.tenant AND s.seq = w.signal
WHERE w.tenant = :tenant AND w.run = :run AND w.activation = :activation AND w.id = :id

-- name: take_signal
UPDATE signal SET taken = 1
WHERE tenant = :tenant AND seq = (
    SELECT s.seq FROM signal s WHERE s.tenant = :tenant AND s.name = :name AND s.taken = 0
      AND (CAST(:expires AS bigint) IS NULL OR s.created < CAST(:expires AS bigint))
    ORDER BY s.seq LIMIT 1)
RETURNING value, seq

-- name: end_wait
UPDATE wait SET state = :state, signal = :signal WHERE tenant = :tenant AND seq = :wait

-- name: end_waits
UPDATE wait SET state = 'over' WHERE tenant = :tenant AND run = :run AND state = 'open'

-- name: leave_signal
INSERT INTO signal (tenant, name, key, created, value) VALUES (:tenant, :name, :key, {stamp}, :value)
ON CONFLICT DO NOTHING RETURNING seq

-- name: runs_waiting_for
SELECT DISTINCT w.run FROM wait w WHERE w.tenant = :tenant AND w.name = :name AND w.state = 'open' AND w.name IS NOT NULL

-- name: write_notice
INSERT INTO notice (tenant, number, event, due) VALUES (:tenant, :number, :event, {stamp})

-- name: drop_notices
DELETE FROM notice WHERE tenant = :tenant AND number IN ({each:numbers})

-- name: next_notice
UPDATE notice SET due = {stamp} + :hold, attempts = attempts + 1, token = :token
WHERE tenant = :tenant AND (number, event) = (
    SELECT n.number, n.event FROM notice n WHERE n.tenant = :tenant AND n.due <= {stamp}
    ORDER BY n.due, n.number LIMIT 1 {skip_locked})
RETURNING number, event, attempts, token

-- name: notice_told
DELETE FROM notice WHERE tenant = :tenant AND number = :number AND event = :event AND token = :token

-- name: notice_not_told
UPDATE notice SET due = {stamp} + :delay, token = NULL
WHERE tenant = :tenant AND number = :number AND event = :event AND token = :token

-- name: delete_thread_answers
DELETE FROM answer WHERE tenant = :tenant
  AND number IN (SELECT q.number FROM request q WHERE q.tenant = :tenant AND q.thread = :thread)

-- name: delete_thread_notices
DELETE FROM notice WHERE tenant = :tenant
  AND number IN (SELECT q.number FROM request q WHERE q.tenant = :tenant AND q.thread = :thread)

-- name: delete_thread_requests
DELETE FROM request WHERE tenant = :tenant AND thread = :thread

-- name: delete_thread_signals
-- Those that a wait of the thread has taken: others are for others.
DELETE FROM signal WHERE tenant = :tenant AND seq IN (
    SELECT w.signal FROM wait w WHERE w.tenant = :tenant
      AND w.run IN (SELECT r.id FROM run r WHERE r.tenant = :tenant AND r.thread = :thread))

-- name: delete_thread_waits
DELETE FROM wait WHERE tenant = :tenant AND run IN (SELECT r.id FROM run r WHERE r.tenant = :tenant AND r.thread = :thread)

-- name: delete_thread_effects
DELETE FROM effect WHERE tenant = :tenant AND thread = :thread

-- name: delete_thread_runs
DELETE FROM run WHERE tenant = :tenant AND thread = :thread

-- name: ledger_usage
SELECT (SELECT count(*) FROM run WHERE tenant = :tenant),
    (SELECT count(*) FROM effect WHERE tenant = :tenant),
    (SELECT count(*) FROM request WHERE tenant = :tenant),
    (SELECT coalesce(sum(coalesce(octet_length(input), 0) + coalesce(octet_length(context), 0)
        + coalesce(octet_length(error), 0)), 0) FROM run WHERE tenant = :tenant)
    + (SELECT coalesce(sum(octet_length(key) + coalesce(octet_length(shown), 0) + coalesce(octet_length(value), 0)), 0)
       FROM effect WHERE tenant = :tenant)
    + (SELECT coalesce(sum(octet_length(question) + coalesce(octet_length(schema), 0)
        + coalesce(octet_length(fallback), 0) + coalesce(octet_length(value), 0)), 0) FROM request WHERE tenant = :tenant)
    + (SELECT coalesce(sum(octet_length(value)), 0) FROM answer WHERE tenant = :tenant)
    + (SELECT coalesce(sum(octet_length(value)), 0) FROM signal WHERE tenant = :tenant)

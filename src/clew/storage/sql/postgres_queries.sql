-- Queries of queries.sql that PostgreSQL gets in another shape, under the same names.
--
-- Row-level security lets a condition on a table use an index only if the condition cannot leak: a column compared with
-- a column or a parameter by =, <, and the like. `c.key = (t.thread << 32) + r.step` computes with columns of the same
-- join and is kept out; so the key is computed first, in a MATERIALIZED part, and then compared.
-- OFFSET 0 keeps a look-up apart from its surroundings, so that it stays one by its key: a planner that knows nothing
-- of a young table may think a join over all of a tenant's rows just as good. The reads of every load are functions
-- (postgres_001_history.sql). Lists are bound as arrays: `= ANY` is looked up in the index.

-- name: head
SELECT * FROM clew.head(%(tenant)s, %(thread_id)s, %(branch)s)

-- name: payload
SELECT * FROM clew.pieces(%(tenant)s, %(low)s, %(upto)s, %(lanes)s::bigint[])

-- name: payload_and_chunks
SELECT p.key, p.key & 4294967295, p.lane, p.data
FROM clew.pieces(%(tenant)s, %(low)s, %(upto)s, %(lanes)s::bigint[]) AS p
UNION ALL
SELECT DISTINCT ON (c.key) c.key, 0, c.lane, c.data
FROM unnest(%(of)s::bigint[], %(logs)s::bigint[], %(starts)s::bigint[], %(stops)s::bigint[]) AS w (lane, log, start, stop),
     LATERAL clew.chunks(%(tenant)s, %(thread)s, w.lane, w.log, w.start, w.stop) AS c

-- name: chunks
SELECT * FROM clew.chunks(%(tenant)s, %(thread)s, %(lane)s, %(log)s, %(start)s, %(stop)s)

-- name: history
SELECT * FROM clew.history(%(tenant)s, %(low)s, %(step)s, %(limit)s)

-- name: threads_updated
-- By (active, updated) is by updated: `active` is its hour, and has the index.
WITH t AS MATERIALIZED (
    SELECT p.*, {newest} AS newest
    FROM (SELECT * FROM thread WHERE tenant = %(tenant)s AND active <= %(stamp)s::bigint / 3600000000
            AND (updated, id) < (%(stamp)s, %(after)s)
          ORDER BY active DESC, updated DESC, id DESC LIMIT %(limit)s) AS p
)
{listed} ORDER BY t.updated DESC, t.id DESC

-- name: threads_created
WITH t AS MATERIALIZED (
    SELECT p.*, {newest} AS newest
    FROM (SELECT * FROM thread WHERE tenant = %(tenant)s AND (created, id) < (%(stamp)s, %(after)s)
          ORDER BY created DESC, id DESC LIMIT %(limit)s) AS p
)
{listed} ORDER BY t.created DESC, t.id DESC

-- name: threads_id
WITH t AS MATERIALIZED (
    SELECT p.*, {newest} AS newest
    FROM (SELECT * FROM thread WHERE tenant = %(tenant)s AND id > %(after)s ORDER BY id LIMIT %(limit)s) AS p
)
{listed} ORDER BY t.id

-- part: newest
coalesce(
    (SELECT (r.thread << 32) + r.step FROM ref r
     WHERE r.tenant = %(tenant)s AND r.thread = p.thread AND r.name = 'main' AND r.kind = 'branch'),
    (SELECT max(k.key) FROM checkpoint k
     WHERE k.tenant = %(tenant)s AND k.key > p.thread << 32 AND k.key < (p.thread + 1) << 32))

-- part: stamp
(extract(epoch FROM statement_timestamp()) * 1000000)::bigint

-- part: listed
SELECT t.thread, t.id, t.created, t.updated, t.step,
    (SELECT count(*) FROM ref r WHERE r.tenant = %(tenant)s AND r.thread = t.thread AND r.kind = 'branch'),
    c.label, c.metadata,
    EXISTS (SELECT FROM ref r JOIN owner o ON o.tenant = r.tenant AND o.owner = r.owner
            WHERE r.tenant = %(tenant)s AND r.thread = t.thread
              AND o.expires > (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint),
    t.updated
FROM t LEFT JOIN LATERAL (
    SELECT k.label, k.metadata FROM checkpoint k WHERE k.tenant = %(tenant)s AND k.key = t.newest OFFSET 0
) c ON true

-- Payload stands in the row of the checkpoint that brought it; what that of pruned ones had brought, in a table beside.

-- name: lane_payload
SELECT c.key, c.lane, c.payload FROM checkpoint c
WHERE c.tenant = %(tenant)s AND c.key > %(low)s AND c.key <= %(high)s AND c.lane = %(lane)s AND c.payload IS NOT NULL
UNION ALL
SELECT p.key, p.lane, p.data FROM payload p
WHERE p.tenant = %(tenant)s AND p.key > %(low)s AND p.key <= %(high)s AND p.lane = %(lane)s
ORDER BY key

-- name: payload_page
(SELECT c.key, c.lane, c.payload FROM checkpoint c
 WHERE c.tenant = %(tenant)s AND c.key > %(after)s AND c.key > %(low)s AND c.key <= %(high)s AND c.payload IS NOT NULL
 ORDER BY c.key LIMIT %(limit)s)
UNION ALL
(SELECT p.key, p.lane, p.data FROM payload p
 WHERE p.tenant = %(tenant)s AND p.key > %(after)s AND p.key > %(low)s AND p.key <= %(high)s
 ORDER BY p.key LIMIT %(limit)s)
ORDER BY key LIMIT %(limit)s

-- name: payload_data
SELECT c.payload FROM checkpoint c
WHERE c.tenant = %(tenant)s AND c.key = %(key)s AND c.key > %(low)s AND c.key <= %(high)s AND c.payload IS NOT NULL
UNION ALL
SELECT p.data FROM payload p WHERE p.tenant = %(tenant)s AND p.key = %(key)s AND p.key > %(low)s AND p.key <= %(high)s

-- name: delete_payload
WITH emptied AS (
    UPDATE checkpoint SET payload = NULL
    WHERE tenant = %(tenant)s AND key = ANY (%(keys)s::bigint[]) AND payload IS NOT NULL RETURNING key
), deleted AS (
    DELETE FROM payload WHERE tenant = %(tenant)s AND key = ANY (%(keys)s::bigint[]) RETURNING key
)
SELECT key FROM emptied UNION ALL SELECT key FROM deleted

-- name: delete_chunks
DELETE FROM chunk WHERE tenant = %(tenant)s AND key = ANY (%(keys)s::bigint[]) RETURNING key

-- name: forget
WITH gone AS (
DELETE FROM checkpoint
WHERE tenant = %(tenant)s
  AND key = ANY (ARRAY(SELECT %(low)s::bigint + s.step FROM unnest(%(steps)s::bigint[]) AS s (step)
                       WHERE NOT EXISTS (SELECT FROM ref r WHERE r.tenant = %(tenant)s AND r.thread = %(thread)s
                                           AND r.kind <> 'auto' AND r.step = s.step)
                         AND NOT EXISTS (SELECT FROM request q
                                         WHERE q.tenant = %(tenant)s AND q.thread = %(thread)s AND q.status = 'open'
                                           AND q.step = s.step AND (q.expires IS NULL OR q.expires > {stamp}))
                         AND NOT EXISTS (SELECT FROM run r
                                         WHERE r.tenant = %(tenant)s AND r.thread = %(thread)s
                                           AND r.status NOT IN ('done', 'failed', 'cancelled', 'dead')
                                           AND s.step IN (r.step, r.input_step, r.parent_step))))
RETURNING key, lane, payload
), kept AS (
    INSERT INTO payload (tenant, key, lane, data)
    SELECT %(tenant)s, g.key, g.lane, g.payload FROM gone g WHERE g.payload IS NOT NULL
)
SELECT key & 4294967295 FROM gone

-- name: unplace_checkpoint
WITH gone AS (
    DELETE FROM checkpoint WHERE tenant = %(tenant)s AND key = %(key)s RETURNING key, lane, payload
)
INSERT INTO payload (tenant, key, lane, data)
SELECT %(tenant)s, g.key, g.lane, g.payload FROM gone g WHERE g.payload IS NOT NULL

-- name: space
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
WHERE c.relnamespace = 'clew'::regnamespace AND c.relkind = 'r'

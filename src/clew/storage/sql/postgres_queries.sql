-- Queries of queries.sql that PostgreSQL gets in another shape, under the same names.
--
-- Row-level security lets a condition on a table use an index only if the condition cannot leak: a column compared with
-- a column or a parameter by =, <, and the like. `c.key = (t.thread << 32) + r.step` computes with columns of the same
-- join and is kept out; so the key is computed first, in a MATERIALIZED part, and then compared.
-- Lists are bound as arrays: `= ANY` is looked up in the index, also before the planner knows anything of the table.

-- name: head
WITH h AS MATERIALIZED (
    SELECT t.thread, r.name, r.kind, r.step, r.lane, r.epoch, r.owner, (t.thread << 32) + r.step AS key
    FROM thread t JOIN ref r ON r.tenant = t.tenant AND r.thread = t.thread
    WHERE t.tenant = %(tenant)s AND t.id = %(thread_id)s AND r.name = %(branch)s AND r.kind = 'branch'
)
SELECT h.thread, h.name, h.kind, h.step, h.lane, h.epoch,
    o.owner, o.host, o.boot, o.pidns, o.pid, o.started, o.nonce,
    o.expires - (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint,
    c.key & 4294967295, c.id, c.parent, c.lane, c.kind, c.label, c.run, c.next, c.created, c.metadata, c.manifest, c.crc
FROM h
LEFT JOIN owner o ON o.tenant = %(tenant)s AND o.owner = h.owner
LEFT JOIN checkpoint c ON c.tenant = %(tenant)s AND c.key = h.key

-- name: history
WITH RECURSIVE path AS (
    SELECT key, id, parent, lane, kind, label, run, next, created, metadata, crc, %(low)s::bigint + parent AS up, 1 AS depth
    FROM checkpoint WHERE tenant = %(tenant)s AND key = %(low)s::bigint + %(step)s
    UNION ALL
    SELECT c.key, c.id, c.parent, c.lane, c.kind, c.label, c.run, c.next, c.created, c.metadata, c.crc,
        %(low)s::bigint + c.parent, path.depth + 1
    FROM path JOIN checkpoint c ON c.tenant = %(tenant)s AND c.key = path.up WHERE path.depth < %(limit)s
)
SELECT key & 4294967295, id, parent, lane, kind, label, run, next, created, metadata, crc FROM path ORDER BY depth

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

-- part: listed
SELECT t.thread, t.id, t.created, t.updated, t.step,
    (SELECT count(*) FROM ref r WHERE r.tenant = %(tenant)s AND r.thread = t.thread AND r.kind = 'branch'),
    c.label, c.metadata,
    EXISTS (SELECT FROM ref r JOIN owner o ON o.tenant = r.tenant AND o.owner = r.owner
            WHERE r.tenant = %(tenant)s AND r.thread = t.thread
              AND o.expires > (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint)
FROM t LEFT JOIN checkpoint c ON c.tenant = %(tenant)s AND c.key = t.newest

-- name: delete_payload
DELETE FROM payload WHERE tenant = %(tenant)s AND key = ANY (%(keys)s::bigint[]) RETURNING key

-- name: delete_chunks
DELETE FROM chunk WHERE tenant = %(tenant)s AND key = ANY (%(keys)s::bigint[]) RETURNING key

-- name: forget
DELETE FROM checkpoint
WHERE tenant = %(tenant)s
  AND key = ANY (ARRAY(SELECT %(low)s::bigint + s.step FROM unnest(%(steps)s::bigint[]) AS s (step)
                       WHERE NOT EXISTS (SELECT FROM ref r WHERE r.tenant = %(tenant)s AND r.thread = %(thread)s
                                           AND r.kind <> 'auto' AND r.step = s.step)))
RETURNING key & 4294967295

-- name: space
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
WHERE c.relnamespace = 'clew'::regnamespace AND c.relkind = 'r'

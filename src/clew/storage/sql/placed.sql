-- Placed checkpoints: storage/placed.py says what they are.

-- part: placed_columns
p.ns, p.id, p.step, p.leans, p.control, p.crc

-- name: placed
SELECT {placed_columns} FROM placed p WHERE p.tenant = :tenant AND p.thread = :thread AND p.ns = :ns AND p.id = :id

-- name: placed_latest
SELECT {placed_columns} FROM placed p
WHERE p.tenant = :tenant AND p.thread = :thread AND p.ns = :ns ORDER BY p.id DESC LIMIT 1

-- name: latest_found (sqlite)
-- The latest of a namespace with its thread's key and its checkpoint: what nearly every read begins with, in one query.
SELECT t.thread, {placed_columns}, {columns}, c.manifest, c.crc
FROM thread t
JOIN placed p ON p.tenant = t.tenant AND p.thread = t.thread AND p.ns = :ns AND p.id = (
    SELECT max(q.id) FROM placed q WHERE q.tenant = t.tenant AND q.thread = t.thread AND q.ns = :ns)
LEFT JOIN checkpoint c ON c.tenant = t.tenant AND c.key = (t.thread << 32) + p.step
WHERE t.tenant = :tenant AND t.id = :thread_id

-- name: latest_found (postgres)
SELECT t.thread, {placed_columns}, {columns}, c.manifest, c.crc
FROM thread t
CROSS JOIN LATERAL (
    SELECT q.*, (t.thread << 32) + q.step AS key FROM placed q
    WHERE q.tenant = :tenant AND q.thread = t.thread AND q.ns = :ns ORDER BY q.id DESC LIMIT 1) AS p
LEFT JOIN LATERAL (
    SELECT o.* FROM checkpoint o WHERE o.tenant = :tenant AND o.key = p.key LIMIT 1) AS c ON true
WHERE t.tenant = :tenant AND t.id = :thread_id

-- name: latest_id
-- And whether one of its tasks has asked something: -3 is what such a record counts as.
SELECT p.id, p.step, EXISTS (
    SELECT 1 FROM record r WHERE r.tenant = :tenant AND r.thread = :thread
        AND r.place = length(p.ns) || ':' || p.ns || p.id AND r.idx = -3)
FROM placed p
WHERE p.tenant = :tenant AND p.thread = :thread AND p.ns = :ns ORDER BY p.id DESC LIMIT 1

-- name: placed_within
-- Whether there is any namespace but the root's.
SELECT 1 FROM placed p WHERE p.tenant = :tenant AND p.thread = :thread AND p.ns > '' LIMIT 1

-- name: placed_page
-- All namespaces together, the greatest id first: they are sorted for it.
SELECT {placed_columns} FROM placed p
WHERE p.tenant = :tenant AND p.thread = :thread AND (p.id, p.ns) < (:before, :before_ns)
ORDER BY p.id DESC, p.ns DESC LIMIT :limit

-- name: placed_page_of
SELECT {placed_columns} FROM placed p
WHERE p.tenant = :tenant AND p.thread = :thread AND p.ns = :ns AND p.id < :before ORDER BY p.id DESC LIMIT :limit

-- name: placed_steps
SELECT p.ns, p.id, p.step, p.leans FROM placed p WHERE p.tenant = :tenant AND p.thread = :thread

-- name: placed_of_runs
SELECT t.id, p.step FROM checkpoint c
JOIN thread t ON t.tenant = c.tenant AND t.thread = c.key >> 32
JOIN placed p ON p.tenant = c.tenant AND p.thread = t.thread AND p.step = c.key & 4294967295
WHERE c.tenant = :tenant AND c.run IN ({each_text:runs})

-- By their checkpoints, which have the same ids: there is no index of steps, and a thread may be long.
-- part: placed_at_steps (sqlite)
(SELECT :low + s.item AS key FROM ({each:steps}) AS s) AS k
JOIN checkpoint c ON c.tenant = :tenant AND c.key = k.key
JOIN placed p ON p.tenant = :tenant AND p.thread = :thread AND p.ns = :ns AND p.id = c.id AND p.step = c.key - :low

-- part: placed_at_steps (postgres)
-- Looked up one by one: a join would be planned as a walk through all of the namespace.
(SELECT :low + s.item AS key FROM ({each:steps}) AS s) AS k
CROSS JOIN LATERAL (SELECT o.id, o.key FROM checkpoint o WHERE o.tenant = :tenant AND o.key = k.key LIMIT 1) AS c
CROSS JOIN LATERAL (
    SELECT q.* FROM placed q
    WHERE q.tenant = :tenant AND q.thread = :thread AND q.ns = :ns AND q.id = c.id AND q.step = c.key - :low
    LIMIT 1) AS p

-- name: placed_at
SELECT p.ns, p.id, p.step FROM {placed_at_steps}

-- name: placed_whole
SELECT {placed_columns} FROM {placed_at_steps}

-- name: rows_at (postgres)
SELECT {columns}, c.manifest, c.crc FROM (SELECT :low + s.item AS key FROM ({each:steps}) AS s) AS k
CROSS JOIN LATERAL (SELECT * FROM checkpoint o WHERE o.tenant = :tenant AND o.key = k.key LIMIT 1) AS c

-- name: rows_at (sqlite)
SELECT {columns}, c.manifest, c.crc FROM checkpoint c
WHERE c.tenant = :tenant AND c.key IN (SELECT :low + s.item FROM ({each:steps}) AS s)

-- name: placed_requests
SELECT q.number, q.activation, q.ask FROM request q
WHERE q.tenant = :tenant AND q.thread = :thread AND q.activation >= :low AND q.activation < :high AND q.status = 'open'
ORDER BY q.number

-- name: seat_requests
UPDATE request SET step = :step
WHERE tenant = :tenant AND thread = :thread AND activation >= :low AND activation < :high AND status = 'open'

-- part: asks_already
EXISTS (SELECT 1 FROM record r WHERE r.tenant = t.tenant AND r.thread = t.thread AND r.place = :place AND r.idx = -3)

-- name: place_thread (sqlite)
-- And whether a task of the checkpoint that comes has asked something already.
SELECT t.thread, {last_step}, t.lane, t.updated, (SELECT max(updated) FROM thread WHERE tenant = :tenant), {asks_already}
FROM thread t WHERE t.tenant = :tenant AND t.id = :thread_id

-- name: place_thread (postgres)
SELECT t.thread, t.step, t.lane, 0, 1, {asks_already} FROM thread t WHERE t.tenant = :tenant AND t.id = :thread_id

-- name: count_thread
UPDATE thread SET step = :step, lane = :lane, updated = :updated WHERE tenant = :tenant AND thread = :thread

-- name: grow_lane
UPDATE lane SET tip = :step, unfolded = unfolded + :more
WHERE tenant = :tenant AND thread = :thread AND lane = :lane AND tip = :base RETURNING unfolded

-- name: open_lane
INSERT INTO lane (tenant, thread, lane, tip, unfolded) VALUES (:tenant, :thread, :lane, :step, :more)

-- name: folded_lane
UPDATE lane SET unfolded = 0 WHERE tenant = :tenant AND thread = :thread AND lane = :lane

-- name: place_checkpoint
INSERT INTO checkpoint
    (key, tenant, id, parent, lane, kind, label, run, next, created, metadata, crc, manifest)
VALUES (:key, :tenant, :id, :parent, :lane, :kind, :label, :run, :next, :created, :metadata, :crc, :manifest)

-- name: place_payload
INSERT INTO payload (key, tenant, lane, data) VALUES (:key, :tenant, :lane, :data)

-- name: place
INSERT INTO placed (tenant, thread, ns, id, step, leans, crc, control)
VALUES (:tenant, :thread, :ns, :id, :step, :leans, :crc, :control)
ON CONFLICT ({placed_key}) DO UPDATE
SET step = excluded.step, leans = excluded.leans, crc = excluded.crc, control = excluded.control

-- name: row_crc
SELECT c.crc, c.lane FROM checkpoint c WHERE c.tenant = :tenant AND c.key = :key

-- name: unplace_checkpoint
DELETE FROM checkpoint WHERE tenant = :tenant AND key = :key

-- name: adopt_children
UPDATE checkpoint SET parent = :step
WHERE tenant = :tenant AND key > :low AND key <= :high AND parent = :old

-- name: move_refs
UPDATE ref SET step = :step, lane = 0, unfolded = 0 WHERE tenant = :tenant AND thread = :thread AND step = :old

-- name: forget_tip
DELETE FROM ref WHERE tenant = :tenant AND thread = :thread AND kind = 'auto' AND step = :step

-- name: forget_placed
DELETE FROM placed WHERE tenant = :tenant AND thread = :thread AND step IN ({each:steps})

-- name: forget_placed_records
DELETE FROM record WHERE tenant = :tenant AND thread = :thread AND place IN (
    SELECT length(p.ns) || ':' || p.ns || p.id FROM placed p
    WHERE p.tenant = :tenant AND p.thread = :thread AND p.step IN ({each:steps}))

-- name: delete_thread_placed
DELETE FROM placed WHERE tenant = :tenant AND thread = :thread

-- name: delete_thread_lanes
DELETE FROM lane WHERE tenant = :tenant AND thread = :thread

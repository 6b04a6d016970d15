-- Queries that both backends share. statements.py says how this file is read.
-- Every query names the tenant, also where a key alone would find the row: no key of another tenant may ever answer.

-- part: columns
c.key & 4294967295, c.id, c.parent, c.lane, c.kind, c.label, c.run, c.next, c.created, c.metadata

-- part: owner_columns
o.owner, o.host, o.boot, o.pidns, o.pid, o.started, o.nonce, o.expires - {now}

-- name: thread
SELECT thread FROM thread WHERE tenant = :tenant AND id = :thread_id

-- part: last_step
max(t.step, coalesce((SELECT max(k.key) & 4294967295 FROM checkpoint k
                      WHERE k.key > t.thread << 32 AND k.key < (t.thread + 1) << 32), 0))

-- name: thread_counters (postgres)
SELECT thread, step FROM thread WHERE tenant = :tenant AND id = :thread_id

-- name: thread_counters (sqlite)
SELECT thread, {last_step} FROM thread t WHERE tenant = :tenant AND id = :thread_id

-- name: keep_last_step (sqlite)
UPDATE thread AS t SET step = {last_step} WHERE tenant = :tenant AND thread = :thread

-- name: create_thread
INSERT INTO thread (tenant, id, created, updated) VALUES (:tenant, :thread_id, :created, :created) RETURNING thread

-- name: lock_thread (sqlite)
SELECT thread FROM thread WHERE tenant = :tenant AND thread = :thread

-- name: lock_thread (postgres)
SELECT thread FROM thread WHERE tenant = :tenant AND thread = :thread FOR UPDATE

-- name: head
SELECT t.thread, r.name, r.kind, r.step, r.lane, r.epoch, {owner_columns}, {columns}, c.manifest, c.crc
FROM thread t
JOIN ref r ON r.tenant = t.tenant AND r.thread = t.thread AND r.name = :branch AND r.kind = 'branch'
LEFT JOIN owner o ON o.tenant = t.tenant AND o.owner = r.owner
LEFT JOIN checkpoint c ON c.tenant = t.tenant AND c.key = (t.thread << 32) + r.step
WHERE t.tenant = :tenant AND t.id = :thread_id

-- name: row
SELECT {columns}, c.manifest, c.crc FROM checkpoint c WHERE c.tenant = :tenant AND c.key = :key

-- name: row_exists
SELECT 1 FROM checkpoint WHERE tenant = :tenant AND key = :key

-- name: rows_by_id
-- `beyond` is the first string that does not begin with the prefix. The id that equals it is the smallest.
SELECT {columns}, c.manifest, c.crc FROM checkpoint c
WHERE c.tenant = :tenant AND c.key > :low AND c.key <= :high AND c.id >= :prefix AND c.id < :beyond
ORDER BY c.id, c.key LIMIT :limit

-- name: history
WITH RECURSIVE path (key, id, parent, lane, kind, label, run, next, created, metadata, crc, depth) AS (
    SELECT key, id, parent, lane, kind, label, run, next, created, metadata, crc, 1
    FROM checkpoint WHERE tenant = :tenant AND key = :low + :step
    UNION ALL
    SELECT c.key, c.id, c.parent, c.lane, c.kind, c.label, c.run, c.next, c.created, c.metadata, c.crc, path.depth + 1
    FROM path JOIN checkpoint c ON c.tenant = :tenant AND c.key = :low + path.parent
    WHERE path.depth < :limit
)
SELECT {columns}, c.crc FROM path c ORDER BY c.depth

-- name: rows
SELECT {columns}, c.crc FROM checkpoint c
WHERE c.tenant = :tenant AND c.key > :low + :after AND c.key <= :high ORDER BY c.key LIMIT :limit

-- name: rows_with_manifests
SELECT {columns}, c.manifest, c.crc FROM checkpoint c
WHERE c.tenant = :tenant AND c.key > :low + :after AND c.key <= :high ORDER BY c.key LIMIT :limit

-- name: refs
SELECT r.name, r.kind, r.step, r.lane, r.epoch, {owner_columns}
FROM ref r LEFT JOIN owner o ON o.tenant = r.tenant AND o.owner = r.owner
WHERE r.tenant = :tenant AND r.thread = :thread ORDER BY r.name

-- name: payload
SELECT key, lane, data FROM payload
WHERE tenant = :tenant AND key > :low AND key <= :low + :upto AND lane IN ({each:lanes}) ORDER BY key

-- name: chunks
-- Chunks of one log do not overlap: the first that can hold `start` is the last that begins at or before it.
SELECT key, lane, data FROM chunk
WHERE tenant = :tenant AND thread = :thread AND lane = :lane AND log = :log AND start < :stop AND stop > :start
  AND start >= coalesce((SELECT max(b.start) FROM chunk b WHERE b.tenant = :tenant AND b.thread = :thread
                         AND b.lane = :lane AND b.log = :log AND b.start <= :start), 0)
ORDER BY start

-- name: lane_payload
SELECT key, lane, data FROM payload
WHERE tenant = :tenant AND key > :low AND key <= :high AND lane = :lane ORDER BY key

-- name: lane_tails
SELECT c.key, c.lane, c.data
FROM (SELECT log, max(start) AS start FROM chunk
      WHERE tenant = :tenant AND thread = :thread AND lane = :lane GROUP BY log) AS t
JOIN chunk c ON c.tenant = :tenant AND c.thread = :thread AND c.lane = :lane AND c.log = t.log AND c.start = t.start
WHERE octet_length(c.data) < :small ORDER BY c.key

-- name: payload_page
SELECT key, lane, data FROM payload
WHERE tenant = :tenant AND key > :after AND key > :low AND key <= :high ORDER BY key LIMIT :limit

-- name: chunk_page
SELECT key, lane, data FROM chunk WHERE tenant = :tenant AND thread = :thread AND key > :after ORDER BY key LIMIT :limit

-- name: blob
SELECT data FROM blob WHERE tenant = :tenant AND digest = :digest

-- name: known_blobs
SELECT digest FROM blob WHERE tenant = :tenant AND digest IN ({each_text:digests})

-- name: outside_blobs
SELECT digest FROM blob WHERE tenant = :tenant AND octet_length(data) = 0

-- name: blob_sizes
SELECT b.digest, octet_length(b.data) FROM blob_use u JOIN blob b ON b.tenant = u.tenant AND b.blob = u.blob
WHERE u.tenant = :tenant AND u.thread = :thread

-- part: listed_columns
SELECT t.thread, t.id, t.created, t.updated, {last_step},
    (SELECT count(*) FROM ref r WHERE r.tenant = t.tenant AND r.thread = t.thread AND r.kind = 'branch'),
    c.label, c.metadata,
    EXISTS (SELECT 1 FROM ref r JOIN owner o ON o.tenant = r.tenant AND o.owner = r.owner
            WHERE r.tenant = t.tenant AND r.thread = t.thread AND {live}),
    coalesce((SELECT k.created FROM checkpoint k WHERE k.key > t.thread << 32 AND k.key < (t.thread + 1) << 32
              ORDER BY k.key DESC LIMIT 1), t.updated)

-- part: listed_newest
LEFT JOIN checkpoint c ON c.tenant = t.tenant AND c.key = coalesce(
    (SELECT (r.thread << 32) + r.step FROM ref r
     WHERE r.tenant = t.tenant AND r.thread = t.thread AND r.name = 'main' AND r.kind = 'branch'),
    (SELECT max(k.key) FROM checkpoint k
     WHERE k.tenant = t.tenant AND k.key > t.thread << 32 AND k.key < (t.thread + 1) << 32))

-- name: threads_updated
{listed_columns}
FROM (SELECT * FROM thread WHERE tenant = :tenant AND (updated, id) < (:stamp, :after)
      ORDER BY updated DESC, id DESC LIMIT :limit) AS t
{listed_newest} ORDER BY t.updated DESC, t.id DESC

-- name: threads_created
{listed_columns}
FROM (SELECT * FROM thread WHERE tenant = :tenant AND (created, id) < (:stamp, :after)
      ORDER BY created DESC, id DESC LIMIT :limit) AS t
{listed_newest} ORDER BY t.created DESC, t.id DESC

-- name: threads_id
{listed_columns}
FROM (SELECT * FROM thread WHERE tenant = :tenant AND id > :after ORDER BY id LIMIT :limit) AS t
{listed_newest} ORDER BY t.id

-- part: payload_bytes (sqlite)
(SELECT coalesce(sum(octet_length(data)), 0) FROM payload WHERE tenant = :tenant)

-- part: payload_bytes (postgres)
(SELECT coalesce(sum(octet_length(data)), 0) FROM payload WHERE tenant = :tenant)
        + (SELECT coalesce(sum(octet_length(payload)), 0) FROM checkpoint WHERE tenant = :tenant)

-- name: usage
SELECT
    (SELECT count(*) FROM thread WHERE tenant = :tenant),
    (SELECT count(*) FROM checkpoint WHERE tenant = :tenant),
    (SELECT coalesce(sum(36 + octet_length(id) + octet_length(manifest) + coalesce(octet_length(label), 0)
        + coalesce(octet_length(run), 0) + coalesce(octet_length(next), 0) + coalesce(octet_length(metadata), 0)
        + coalesce(octet_length(save_key), 0)), 0) FROM checkpoint WHERE tenant = :tenant),
    {payload_bytes}
        + (SELECT coalesce(sum(octet_length(value)), 0) FROM record WHERE tenant = :tenant),
    (SELECT coalesce(sum(octet_length(data)), 0) FROM chunk WHERE tenant = :tenant),
    (SELECT count(*) FROM blob WHERE tenant = :tenant AND digest <> 'folder'),
    (SELECT coalesce(sum(octet_length(data)), 0) FROM blob WHERE tenant = :tenant AND digest <> 'folder'),
    (SELECT count(*) FROM item WHERE tenant = :tenant),
    (SELECT coalesce(sum(octet_length(place) + octet_length(key) + octet_length(value)
        + coalesce(octet_length(vectors), 0)), 0) FROM item WHERE tenant = :tenant)

-- name: ref
SELECT r.kind, r.step, r.lane, r.epoch, {owner_columns}
FROM ref r LEFT JOIN owner o ON o.tenant = r.tenant AND o.owner = r.owner
WHERE r.tenant = :tenant AND r.thread = :thread AND r.name = :name

-- name: create_ref
INSERT INTO ref (tenant, thread, name, kind, step) VALUES (:tenant, :thread, :name, :kind, :step)
ON CONFLICT DO NOTHING RETURNING step

-- name: move_ref
UPDATE ref SET step = :step, lane = 0, unfolded = 0
WHERE tenant = :tenant AND thread = :thread AND name = :name RETURNING step

-- name: delete_ref
DELETE FROM ref WHERE tenant = :tenant AND thread = :thread AND name = :name RETURNING name

-- name: take_ref
UPDATE ref SET owner = :owner, epoch = epoch + 1
WHERE tenant = :tenant AND thread = :thread AND name = :name RETURNING epoch

-- name: clear_ref
-- A lease whose owner is dead: nobody holds it, and its epoch has passed.
UPDATE ref SET owner = NULL, epoch = epoch + 1
WHERE tenant = :tenant AND thread = :thread AND name = :name RETURNING epoch

-- name: release_ref
UPDATE ref SET owner = NULL
WHERE tenant = :tenant AND thread = :thread AND name = :name AND epoch = :epoch AND owner = :owner RETURNING epoch

-- name: leased_refs
SELECT r.name, r.epoch, {owner_columns}
FROM ref r JOIN owner o ON o.tenant = r.tenant AND o.owner = r.owner
WHERE r.tenant = :tenant AND r.thread = :thread

-- name: folded
UPDATE ref SET unfolded = 0 WHERE tenant = :tenant AND thread = :thread AND lane = :lane RETURNING name

-- name: create_owner
INSERT INTO owner (tenant, host, boot, pidns, pid, started, nonce, expires)
VALUES (:tenant, :host, :boot, :pidns, :pid, :started, :nonce, {now} + :expiry) RETURNING owner

-- name: beat
UPDATE owner SET expires = {now} + :expiry WHERE tenant = :tenant AND owner = :owner RETURNING owner

-- name: drop_silent_owners
DELETE FROM owner AS o WHERE tenant = :tenant AND NOT ({live})
  AND owner NOT IN (SELECT r.owner FROM ref r WHERE r.tenant = :tenant AND r.owner IS NOT NULL)

-- name: drop_owner
DELETE FROM owner WHERE tenant = :tenant AND owner = :owner

-- name: delete_payload
DELETE FROM payload WHERE tenant = :tenant AND key IN ({each:keys}) RETURNING key

-- name: delete_chunks
DELETE FROM chunk WHERE tenant = :tenant AND key IN ({each:keys}) RETURNING key

-- name: create_chunk
INSERT INTO chunk (tenant, thread, lane, log, start, stop, data)
VALUES (:tenant, :thread, :lane, :log, :start, :stop, :data)

-- name: payload_data
SELECT data FROM payload WHERE tenant = :tenant AND key = :key AND key > :low AND key <= :high

-- name: chunk_data
SELECT data FROM chunk WHERE tenant = :tenant AND key = :key AND thread = :thread

-- part: held
-- The steps that open requests and unfinished runs stand on, or go back to.
SELECT q.step AS step FROM request q
WHERE q.tenant = :tenant AND q.thread = :thread AND q.status = 'open' AND (q.expires IS NULL OR q.expires > {stamp})
UNION ALL SELECT r.step FROM run r WHERE r.tenant = :tenant AND r.thread = :thread
  AND r.status NOT IN ('done', 'failed', 'cancelled', 'dead')
UNION ALL SELECT r.input_step FROM run r WHERE r.tenant = :tenant AND r.thread = :thread
  AND r.status NOT IN ('done', 'failed', 'cancelled', 'dead')
UNION ALL SELECT r.parent_step FROM run r WHERE r.tenant = :tenant AND r.thread = :thread
  AND r.status NOT IN ('done', 'failed', 'cancelled', 'dead')
-- What was before its input: a rollback goes back to that.
UNION ALL SELECT (SELECT c.parent FROM checkpoint c WHERE c.tenant = :tenant AND c.key = (r.thread << 32) + r.input_step)
FROM run r WHERE r.tenant = :tenant AND r.thread = :thread AND r.input_step IS NOT NULL
  AND r.status NOT IN ('done', 'failed', 'cancelled', 'dead')

-- name: held
SELECT DISTINCT h.step FROM ({held}) AS h WHERE h.step IS NOT NULL

-- name: forget
DELETE FROM checkpoint WHERE tenant = :tenant AND key IN (SELECT :low + s.item FROM ({each:steps}) AS s)
  AND key NOT IN (SELECT :low + r.step FROM ref r WHERE r.tenant = :tenant AND r.thread = :thread
                  AND r.kind <> 'auto' AND r.step IS NOT NULL)
  AND key NOT IN (SELECT :low + h.step FROM ({held}) AS h WHERE h.step IS NOT NULL)
RETURNING key & 4294967295

-- name: forget_auto_refs
DELETE FROM ref WHERE tenant = :tenant AND thread = :thread AND kind = 'auto' AND step IN ({each:steps})

-- name: relink
UPDATE checkpoint SET parent = :parent, crc = :crc WHERE tenant = :tenant AND key = :key

-- name: delete_thread_refs
DELETE FROM ref WHERE tenant = :tenant AND thread = :thread

-- name: delete_thread_checkpoints
DELETE FROM checkpoint WHERE tenant = :tenant AND key > :low AND key <= :high

-- name: delete_thread_payload
DELETE FROM payload WHERE tenant = :tenant AND key > :low AND key <= :high

-- name: delete_thread_chunks
DELETE FROM chunk WHERE tenant = :tenant AND thread = :thread

-- name: delete_thread
DELETE FROM thread WHERE tenant = :tenant AND thread = :thread

-- name: delete_thread_blobs
DELETE FROM blob WHERE tenant = :tenant AND blob IN (SELECT blob FROM blob_use WHERE tenant = :tenant AND thread = :thread)
  AND blob NOT IN (SELECT blob FROM blob_use WHERE tenant = :tenant AND thread <> :thread)

-- name: delete_thread_blob_uses
DELETE FROM blob_use WHERE tenant = :tenant AND thread = :thread

-- name: create_blob
INSERT INTO blob (tenant, digest, data) VALUES (:tenant, :digest, :data) ON CONFLICT DO NOTHING

-- name: use_blob
INSERT INTO blob_use (tenant, thread, blob)
SELECT :tenant, :thread, blob FROM blob WHERE tenant = :tenant AND digest = :digest ON CONFLICT DO NOTHING

-- name: drop_blob_uses
DELETE FROM blob_use WHERE tenant = :tenant AND thread = :thread
  AND blob IN (SELECT b.blob FROM blob b WHERE b.tenant = :tenant AND b.digest IN ({each_text:digests}))
RETURNING blob

-- name: drop_unused_blobs
DELETE FROM blob WHERE tenant = :tenant AND blob IN ({each:blobs})
  AND NOT EXISTS (SELECT 1 FROM blob_use u WHERE u.tenant = :tenant AND u.blob = blob.blob)
RETURNING octet_length(data)

-- name: space (sqlite)
SELECT page_count, freelist_count, page_size FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()

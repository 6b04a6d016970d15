-- Records: what tasks have finished with, beside a checkpoint. `put_record`, `set_record` and `drop_records` are changes
-- (changes.py): on PostgreSQL they are functions of the same names.

-- name: put_record (sqlite)
-- Answers whether what is stored now is what was given.
INSERT INTO record VALUES (:thread, :place, :task, :idx, :tenant, :beside, :crc, :path, :name, :value)
ON CONFLICT DO UPDATE SET idx = idx RETURNING name = :name AND value = :value

-- name: put_record (postgres)
SELECT clew.put_record(:tenant, :thread, :step, :beside, :place, :task, :idx, :path, :name, :value, :crc)

-- name: set_record (postgres)
SELECT clew.set_record(:tenant, :thread, :step, :beside, :place, :task, :idx, :path, :name, :value, :crc)

-- name: set_record (sqlite)
INSERT OR REPLACE INTO record VALUES (:thread, :place, :task, :idx, :tenant, :beside, :crc, :path, :name, :value)
RETURNING 1

-- name: drop_records (sqlite)
DELETE FROM record WHERE tenant = :tenant AND thread = :thread AND place = :place

-- name: records (postgres)
-- Place by place: a join would be planned as a walk through all records of the thread.
SELECT r.place, r.task, r.idx, r.path, r.name, r.value, r.step, r.crc FROM ({each_text:places}) AS p
CROSS JOIN LATERAL (
    SELECT * FROM record WHERE tenant = :tenant AND thread = :thread AND place = p.item OFFSET 0) AS r
ORDER BY r.place, r.path, r.task, r.idx

-- name: records (sqlite)
SELECT place, task, idx, path, name, value, step, crc FROM record
WHERE tenant = :tenant AND thread = :thread AND place IN ({each_text:places}) ORDER BY place, path, task, idx

-- name: forget_records
DELETE FROM record WHERE tenant = :tenant AND thread = :thread AND step IN ({each:steps})

-- name: delete_thread_records
DELETE FROM record WHERE tenant = :tenant AND thread = :thread

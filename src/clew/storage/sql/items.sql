-- Queries of the cross-thread store, read together with queries.sql. A range of places is from (:place, :key), not
-- included, up to :high, not included. An item that has expired is not there, whether its row is or not.

-- part: item_columns
i.place, i.key, i.value, i.crc, i.created, i.updated, i.expires, i.words

-- part: item_range
i.tenant = :tenant AND (i.place, i.key) > (:place, :key) AND i.place < :high

-- part: item_there
(i.expires IS NULL OR i.expires > {stamp})

-- part: text_name (sqlite)
-- part: text_given (sqlite)
-- part: text_moved (sqlite)
-- part: item_row (sqlite)
item

-- part: text_name (postgres)
, text
-- part: text_given (postgres)
, array_to_tsvector(:text::text[])
-- part: text_moved (postgres)
, text = excluded.text
-- part: item_row (postgres)
0

-- name: put_item
INSERT INTO item (tenant, place, key, created, updated, expires, ttl, crc, words, fields, embedding, vectors, value
    {text_name})
VALUES (:tenant, :place, :key, {stamp}, {stamp}, {stamp} + CAST(:ttl AS bigint), CAST(:ttl AS bigint), :crc, :words,
    :fields, :embedding, :vectors, :value {text_given})
ON CONFLICT (tenant, place, key) DO UPDATE SET
    created = CASE WHEN item.expires <= {stamp} THEN excluded.created ELSE item.created END,
    updated = excluded.updated, expires = excluded.expires, ttl = excluded.ttl, crc = excluded.crc,
    words = excluded.words, fields = excluded.fields, embedding = excluded.embedding, vectors = excluded.vectors,
    value = excluded.value {text_moved}
RETURNING {item_row}

-- name: get_item
SELECT {item_columns} FROM item i WHERE i.tenant = :tenant AND i.place = :place AND i.key = :key AND {item_there}

-- name: touch_item
UPDATE item SET expires = {stamp} + ttl
WHERE tenant = :tenant AND place = :place AND key = :key AND ttl IS NOT NULL AND expires > {stamp}
RETURNING key

-- name: delete_item
DELETE FROM item WHERE tenant = :tenant AND place = :place AND key = :key
RETURNING {item_row}, expires IS NULL OR expires > {stamp}

-- name: items
SELECT {item_columns} FROM item i WHERE {item_range} AND {item_there} ORDER BY i.place, i.key LIMIT :limit

-- name: items_updated
-- The last written first. The rows are sorted without their values.
SELECT {item_columns} FROM (
    SELECT i.updated, i.place, i.key FROM item i
    WHERE i.tenant = :tenant AND i.place >= :low AND i.place < :high AND {item_there}
      AND (i.updated < :updated OR (i.updated = :updated AND (i.place, i.key) > (:place, :key)))
    ORDER BY i.updated DESC, i.place, i.key LIMIT :limit) AS s
JOIN item i ON i.tenant = :tenant AND i.place = s.place AND i.key = s.key
ORDER BY s.updated DESC, s.place, s.key

-- name: items_embedded
-- Those that nobody wanted to be searched (fields is then the codec's False) are left out.
SELECT {item_columns}, i.embedding, i.vectors FROM item i
WHERE {item_range} AND {item_there} AND (i.fields IS NULL OR i.fields <> :unsearched)
ORDER BY i.place, i.key LIMIT :limit

-- name: items_to_embed
SELECT {item_columns}, i.fields FROM item i
WHERE {item_range} AND {item_there} AND (i.fields IS NULL OR i.fields <> :unsearched)
  AND (i.embedding IS NULL OR i.embedding <> :embedding)
ORDER BY i.place, i.key LIMIT :limit

-- name: embed_item
-- Only while it is what was embedded.
UPDATE item SET embedding = :embedding, vectors = :vectors
WHERE tenant = :tenant AND place = :place AND key = :key AND crc = :crc AND updated = :updated
RETURNING key

-- name: items_by_words (sqlite)
-- The found rows are sorted without their values.
SELECT {item_columns} FROM (
    SELECT i.item, i.words, i.place, i.key FROM item_text f CROSS JOIN item i ON i.item = f.rowid
    WHERE item_text MATCH :match AND i.tenant = :tenant AND i.place >= :low AND i.place < :high AND {item_there}
      AND (i.words, i.place, i.key) > (:words, :place, :key)
    ORDER BY i.words, i.place, i.key LIMIT :limit) AS s
JOIN item i ON i.item = s.item ORDER BY s.words, s.place, s.key

-- name: items_by_words (postgres)
SELECT {item_columns} FROM item i
WHERE i.tenant = :tenant AND i.place >= :low AND i.place < :high AND {item_there}
  AND (i.words, i.place, i.key) > (:words, :place, :key) AND i.text @@ :match::tsquery
ORDER BY i.words, i.place, i.key LIMIT :limit

-- name: item_places
-- The different places of a range, each found from the one before by a step in the index.
WITH RECURSIVE step (place, count) AS (
    SELECT (SELECT i.place FROM item i WHERE i.tenant = :tenant AND i.place >= :low AND i.place > :after
              AND i.place < :high AND {item_there} ORDER BY i.place LIMIT 1), 1
    UNION ALL
    SELECT (SELECT i.place FROM item i WHERE i.tenant = :tenant AND i.place > step.place
              AND i.place < :high AND {item_there} ORDER BY i.place LIMIT 1), step.count + 1
    FROM step WHERE step.place IS NOT NULL AND step.count < :limit
)
SELECT place FROM step WHERE place IS NOT NULL ORDER BY place

-- name: sweep_items (sqlite)
DELETE FROM item WHERE item IN (
    SELECT i.item FROM item i WHERE i.tenant = :tenant AND i.expires <= {stamp} AND i.place >= :low AND i.place < :high
    ORDER BY i.expires LIMIT :limit)
RETURNING item

-- name: sweep_items (postgres)
-- Rows that another transaction holds are left for the next time: sweeping waits for nobody. The CTE is read once; a
-- subquery in its place may be scanned again for each row, and then finds more than its limit.
WITH gone AS MATERIALIZED (
    SELECT s.place, s.key FROM item s
    WHERE s.tenant = :tenant AND s.expires <= {stamp} AND s.place >= :low AND s.place < :high
    ORDER BY s.expires LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM item i USING gone
WHERE i.tenant = :tenant AND i.place = gone.place AND i.key = gone.key
RETURNING 0

-- name: item_text_exists (sqlite)
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'item_text'

-- name: create_item_text (sqlite)
-- Every non-ASCII character belongs to a word here: Clew has separated the words. `@` begins the word that says whose
-- item it is. Neither the texts nor the words' positions are kept.
CREATE VIRTUAL TABLE item_text USING fts5(
    words, content = '', contentless_delete = 1, detail = none, tokenize = "ascii tokenchars '_@'")

-- name: put_item_text (sqlite)
INSERT OR REPLACE INTO item_text (rowid, words) VALUES (:item, :text)

-- name: delete_item_text (sqlite)
DELETE FROM item_text WHERE rowid = :item

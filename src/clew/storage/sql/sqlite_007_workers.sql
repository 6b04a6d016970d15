-- Lines of runs, and what workers count (docs/design/workers.md). A queued run that stands in line has no `wake`.

ALTER TABLE run ADD COLUMN group_key TEXT;                       -- runs of one group share a limit
ALTER TABLE run ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;  -- errors since the last checkpoint
ALTER TABLE run ADD COLUMN stood INTEGER;                        -- the branch's head when it was last taken up
ALTER TABLE run ADD COLUMN grace INTEGER NOT NULL DEFAULT 0;     -- so long it is left to whoever admitted it

DROP INDEX run_wake;
CREATE INDEX run_up ON run (tenant, agent, priority, wake, seq) WHERE wake IS NOT NULL;
CREATE INDEX run_line ON run (tenant, thread, branch, priority, seq) WHERE status = 'queued';
CREATE INDEX run_group ON run (tenant, group_key, priority, seq) WHERE status = 'queued' AND group_key IS NOT NULL;

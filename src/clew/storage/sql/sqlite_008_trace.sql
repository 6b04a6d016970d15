-- What a run is called in a trace, so that whoever carries it on goes on with that one (docs/design/telemetry.md).
ALTER TABLE run ADD COLUMN trace TEXT;

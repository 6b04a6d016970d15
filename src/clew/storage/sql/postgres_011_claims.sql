-- The name of a thread, as it stands now. A claim that selects it in its own statement would look with the snapshot that
-- the statement began with: a run of a thread that was made since, which the function within has found, had none.

CREATE FUNCTION clew.thread_name(p_tenant integer, p_thread bigint) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT t.id FROM clew.thread t WHERE t.tenant = p_tenant AND t.thread = p_thread);
END $$;
REVOKE ALL ON FUNCTION clew.thread_name FROM PUBLIC;

ALTER FUNCTION clew.grant_to(name) RENAME TO grant_before_claims_to;
CREATE FUNCTION clew.grant_to(role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM clew.grant_before_claims_to(role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION clew.thread_name TO %I', role);
END $$;
REVOKE ALL ON FUNCTION clew.grant_to FROM PUBLIC;

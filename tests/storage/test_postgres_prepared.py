"""Statements that connections have prepared: named by what they say, and missed by nobody where they are lost."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from postgres_sessions import PassedAround
from postgres_steps import step
from psycopg.conninfo import make_conninfo

import clew
from clew.errors import BadInput, ClewError
from clew.storage.changes import Record, put_record
from clew.storage.postgres import PostgresEngine, PostgresStorage
from clew.storage.postgres_prepared import Preparing
from clew.storage.queue import Beside
from clew.submitting import submit
from clew.testing.postgres import TestDatabase

STEPS = 12


@pytest.fixture
def storage(postgres: TestDatabase) -> Any:
    engine = PostgresEngine(postgres.url)
    yield engine.tenant("acme")
    engine.close()


def grow(storage: PostgresStorage, thread: str = "t", head: Any = None) -> Any:
    for _ in range(STEPS):
        head = storage.commit(step(head, thread_id=thread))
    return head


def prepared(storage: PostgresStorage) -> list[tuple[str, int]]:
    with storage._engine.connection() as connection:
        found = connection.execute("SELECT name, generic_plans + custom_plans FROM pg_prepared_statements").fetchall()
    return [(str(name), int(used)) for name, used in found]


def test_what_is_run_again_and_again_is_prepared(storage: PostgresStorage) -> None:
    grow(storage)
    ((name, used),) = prepared(storage)
    assert name.startswith("clew_")
    assert used == STEPS - 2


def test_sessions_that_forget_are_noticed_and_nothing_is_lost(storage: PostgresStorage) -> None:
    head = grow(storage)
    with storage._engine.connection() as connection:
        connection.execute("DEALLOCATE ALL")
    assert grow(storage, head=head).step == 2 * STEPS
    assert not storage._engine._preparing.allowed
    assert prepared(storage) == []


def test_that_would_fail_if_it_were_not_noticed(storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Preparing, "refused", lambda *_: False)
    head = grow(storage)
    with storage._engine.connection() as connection:
        connection.execute("DEALLOCATE ALL")
    with pytest.raises(ClewError, match="does not exist"):
        grow(storage, head=head)


@pytest.mark.parametrize("forgets", [True, False])
def test_behind_a_pooler_that_gives_each_call_another_session(postgres: TestDatabase, forgets: bool) -> None:
    engine = PostgresEngine(postgres.url)
    storage = engine.tenant("acme")
    engine._pool.close()
    sessions: Any = PassedAround(postgres.url, engine, forgets=forgets)
    engine._pool = sessions
    assert grow(storage).step == STEPS
    assert not engine._preparing.allowed
    with storage.snapshot() as snapshot:
        thread = snapshot.find_thread("t")
        assert thread is not None
        assert [row.step for row in snapshot.history(thread, STEPS, 99)] == list(range(STEPS, 0, -1))
    engine.close()


def test_a_session_in_which_another_client_has_prepared_the_same(storage: PostgresStorage) -> None:
    grow(storage)
    with storage._engine.connection() as connection:
        calls: Any = connection.calls  # type: ignore[attr-defined]
        calls._known.clear()  # this client has not, and finds the name taken
    grow(storage, "other")
    assert not storage._engine._preparing.allowed


def test_what_the_statements_of_others_have_lost_is_theirs(postgres: TestDatabase) -> None:
    """It is tried once more, for it may have been ours; and not for ever."""
    calls = []

    def act(connection: Any) -> None:
        calls.append(1)
        assert len(calls) < 9
        connection.execute("EXECUTE something_of_theirs")

    with clew.open(postgres.url) as db:
        with pytest.raises(ClewError, match="something_of_theirs"):
            submit(db, db._room.ledger, clew.Agent("trip"), "t", beside=lambda _: Beside(act))
        assert len(db.runs()) == 0


def test_a_function_that_answers_differently_now_is_noticed(storage: PostgresStorage, postgres: TestDatabase) -> None:
    """As after a migration. What the server says of it is in its own language."""
    engine = storage._engine

    def asked() -> int:
        return int(engine.call(b"SELECT clew.tenant_key(%s)", ("acme",))[0])

    before = [asked() for _ in range(4)]
    with psycopg.connect(postgres.owner_url) as owner:
        owner.execute("ALTER FUNCTION clew.tenant_key RENAME TO old_key")
        owner.execute(
            "CREATE FUNCTION clew.tenant_key(wanted text) RETURNS bigint LANGUAGE sql AS 'SELECT clew.old_key(wanted)'"
        )
        owner.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA clew TO PUBLIC")
    assert [asked(), asked()] == before[:2]
    assert not engine._preparing.allowed


@pytest.mark.parametrize("encoding", ["utf8", "latin1"])
def test_texts_are_the_same_in_any_encoding_of_the_connection(postgres: TestDatabase, encoding: str) -> None:
    """Those that the driver sends, and those that go to a prepared statement."""
    engine = PostgresEngine(make_conninfo(postgres.url, client_encoding=encoding))
    storage = engine.tenant("acme")
    assert grow(storage, "à la carte").step == STEPS
    engine.close()
    engine = PostgresEngine(postgres.url)
    with engine.tenant("acme").snapshot() as snapshot:
        assert snapshot.find_thread("à la carte") is not None
    engine.close()


TEXTS = ["", "'", '"', "\\", "{a,b}", "NULL", "%s $1", "ä€😀", " x ", "\n\t"]
REFUSED = ["a\0b", "\ud800"]


def noted(number: int, text: str) -> list[Any]:
    return [put_record(Record(f"p{number}", "t", 0, "", text, text.encode(errors="replace"), None, 0))]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_texts_arrive_as_they_are(storage: PostgresStorage, text: str) -> None:
    """Often enough that the first are sent by the driver, and the others to a prepared statement."""
    head = None
    for number in range(6):
        head = storage.commit(step(head, changes=noted(number, text)))
        with storage.snapshot() as snapshot:
            ((_, _, _, _, name, value, *_),) = snapshot.records(head.thread, [f"p{number}"])
        assert (name, bytes(value)) == (text, text.encode())


@pytest.mark.parametrize("text", REFUSED, ids=ascii)
@pytest.mark.parametrize("before", [0, 6])
def test_texts_that_cannot_be_stored_are_bad_input(storage: PostgresStorage, text: str, before: int) -> None:
    head = None
    for number in range(before):
        head = storage.commit(step(head, changes=noted(number, "fine")))
    with pytest.raises(BadInput):
        storage.commit(step(head, changes=noted(99, text)))
    assert storage.commit(step(head)).step == before + 1


def test_lists_of_texts_arrive_as_they_are(postgres: TestDatabase) -> None:
    with clew.open(postgres.url) as db:
        agents = [clew.Agent(name) for name in TEXTS if name.strip() == name and name.isprintable() and name]
        for agent in agents:
            agent.node(lambda _: {}, name="only")
        for turn in range(5):
            for agent in agents:
                db.submit(agent, f"{turn}")
            worker = clew.Worker(db, agents, concurrency=1)
            worker.run(until_idle=True)
            assert worker.outcomes["done"] == len(agents)

"""`clew.transaction`: effects on the user's own tables, exactly once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import apsw
import psycopg
import pytest

import clew
from clew.errors import BadInput, EffectConflict, NoRun
from clew.storage.ledger import ledger_of
from clew.testing.outside import Fault, Outside, say
from clew.testing.points import storage_calls
from outsiders import Ground


class Trip(TypedDict, total=False):
    log: Annotated[list[Any], clew.extend]


@pytest.fixture
def seats(request: pytest.FixtureRequest, url: str, db: clew.Database) -> Callable[[], list[str]]:
    """A table of the user's own; returns what is in it."""
    if not url.startswith("postgres"):
        with db._engine.transaction() as execute:  # type: ignore[union-attr]
            execute("CREATE TABLE seats (seat TEXT PRIMARY KEY)")

        def sqlite() -> list[str]:
            with db._engine.reader() as execute:  # type: ignore[union-attr]
                return [row[0] for row in execute("SELECT seat FROM seats ORDER BY seat")]

        return sqlite
    admin = request.getfixturevalue("postgres").admin_url
    make_seats(admin)

    def rows() -> list[str]:
        with psycopg.connect(admin) as connection:
            return [row[0] for row in connection.execute("SELECT seat FROM public.seats ORDER BY seat")]

    return rows


def make_seats(admin: str) -> None:
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.seats (seat text PRIMARY KEY)")
        connection.execute("GRANT ALL ON public.seats TO PUBLIC")
        connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")


def insert(connection: Any, seat: str) -> None:
    mark = "?" if isinstance(connection, apsw.Connection) else "%s"
    connection.execute(f"INSERT INTO seats VALUES ({mark})", (seat,))


def taking(after: Any = None, **options: Any) -> tuple[clew.Agent, Any]:
    @clew.transaction(key=lambda seat, note="": ("seat", seat), **options)
    def take(connection: Any, seat: str, note: str = "") -> str:
        insert(connection, seat)
        if after is not None:
            after(connection)
        return f"{seat} is yours"

    agent = clew.Agent("seats", state=Trip)

    @agent.node
    def node(state: Trip) -> Any:
        return {"log": [take("12A"), take("12A")]}

    return agent, take


def test_what_it_writes_and_that_it_was_done_are_one_commit(
    thread: clew.Thread, db: clew.Database, seats: Callable[[], list[str]]
) -> None:
    agent, _ = taking()
    assert agent.run(thread).state["log"] == ["12A is yours", "12A is yours"]
    assert agent.run(thread).state["log"][2:] == ["12A is yours", "12A is yours"]
    assert seats() == ["12A"]
    (row,) = ledger_of(db._storage).effects("trip-7")
    assert (row.key, row.state) == ("('seat', '12A')", "done")


def test_an_exception_undoes_both_and_is_the_callers(
    thread: clew.Thread, db: clew.Database, seats: Callable[[], list[str]]
) -> None:
    fails: list[Exception] = [KeyError("no such seat")]

    def after(connection: Any) -> None:
        if fails:
            raise fails.pop()

    agent, _ = taking(after)
    with pytest.raises(KeyError, match="no such seat"):
        agent.run(thread)
    assert (seats(), ledger_of(db._storage).effects("trip-7")) == ([], [])
    assert agent.resume(thread).state["log"] == ["12A is yours"] * 2
    assert seats() == ["12A"]


def test_errors_of_its_own_statements_are_the_drivers(thread: clew.Thread, seats: Callable[[], list[str]]) -> None:
    agent, _ = taking(lambda connection: insert(connection, "12A"))
    with pytest.raises((apsw.ConstraintError, psycopg.errors.UniqueViolation)):
        agent.run(thread)
    assert seats() == []
    thread._db.thread("other").save({"n": 1})


def test_other_arguments_under_its_key_are_a_conflict(thread: clew.Thread, seats: Callable[[], list[str]]) -> None:
    agent, take = taking()
    agent.run(thread)
    again = clew.Agent("again")
    again.node(name="node")(lambda state: {"n": take("12A", note="window")})
    with pytest.raises(EffectConflict):
        again.run(thread)


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "COMMIT; BEGIN"])
def test_it_cannot_end_the_transaction(
    thread: clew.Thread, seats: Callable[[], list[str]], db: clew.Database, statement: str
) -> None:
    agent, _ = taking(lambda connection: connection.execute(statement))
    with pytest.raises((BadInput, clew.errors.StorageError, psycopg.Error)):
        agent.run(thread)
    db.thread("other").save({"n": 1})
    assert db.thread("other").state() == {"n": 1}


def test_it_cannot_change_what_is_clews_on_sqlite(
    thread: clew.Thread, seats: Callable[[], list[str]], url: str, db: clew.Database
) -> None:
    if url.startswith("postgres"):
        agent, _ = taking(lambda connection: connection.execute("DELETE FROM run"))
        with pytest.raises(psycopg.errors.UndefinedTable):  # its own search path, not Clew's
            agent.run(thread)
        return
    for statement in ("DELETE FROM run", "UPDATE effect SET state = 'done'", "DROP TABLE item", "ATTACH 'x' AS y"):
        agent, _ = taking(lambda connection, statement=statement: connection.execute(statement))
        with pytest.raises(BadInput, match="Clew's own tables"):
            agent.run(db.thread(statement))
    assert seats() == []


def test_it_has_so_many_seconds(thread: clew.Thread, seats: Callable[[], list[str]], url: str) -> None:
    counts = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    statement = "SELECT pg_sleep(30)" if url.startswith("postgres") else counts
    agent, _ = taking(lambda connection: connection.execute(statement).fetchone(), timeout=0.1)
    with pytest.raises(TimeoutError, match=r"took longer than 0\.1 s"):
        agent.run(thread)
    agent, _ = taking(lambda connection: time.sleep(0.15), timeout=0.1)
    with pytest.raises((TimeoutError, psycopg.OperationalError, clew.errors.StorageError)):
        agent.resume(thread)
    assert seats() == []
    agent, _ = taking()
    assert agent.resume(thread).status == "done"


def test_no_other_function_of_clew_within(
    thread: clew.Thread, seats: Callable[[], list[str]], db: clew.Database
) -> None:
    @clew.effect(key="inner")
    def inner() -> None: ...

    for number, call in enumerate((inner, lambda: clew.ask("?"), lambda: clew.sleep(1))):
        agent, _ = taking(lambda connection, call=call: call())
        with pytest.raises(BadInput, match="within the transaction 'take"):
            agent.run(db.thread(f"t{number}"))
    assert seats() == []


def test_nodes_side_by_side_share_one(thread: clew.Thread, seats: Callable[[], list[str]]) -> None:
    _, take = taking()
    agent = clew.Agent("both", state=Trip)
    begun = threading.Barrier(3)
    for name in ("one", "two", "three"):

        @agent.node(name=name, start=True)
        def node(state: Trip) -> Any:
            begun.wait(10)
            return {"log": [take("1B")]}

    assert agent.run(thread).state["log"] == ["1B is yours"] * 3
    assert seats() == ["1B"]


def test_from_an_asynchronous_node(thread: clew.Thread, seats: Callable[[], list[str]]) -> None:
    _, take = taking()
    agent = clew.Agent("async", state=Trip)

    @agent.node
    async def node(state: Trip) -> Any:
        return {"log": [await asyncio.to_thread(take, "1B"), take("1B")]}

    assert agent.run(thread).state["log"] == ["1B is yours"] * 2


def test_it_is_undone_in_a_transaction(thread: clew.Thread, seats: Callable[[], list[str]], db: clew.Database) -> None:
    def give_back(connection: Any, result: str, seat: str, note: str = "") -> None:
        assert result == f"{seat} is yours"
        mark = "?" if isinstance(connection, apsw.Connection) else "%s"
        connection.execute(f"DELETE FROM seats WHERE seat = {mark}", (seat,))

    _, take = taking(compensate=give_back)
    agent = clew.Agent("asks")
    agent.node(name="node")(lambda state: {"log": [take("1B"), clew.ask("?")]})
    assert agent.run(thread).status == "waiting"
    assert seats() == ["1B"]
    assert agent.cancel(thread, compensate=True).status == "cancelled"
    assert seats() == []
    assert agent.run(thread).status == "waiting"
    assert seats() == ["1B"]


def test_on_a_fork_it_is_compared(thread: clew.Thread, seats: Callable[[], list[str]]) -> None:
    _, take = taking()
    agent = clew.Agent("seats")
    agent.node(name="node")(lambda state: {"got": take(state["seat"])})
    agent.run(thread, {"seat": "1A"})
    fork = thread.fork(1, branch="other", update={"seat": "1B"})
    run = agent.resume(fork)
    assert run.status == "waiting"
    assert seats() == ["1A"]
    run.requests[0].answer("again", by="alice")
    assert agent.resume(fork).state["got"] == "1B is yours"
    assert seats() == ["1A", "1B"]


def test_bad_declarations() -> None:
    async def later(connection: Any) -> None: ...

    for wrong, words in ((later, "not a plain function"), (lambda: 1, "takes no connection"), (7, "takes a function")):
        with pytest.raises(BadInput, match=words):
            clew.transaction(wrong, key="k")  # type: ignore[call-overload]
    for timeout in (0, -1, 61, "5"):
        with pytest.raises(BadInput, match="timeout is a number"):
            clew.transaction(lambda connection: 1, key="k", timeout=timeout)  # type: ignore[arg-type]
    _, take = taking()
    with pytest.raises(NoRun, match="outside of a run"):
        take("1A")


# -- killed


@pytest.fixture(params=["file", "postgres"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    if request.param == "file":
        ground = Ground(str(tmp_path / "agent.db"), None)
        ground.execute("CREATE TABLE seats (seat TEXT PRIMARY KEY)")
        return ground
    postgres = request.getfixturevalue("postgres")
    make_seats(postgres.admin_url)
    return Ground(postgres.url, postgres.admin_url)


def apart(ground: Ground) -> clew.Agent:
    """The negative control: an effect, whose own transaction ends before it is noted that it was done."""
    seats = "public.seats" if ground.on_postgres else "seats"

    @clew.effect(key="seat")
    def take() -> str:
        ground.execute(f"INSERT INTO {seats} VALUES ('12A')")
        say("within")
        return "12A is yours"

    agent = clew.Agent("seats", state=Trip)
    agent.node(name="node")(lambda state: {"log": [take(), take()]})
    return agent


def killed(ground: Ground, fault: Fault, make: Callable[[], clew.Agent]) -> tuple[Any, list[Any]]:
    """What the run comes to, killed once, and the seats that are taken then."""

    def go() -> Any:
        with (
            storage_calls(lambda name: say(f"storing:{name}"), lambda name: say(f"stored:{name}")),
            ground.open() as db,
        ):
            thread = db.thread("trip-7")
            try:
                run = make().resume(thread)
            except clew.errors.NotFound:
                run = make().run(thread)
            return run.status, run.state.get("log")

    with Outside() as outside:
        ended = outside.live(go, fault)
        found = ended.value if ended.how == "returned" else outside.live(go).value
        assert ground.free()
        seats = "public.seats" if ground.on_postgres else "seats"
        taken = ground.execute(f"SELECT seat FROM {seats}")
        ground.execute(f"DELETE FROM {seats}")
        outside.live(lambda: ground.open().delete("trip-7"))
    return found, taken


def test_killed_anywhere_it_is_done_once(ground: Ground, long: bool) -> None:
    """Nothing is asked: what was not committed was not done."""
    faults = [Fault("within")]
    faults += [Fault(when, number) for when in ("storing", "stored") for number in range(1, 12, 1 if long else 2)]
    for fault in faults:
        found, taken = killed(ground, fault, lambda: taking(lambda connection: say("within"))[0])
        assert (found, taken) == (["done", ["12A is yours"] * 2], [("12A",)]), fault


def test_the_control_has_to_ask(ground: Ground) -> None:
    """Whether what an effect has written was written, nobody knows."""
    assert killed(ground, Fault("never"), lambda: apart(ground))[0] == ["done", ["12A is yours"] * 2]
    assert killed(ground, Fault("within"), lambda: apart(ground)) == (["waiting", None], [("12A",)])

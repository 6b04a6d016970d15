"""The outside world of the fault tests does what it says: it counts, orders, kills and stops exactly at a word."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

import clew
from clew.testing.outside import Fault, Order, Outside, do, say
from clew.testing.points import storage_calls


def pay() -> str:
    say("begin:pay")
    receipt = do("charge")
    say("end:pay")
    return receipt


def both() -> None:
    """Two threads; each says that it has begun and ended."""

    def side(name: str) -> None:
        say(f"begin:{name}")
        say(f"end:{name}")

    threads = [threading.Thread(target=side, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_words_are_heard_in_order_and_what_was_done_is_counted() -> None:
    with Outside() as outside:
        assert outside.live(pay) == ("returned", "answer to do:charge")
        assert outside.words() == ["begin:pay", "do:charge", "end:pay"]
        outside.live(pay)
        assert outside.done == ["charge", "charge"]
        assert [heard.process for heard in outside.heard] == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("fault", "heard"),
    [
        (Fault("begin:pay"), ["begin:pay"]),
        (Fault("do"), ["begin:pay", "do:charge"]),
        (Fault("end:pay", after="do:charge"), ["begin:pay", "do:charge", "end:pay"]),
    ],
)
def test_a_kill_falls_at_its_word(fault: Fault, heard: list[str]) -> None:
    with Outside() as outside:
        assert outside.live(pay, fault).how == "killed"
        assert outside.words() == heard
        assert fault.struck


def test_a_fault_counts_over_processes_and_strikes_once() -> None:
    fault = Fault("do:charge", 2)
    with Outside() as outside:
        ended = [outside.live(pay, fault).how for _ in range(3)]
    assert ended == ["returned", "killed", "returned"]


def test_control_without_the_word_nobody_is_killed() -> None:
    fault = Fault("do:charges")
    with Outside() as outside:
        assert outside.live(pay, fault).how == "returned"
    assert not fault.struck


def test_a_stopped_process_goes_on_where_it_was() -> None:
    with Outside() as outside:
        process = outside.start(pay, Fault("do:charge", signal=signal.SIGSTOP))
        assert outside.wait(process).how == "stopped"
        outside.live(pay)
        assert outside.go_on(process).how == "returned"
        assert [heard.process for heard in outside.heard] == [1, 1, 2, 2, 2, 1]


def test_a_late_answer_is_a_timeout_of_what_was_done() -> None:
    def work() -> str:
        try:
            return pay()
        except TimeoutError:
            return "late"

    with Outside() as outside:
        assert outside.live(work, Fault("do:charge", signal=None)).value == "late"
        assert outside.done == ["charge"]


def test_an_order_decides_between_threads() -> None:
    for first, second in (("one", "two"), ("two", "one")):
        with Outside([Order(f"begin:{second}", f"end:{first}")]) as outside:
            assert outside.live(both).how == "returned"
            assert outside.words().index(f"end:{first}") < outside.words().index(f"end:{second}")


def test_what_a_process_raises_or_does_to_itself_is_told() -> None:
    def raises() -> None:
        raise ValueError("no such trip")

    with Outside() as outside:
        ended = outside.live(raises)
        assert ended.how == "raised"
        assert "no such trip" in ended.value
        assert outside.live(lambda: os._exit(3)).how == "killed"


def test_a_process_that_never_ends_is_ended() -> None:
    with Outside(patience=0.2) as outside:
        assert outside.live(lambda: threading.Event().wait()).how == "stuck"


def test_every_writing_call_of_the_storage_is_a_point(tmp_path: Path) -> None:
    def save() -> None:
        with (
            storage_calls(lambda name: say(f"storing:{name}"), lambda name: say(f"stored:{name}")),
            clew.open(str(tmp_path / "a.db")) as db,
        ):
            with db.thread("trip").edit("reply") as state:
                state["paid"] = True
            db.store().put(("prefs",), "theme", {"value": "dark"})

    with Outside() as outside:
        assert outside.live(save) == ("returned", None)
        assert outside.words() == [
            *("storing:acquire", "stored:acquire", "storing:commit", "stored:commit", "storing:put", "stored:put")
        ]
    save()  # nothing stays wrapped: nobody listens here


def test_a_kill_before_a_call_leaves_nothing_and_one_after_it_leaves_it(tmp_path: Path) -> None:
    def save() -> None:
        with storage_calls(lambda name: say(f"storing:{name}"), lambda name: say(f"stored:{name}")):
            clew.open(str(tmp_path / "a.db")).thread("trip").save({"paid": True})

    def state() -> object:
        return clew.open(str(tmp_path / "a.db")).thread("trip").state()

    with Outside() as outside:
        assert outside.live(save, Fault("storing:commit")).how == "killed"
        assert outside.live(state).value == {}
        assert outside.live(save, Fault("stored:commit")).how == "killed"
        assert outside.live(state).value == {"paid": True}


def test_the_points_are_all_calls_of_the_ports_that_write() -> None:
    """A new method of a port is either a read or a point: whoever adds it decides."""
    from clew.testing import points

    for port in points.PORTS:
        public = {name for name in dir(port) if not name.startswith("_") and callable(getattr(port, name))}
        assert public <= points.WRITES | points.READS, port

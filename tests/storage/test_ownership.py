"""Who a process is, and when its leases pass on."""

import os
import subprocess
import sys
import threading

from clew.storage.ownership import Heartbeat, OwnerRow, boot_id, clock, is_live, start_time, this_process


def row(me, remaining=1, **other):
    return OwnerRow(1, *me, remaining)._replace(**other)


def test_a_process_knows_itself():
    me, again = this_process(), this_process()
    assert me.pid == os.getpid()
    assert me.started == start_time(os.getpid())
    assert me.boot == boot_id()
    assert me[:-1] == again[:-1]
    assert me.nonce != again.nonce


def test_a_living_process_is_judged_by_its_silence():
    me = this_process()
    assert is_live(row(me, 1), me, boot_clock=True)
    assert not is_live(row(me, 0), me, boot_clock=True)


def test_a_process_that_ended_is_dead_at_once():
    me = this_process()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        other = row(me, 10**12, pid=process.pid, started=start_time(process.pid))
        assert is_live(other, me, boot_clock=True)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert start_time(process.pid) is None, "ended, though nobody has collected it yet"
        assert not is_live(other, me, boot_clock=True)
    assert not is_live(other, me, boot_clock=True)


def test_a_number_that_was_given_again_is_another_process():
    me = this_process()
    assert not is_live(row(me, 10**12, started=me.started + 1), me, boot_clock=True)


def test_of_a_foreign_process_only_the_silence_counts():
    me = this_process()
    for other in ({"pidns": 1}, {"host": "elsewhere"}):
        gone = row(me, 1, pid=2**22 + 1, **other)
        assert is_live(gone, me, boot_clock=True)
        assert not is_live(gone._replace(remaining=0), me, boot_clock=True)


def test_another_boot_is_over_only_where_the_clock_is_the_boots():
    me = this_process()
    other = row(me, 1, boot="another")
    assert not is_live(other, me, boot_clock=True)
    assert is_live(other, me, boot_clock=False)


def test_the_clock_does_not_go_back():
    stamps = [clock() for _ in range(100)]
    assert stamps == sorted(stamps)


class Beating:
    def __init__(self):
        self.beats = 0
        self.enough = threading.Event()

    def beat(self):
        self.beats += 1
        if self.beats >= 3:
            self.enough.set()


def test_a_heart_beats_while_something_is_held_and_stops_at_once():
    beating = Beating()
    heart = Heartbeat(beating.beat, 0.001)
    heart.hold()
    assert beating.enough.wait(30)
    heart.drop()
    heart.hold()
    thread = heart._thread
    heart.stop()
    assert not thread.is_alive()


def test_an_idle_heart_sleeps_and_wakes():
    beating = Beating()
    heart = Heartbeat(beating.beat, 0.0001)
    heart.hold()
    heart.drop()
    while not heart._sleeping:
        heart._thread.join(0.001)
    before = beating.beats
    heart.hold()
    beating.enough.clear()
    beating.beats = 0
    assert beating.enough.wait(30)
    assert before <= 11
    heart.stop()


def test_an_immediate_stop_does_not_wait_for_a_beat():
    beating = Beating()
    heart = Heartbeat(beating.beat, 3600)
    heart.hold()
    heart.stop()
    assert not heart._thread.is_alive()

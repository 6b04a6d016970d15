"""Effects: a claim before the call, a result by its token. Numbers in names are the promises of ledger.py."""

from __future__ import annotations

import pytest
from ledgers import new_effect, new_run, pages

from clew.errors import Corrupt, EffectConflict, Fenced, ThreadNotFound
from clew.storage.ledger import Complete, Move, Start
from clew.testing.storage_steps import change


@pytest.fixture
def lease(storage):
    return storage.acquire("trip", "main")


def test_4_one_claim_is_mine(ledger, lease):
    mine = ledger.claim("trip", "main", new_effect(shown=b"args", run="r1", activation="a1", step=1), lease=lease)
    assert mine.mine
    assert (mine.row.state, mine.row.attempt, mine.row.shown, mine.row.epoch) == ("claimed", 1, b"args", lease.epoch)
    other = ledger.claim("trip", "main", new_effect(), lease=lease)
    assert other == (mine.row, False)


def test_4_asking_again_for_the_same_claim_is_no_second_one(ledger, lease):
    effect = new_effect()
    first = ledger.claim("trip", "main", effect, lease=lease)
    assert ledger.claim("trip", "main", effect, lease=lease) == first
    ledger.complete("trip", Complete(effect.key, effect.token, "done", b"42"))
    assert ledger.claim("trip", "main", effect, lease=lease).mine is False


def test_a_result_is_seen_by_whoever_claims_next(ledger, lease):
    effect = new_effect()
    ledger.claim("trip", "main", effect, lease=lease)
    assert ledger.complete("trip", Complete(effect.key, effect.token, "done", b"42"))
    seen = ledger.claim("trip", "main", new_effect(), lease=lease)
    assert (seen.mine, seen.row.state, seen.row.value) == (False, "done", b"42")


@pytest.mark.parametrize("other", [{"name": "refund"}, {"args": b"421"}])
def test_another_call_under_the_same_key_is_refused(ledger, lease, other):
    ledger.claim("trip", "main", new_effect(), lease=lease)
    with pytest.raises(EffectConflict, match="charge"):
        ledger.claim("trip", "main", new_effect(**other), lease=lease)
    assert len(ledger.effects("trip")) == 1


def test_a_key_is_the_threads_own(ledger, storage, lease):
    storage.commit(change(thread_id="tour"))
    ledger.claim("trip", "main", new_effect(), lease=lease)
    assert ledger.claim("tour", "main", new_effect(), lease=None).mine
    with pytest.raises(ThreadNotFound):
        ledger.claim("none", "main", new_effect(), lease=None)
    with pytest.raises(Fenced):
        ledger.claim("trip", "main", new_effect("x"), lease=lease._replace(epoch=lease.epoch - 1))


def test_a_failed_claim_is_made_anew(ledger, lease):
    first, second = new_effect(), new_effect()
    ledger.claim("trip", "main", first, lease=lease)
    ledger.complete("trip", Complete(first.key, first.token, "failed", b"refused"))
    again = ledger.claim("trip", "main", second, lease=lease)
    assert (again.mine, again.row.attempt) == (True, 2)


def test_5_a_claim_that_nobody_stands_behind_is_unknown(ledger, storage, lease):
    effect = new_effect()
    ledger.claim("trip", "main", effect, lease=lease)
    fork_sees = ledger.claim("trip", "osaka", new_effect(), lease=None)
    assert fork_sees.row.state == "claimed", "its lease lives: it is under way"
    storage.release(lease)
    later = storage.acquire("trip", "main")
    seen = ledger.claim("trip", "main", new_effect(), lease=later)
    assert (seen.mine, seen.row.state) == (False, "unknown")
    assert ledger.effects("trip")[0].state == "unknown"
    assert not ledger.claim("trip", "main", new_effect(), lease=later).mine, "and is not called by asking twice"
    assert not ledger.claim("trip", "main", new_effect(again="none"), lease=later).mine
    again = ledger.claim("trip", "main", new_effect(again=effect.token), lease=later)
    assert (again.mine, again.row.attempt) == (True, 2)


def test_5_without_a_lease_nobody_stands_behind_it(ledger):
    ledger.claim("trip", "main", new_effect(), lease=None)
    assert ledger.claim("trip", "main", new_effect(), lease=None).row.state == "unknown"


def test_5_a_late_result_is_a_fact(ledger, storage, lease):
    effect, other = new_effect(), new_effect(again=None)
    ledger.claim("trip", "main", effect, lease=lease)
    storage.release(lease)
    later = storage.acquire("trip", "main")
    ledger.claim("trip", "main", new_effect(), lease=later)
    other = new_effect(again=effect.token)
    assert ledger.claim("trip", "main", other, lease=later).mine
    assert ledger.complete("trip", Complete(effect.key, effect.token, "done", b"late"))
    assert ledger.complete("trip", Complete(other.key, other.token, "done", b"again"))
    facts = [(row.attempt, row.state, row.value) for row in ledger.effects("trip")]
    assert facts == [(1, "done", b"late"), (2, "done", b"again")]


def test_5_what_is_claimed_and_under_way_is_not_claimed_by_name(ledger, lease):
    effect = new_effect()
    ledger.claim("trip", "main", effect, lease=lease)
    assert not ledger.claim("trip", "main", new_effect(again=effect.token), lease=lease).mine


def test_a_fact_is_not_undone(ledger, lease):
    effect = new_effect()
    ledger.claim("trip", "main", effect, lease=lease)

    def complete(state, value=None):
        return ledger.complete("trip", Complete(effect.key, effect.token, state, value))

    assert not complete("compensated")
    assert complete("unknown")
    assert complete("failed", b"no")
    assert not complete("unknown")
    assert complete("done", b"42")
    assert complete("done", b"42"), "a lost reply is asked again"
    assert not complete("done", b"43")
    assert not complete("failed", b"no")
    assert complete("compensated")
    assert not complete("done", b"42")
    (row,) = ledger.effects("trip")
    assert (row.state, row.value) == ("compensated", b"42")
    assert not ledger.complete("trip", Complete("charge", "none", "done", b""))
    assert not ledger.complete("none", Complete(effect.key, effect.token, "done", b""))


def test_after_somebody_has_looked_other_arguments_are_taken(ledger, lease):
    """On a fork: a person has said that the changed call is to be made."""
    effect = new_effect()
    ledger.claim("trip", "main", effect, lease=lease)
    ledger.complete("trip", Complete(effect.key, effect.token, "done", b"42"))
    changed = ledger.claim("trip", "main", new_effect(args=b"421", again=effect.token), lease=lease)
    assert (changed.mine, changed.row.attempt, changed.row.args) == (True, 2, b"421")


def test_effects_in_pages(ledger, lease):
    for key, name in (("b", "charge"), ("a", "mail"), ("c", "charge"), ("d", "mail"), ("e", "charge")):
        ledger.claim("trip", "main", new_effect(key, name=name), lease=lease)

    def keys(**which):
        def read(after, limit):
            return ledger.effects("trip", after=after, limit=limit, **which)

        return [row.key for row in pages(read, lambda row: (row.key, row.attempt))]

    assert keys() == list("abcde")
    assert keys(name="charge") == list("bce")
    assert keys(key="c") == ["c"]
    assert ledger.effects("none") == []


def test_12_a_damaged_result_is_told(ledger, lease, place, db):
    effect = new_effect()
    ledger.claim("trip", "main", effect, lease=lease)
    ledger.complete("trip", Complete(effect.key, effect.token, "done", b"result-of-the-call"))
    (stored,) = place.execute(db, "SELECT value FROM effect")[0]
    damaged = bytes(stored).replace(b"result", b"resulT")
    place.execute(db, "UPDATE effect SET value = ?", damaged)
    with pytest.raises(Corrupt, match="checksum"):
        ledger.effects("trip")
    with pytest.raises(Corrupt):
        ledger.claim("trip", "main", new_effect(), lease=lease)


def test_12_a_result_that_was_moved_to_another_claim_is_told(ledger, lease, place, db):
    for key in "ab":
        effect = new_effect(key)
        ledger.claim("trip", "main", effect, lease=lease)
        ledger.complete("trip", Complete(effect.key, effect.token, "done", key.encode()))
    place.execute(db, "UPDATE effect SET value = (SELECT f.value FROM effect f WHERE f.key = 'b') WHERE key = 'a'")
    with pytest.raises(Corrupt):
        ledger.effects("trip")


def test_5_a_late_result_wakes_the_run_that_waits_to_hear_of_it(ledger, storage, lease):
    ledger.apply("trip", [Start(new_run("r1"))], lease=lease)
    effect = new_effect(run="r1")
    ledger.claim("trip", "main", effect, lease=lease)
    ledger.complete("trip", Complete(effect.key, effect.token, "unknown"))
    ledger.apply("trip", [Move("r1", "waiting")], lease=lease)
    assert ledger.due() == []
    ledger.complete("trip", Complete(effect.key, effect.token, "done", b"late"))
    assert [run.id for run in ledger.due()] == ["r1"]


def test_paths_that_claimed_a_key_with_arguments_of_their_own_see_their_own(ledger, lease):
    one = new_effect()
    ledger.claim("trip", "main", one, lease=lease)
    ledger.complete("trip", Complete(one.key, one.token, "done", b"one"))
    other = new_effect(args=b"421", again=one.token)
    ledger.claim("trip", "main", other, lease=lease)
    ledger.complete("trip", Complete(other.key, other.token, "done", b"other"))
    for args, value in ((b"420", b"one"), (b"421", b"other")):
        seen = ledger.claim("trip", "main", new_effect(args=args), lease=lease)
        assert (seen.mine, seen.row.value) == (False, value)
    with pytest.raises(EffectConflict):
        ledger.claim("trip", "main", new_effect(args=b"422"), lease=lease)


def test_what_was_done_is_not_claimed_again_with_the_same_arguments(ledger, lease):
    """A late result came between a person's word and the claim."""
    effect = new_effect()
    ledger.claim("trip", "main", effect, lease=lease)
    ledger.complete("trip", Complete(effect.key, effect.token, "unknown"))
    ledger.complete("trip", Complete(effect.key, effect.token, "done", b"late"))
    again = ledger.claim("trip", "main", new_effect(again=effect.token), lease=lease)
    assert (again.mine, again.row.value) == (False, b"late")
    ledger.complete("trip", Complete(effect.key, effect.token, "compensated"))
    assert ledger.claim("trip", "main", new_effect(again=effect.token), lease=lease).mine

"""The commands that change something: fork, rewind, tag, prune."""

from __future__ import annotations

import clew


def heads(db_path):
    with clew.open(str(db_path)) as db:
        return db.thread("trip-7").branches


class TestFork:
    def test_a_branch_that_shares_its_checkpoint(self, run, db_path):
        assert run("fork", "trip-7@3", "--as", "kyoto").stdout == "branch kyoto starts at step 3\n"
        assert heads(db_path) == {"main": 5, "osaka": 6, "kyoto": 3}

    def test_settings_are_json_or_else_text(self, run, db_path):
        run("fork", "trip-7@3", "--as", "kyoto", "--set", "city=Kyoto", "--set", "days=[1, 2]", "--set", "note=a=b")
        with clew.open(str(db_path)) as db:
            state = db.thread("trip-7").state("kyoto")
        assert (state["city"], state["days"], state["note"]) == ("Kyoto", [1, 2], "a=b")
        assert len(state["messages"]) == 3

    def test_from_the_head_when_no_reference_is_given(self, run_json):
        found = run_json("fork", "trip-7", "--as", "kyoto", "--set", "n=1")
        assert found == {"thread": "trip-7", "branch": "kyoto", "from": 5, "head": 7}

    def test_refusals_leave_nothing(self, run, db_path):
        before = heads(db_path)
        assert "choose another name" in run("fork", "trip-7@3", "--as", "osaka", code=14).stderr
        assert "reads as a step" in run("fork", "trip-7@3", "--as", "12", code=2).stderr
        assert "KEY=VALUE" in run("fork", "trip-7@3", "--as", "kyoto", "--set", "city", code=2).stderr
        run("fork", "trip-7@99", "--as", "kyoto", code=13)
        run("fork", "trip-7@3", code=2)
        assert heads(db_path) == before

    def test_a_tag_of_that_name_is_in_the_way(self, run):
        run("fork", "trip-7@3", "--as", "before-payment", code=14)


class TestRewind:
    def test_moves_main_and_tells_the_way_back(self, run, db_path):
        result = run("rewind", "trip-7@3")
        assert result.stdout == "main is at step 3 book\n"
        assert heads(db_path)["main"] == 3
        assert "clew rewind trip-7@5" in result.stderr
        run("rewind", "trip-7@5")
        assert heads(db_path)["main"] == 5

    def test_another_branch(self, run, run_json, db_path):
        found = run_json("rewind", "trip-7@2", "--branch", "osaka")
        assert found == {"thread": "trip-7", "branch": "osaka", "head": 2, "was": 6}
        assert heads(db_path) == {"main": 5, "osaka": 2}

    def test_references_count_from_the_branch_that_moves(self, run, db_path):
        run("rewind", "trip-7@~1", "--branch", "osaka")
        assert heads(db_path)["osaka"] == 3

    def test_refusals(self, run, db_path):
        assert "trip-7@~1" in run("rewind", "trip-7", code=13).stderr
        run("rewind", "trip-7@99", code=13)
        assert "did you mean 'osaka'" in run("rewind", "trip-7@1", "--branch", "osak", code=13).stderr
        assert heads(db_path) == {"main": 5, "osaka": 6}


class TestTag:
    def test_make_list_delete(self, run):
        assert run("tag", "trip-7@~1", "nearly").stdout == "nearly names step 4\n"
        assert run("tag", "trip-7", "last").stdout == "last names step 5\n"
        assert run("tag", "trip-7").stdout == "before-payment  4\nnearly  4\nlast  5\n"
        assert run("tag", "trip-7@5").stdout == "last  5\n"
        assert run("tag", "trip-7", "last", "-d").stdout == "last is no longer the name of step 5\n"
        assert "last" not in run("tag", "trip-7").stdout
        assert "no tags" in run("tag", "chat-1").stderr

    def test_json(self, run_json):
        assert run_json("tag", "trip-7") == {"thread": "trip-7", "tags": {"before-payment": 4}}
        assert run_json("tag", "trip-7", "t") == {"thread": "trip-7", "tag": "t", "step": 5, "deleted": False}
        assert run_json("tag", "-d", "trip-7", "t") == {"thread": "trip-7", "tag": "t", "step": 5, "deleted": True}

    def test_refusals(self, run):
        run("tag", "trip-7", "7", code=2)
        run("tag", "trip-7", "osaka", code=14)
        run("tag", "trip-7", "-d", code=2)
        assert "before-payment" in run("tag", "-d", "trip-7", "before", code=13).stderr


class TestPrune:
    def test_a_dry_run_deletes_nothing(self, run, run_json):
        text = run("prune", "--keep-last", "1", "--dry-run").stdout
        assert "3 checkpoints of 1 thread would go" in text
        assert "4 checkpoints kept" in text
        assert len(run_json("log", "trip-7")["checkpoints"]) == 6

    def test_asks_first(self, run, run_json):
        refused = run("prune", "--keep-last", "1", typed="n\n", code=1)
        assert "3 checkpoints of 1 thread would go" in refused.stderr
        assert "nothing was deleted" in refused.stderr
        assert "add --yes" in run("prune", "--keep-last", "1", code=2).stderr
        assert len(run_json("log", "trip-7")["checkpoints"]) == 6
        assert "deleted" in run("prune", "--keep-last", "1", typed="y\n").stdout
        assert [one["step"] for one in run_json("log", "trip-7")["checkpoints"]] == [6, 5, 4]

    def test_yes_does_not_ask(self, run_json):
        found = run_json("prune", "--keep-last", "1", "--yes")
        assert list(found) == ["threads", "checkpoints", "kept", "bytes", "dry_run"]
        assert (found["checkpoints"], found["kept"], found["dry_run"]) == (3, 4, False)

    def test_only_what_is_old_goes(self, run):
        assert (
            run("prune", "--keep-last", "1", "--older-than", "30d").stdout == "nothing to delete; 7 checkpoints kept\n"
        )

    def test_only_the_threads_named(self, run_json):
        assert run_json("prune", "--keep-last", "1", "--thread", "chat-1", "-n")["checkpoints"] == 0

    def test_refusals(self, run):
        assert "--keep-last N" in run("prune", code=2).stderr
        assert "30d" in run("prune", "--older-than", "soon", code=2).stderr
        run("prune", "--keep-last", "0", "-y", code=2)
        run("prune", "--keep-last", "1", "--thread", "nobody", "-y", code=10)


def test_a_branch_at_work_is_busy(run, db_path):
    with clew.open(str(db_path)) as db, db.thread("trip-7").lease():
        run("rewind", "trip-7@3", code=11)
    assert heads(db_path)["main"] == 5

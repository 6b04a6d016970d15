"""Blobs in a folder: where they lie, what is damage, who may remove them, and what a kill leaves behind."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import clew
import clew.aio
from clew.errors import BadInput, ClewError, Corrupt, DiskFull, ReadOnly, StorageError
from clew.storage import blob_folder, blobs
from clew.testing.faults import Disk, at_line, in_child, points, sources

Open = Callable[..., clew.Database]
PNG = clew.Blob(b"\x89PNG" + bytes(90_000), media_type="image/png")
TEXT = "ä" * 50_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "a.db")
    return str(request.getfixturevalue("postgres").url)


@contextmanager
def opened(url: str | Path, folder: Path | None, **more: Any) -> Iterator[clew.Database]:
    with clew.open(str(url), **{"durability": "relaxed", "blobs": folder, **more}) as db:
        yield db


def files(folder: Path) -> dict[str, Path]:
    """Every file but the locks, by its name."""
    return {path.name: path for path in folder.rglob("*") if not path.is_dir() and path.name != "lock"}


def age(folder: Path) -> None:
    for path in files(folder).values():
        os.utime(path, (time.time() - 7200,) * 2)


def whole(path: Path, folder: Path) -> set[str]:
    """Everything that can be read is read; returns the digests that have rows."""
    with opened(path, folder) as db:
        for info in db.threads():
            for checkpoint in db.thread(info.id).history():
                for value in checkpoint.state().values():
                    assert not isinstance(value, clew.Blob) or len(value.read()) == value.size
        with db._rows.snapshot() as rows:
            return set(rows.outside_blobs())


# -- where they lie


def test_a_blob_is_a_file_by_its_digest_and_its_row_is_empty(url: str, folder: Path) -> None:
    with opened(url, folder, tenant="acme") as db:
        db.thread("t").save({"photo": PNG, "text": TEXT, "none": clew.Blob(b""), "small": 1})
        path = folder / "acme" / PNG.digest[:2] / PNG.digest
        assert path.read_bytes() == PNG.read()
        assert len(files(folder)) == 2
        state = db.thread("t").state()
        assert (state["photo"].read(), state["text"], state["none"].read()) == (PNG.read(), TEXT, b"")
        with db._rows.snapshot() as rows:
            assert rows.blob_row(PNG.digest) == b""
        usage = db.usage()
        assert usage.blobs == 3
        assert usage.blob_bytes == sum(file.stat().st_size for file in files(folder).values())


def test_prune_and_delete_remove_files_that_nothing_refers_to(url: str, folder: Path) -> None:
    with opened(url, folder) as db:
        thread = db.thread("t")
        for number in range(4):
            thread.save({"photo": clew.Blob(bytes([number]) * 1000), "kept": PNG})
        assert len(files(folder)) == 5
        age(folder)
        told = db.prune(keep_last=2, dry_run=True)
        assert told.bytes > 2000
        assert len(files(folder)) == 5
        assert db.prune(keep_last=2).bytes == told.bytes
        assert len(files(folder)) == 3
        assert db.usage().blob_bytes == 2000 + PNG.size
        db.thread("other").save({"kept": PNG})
        age(folder)
        db.delete("t")
        assert list(files(folder)) == [PNG.digest]
        db.delete("other")
        assert len(files(folder)) == 1 - (PNG.digest not in files(folder))
        age(folder)
        db.thread("u").save({})
        db.prune(keep_last=1)
        assert files(folder) == {}


def test_a_server_may_yet_finish_a_commit_so_young_files_stay_for_the_next_prune(postgres: Any, folder: Path) -> None:
    with opened(postgres.url, folder) as db:
        db.thread("t").save({"photo": PNG})
        age(folder)
        db.thread("u").save({"photo": PNG})  # used again: young again
        db.delete("t")
        db.delete("u")
        assert list(files(folder)) == [PNG.digest]
        age(folder)
        db.thread("v").save({})
        db.prune(keep_last=1)
        assert files(folder) == {}


def test_a_blob_that_is_there_is_not_written_again(tmp_path: Path, folder: Path) -> None:
    with opened(tmp_path / "a.db", folder) as db:
        db.thread("t").save({"photo": PNG})
        age(folder)
        before = files(folder)[PNG.digest].stat()
        db.thread("u").save({"photo": PNG})
        after = files(folder)[PNG.digest].stat()
        assert (before.st_ino, before.st_size) == (after.st_ino, after.st_size)
        assert after.st_mtime > before.st_mtime + 3600


def test_a_strict_file_is_synced_before_the_commit_and_a_relaxed_one_is_not(tmp_path: Path, folder: Path) -> None:
    def steps(durability: str) -> list[str]:
        def child(tell: Any) -> None:
            Disk(lambda call: tell(f"sqlite {call.kind}")).install()
            sync, rename = os.fsync, os.rename

            def told_sync(file: int) -> None:
                sync(file)
                tell("sync " + Path(f"/proc/self/fd/{file}").readlink().name)

            def told_rename(*args: Any, **more: Any) -> None:
                rename(*args, **more)
                tell("rename")

            os.fsync, os.rename = told_sync, told_rename  # type: ignore[assignment]
            with opened(tmp_path / f"{durability}.db", folder, durability=durability, tenant=durability) as db:
                db.thread("first").save({"photo": clew.Blob(b"1")})
                tell("begin")
                db.thread("t").save({"photo": PNG})

        told = in_child(child).told
        return told[told.index("begin") + 1 :]

    strict = steps("strict")
    assert strict[0].startswith(f"sync .{PNG.digest}.")
    assert strict[1] == "rename"
    above = {"sync strict", f"sync {folder.name}", f"sync {tmp_path.name}"}
    assert above < set(strict[: strict.index("sqlite write")])
    assert f"sync {PNG.digest[:2]}" in strict[2 : strict.index("sqlite write")]
    relaxed = steps("relaxed")
    assert relaxed[0] == "rename"
    assert not [step for step in relaxed if step.startswith("sync")]


def test_the_folder_comes_and_the_blobs_inside_stay(url: str, folder: Path) -> None:
    other = clew.Blob(b"other")
    with opened(url, None) as db:
        db.thread("t").save({"photo": PNG})
    with opened(url, folder) as db:
        assert db.thread("t").state()["photo"].read() == PNG.read()
        db.thread("u").save({"photo": PNG, "other": other})
        db.delete("t")
        assert db.thread("u").state()["photo"].read() == PNG.read()
    with opened(url, None) as db:
        state = db.thread("u").state()
        assert state["photo"].read() == PNG.read()
        with pytest.raises(BadInput, match=r"kept outside the database.*blobs="):
            state["other"].read()
        assert db.usage().blobs == 2


def test_what_names_a_folder(tmp_path: Path, folder: Path) -> None:
    path = str(tmp_path / "a.db")
    for bad in ("s3://bucket/x", "", "a\0b", "\ud800", 7, "file://host/x", "file:x://", "http://x"):
        with pytest.raises(BadInput):
            clew.open(path, blobs=bad)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="s3:// yet"):
        clew.open(path, blobs="s3://bucket/x")
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="not a folder"):
        clew.open(path, blobs=tmp_path / "file")
    with pytest.raises(BadInput, match="in memory"):
        clew.open("memory:", blobs=folder)
    assert not folder.exists()
    (tmp_path / "a b").mkdir()
    with clew.open(path, blobs=f"file://{tmp_path}/a%20b") as db:
        db.thread("t").save({"photo": PNG})
    assert PNG.digest in files(tmp_path / "a b")
    with clew.open(path, blobs=tmp_path / "no" / "where") as db, pytest.raises(StorageError, match="mkdir -p"):
        db.thread("u").save({"photo": clew.Blob(b"new")})


def test_a_relative_folder_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "else").mkdir()
    with clew.open("a.db", blobs="blobs") as db:
        monkeypatch.chdir(tmp_path / "else")
        db.thread("t").save({"photo": PNG})
        assert PNG.digest in files(tmp_path / "blobs")


# -- damage


def test_damage_is_told_and_mended_by_saving_again(tmp_path: Path, folder: Path) -> None:
    with opened(tmp_path / "a.db", folder) as db:
        thread = db.thread("t")
        thread.save({"photo": PNG, "n": 1})
        path = files(folder)[PNG.digest]
        for content in (b"", PNG.read()[:-1], PNG.read()[:-1] + b"x", b"x" * 5):
            path.write_bytes(content)
            with pytest.raises(Corrupt, match=f"{PNG.digest} does not hold"):
                thread.state()["photo"].read()
            db.thread(f"again-{len(content)}-{content[-1:]!r}").save({"photo": PNG})
            assert thread.state()["photo"].read() == PNG.read()
        path.unlink()
        with pytest.raises(Corrupt, match=f"{PNG.digest} is missing.*folder it was saved with"):
            thread.state()["photo"].read()
        assert db.usage().blob_bytes == 0
        db.thread("again").save({"photo": PNG})
        assert thread.state()["photo"].read() == PNG.read()


def test_another_folder_misses_the_file(tmp_path: Path, folder: Path) -> None:
    with opened(tmp_path / "a.db", folder) as db:
        db.thread("t").save({"text": TEXT})
    with opened(tmp_path / "a.db", tmp_path / "wrong") as db, pytest.raises(Corrupt, match="is missing"):
        db.thread("t").state()
    assert not (tmp_path / "wrong").exists()


def test_what_is_pruned_while_it_is_read_is_no_damage(tmp_path: Path, folder: Path) -> None:
    with opened(tmp_path / "a.db", folder) as db, opened(tmp_path / "a.db", folder) as other:
        db.thread("t").save({"photo": PNG})
        with db._storage.snapshot() as snapshot:
            assert snapshot.find_thread("t") is not None
            other.delete("t")
            with pytest.raises(StorageError, match="pruned while") as caught:
                snapshot.blob(PNG.digest)
        assert caught.value.retryable


def test_links_are_not_followed(tmp_path: Path, folder: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    with opened(tmp_path / "a.db", folder) as db:
        db.thread("t").save({"photo": PNG})
        path = files(folder)[PNG.digest]
        path.rename(secret / path.name)
        path.symlink_to(secret / path.name)
        with pytest.raises(StorageError, match="symbolic link"):
            db.thread("t").state()["photo"].read()
        db.thread("u").save({"photo": PNG})  # replaces the link, and not what it points at
        assert not path.is_symlink()
        for part in (path.parent, path.parent.parent):
            part.rename(secret / "moved")
            part.symlink_to(secret / "moved")
            with pytest.raises(StorageError, match="symbolic link"):
                db.thread("t").state()["photo"].read()
            with pytest.raises(StorageError, match="symbolic link"):
                db.thread("v").save({"photo": PNG})
            db.prune(keep_last=1)
            part.unlink()
            (secret / "moved").rename(part)
        assert db.thread("t").state()["photo"].read() == PNG.read()
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(Corrupt):
            db.thread("t").state()["photo"].read()


def test_what_the_file_system_refuses_is_told_and_nothing_is_saved(tmp_path: Path, folder: Path) -> None:
    with opened(tmp_path / "a.db", folder) as db:
        db.thread("t").save({"n": 1})

    def full(tell: Any) -> None:
        with opened(tmp_path / "a.db", folder) as db:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
            with pytest.raises(StorageError, match="too large"):
                db.thread("t").save({"photo": PNG}, parent="head")
        tell("done")

    def refused(tell: Any) -> None:
        with opened(tmp_path / "a.db", folder) as db:
            folder.chmod(0o500)
            if os.geteuid() == 0:
                os.seteuid(65534)
            with pytest.raises(ReadOnly):
                db.thread("t").save({"photo": PNG}, parent="head")
            tell("done")
            os._exit(0)

    for child in (full, refused):
        outcome = in_child(child)
        assert (outcome.raised, outcome.told) == (None, ["done"])
    folder.chmod(0o700)
    assert files(folder) == {}
    with opened(tmp_path / "a.db", folder) as db:
        assert db.thread("t").state() == {"n": 1}


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EROFS, ReadOnly)]
)
def test_errors_of_the_file_system_have_types(number: int, kind: type[ClewError]) -> None:
    error = blob_folder._failed(OSError(number, "words"), Path("/x/y"))
    assert type(error) is kind
    assert "/x/y" in str(error)


# -- tenants, databases


TENANTS = ("a", "A", "..", ".", "a/b", "../a", "%2e%2e", "%2E", "é", "e\u0301", "x" * 512, "x" * 511, "lock", "/", "\\")


def test_each_tenant_has_a_place_of_its_own_inside_the_folder(tmp_path: Path, folder: Path) -> None:
    assert len({blob_folder._encoded(tenant).casefold() for tenant in TENANTS}) == len(TENANTS)
    with opened(tmp_path / "a.db", folder) as db:
        for tenant in TENANTS:
            mine = db.tenant(tenant)
            mine.thread("t").save({"photo": PNG, "own": clew.Blob(tenant.encode())})
        for tenant in TENANTS:
            assert db.tenant(tenant).thread("t").state()["own"].read() == tenant.encode()
        assert len(list(folder.iterdir())) == len(TENANTS)
        assert {path.name for path in tmp_path.iterdir()} - {"a.db", "a.db-wal", "a.db-shm"} == {"blobs"}
        db.tenant("a").delete("t")
        assert db.tenant("A").thread("t").state()["photo"].read() == PNG.read()


def test_a_digest_leads_to_nothing_of_another_tenant(url: str, folder: Path) -> None:
    with opened(url, folder) as db:
        db.tenant("a").thread("t").save({"photo": PNG})
        mine = db.tenant("b")
        mine.thread("t").save({"n": 1})
        for digest in (PNG.digest, f"../a/{PNG.digest[:2]}/{PNG.digest}", "../../etc/passwd", "", "x"):
            with mine._storage.snapshot() as snapshot:
                assert snapshot.blob(digest) is None
            if digest != PNG.digest:
                forged = clew.Blob.lazy(digest, 3, None, lambda: b"abc")
                with pytest.raises(ClewError):
                    mine.thread("forged").save({"photo": forged})
        wrong = clew.Blob.lazy(PNG.digest, 3, None, lambda: b"abc")
        with pytest.raises(BadInput, match="digest"):
            mine.thread("forged").save({"photo": wrong})
        assert mine.usage().blobs == 0
        assert db.tenant("a").thread("t").state()["photo"].read() == PNG.read()


def test_two_databases_do_not_share_a_folder(tmp_path: Path, folder: Path) -> None:
    with opened(tmp_path / "a.db", folder) as db, opened(tmp_path / "b.db", folder) as other:
        db.thread("t").save({"photo": PNG})
        with pytest.raises(BadInput, match="another database"):
            other.thread("t").save({"photo": PNG})
        other.thread("t").save({"n": 1})
        with pytest.raises(BadInput, match="another database"):
            other.prune(keep_last=1)
        assert db.thread("t").state()["photo"].read() == PNG.read()


def test_the_awaitable_database_has_them_too(tmp_path: Path, folder: Path) -> None:
    import asyncio

    async def work() -> None:
        async with clew.aio.open(str(tmp_path / "a.db"), blobs=folder) as db:
            await db.thread("t").save({"text": TEXT})
            assert (await db.thread("t").state())["text"] == TEXT
            await db.store(user="x").put(("n",), "k", {"v": 1})

    asyncio.run(work())
    assert len(files(folder)) == 1


# -- races


@contextmanager
def held_before_its_commit(db: clew.Database, thread_id: str) -> Iterator[None]:
    """A save of PNG that has its file and stops before the database hears of it, until the block ends."""
    there, go = threading.Event(), threading.Event()
    commit = db._rows.commit
    failed: list[BaseException] = []

    def paused(change: Any) -> Any:
        there.set()
        assert go.wait(60)
        return commit(change)

    def work() -> None:
        try:
            db.thread(thread_id).save({"photo": PNG})
        except BaseException as error:
            failed.append(error)

    db._rows.commit = paused
    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert there.wait(60)
        yield
    finally:
        go.set()
        worker.join()
        db._rows.commit = commit
    assert failed == []


@pytest.mark.parametrize("locks", [True, False])
def test_no_file_goes_that_a_commit_is_about_to_refer_to(
    url: str, folder: Path, locks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_folder, "PATIENCE", 0.05)
    monkeypatch.setattr(blobs, "GRACE", 0.0)  # PostgreSQL has both; here the lock alone must do
    with opened(url, folder) as db, opened(url, folder) as other:
        other.thread("t").save({"photo": PNG})
        with held_before_its_commit(db, "u"):
            if not locks:  # the control: without the lock the file is lost
                monkeypatch.setattr(blob_folder, "_flock", lambda *_: True)
            other.delete("t")
        if locks:
            assert db.thread("u").state()["photo"].read() == PNG.read()
            db.delete("u")
            assert files(folder) == {}
        else:
            with pytest.raises(Corrupt, match="missing"):
                db.thread("u").state()["photo"].read()


def test_a_commit_waits_for_the_lock_only_so_long(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_folder, "PATIENCE", 0.05)
    with opened(tmp_path / "a.db", folder) as db:
        db.thread("t").save({"photo": PNG})
        with db._storage.folder.locked(None, exclusive=True):  # type: ignore[attr-defined]
            with pytest.raises(StorageError, match="locked") as caught:
                db.thread("u").save({"photo": PNG})
            assert caught.value.retryable
            db.thread("v").save({"n": 1})
            assert db.thread("t").state()["photo"].read() == PNG.read()


WORKER = """
    import sys, clew
    url, folder, name = sys.argv[1:]
    with clew.open(url, blobs=folder, durability="relaxed") as db:
        sys.stdin.readline()
        for number in range(40):
            thread = db.thread(f"{name}-{number}")
            thread.save({"same": clew.Blob(bytes(1000)), "own": clew.Blob(f"{name}{number}".encode())})
            assert thread.state()["same"].read() == bytes(1000)
            if number % 3:
                db.delete(thread)
            elif number % 2:
                db.prune(keep_last=1, threads=[thread.id])
            else:
                thread.save({"n": number})
                db.prune(keep_last=1, threads=[thread.id])
"""


def test_processes_that_save_and_delete_the_same_bytes_lose_none(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "a.db"
    with opened(path, folder) as db:
        db.thread("first").save({"n": 1})
    command = [sys.executable, "-c", textwrap.dedent(WORKER), str(path), str(folder)]
    workers = [subprocess.Popen([*command, name], stdin=subprocess.PIPE, text=True) for name in "abc"]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    used = whole(path, folder)
    assert len(used) == 22, "of each process's 14 threads, 7 keep the same and their own"
    with opened(path, folder) as db:
        db.prune(keep_last=1)
    assert set(files(folder)) == used


# -- kills


def test_a_kill_between_file_and_commit_leaves_a_file_that_the_next_prune_removes(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "a.db"

    def child(tell: Any) -> None:
        def kill(call: Any) -> None:
            if call.kind == "write" and PNG.digest in files(folder):
                os.kill(os.getpid(), signal.SIGKILL)

        Disk(kill).install()
        with opened(path, folder) as db:
            tell(db.thread("t").save({"text": TEXT}).step)
            tell(db.thread("t").save({"photo": PNG}).step)

    for rescued in (True, False):
        outcome = in_child(child)
        assert (outcome.killed_by, outcome.raised) == (signal.SIGKILL, None)
        assert outcome.told == [1]
        assert PNG.digest in files(folder)
        assert PNG.digest not in whole(path, folder)
        with opened(path, folder) as db:
            assert db.thread("t").state() == {"text": TEXT}
            if rescued:
                db.thread("u").save({"photo": PNG})
                db.prune(keep_last=1)
                assert db.thread("u").state()["photo"].read() == PNG.read()
                db.delete("u")
            else:
                db.prune(keep_last=1)
            assert PNG.digest not in files(folder)
            db.delete("t")
        assert files(folder) == {}


def test_a_kill_at_any_line_leaves_nothing_damaged_and_nothing_behind(ram: Path, long: bool) -> None:
    lines = sources(blobs, blob_folder)

    def work(db: clew.Database, tell: Any) -> None:
        thread = db.thread("t")
        for number in range(3):
            tell(thread.save({"photo": clew.Blob(bytes([number]) * 500), "kept": PNG}).step)
        db.prune(keep_last=1)
        db.thread("u").save({"kept": PNG, "text": TEXT})
        db.delete("t")
        tell("deleted")

    def total(tell: Any) -> None:
        with opened(ram / "count.db", ram / "count") as db:
            left = 1_000_000
            with at_line(left, lines, lambda: None):
                import itertools

                count = itertools.count()

                def trace(frame: Any, event: str, _: Any) -> Any:
                    if event == "line":
                        next(count)
                    return trace if frame.f_code.co_filename in lines else None

                sys.settrace(trace)
                work(db, lambda _: None)
                sys.settrace(None)
                tell(next(count))

    (count,) = in_child(total).told
    assert count > 300
    for number in points(count, 400 if long else 40):
        path, folder = ram / f"{number}.db", ram / f"{number}"

        def child(tell: Any, path: Path = path, folder: Path = folder, number: int = number) -> None:
            with (
                opened(path, folder) as db,
                at_line(number, lines, lambda: os.kill(os.getpid(), signal.SIGKILL)),
            ):
                work(db, tell)

        outcome = in_child(child)
        assert outcome.raised is None, outcome.raised
        whole(path, folder)
        with opened(path, folder) as db:
            acked = [step for step in outcome.told if step != "deleted"]
            if acked and "t" in [info.id for info in db.threads()]:
                assert db.thread("t").state()["photo"].read()[:1][0] >= acked[-1] - 1
            db.thread("last").save({"photo": clew.Blob(b"last")})
            db.prune(keep_last=1)
        assert set(files(folder)) == whole(path, folder), f"killed at line {number}"

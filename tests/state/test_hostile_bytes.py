"""Bytes from an enemy or a broken disk: a typed error, an Opaque or an ordinary value, and nothing else happens."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from codec_corpus import bombs, corpus, in_every_position, poisoned
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import Corrupt
from clew.state import codec, codec_read
from clew.state.values import UnknownType

LISTS = [4, 5, 6, 7, 8, 9, 18, 20, 21, 22, 23, 24, 25, 26, 27, 28]
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(codec_read, "_warned", set())  # it is full after a thousand types: others want to be told
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownType)
        yield


def read(data: bytes) -> Any:
    """The value, or Corrupt; any other exception is the failure."""
    try:
        return codec.decode(data)
    except Corrupt as error:
        return error


def test_every_truncation_is_corrupt() -> None:
    for data in corpus():
        for end in range(len(data)):
            with pytest.raises(Corrupt):
                codec.decode(data[:end])


def test_bytes_behind_the_value_are_corrupt() -> None:
    for data in corpus():
        for more in (b"\xc0", b"\x00", data, b"\x91", b"\xc4\x08" + bytes(8)):
            with pytest.raises(Corrupt):
                codec.decode(data + more)
    for tag in LISTS:
        with pytest.raises(Corrupt):
            codec.decode(codec.pack_ext(tag, b"\x90\xc4\x08" + bytes(8)))


def test_every_flipped_bit_is_corrupt_or_a_value_that_can_be_stored() -> None:
    for data in corpus():
        damaged = bytearray(data)
        for at in range(len(data)):
            for bit in range(8):
                damaged[at] ^= 1 << bit
                back = read(bytes(damaged))
                if not isinstance(back, Corrupt):
                    again = codec.encode(back)
                    assert codec.encode(codec.decode(again)) == again
                damaged[at] ^= 1 << bit


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=60) | st.builds(codec.pack_ext, st.integers(-128, 127), st.binary(max_size=40)))
def test_any_bytes(data: bytes) -> None:
    read(data)


def test_bombs_are_corrupt_or_small() -> None:
    for data in bombs():
        size = len(data)
        tracemalloc.start()
        try:
            read(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8_000_000 + 8 * size, data[:40]


def test_poison_is_inert_in_every_position() -> None:
    for part in poisoned():
        for data in in_every_position(part):
            read(data)


def test_a_reference_needs_someone_to_follow_it() -> None:
    for tag in range(codec.REF_FIRST, 128):
        for data in in_every_position(codec.pack_ext(tag, b"anything")):
            with pytest.raises(Corrupt):
                codec.decode(data)


WATCHED = """
import sys, resource, warnings
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from codec_corpus import bombs, corpus, in_every_position, poisoned
from clew.errors import Corrupt
from clew.state import codec, codec_read
warnings.simplefilter("ignore")
inputs = corpus() + bombs() + [data for part in poisoned() for data in in_every_position(part)]
for data in corpus():
    inputs += [data[:end] for end in range(len(data))]
    inputs += [data[:at] + bytes([data[at] ^ bit]) + data[at + 1:] for at in range(len(data)) for bit in (1, 16, 128)]
FORBIDDEN = ("import", "exec", "compile", "pickle.", "open", "socket.", "subprocess.", "os.", "ctypes.", "marshal.")
seen, watching = [], False
def watch(event, arguments):
    if watching and event.startswith(FORBIDDEN):
        seen.append((event, str(arguments)[:200]))
sys.addaudithook(watch)
for data in corpus():
    codec.decode(data)          # the time zones' names and files are read once, here
class Asked:                    # importlib.import_module raises no audit event of its own
    def find_spec(self, name, path=None, target=None):
        seen.append(("find_spec", name))
sys.meta_path.insert(0, Asked())
modules = set(sys.modules)
watching = True
values = 0
for data in inputs:
    try:
        codec.decode(data)
        values += 1
    except Corrupt:
        pass
watching = False
assert not seen, seen[:5]
assert set(sys.modules) == modules, set(sys.modules) - modules
print("read", len(inputs), "of them values", values)
"""


def test_no_input_imports_runs_opens_or_connects() -> None:
    """In a process of its own: an audit hook stays for ever."""
    source = str(HERE.parents[1] / "src")
    done = subprocess.run(
        [sys.executable, "-c", WATCHED],
        env={"PYTHONPATH": f"{source}:{HERE}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[1]) > 10_000

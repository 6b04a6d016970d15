"""What the figures were measured on. Nothing here names a host, a user or a path."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from statistics import median
from time import perf_counter_ns

import apsw


def describe(directory: Path) -> dict[str, str]:
    """To be called before the start: it tells how busy the machine was with something else."""
    peers = [f"{name} {version}" for name in _PEERS if (version := _version(name))]
    return {
        "cores": f"{os.cpu_count()}, {_cpu()}",
        "memory": _memory(),
        "other load": f"load average {os.getloadavg()[0]:.1f} before the start (0: the machine was ours alone)",
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
        "file system": f"{_file_system(directory)}; 1 KB written and synced in {_sync_time(directory):.0f} µs (median)",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "SQLite": f"{apsw.sqlite_lib_version()} (apsw {metadata.version('apsw')})",
        "peers": ", ".join(peers) or "not installed",
    }


def postgres(version: str) -> str:
    return f"{version} (psycopg {metadata.version('psycopg')})"


_PEERS = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "dbos")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory() -> str:
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"


def _file_system(directory: Path) -> str:
    """The kind of file system that holds the directory."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    real = directory.resolve()
    holding = [mount for mount in mounts if real.is_relative_to(mount[1])]
    return max(holding, key=lambda mount: len(mount[1]))[2] if holding else "unknown"


def _sync_time(directory: Path) -> float:
    """The floor under a strict save: microseconds to append 1 KB and have the disk confirm it."""
    path = directory / "sync"
    times = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for _ in range(50):
            begun = perf_counter_ns()
            os.write(descriptor, b"x" * 1024)
            os.fdatasync(descriptor)
            times.append(perf_counter_ns() - begun)
    finally:
        os.close(descriptor)
        path.unlink()
    return median(times) / 1000

"""The leases of one process in one database: which it holds, which it could not give back, and its heartbeat.

A lease is held while `leases` says so. One that the database still gives to this process, but that is not in there, was
let go of by a release that failed: nobody here uses it, so it counts as free for this process at once. For others it
ends with the next beat, which gives it back, or when no beat comes any more.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING
from weakref import WeakSet

from clew.errors import ClewError
from clew.storage.ownership import BEAT, Heartbeat, Identity, this_process
from clew.storage.port import Lease
from clew.storage.waking import Bell

if TYPE_CHECKING:
    from clew.storage.relational import Relational, Run


class Holding(ABC):
    """Part of an engine: this process as an owner of leases."""

    expiry: int

    def _forget_self(self) -> None:
        """Begin as a process that holds nothing: at the start, and in the child of a fork."""
        self.identity: Identity = this_process()
        self.owners: dict[int, int] = {}
        """This process's owner row for each tenant."""
        self.leases: set[tuple[int, Lease]] = set()
        self._unreleased: set[tuple[int, Lease]] = set()
        self._bells: WeakSet[Bell] = WeakSet()
        self.claiming = threading.Lock()
        """Held from a claim until its leases are counted in."""
        self.heartbeat = Heartbeat(self._beat, min(BEAT, self.expiry / 3e9))

    @abstractmethod
    def _bell(self) -> Bell:
        """A bell that hears other processes, if that can be."""

    def bell(self) -> Bell:
        """What a worker waits with."""
        made = self._bell()
        self._bells.add(made)
        return made

    def ring(self) -> None:
        """Something was written to a queue: workers of this process are told at once."""
        for bell in tuple(self._bells):
            bell.ring()

    @abstractmethod
    def _rows(self, tenant: int) -> Relational:
        """The rows of the tenant with this key."""

    def owner_row(self, tenant: int, run: Run) -> int:
        """This process's owner row, made or refreshed."""
        owner = self.owners.get(tenant)
        if owner is not None and run("beat", owner=owner, expiry=self.expiry):
            return owner
        run("drop_silent_owners")
        owner = int(run("create_owner", **self.identity._asdict(), expiry=self.expiry)[0][0])
        self.owners[tenant] = owner
        return owner

    def hold(self, tenant: int, lease: Lease, *, held: bool) -> None:
        """Count a lease in or out."""
        entry = (tenant, lease)
        self._unreleased.discard(entry)
        if held:
            self.leases.add(entry)
            self.heartbeat.hold()
        elif entry in self.leases:
            self.leases.discard(entry)
            self.heartbeat.drop()

    def leave(self, tenant: int, lease: Lease) -> None:
        """The database could not be told that this lease is released."""
        self.hold(tenant, lease, held=False)
        self._unreleased.add((tenant, lease))

    def _beat(self) -> None:
        for tenant, lease in list(self._unreleased):
            try:
                self._rows(tenant).release(lease)
            except ClewError:
                break  # the next beat tries again
        for tenant in {tenant for tenant, _ in set(self.leases)}:
            owner = self.owners.get(tenant)
            if owner is None:
                continue
            try:
                with self._rows(tenant)._leasing(None) as run:
                    run("beat", owner=owner, expiry=self.expiry)
            except ClewError:
                continue  # the next beat tries again, well before the leases expire

    def _release_all(self) -> None:
        for tenant, lease in [*self.leases, *self._unreleased]:
            try:
                self._rows(tenant).release(lease)
            except ClewError:
                break  # they expire by themselves
        self.heartbeat.stop()

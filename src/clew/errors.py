"""Every error that Clew raises, grouped by what a handler would do next.

ClewError
├── NotFound            look for another name
│   ├── ThreadNotFound
│   ├── RefNotFound         the reference names nothing; `.candidates` are near
│   ├── RunNotFound
│   └── RequestNotFound
├── Conflict            read again, decide again      (`.base`, `.head`)
│   ├── NameTaken           a branch or tag of that name exists
│   ├── RunExists           this key has a run already (`.run`)
│   ├── EffectConflict      this key stands for another call
│   └── RequestClosed       it takes no answer
│       ├── RequestAnswered     somebody was faster, or you have answered already
│       ├── RequestExpired
│       ├── RequestWithdrawn
│       └── RequestChanged      it asks something else than what was answered
├── Busy                wait, or come back later      (`.owner`)
│   └── Fenced              stop: another owner has taken over
├── BadInput            mend the call
│   ├── BadReference
│   ├── BadName
│   ├── WrongAnswer         not of the shape that was asked for  (`.path`, `.problems`)
│   └── NoRun               called outside of a run
├── Rejected            somebody turned down what was asked   (`.request`, `.by`, `.reason`)
├── ActivationClosed    stop: the node that this is part of is over
├── CodecError          mend the value or register its type  (`.path`)
│   ├── Unserialisable
│   └── TooLarge
├── Corrupt             restore from a copy
├── FormatTooNew        upgrade Clew
└── StorageError        the database itself failed    (`.retryable`)
    ├── Closed
    ├── NotADatabase
    ├── ReadOnly
    └── DiskFull
"""

from __future__ import annotations

from typing import Any, ClassVar


class ClewError(Exception):
    """The root. `str(error)` says what happened and where; `.hint` says what to do.

    `.code` is stable across releases and safe to match on; `.exit_code` is what the command line ends with.
    """

    code: ClassVar[str] = "clew"
    exit_code: ClassVar[int] = 1
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = self.default_hint if hint is None else hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} ({self.hint})" if self.hint else message

    @property
    def message(self) -> str:
        """What happened, without the hint."""
        return super().__str__()


class NotFound(ClewError):
    """What was named does not exist, or is not yours."""

    code = "not_found"
    exit_code = 10


class ThreadNotFound(NotFound):
    code = "thread_not_found"
    default_hint = "`clew threads` lists the threads of this database"


class RefNotFound(NotFound):
    """The reference is well formed, but names no checkpoint of this thread."""

    code = "ref_not_found"
    exit_code = 13

    def __init__(self, message: str, *, candidates: tuple[str, ...] = (), hint: str | None = None) -> None:
        if hint is None and candidates:
            hint = "did you mean " + " or ".join(repr(name) for name in candidates) + "?"
        super().__init__(message, hint=hint)
        self.candidates = candidates


class RunNotFound(NotFound):
    code = "run_not_found"


class RequestNotFound(NotFound):
    code = "request_not_found"
    default_hint = "`clew inbox` lists the open requests of this database"


class Conflict(ClewError):
    """The head has moved since the base was read. `.base` and `.head` are checkpoints (or None)."""

    code = "conflict"
    exit_code = 14
    default_hint = "read the head's state again, apply the change to it, and save"

    def __init__(self, message: str, *, base: Any = None, head: Any = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.base = base
        self.head = head


class NameTaken(Conflict):
    code = "name_taken"
    default_hint = "choose another name, or delete the one that exists"


class RunExists(Conflict):
    """A run was begun with this key before. `.run` is its id."""

    code = "run_exists"
    default_hint = "resume that run, or give a key of its own to this one"

    def __init__(self, message: str, *, run: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.run = run


class EffectConflict(Conflict):
    """The key of an effect is known on this thread, with another function or other arguments; nothing was called."""

    code = "effect_conflict"
    default_hint = "a key stands for one call: make the arguments that tell two calls apart a part of it"


class RequestClosed(Conflict):
    """The request takes no answer any more; what was given now is not recorded."""

    code = "request_closed"
    default_hint = "look at it again: `db.request(id)`, or `clew inbox`"


class RequestAnswered(RequestClosed):
    """It has been answered, or this person has answered it before."""

    code = "request_answered"


class RequestExpired(RequestClosed):
    """Its time has run out."""

    code = "request_expired"


class RequestWithdrawn(RequestClosed):
    """Who asked does not need the answer any more."""

    code = "request_withdrawn"


class RequestChanged(RequestClosed):
    """What is asked is not what this answer was given to."""

    code = "request_changed"


class Busy(ClewError):
    """Another owner's lease on this branch is live."""

    code = "busy"
    exit_code = 11
    default_hint = "wait for it with `thread.lease(wait=…)`, or work on a fork"

    def __init__(self, message: str, *, owner: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.owner = owner


class Fenced(Busy):
    """This lease has passed on to another owner; nothing was written."""

    code = "fenced"
    default_hint = "stop working on this branch: somebody else continues it"


class BadInput(ClewError):
    code = "bad_input"
    exit_code = 2


class BadReference(BadInput):
    code = "bad_reference"
    exit_code = 13
    default_hint = "a reference is a step (7), head, ~n, a branch, a tag, or 8 or more characters of an id"


class BadName(BadInput):
    code = "bad_name"


class NoRun(BadInput):
    """What only a run's nodes may call was called elsewhere."""

    code = "no_run"
    default_hint = "call it within a node; threads and callbacks need clew.bind(fn)"


class ActivationClosed(ClewError):
    """The node is over: it has paused, failed, or run out of time. What still runs of it may not write."""

    code = "activation_closed"
    default_hint = "await what a node starts before it returns"


class WrongAnswer(BadInput):
    """The answer is not of the shape that was asked for. It was not recorded; the request is as open as before.

    `.path` leads to what is wrong in it (empty: all of it), `.problems` tells what was expected there.
    """

    code = "wrong_answer"

    def __init__(
        self, message: str, *, path: str = "", problems: tuple[str, ...] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.problems = problems


class Rejected(ClewError):
    """Somebody turned down what was asked, and the schema has no answer that says so. Who asked gets this."""

    code = "rejected"
    default_hint = "catch it where you ask, or ask with a schema that has a way to say no, such as bool"

    def __init__(
        self, message: str, *, request: str = "", by: str = "", reason: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.request = request
        self.by = by
        self.reason = reason


class CodecError(ClewError):
    """A value could not be turned into bytes or back. `.path` leads to it: `messages[12].args.when`."""

    code = "codec"

    def __init__(self, message: str, *, path: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path


class Unserialisable(CodecError):
    code = "unserialisable"
    exit_code = 2


class TooLarge(CodecError):
    code = "too_large"
    exit_code = 2


class Corrupt(ClewError):
    """Stored bytes are damaged, or are not what their place says."""

    code = "corrupt"
    exit_code = 12
    default_hint = "nothing was changed; restore this database from a copy"


class FormatTooNew(ClewError):
    code = "format_too_new"
    exit_code = 12
    default_hint = "upgrade Clew to read it"


class StorageError(ClewError):
    """The database failed. When `.retryable`, the same call may succeed later; nothing was half done."""

    code = "storage"

    def __init__(self, message: str, *, retryable: bool = False, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retryable = retryable


class Closed(StorageError):
    code = "closed"
    default_hint = "open it again with clew.open(…)"


class NotADatabase(StorageError):
    code = "not_a_database"
    exit_code = 12


class ReadOnly(StorageError):
    code = "read_only"
    default_hint = "give this user the right to write to it, or work on a copy"


class DiskFull(StorageError):
    code = "disk_full"
    default_hint = "free some space, or `clew prune`; what was saved before is safe"

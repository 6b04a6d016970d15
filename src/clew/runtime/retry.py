"""When a node or a call is tried again."""

from __future__ import annotations

from dataclasses import dataclass

from clew.errors import BadInput, ClewError


@dataclass(frozen=True, slots=True)
class Retry:
    """Try up to `attempts` times; wait `delay` seconds before the second, `factor` times as long before each next one.

    Only exceptions of the types in `on` are tried again, and none of Clew's own: these do not mend themselves.

    >>> Retry(attempts=3, delay=1).pause(1, ValueError()), Retry(attempts=3).pause(3, ValueError())
    (1.0, None)
    """

    attempts: int = 3
    delay: float = 0.5
    factor: float = 2.0
    longest: float = 30.0
    on: tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        numbers = type(self.attempts) is int and all(isinstance(one, int | float) for one in (self.delay, self.factor))
        if not numbers or self.attempts < 1 or self.delay < 0 or self.factor < 1:
            raise BadInput(f"{self} makes no sense", hint="attempts counts from 1, delay is in seconds, factor is ≥ 1")

    @classmethod
    def of(cls, given: Retry | int | None) -> Retry:
        """What `retry=` says: attempts, or more than that."""
        if given is None:
            return ONCE
        return given if isinstance(given, Retry) else cls(attempts=given)

    def pause(self, attempt: int, error: BaseException) -> float | None:
        """How long to wait after attempt number `attempt` has failed; None: it was the last one."""
        if attempt >= self.attempts or isinstance(error, ClewError) or not isinstance(error, self.on):
            return None
        return min(self.longest, self.delay * self.factor ** (attempt - 1))


ONCE = Retry(attempts=1)

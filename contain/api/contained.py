"""One job between its caller, in any thread, and the engine, in its own."""

from __future__ import annotations

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from contain.api.capture import Collecting, Feeding
    from contain.api.engine import Engine
    from contain.api.streams import Streams
    from contain.job import Job
    from contain.lifecycle.many import Carried
    from receipts import Receipt


class Contained:
    """A job, and what is known of it. Only the engine changes it, but for what is given at the start.

    ``begun``: it is launched, or never will be. ``over``: the last word is said, and durable. ``error`` is set by then
    where something went wrong, ``receipt`` where there is one.
    """

    def __init__(
        self,
        engine: Engine,
        job: Job,
        directory: str | None,
        streams: Streams,
        *,
        feed: bytes | None = None,
        collect: bool = False,
    ) -> None:
        """``feed``: for its standard input. ``collect``: what comes from its pipes is read as it comes."""
        self.engine = engine
        self.job = job
        self.directory = directory
        self.streams = streams
        self.feed = feed
        self.collect = collect
        self.begun = threading.Event()
        self.over = threading.Event()
        self.unwanted = False
        self.error: Exception | None = None
        self.receipt: Receipt | None = None
        self.note: str | None = None
        self.carried: Carried | None = None
        self.pumps: dict[int, Collecting | Feeding] = {}
        self._lock = threading.Lock()
        self._calls: list[tuple[threading.Event, Callable[[], None]]] = []

    def finish(self, receipt: Receipt | None, error: Exception | None) -> None:
        """The last word. Called once, by the engine."""
        self.receipt = receipt or self.receipt
        self.error = error
        self.over.set()
        self.began()

    def began(self) -> None:
        """It is launched, or never will be; whoever waits for that, or for the end if it has come, is called."""
        self.begun.set()
        with self._lock:
            due = [call for event, call in self._calls if event.is_set()]
            self._calls = [(event, call) for event, call in self._calls if not event.is_set()]
        for call in due:
            call()

    def when(self, event: threading.Event, call: Callable[[], None]) -> None:
        """Calls ``call`` once, in the engine's thread or now, when ``begun`` or ``over`` is set. It must not wait."""
        with self._lock:
            if not event.is_set():
                self._calls.append((event, call))
                return
        call()

    def collected(self, number: int) -> bytes | None:
        """What came from a pipe that was collected; None where there was none."""
        pump = self.pumps.get(number)
        return bytes(pump.data) if pump is not None and hasattr(pump, "data") else None

"""The machine's load, looked at once for everybody: the last sample lies beside the registry, with what the next needs.

A hundred commands that ask at once read it once. And a command that lives for a moment has no window of its own: the
counters that the last one left are where its window begins.
"""

from __future__ import annotations

import fcntl
import os
import time

from contain.budget import beside
from contain.machine import Sample, Unknown
from receipts import fields, jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from contain.machine import Sampler

FILE = "sample.json"
LOCK = "sample.lock"
FRESH_S = 1.0
"""A decision is made on a sample of at most 2 s; whoever takes one of this age decides well within."""
OLDEST_S = 2.0


class SharedSampler:
    """Reads the machine for one registry's folder. Only the disks are each process's own: its work is elsewhere."""

    def __init__(self, folder: str, sampler: Sampler, volumes: Mapping[str, str]) -> None:
        """``volumes``: name -> a directory on it."""
        self._folder = folder
        self._sampler = sampler
        self._volumes = volumes

    def sample(self) -> Sample:
        """A sample of at most ``OLDEST_S``. Never waits for another process, and never fails: what fails is Unknown."""
        now_s = time.monotonic()
        found = self._kept(now_s)
        if found is None or now_s - found.at_s > FRESH_S:
            found = self._anew(found, now_s)
        return found.replace(disks=self._sampler.disks(self._volumes))

    def _anew(self, kept: Sample | None, now_s: float) -> Sample:
        try:
            lock = os.open(os.path.join(self._folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return self._sampler.sample()  # no descriptor, or no room: nobody else's look, but a look
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = self._sampler.sample()
            self._keep(found)
            return found
        except BlockingIOError:
            # Somebody takes one in this moment.
            fresh = kept is not None and now_s - kept.at_s <= OLDEST_S
            return kept if fresh and kept is not None else self._sampler.sample()
        finally:
            os.close(lock)

    def _kept(self, now_s: float) -> Sample | None:
        """The last one, and the sampler's window begins where it ended; None for none that can be used."""
        try:
            with open(os.path.join(self._folder, FILE), encoding="ascii") as file:
                document = jsontext.loads(file.read())
            found = _decode(document["sample"])
            if not now_s - found.at_s >= 0:
                return None
            self._sampler.resume(document["counters"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found

    def _keep(self, sample: Sample) -> None:
        document = {"sample": _encode(sample), "counters": self._sampler.counters()}
        try:
            beside.replace(os.path.join(self._folder, FILE), jsontext.dumps(document))
        except OSError:
            pass  # a full disk costs the others a look of their own


def _encode(sample: Sample) -> Mapping[str, object]:
    """Numbers as they are, None for a sensor that is not there, and why one failed."""
    found = {}
    for name in fields(Sample):
        value = getattr(sample, name)
        if name != "disks":
            found[name] = {"why": value.why} if isinstance(value, Unknown) else value
    return found


def _decode(document: Mapping[str, object]) -> Sample:
    found = {
        name: Unknown(why=str(value["why"])) if isinstance(value, dict) else value
        for name, value in document.items()
    }
    return Sample(**found)  # type: ignore[arg-type]

"""Which backend this machine has: the only test of ``sys.platform``."""

from __future__ import annotations

import sys

from contain.errors import UnsupportedPlatform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.backend import Backend


def backend() -> Backend:
    """The backend of this machine. Raises UnsupportedPlatform."""
    found: Backend
    if sys.platform == "linux":
        from contain.linux.backend import LinuxBackend

        found = LinuxBackend()
    elif sys.platform == "darwin":
        from contain.darwin.backend import DarwinBackend

        found = DarwinBackend()
    else:
        raise UnsupportedPlatform(
            f"contain has no backend for {sys.platform} in this version.",
            advice="Use it on Linux (kernel 5.10 or later) or on macOS.",
        )
    return found

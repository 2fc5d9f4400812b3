"""Opening the receipt directory for a verb, with our own errors for what is wrong with it."""

from __future__ import annotations

import os

from contain.lifecycle import custody

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.backend import Backend
    from receipts import Place, Store


def open_receipts(path: str | None, backend: Backend, *, create: bool) -> tuple[Place, Store]:
    """The directory and its store. Says once on standard error where the fall-back root is used. Raises UnsafePlace."""
    place, store = custody.opened(path, backend, create=create)
    if place.note is not None and (place.made or not create):
        os.write(2, f"contain: {place.note}\n".encode())
    return place, store

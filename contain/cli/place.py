"""Opening the receipt directory for a verb, with our own errors for what is wrong with it."""

from __future__ import annotations

import os

from contain.errors import UnsafePlace
from receipts import Store, Unsafe, open_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.backend import Backend
    from receipts import Place


def open_receipts(path: str | None, backend: Backend, *, create: bool) -> tuple[Place, Store]:
    """The directory and its store. Says once on standard error where the fall-back root is used. Raises UnsafePlace."""
    try:
        place = open_place(path, statfs_type=backend.file_system_magic, create=create)
    except Unsafe as unsafe:
        raise UnsafePlace(
            f"{unsafe.message}.",
            detail=unsafe.reason,
            advice=f"{unsafe.advice}.",
            state=None if create else "",
        ) from None
    if place.note is not None and (place.made or not create):
        os.write(2, f"contain: {place.note}\n".encode())
    return place, Store(place.fd, place.path)

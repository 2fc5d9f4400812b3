"""Many receipts for the price of one directory sync: `inspect` of a thousand changes a thousand."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from receipts.store import Store


class Batch:
    """Inside it directory syncs wait for the end, where one is made. Nothing may be *said* before that.

    Files are synced before their rename all the same: after a crash in the middle each receipt is old or new.
    """

    def __init__(self, store: Store) -> None:
        """Made by `Store.batch`."""
        self._store = store
        self._replaced: list[str] | None = None

    def put_off(self, replaced: list[str]) -> None:
        """Remember that names have changed, and which older ones they replace."""
        self._replaced = (self._replaced or []) + replaced

    def __enter__(self) -> None:
        """Begin; a second open batch of a store is a `RuntimeError`."""
        if self._store.open_batch is not None:
            raise RuntimeError("a batch of this store is open")
        self._store.open_batch = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Sync once and drop what was replaced: also after an error, for what was written before it."""
        self._store.open_batch = None
        if self._replaced is not None:
            self._store.directory.settle(self._replaced)

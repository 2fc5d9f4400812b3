"""A launch between the request and the proof: the keeper clones and the init sets itself up meanwhile."""

from __future__ import annotations

import os

from contain.errors import ImpossibleRequest, SetupFailed
from contain.linux import host
from contain.linux.containment import NamespaceContainment
from contain.linux.keeper import Denied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.linux.cgroup import MemoryKills
    from contain.linux.channel import Channel
    from contain.linux.keeper import Keeper
    from contain.linux.tree_limits import TreeLimits
    from contain.linux.tree_memory import TreeMemory


class NamespaceLaunch:
    """An init that the keeper was asked for. See contain.backend.Launch."""

    def __init__(
        self,
        keeper: Keeper,
        control: Channel,
        gate: int,
        memory: MemoryKills,
        tree: TreeLimits | None,
        samples: TreeMemory | None,
    ) -> None:
        """Owns ``control``, ``gate`` and ``tree`` until ``ready`` hands them on; borrows the keeper."""
        self._keeper = keeper
        self._control = control
        self._gate = gate
        self._memory = memory
        self._tree = tree
        self._samples = samples
        self._open = True

    def ready(self) -> NamespaceContainment:
        """Takes the keeper's answer and looks at the init."""
        try:
            launched = self._keeper.answer()
        except Denied as denied:
            self._let_go()
            raise host.explain(denied) from None
        except BaseException:
            self._let_go()
            raise
        self._open = False
        try:
            return NamespaceContainment(
                self._keeper,
                launched,
                self._control,
                self._gate,
                self._memory,
                self._tree,
                self._samples,
            )
        except SetupFailed as failed:
            if self._tree is not None and self._tree.killed:
                raise ImpossibleRequest(
                    "The memory limit is too little for a process to start: the kernel has killed it.",
                    advice="Ask for some megabytes at least.",
                ) from None
            if failed.step is not None and failed.detail is not None:  # the init's own words
                raise host.explain(Denied(failed.step, int(failed.detail))) from None
            raise

    def close(self) -> None:
        """Lets the init exit, and takes the answer all the same: the next launch must not be given it."""
        if not self._open:
            return
        self._let_go()
        try:
            os.close(self._keeper.answer().pidfd)
        except (Denied, SetupFailed):
            pass  # nothing was launched, which is what is wanted

    def _let_go(self) -> None:
        self._open = False
        self._control.close()
        os.close(self._gate)
        if self._tree is not None:
            self._tree.close()

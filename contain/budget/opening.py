"""Opening the budget of this account: where it is, what the machine is, and what the policy says of both."""

from __future__ import annotations

import os

from contain.backend import Machine
from contain.budget.operator import Operator
from contain.budget.policy import check, preset
from contain.budget.queue.desk import Desk
from contain.budget.registry import Registry
from contain.budget.registry.rows import dumps, loads
from contain.errors import UnsafePlace
from receipts import Unsafe, open_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from contain.backend import Backend
    from contain.budget.policy import Policy

POLICY = "policy.toml"
MACHINE = "machine.json"
PRESET = "shared"


class Budget:
    """One account's budget on this machine, opened."""

    def __init__(self, root: str, folder: str, machine: Machine, policy: Policy, operator: Operator) -> None:
        """Made by ``open_budget``."""
        self.root = root
        self.folder = folder
        self.machine = machine
        self.policy = policy
        self.operator = operator

    def desk(self, backend: Backend, say: Callable[[str], None]) -> Desk:
        """This process's way to the registry."""
        sampler = backend.sampler(self.machine)
        volumes = {"home": self.root, "work": "."}

        def operator() -> tuple[tuple[object, ...], object]:
            said = self.operator.read()
            return said.holds, said.health

        registry = Registry(self.folder, self.policy.base, say)
        return Desk(registry, self.policy, backend, lambda: sampler.sample(volumes), operator)  # type: ignore[arg-type]


def open_budget(backend: Backend) -> Budget:
    """Finds the root in the account's home (never by a variable), and this boot's registry below it.

    Raises UnsafePlace where the root cannot be trusted, BadPolicy for a policy file that is wrong.
    """
    try:
        with open_place(None, statfs_type=backend.file_system_magic) as place:
            root = place.path
    except Unsafe as unsafe:
        raise UnsafePlace(
            f"{unsafe.message}, so there is no budget.",
            detail=unsafe.reason,
            advice=f"{unsafe.advice}; or run without a permit: --no-budget.",
        ) from None
    born = backend.birth()
    folder = os.path.join(root, "live", f"{born.boot_id}-{born.observer_namespace}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    machine = _machine(folder, backend)
    return Budget(root, folder, machine, _policy(root, machine), Operator(root))


def _machine(folder: str, backend: Backend) -> Machine:
    """Judged once a boot, by whoever comes first; kept where everybody reads it.

    A process that sees fewer cores than are recorded (an affinity, a shim) goes by the record: one that went by its own
    once held a queue for 20 minutes. One that sees more corrects it.
    """
    path = os.path.join(folder, MACHINE)
    seen = backend.judge()
    try:
        with open(path, encoding="ascii") as file:
            recorded = loads(Machine, file.read())
        if recorded.cores >= seen.cores:
            return recorded
    except FileNotFoundError:
        pass
    except (ValueError, TypeError, OSError):
        pass  # another version's, or torn: judged again
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="ascii") as file:
        file.write(dumps(seen))
    os.rename(temporary, path)
    return seen


def _policy(root: str, machine: Machine) -> Policy:
    path = os.path.join(root, POLICY)
    try:
        with open(path, encoding="utf-8") as file:
            return check(file.read(), machine.cores, int(machine.memory_mib))
    except FileNotFoundError:
        return preset(PRESET, machine.cores, int(machine.memory_mib))

"""Opening the budget of this account: where it is, what the machine is, and what the policy says of both."""

from __future__ import annotations

import os

from contain.backend import Machine
from contain.budget import nested
from contain.budget.costs import Costs
from contain.budget.nested import Answerer
from contain.budget.operator import Operator
from contain.budget.policy import check, preset
from contain.budget.queue.desk import Desk
from contain.budget.registry import Registry
from contain.budget.registry.rows import dumps, loads
from contain.budget.sampling import SharedSampler
from contain.errors import BadPolicy, RegistryDamaged, UnsafePlace
from receipts import KERNEL, Unsafe, jsontext, open_place

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

    def __init__(self, backend: Backend, root: str, folder: str, machine: Machine, policy: Policy) -> None:
        """Made by ``open_budget``."""
        self.backend = backend
        self.root = root
        self.folder = folder
        self.machine = machine
        self.policy = policy
        self.operator = Operator(root)

    def desk(self, say: Callable[[str], None]) -> Desk:
        """This process's way to the registry."""
        sampler = SharedSampler(
            self.folder, self.backend.sampler(self.machine), {"home": self.root, "work": "."}
        )

        def operator() -> tuple[tuple[object, ...], object]:
            said = self.operator.read()
            return said.holds, said.health

        registry = Registry(self.folder, self.policy.base, say)
        return Desk(registry, self.policy, self.backend, sampler.sample, operator, self._forget)  # type: ignore[arg-type]

    def _forget(self, permit_id: str, proof: str | None) -> None:
        """The jobserver and the socket of a wrapper that was killed."""
        from contain.budget.jobserver import path_of  # most commands have none

        names = [os.path.join(self.root, nested.FOLDER, permit_id), path_of(self.folder, permit_id)]
        if proof is not None:
            names.append(os.path.join(self.root, nested.FOLDER, str(jsontext.loads(proof).get("namespace"))))
        for name in names:
            try:
                os.unlink(name)
            except FileNotFoundError:
                pass

    def answerer(self, desk: Desk, permit_id: str) -> Answerer:
        """The ear of a permit's wrapper, for requests from inside its job. Raises OSError."""

        def draw(draws: tuple[tuple[str, int], ...]) -> tuple[str, str]:
            row = desk.look().permits.get(permit_id)
            return desk.draw(row, draws) if row else ("", "the outer permit is not there any more")

        return Answerer(self.root, permit_id, self.backend, draw)

    def costs(self, say: Callable[[str], None]) -> Costs:
        """What the jobs of this account were seen to take."""
        return Costs(self.root, say)


def find_root(backend: Backend) -> str:
    """The budget's directory in the account's home, never by a variable. Raises UnsafePlace where it is not trusted."""
    try:
        with open_place(None, statfs_type=backend.file_system_magic) as place:
            return place.path
    except Unsafe as unsafe:
        raise UnsafePlace(
            f"{unsafe.message}, so there is no budget.",
            detail=unsafe.reason,
            advice=f"{unsafe.advice}; or run without a permit: --no-budget.",
        ) from None


def open_budget(backend: Backend, root: str | None = None, *, by_file: bool = True) -> Budget:
    """This boot's budget below ``root``, which ``find_root`` has found.

    Raises UnsafePlace where the root cannot be trusted, BadPolicy for a policy file that is wrong. ``by_file`` False:
    the file is left alone, and the policy is the preset's, for who mends the file.
    """
    root = find_root(backend) if root is None else root
    born = backend.birth()
    folder = os.path.join(root, "live", f"{born.boot_id}-{born.observer_namespace}")
    try:
        if not os.path.isdir(folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if born.boot_id_source == KERNEL:
                _sweep(root, born.boot_id)
        machine = _machine(folder, backend)
    except OSError as error:
        raise RegistryDamaged(
            f"{error.filename2 or error.filename or folder} cannot be used ({error.strerror}).",
            advice="Move away what is there instead, or make room; or run without a permit: --no-budget.",
        ) from None
    policy = _policy(root, machine) if by_file else _usual(machine)
    return Budget(backend, root, folder, machine, policy)


def _sweep(root: str, boot_id: str) -> None:
    """Another boot voids every row, and every socket: whoever comes first in this one removes them."""
    import shutil

    live = os.path.join(root, "live")
    for name in os.listdir(live):
        if not name.startswith(boot_id):
            shutil.rmtree(os.path.join(live, name), ignore_errors=True)
            shutil.rmtree(os.path.join(root, nested.FOLDER), ignore_errors=True)


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
        return _usual(machine)
    except (OSError, UnicodeDecodeError) as error:
        why = f"{path} cannot be read ({error})."
    except BadPolicy as error:
        why = f"{path}: {error.message}"
    raise BadPolicy(
        why,
        state="Nothing is granted by it.",
        advice=f"Mend it: contain policy check {path} tells when it is good.",
    )


def _usual(machine: Machine) -> Policy:
    return preset(PRESET, machine.cores, int(machine.memory_mib))

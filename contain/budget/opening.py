"""Opening the budget of this account: where it is, what the machine is, and what the policy says of both."""

from __future__ import annotations

import os

from contain.budget import beside, nested
from contain.budget.costs import Costs
from contain.budget.nested import Answerer
from contain.budget.operator import Operator
from contain.budget.policy import check, kept, preset
from contain.budget.queue.desk import Desk
from contain.budget.queue.meter import Meter
from contain.budget.registry import Registry
from contain.budget.registry.rows import dumps, loads
from contain.budget.sampling import SharedSampler
from contain.errors import BadPolicy, RegistryDamaged, UnsafePlace
from contain.machine import Machine
from receipts import KERNEL, Unsafe, open_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from contain.backend import Backend
    from contain.budget.policy import Policy

    Version = tuple[int, int, int]

POLICY = "policy.toml"
MACHINE = "machine.json"
PRESET = "shared"


class Budget:
    """One account's budget on this machine, opened."""

    def __init__(
        self,
        backend: Backend,
        root: str,
        folder: str,
        machine: Machine,
        policy: Policy,
        outer: nested.Outer | None = None,
        seen: Version | None = None,
    ) -> None:
        """Made by ``open_budget``. ``seen``: of the policy's file, before it was read."""
        self.outer = outer
        self.backend = backend
        self.root = root
        self.folder = folder
        self.machine = machine
        self.policy = policy
        self.operator = Operator(root)
        self._seen = seen

    def desk(self, say: Callable[[str], None]) -> Desk:
        """This process's way to the registry."""
        sampler = SharedSampler(
            self.folder, self.backend.sampler(self.machine), {"home": self.root, "work": "."}
        )

        def operator() -> tuple[tuple[object, ...], object]:
            # Read before each commit, as the holds are: who has waited for an hour judges by today's numbers.
            desk.policy = self._in_force(say)
            said = self.operator.read()
            return said.holds, said.health

        registry = Registry(self.folder, self.policy.base, say)
        desk = Desk(registry, self.policy, self.backend, sampler.sample, operator, self._forget)  # type: ignore[arg-type]
        desk.meter = Meter(self.folder, self.backend)
        desk.judges = self.outer is None
        return desk

    def _in_force(self, say: Callable[[str], None]) -> Policy:
        """The policy of the file as it is now; as it was, while a new one is wrong."""
        seen = _version(self.root)
        if seen != self._seen:
            self._seen = seen
            try:
                self.policy = _policy(self.root, self.folder, self.machine, seen)
            except BadPolicy as error:
                say(f"{error.message} The numbers from before stay in force here.")
        return self.policy

    def _forget(self, permit_id: str, proof: str | None) -> None:
        """The jobserver and the socket of a wrapper that was killed."""
        from contain.budget.jobserver import path_of  # most commands have none

        nested.forget(self.root, permit_id, proof)
        try:
            os.unlink(path_of(self.folder, permit_id))
        except FileNotFoundError:
            pass

    def answerer(self, desk: Desk, permit_id: str) -> Answerer:
        """The ear of a permit's wrapper, for requests from inside its job. Raises RegistryDamaged."""

        def draw(draws: tuple[tuple[str, int], ...]) -> tuple[str, str]:
            row = desk.permit(permit_id)
            return desk.draw(row, draws) if row else ("", "the outer permit is not there any more")

        try:
            return Answerer(self.root, os.path.basename(self.folder), permit_id, self.backend, draw)
        except OSError as error:
            raise _unusable(error, os.path.join(self.root, nested.FOLDER)) from None

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


def open_budget(
    backend: Backend, root: str | None = None, *, by_file: bool = True, outer: nested.Outer | None = None
) -> Budget:
    """This boot's budget below ``root``, which ``find_root`` has found.

    Raises UnsafePlace where the root cannot be trusted, BadPolicy for a policy file that is wrong. ``by_file`` False:
    the file is left alone, and the policy is the preset's, for who mends the file. ``outer``: the permit inside whose
    job this process runs; then it is that permit's budget, to look at.
    """
    root = find_root(backend) if root is None else root
    born = backend.birth()
    name = f"{born.boot_id}-{born.observer_namespace}" if outer is None else outer.registry
    folder = os.path.join(root, "live", name)
    try:
        if not os.path.isdir(folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if born.boot_id_source == KERNEL:
                _sweep(root, born.boot_id)
        machine = _machine(folder, backend)
    except OSError as error:
        raise _unusable(error, folder) from None
    seen = _version(root)
    policy = _policy(root, folder, machine, seen) if by_file else _usual(machine)
    return Budget(backend, root, folder, machine, policy, outer, seen)


def _unusable(error: OSError, path: str) -> RegistryDamaged:
    return RegistryDamaged(
        f"{error.filename2 or error.filename or path} cannot be used ({error.strerror}).",
        advice="Move away what is there instead, or make room; or run without a permit: --no-budget.",
    )


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
    beside.replace(path, dumps(seen))
    return seen


def _version(root: str) -> Version | None:
    """What changes when the policy's file does; None where there is none."""
    try:
        found = os.stat(os.path.join(root, POLICY))
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _policy(root: str, folder: str, machine: Machine, seen: Version | None) -> Policy:
    """``seen``: the file's version, looked at before it is read: a change in between is met the next time."""
    path = os.path.join(root, POLICY)
    made_of = (*(seen or ()), machine.cores, int(machine.memory_mib))
    try:
        if seen is None:
            return _usual(machine)
        policy = kept.recall(folder, made_of)
        if policy is None:
            with open(path, encoding="utf-8") as file:
                policy = check(file.read(), machine.cores, int(machine.memory_mib))
            kept.keep(folder, made_of, policy)
        return policy
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

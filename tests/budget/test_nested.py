"""Requests from inside a job: under its permit, at once, whatever the environment says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain.budget import nested
from contain.errors import NestedRefused, NestedUnanswered
from contain.linux.backend import LinuxBackend
from tests.blocked import needs_root
from tests.budget.scripted import CALM, in_an_account, status
from tests.receipts.lives import PROOF
from tests.session import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

INSIDE = {
    "one level": "$C exec -- echo inside",
    "three levels": "$C exec -- sh -c '$C exec -- echo inside'",
    "a cleared environment": "env -i $C exec -- echo inside",
    "a cleared environment, twice": "env -i C=\"$C\" $C exec -- sh -c 'env -i $C exec -- echo inside'",
    "a session of its own": "setsid -w $C exec -- echo inside",
    "a namespace below": "unshare --pid --fork --mount-proc $C exec -- echo inside",
}


@needs_root
@pytest.mark.parametrize("inside", INSIDE.values(), ids=INSIDE)
def test_a_command_does_not_queue_behind_itself(tmp_path: Path, inside: str) -> None:
    """One unit, which the outer command has: the inner one runs now, its status is kept, and nothing is left."""
    (tmp_path / "inside.sh").write_text(f"{inside}; exit 17\n")
    script = f"{CALM} $C exec -- sh {tmp_path}/inside.sh; echo rc=$?; $C status"
    done = in_an_account(tmp_path, script)
    assert done.stdout.splitlines()[:2] == ["inside", "rc=17"], done.stderr
    assert "waiting" not in done.stderr
    found = status(done.stdout)
    assert (found["permits"], found["waiting"]) == ([], [])
    assert not list((tmp_path / "root" / "nested").iterdir())


@needs_root
def test_a_copied_variable_proves_nothing(tmp_path: Path) -> None:
    """Who is outside waits like anybody, whatever its environment says."""
    seen = tmp_path / "seen"
    script = f"""{CALM}
$C exec --session a -- sh -c 'echo $CONTAIN_PERMIT > {seen}; exec sleep 1000' & A=$!
until [ -s {seen} ]; do sleep 0.05; done
CONTAIN_PERMIT=$(cat {seen}) $C exec --max-wait 0.5 -- echo ran; echo rc=$?
CONTAIN_PERMIT=../../etc/passwd $C exec --max-wait 0.5 -- echo ran; echo rc=$?
kill $A; wait $A"""
    done = in_an_account(tmp_path, script)
    assert done.stdout.splitlines() == ["rc=125", "rc=125"], done.stderr


@needs_root
def test_a_stopped_wrapper_is_not_waited_for(tmp_path: Path) -> None:
    """It cannot say whether we are inside: refused with a reason, and never queued."""
    go, told = tmp_path / "go", tmp_path / "told"
    script = f"""{CALM}
mkfifo {go}
$C exec -- sh -c 'echo in; read line < {go}; $C exec -- echo ran; echo rc=$?' > {told} & A=$!
until grep -q in {told}; do sleep 0.05; done
kill -STOP $A; echo now > {go}
until grep -q rc= {told}; do sleep 0.05; done
kill -CONT $A; wait $A; cat {told}"""
    done = in_an_account(tmp_path, script)
    assert done.stdout.splitlines() == ["in", "rc=125"], done.stderr
    assert "does not answer" in done.stderr


class In77(LinuxBackend):
    """A process in a PID namespace of that number."""

    def own_namespaces(self) -> tuple[int, ...]:
        """See contain.backend.Backend."""
        return (77,)


def says(listener: socket.socket, answer: bytes | None) -> None:
    """A wrapper that says this to the first who asks; None: it hangs up."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(4096)
        if answer is not None:
            connection.sendall(answer)


ANSWERS: dict[str, tuple[bytes | None, type[Exception] | None]] = {
    "not mine": (b'{"answer":"not-mine"}\n', None),
    "unclear": (b'{"answer":"unclear","why":"hidden"}\n', NestedUnanswered),
    "refused": (b'{"answer":"refused","why":"gpu"}\n', NestedRefused),
    "hung up": (None, NestedUnanswered),
    "no JSON": (b"mine\n", NestedUnanswered),
    "no answer in it": (b"{}\n", NestedUnanswered),
    "half a line": (b'{"answer":"mi', NestedUnanswered),
    "too long": (b"x" * 8192, NestedUnanswered),
    "an answer of another version": (b'{"answer":"perhaps"}\n', NestedUnanswered),
}


@pytest.mark.parametrize(("answer", "error"), ANSWERS.values(), ids=ANSWERS)
def test_what_a_wrapper_may_say(tmp_path: Path, answer: bytes | None, error: type[Exception] | None) -> None:
    """Only a clear yes runs under its permit, and only a clear no is somebody else's: the rest is refused."""
    folder = tmp_path / nested.FOLDER
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        # Below a path that is too long for an address, as some homes are.
        listener.bind(os.path.relpath(folder / "77"))
        listener.listen()
        speaker = threading.Thread(target=says, args=(listener, answer))
        speaker.start()
        try:
            if error is None:
                assert nested.ask(str(tmp_path), {}, In77(), ()) is None
            else:
                with pytest.raises(error):
                    nested.ask(str(tmp_path), {}, In77(), ())
        finally:
            speaker.join(WAIT_S)


def test_nobody_there(tmp_path: Path) -> None:
    """No socket, a file that is none, or one that a dead wrapper left: we are in nobody's job."""
    folder = tmp_path / nested.FOLDER
    assert nested.ask(str(tmp_path), {}, In77(), ()) is None
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.path.relpath(folder / "77"))
    assert nested.ask(str(tmp_path), {"CONTAIN_PERMIT": "no id of ours"}, In77(), ()) is None


@pytest.fixture
def namespace() -> Iterator[subprocess.Popen[str]]:
    """A child in a PID namespace of its own, which connects as often as a line says where."""
    program = """
import socket, sys
for line in sys.stdin:
    kept = socket.socket(socket.AF_UNIX)
    kept.connect(line.strip())
    print("connected", flush=True)
"""
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", program]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield child
    child.communicate(timeout=WAIT_S)


@needs_root
def test_who_is_inside(tmp_path: Path, namespace: subprocess.Popen[str]) -> None:
    """By the kernel's own word on the peer: a process of that namespace is, we and a process of another are not."""
    backend = LinuxBackend()
    assert namespace.stdin is not None
    assert namespace.stdout is not None
    path = tmp_path / "ear"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        namespace.stdin.write(f"{path}\n")
        namespace.stdin.flush()
        theirs, _ = listener.accept()
        assert namespace.stdout.readline() == "connected\n"
        children = Path(f"/proc/{namespace.pid}/task/{namespace.pid}/children")
        [below] = children.read_text(encoding="ascii").split()
        inner = Path(f"/proc/{below}/ns/pid").stat().st_ino
        with socket.socket(socket.AF_UNIX) as ours:
            ours.connect(str(path))
            mine, _ = listener.accept()
            proofs = {"its own": inner, "another": inner + 1, "ours, above it": backend.own_namespaces()[0]}
            found = {}
            for name, number in proofs.items():
                proof = PROOF.replace(namespace=number)
                found[name] = (backend.contains(proof, theirs), backend.contains(proof, mine))
            mine.close()
        theirs.close()
    assert found == {"its own": (True, False), "another": (False, False), "ours, above it": (True, True)}


@needs_root
def test_inside_the_budget_is_looked_at_and_not_changed(tmp_path: Path) -> None:
    """Nobody's end can be seen from there, so nothing is judged; and no second budget is opened."""
    (tmp_path / "inside.sh").write_text(
        "$C status; $C why -- make; $C release --force $CONTAIN_PERMIT --reason x; echo rc=$?\n"
    )
    done = in_an_account(tmp_path, f"{CALM} $C exec --session outer -- sh {tmp_path}/inside.sh")
    lines = done.stdout.splitlines()
    assert [one["session"] for one in status(lines[0])["permits"]] == ["outer"], done.stderr
    assert "at once" in lines[1]
    assert lines[2] == "rc=93"
    assert len(list((tmp_path / "root" / "live").iterdir())) == 1

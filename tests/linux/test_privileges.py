"""What a job may ask to be without: capabilities, new privileges, a network, a good place in the queue."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ground import UID, USERS, ground_of
from tests.linux.driver import public_folder
from tests.programs import shared_programs
from tests.session import Session, run_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ground import Ground

CAP_SYS_CHROOT, CAP_NET_RAW = 18, 13
BECOME_NOBODY = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups")
SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
SHOW = "grep -E '^(Cap|NoNewPrivs|Uid)' /proc/self/status"
root = pytest.mark.skipif(os.getuid() != 0, reason="capability: root, who has capabilities to drop")


@pytest.fixture(scope="module", params=USERS)
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Root's, and nobody's."""
    with ground_of(request.param, shared_programs(tmp_path_factory)) as made:
        yield made


def printed(ground: Ground, text: str, **extra: object) -> str:
    """What a shell job prints."""
    with Session(ground.receipts, program=ground.contain) as session:
        session.start("sh", "-c", text, **extra)
        assert session.finish()["event"] == "released"
    return session.errors().decode()


def own_output(receipts: Path, command: str, *args: str, **extra: object) -> str:
    """What a job of this very user prints."""
    return run_job(receipts, command, *args, **extra)[1].errors().decode()


def sets(status: str) -> dict[str, int]:
    """The capability sets of /proc/PID/status."""
    lines = (text.split() for text in status.splitlines() if text.startswith("Cap"))
    return {name.rstrip(":"): int(mask, 16) for name, mask in lines}


# -- capabilities ------------------------------------------------------------------------------------------------------


@root
def test_a_dropped_capability_is_in_no_set(receipts: Path) -> None:
    """Out of all five; the others are as they were."""
    before = sets(own_output(receipts, "sh", "-c", SHOW))
    after = sets(own_output(receipts, "sh", "-c", SHOW, dropCapabilities=["CAP_NET_RAW"]))
    assert before["CapEff"] >> CAP_NET_RAW & 1, "the control: it was there"
    assert after["CapEff"] == before["CapEff"] & ~(1 << CAP_NET_RAW)
    for name in SETS:
        assert not after[name] >> CAP_NET_RAW & 1, name


@root
@pytest.mark.parametrize("drop", [["net_raw"], ["all"]])
def test_a_set_uid_program_does_not_bring_it_back(receipts: Path, drop: list[str]) -> None:
    """The job becomes nobody, and root again by a set-uid program: without the capability."""
    with public_folder() as folder:
        helper = folder / "cat"
        shutil.copy("/bin/cat", helper)
        helper.chmod(0o4755)
        words: tuple[str, ...] = (*BECOME_NOBODY, str(helper), "/proc/self/status")
        free = own_output(receipts, *words)
        assert free.partition("Uid:")[2].split()[1] == "0", "the control: the program is set-uid"
        assert sets(free)["CapEff"] >> CAP_NET_RAW & 1, "and brings the capability back"
        if drop == ["all"]:  # then nobody may become another user: the set-uid program is started as it is
            words = (str(helper), "/proc/self/status")
        held = own_output(receipts, *words, dropCapabilities=drop)
    for name in SETS:
        assert not sets(held)[name] >> CAP_NET_RAW & 1, name
    if drop == ["all"]:
        assert set(sets(held).values()) == {0}


@root
def test_what_needs_the_capability_fails(receipts: Path) -> None:
    """The kernel agrees: chroot(2) is refused without CAP_SYS_CHROOT, and works with it."""
    words = ("chroot", "/", "true")
    assert run_job(receipts, *words)[0]["outcome"]["code"] == 0
    assert run_job(receipts, *words, dropCapabilities=["SYS_CHROOT"])[0]["outcome"]["code"] != 0


def test_all_of_either_user(ground: Ground) -> None:
    """``all`` leaves nothing; a plain user's job has nothing to begin with but a bounding set."""
    text = printed(ground, SHOW, dropCapabilities=["all"])
    assert set(sets(text).values()) == {0}


def test_an_unknown_capability_is_refused(receipts: Path) -> None:
    """Not ignored."""
    with Session(receipts) as session:
        last = session.request("true", dropCapabilities=["CAP_FLY"]).finish()
    assert (last["event"], last["reason"]) == ("refused", "impossible")
    assert "'CAP_FLY'" in last["message"]


# -- no new privileges -------------------------------------------------------------------------------------------------


def test_no_new_privileges(ground: Ground) -> None:
    """The flag is set, inherited, and only where it was asked for."""
    assert "NoNewPrivs:\t1" in printed(ground, f'sh -c "{SHOW}"', noNewPrivs=True)
    assert "NoNewPrivs:\t0" in printed(ground, SHOW)


@root
def test_a_set_uid_program_gives_nothing_new(receipts: Path) -> None:
    """It runs as who started it."""
    with public_folder() as folder:
        helper = folder / "id"
        shutil.copy(shutil.which("id") or "/usr/bin/id", helper)
        helper.chmod(0o4755)
        words = (*BECOME_NOBODY, str(helper), "-u")
        assert own_output(receipts, *words).strip() == "0"
        assert own_output(receipts, *words, noNewPrivs=True).strip() == str(UID)


# -- network -----------------------------------------------------------------------------------------------------------

NETWORK = "tail -n +3 /proc/net/dev | cut -d: -f1; wc -l < /proc/net/route; cat /proc/net/if_inet6"
ECHO = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname(), 5)
server.accept()[0].sendall(b"hello")
print(client.recv(5).decode())
try:
    socket.create_connection(("192.0.2.1", 9), 2)
except OSError as error:
    print(error.errno)
"""


def test_no_network_but_the_loopback(ground: Ground) -> None:
    """One interface, which works; nothing else can be reached."""
    text = printed(ground, NETWORK, network="none")
    assert text.split()[0] == "lo"
    assert [word for word in text.split() if word.startswith(("eth", "en", "wl"))] == []
    with Session(ground.receipts, program=ground.contain) as session:
        session.start(ground.python[-1], "-c", ECHO, network="none")
        session.finish()
    assert session.errors().decode().split() == ["hello", "101"], "ENETUNREACH"


def test_the_network_is_the_hosts_by_default(ground: Ground) -> None:
    """The control."""
    inside = printed(ground, "readlink /proc/self/ns/net").strip()
    none = printed(ground, "readlink /proc/self/ns/net", network="none").strip()
    assert inside == str(Path("/proc/self/ns/net").readlink())
    assert none != inside


# -- nice --------------------------------------------------------------------------------------------------------------


def test_nice(ground: Ground) -> None:
    """The value itself, inherited by what the command starts; not the wrapper's own."""
    assert printed(ground, "sh -c nice", limits={"nice": 7}).strip() == "7"
    assert printed(ground, "nice").strip() == str(os.nice(0))

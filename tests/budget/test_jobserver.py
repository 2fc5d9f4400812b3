"""The private jobserver of a permit: by hand, and with the real tools."""

from __future__ import annotations

import gc
import os
import random
import select
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contain.budget.jobserver import FIFO, MOST_UNITS, PIPE, Jobserver, form_for, make_version, path_of
from contain.budget.parallelism import hints
from contain.errors import SetupFailed
from tests.budget.builds import STEPS, Build, build, ninja
from tests.session import CONTAIN, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

MAKE = make_version(subprocess.run(["make", "--version"], capture_output=True, text=True, check=True).stdout)
FORMS = (FIFO, PIPE)


class Client:
    """A client of make's protocol, which holds tokens as a tool does: by having read them."""

    def __init__(self, server: Jobserver) -> None:
        """Opens the pipe as the text of the server says."""
        if server.form == FIFO:
            path = server.auth.removeprefix("fifo:")
            self._ends = (os.open(path, os.O_RDONLY), os.open(path, os.O_WRONLY))
        else:
            read, write = (int(number) for number in server.auth.split(","))
            self._ends = (os.dup(read), os.dup(write))
        self.held = 0

    def take(self, most: int) -> int:
        """Takes tokens while there are any."""
        before = self.held
        while self.held - before < most and select.select([self._ends[0]], [], [], 0)[0]:
            self.held += len(os.read(self._ends[0], 1))
        return self.held - before

    def give(self, count: int) -> None:
        """Puts tokens back."""
        self.held -= os.write(self._ends[1], b"+" * count)

    def die(self) -> None:
        """As SIGKILL does it: its tokens are gone with it."""
        for fd in self._ends:
            os.close(fd)


@pytest.fixture(params=FORMS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Jobserver]:
    """Four units, in each form."""
    made = Jobserver(str(tmp_path), "p", 4, form=request.param)
    yield made
    made.close()


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Build]:
    """A build of real tools."""
    place = tmp_path / "build"
    place.mkdir()
    with build(place) as made:
        yield made


def test_one_unit_needs_no_token(tmp_path: Path) -> None:
    """Of n units, n - 1 are tokens; every client has the first one already."""
    for units in (1, 2, 7):
        made = Jobserver(str(tmp_path), str(units), units)
        assert (made.idle, made.units, made.out, made.settled) == (units - 1, units, 0, True)
        made.close()


def test_it_grows_at_once(server: Jobserver) -> None:
    """New tokens are there as soon as the target is."""
    client = Client(server)
    assert client.take(99) == 3
    server.resize(6)
    assert client.take(99) == 2
    assert (server.units, server.out) == (6, 5)
    client.die()


def test_it_shrinks_as_tokens_come_back(server: Jobserver) -> None:
    """Units fall only when the token is really held again, and then nobody can take it."""
    client = Client(server)
    client.take(3)
    assert server.form == PIPE or server.fds() == ()
    server.resize(2)
    assert (server.units, server.settled, server.out) == (4, False, 3)
    assert select.select(server.fds(), [], [], 0)[0] == []
    client.give(1)
    assert select.select(server.fds(), [], [], 0)[0] == list(server.fds())
    assert not server.settle()
    assert server.units == 3
    client.give(2)
    assert server.settle()
    assert (server.units, server.idle) == (2, 1)
    assert server.form == PIPE or server.fds() == ()
    client.die()


def test_a_killed_clients_tokens_are_put_again(server: Jobserver) -> None:
    """Two audits in a row must miss them, with too few tasks left to hold them; they are counted."""
    client = Client(server)
    client.take(3)
    client.die()
    assert server.audit(tasks=4) == 0
    assert server.audit(tasks=4) == 0, "four tasks can hold three tokens"
    assert server.audit(tasks=2) == 0, "once is a moment between a read and a fork"
    assert server.audit(tasks=2) == 2
    assert (server.lost, server.idle, server.units) == (2, 2, 4)
    assert server.audit(tasks=0) == 0
    assert server.audit(tasks=0) == 1
    assert (server.lost, server.idle, server.out) == (3, 3, 0)


def test_a_token_that_was_not_lost_is_taken_out_again(server: Jobserver) -> None:
    """A wrong guess corrects itself: there are never more tokens at rest than units."""
    client = Client(server)
    client.take(3)
    server.audit(tasks=1)
    assert server.audit(tasks=1) == 3
    client.give(3)
    server.settle()
    assert (server.idle, server.units, server.lost) == (3, 4, 0)
    client.die()


def test_a_full_pipe_stops_nobody(server: Jobserver) -> None:
    """A client that writes garbage until the pipe is full keeps neither us nor a later client waiting."""
    client = Client(server)
    fd = os.open(f"/proc/self/fd/{client._ends[1]}", os.O_WRONLY | os.O_NONBLOCK)
    while select.select([], [fd], [], 0)[1]:
        os.write(fd, b"!" * 4096)
    os.close(fd)
    server.resize(MOST_UNITS)
    server.settle()
    assert server.idle <= MOST_UNITS
    while server.idle > 3:
        server.resize(4)
    assert server.settled
    assert (server.idle, server.units) == (3, 4)
    client.die()


def test_the_most_tokens_fit_the_smallest_pipe(tmp_path: Path) -> None:
    """Even a user whose pipes have one page gets all of them, and puts them all back."""
    made = Jobserver(str(tmp_path), "p", 10**9)
    assert made.units == MOST_UNITS
    assert made.idle == MOST_UNITS - 1
    made.resize(-5)
    assert (made.units, made.idle) == (1, 0)
    made.close()


@given(
    st.lists(
        st.tuples(st.sampled_from(["resize", "take", "give", "die", "audit"]), st.integers(0, 9)), max_size=40
    )
)
def test_tokens_are_conserved(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]) -> None:
    """Held, at rest and lost are together what the units say, and never above the largest target there was."""
    made = Jobserver(str(tmp_path_factory.mktemp("j")), "p", 4)
    client, dead, most = Client(made), 0, 4
    for step, number in steps:
        if step == "resize":
            made.resize(number)
            most = max(most, number)
        elif step == "take":
            client.take(number)
        elif step == "give":
            client.give(min(number, client.held))
        elif step == "die":
            dead += client.held
            client.die()
            client = Client(made)
        else:
            # What really holds tokens has a task for each, and one besides.
            dead -= made.audit(client.held + 1)
        assert made.units == 1 + made.idle + client.held + dead
        assert made.target <= made.units <= max(most, 1)
    client.die()
    made.close()


def test_a_place_that_takes_no_fifo_is_a_named_refusal(tmp_path: Path) -> None:
    """And what stands there already is left as it is."""
    Path(path_of(str(tmp_path), "p")).write_text("mine")
    with pytest.raises(SetupFailed) as caught:
        Jobserver(str(tmp_path), "p", 4)
    assert caught.value.step == "jobserver"
    assert Path(path_of(str(tmp_path), "p")).read_text() == "mine"
    with pytest.raises(SetupFailed):
        Jobserver(str(tmp_path / "absent"), "p", 4)


def test_a_path_that_makeflags_cannot_say_is_not_said(tmp_path: Path) -> None:
    """A blank would end the word: then it is descriptors."""
    place = tmp_path / "a b"
    place.mkdir()
    made = Jobserver(str(place), "p", 4, form=FIFO)
    assert made.form == PIPE
    assert list(place.iterdir()) == []
    made.close()


def test_nothing_is_left(server: Jobserver, tmp_path: Path) -> None:
    """Neither a file nor a descriptor, however often it is closed."""
    gc.collect()  # what other tests have dropped is closed now, and not while this one counts
    before = len(list(Path("/proc/self/fd").iterdir()))
    server.close()
    server.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before - (2 if server.form == FIFO else 5)
    assert list(tmp_path.iterdir()) == []


def test_the_form_follows_the_machines_make() -> None:
    """Make 4.3 ends at a name in --jobserver-auth, so a machine that has it gets descriptors."""
    assert make_version("GNU Make 4.3\nBuilt for x86_64-pc-linux-gnu\n") == (4, 3)
    assert make_version("GNU Make 4.4.1\n") == (4, 4, 1)
    assert make_version("bmake 20200710") is None
    assert (form_for((4, 3)), form_for((3, 81)), form_for((4, 4)), form_for((4, 4, 1)), form_for(None)) == (
        PIPE, PIPE, FIFO, FIFO, FIFO,
    )  # fmt: skip


def test_a_hungry_client_does_not_keep_what_is_to_go(tmp_path: Path) -> None:
    """In the form of a pipe: it puts a token and reads at once, as make does, and does not get it again."""
    made = Jobserver(str(tmp_path), "p", 3, form=PIPE)
    client = Client(made)
    client.take(2)
    made.resize(1)
    for left in (2, 1):
        client.give(1)
        assert client.take(1) == 0
        assert made.settle() == (left == 1)
        assert made.units == left
    client.die()
    made.close()


def full(server: Jobserver) -> bool:
    """Every token is taken: whoever wants one more waits."""
    server.settle()
    return server.idle == 0


def began(work: Build, server: Jobserver, count: int) -> bool:
    """So many steps have begun; meanwhile tokens are handed on, as a wrapper does it."""
    server.settle()
    return work.begun == count


def fall(work: Build, server: Jobserver, units: int) -> None:
    """To fewer units, as a wrapper does it: a poll, then ``settle``. Steps must end for it, one after another."""
    server.resize(units)
    while not server.settled:
        work.let_end(1)
        select.select(server.fds(), [], [], 0.05)
        server.settle()
    wait_until(lambda: work.at_work == units and full(server), what="as many at work as there are units now")


def follow(work: Build, server: Jobserver, first: int, *, waits_for_tokens: bool = True) -> None:
    """A tool runs as many steps as there are units, also after they rose and after they fell."""
    work.wait_at_work(first)
    wait_until(lambda: full(server), what="every token is taken")
    server.resize(first + 2)
    if not waits_for_tokens:
        work.let_end(1)
    work.wait_at_work(first + 2)
    fall(work, server, 2)
    for _ in range(5):
        begun = work.begun
        work.let_end(1)
        wait_until(lambda begun=begun: began(work, server, begun + 1), what="the next step")
        assert work.at_work == 2
    work.finish()
    wait_until(lambda: server.idle == 1, what="all tokens are back")
    assert (server.out, server.lost, server.units) == (0, 0, 2)


@pytest.mark.parametrize("units", [2, 4])
def test_make_follows(work: Build, tmp_path: Path, units: int) -> None:
    """The machine's make, in the form that its version asks for."""
    server = Jobserver(str(tmp_path), "p", units, form=form_for(MAKE))
    work.makefile()
    work.start(["make"], hints(units, os.environ, server.auth), server.keep_fds)
    follow(work, server, units)
    server.close()


def test_make_says_nothing_about_it(work: Build, tmp_path: Path) -> None:
    """No warning of make's: the jobserver is one that it could have made itself."""
    server = Jobserver(str(tmp_path), "p", 3, form=form_for(MAKE))
    work.makefile()
    work.start(["make"], hints(3, os.environ, server.auth), server.keep_fds)
    assert work.finish() == ""
    server.close()


def test_make_in_a_containment_follows(work: Build, tmp_path: Path) -> None:
    """The same through `contain exec`: the descriptors arrive under their numbers, and nothing else is needed."""
    server = Jobserver(str(tmp_path), "p", 3, form=PIPE)
    keep = [word for fd in server.keep_fds for word in ("--keep-fd", str(fd))]
    receipts = tmp_path / "receipts"
    receipts.mkdir(mode=0o700)
    work.makefile()
    command = [*CONTAIN, "exec", "--no-budget", "--receipts", str(receipts), *keep, "--", "make"]
    work.start(command, hints(3, os.environ, server.auth), server.keep_fds)
    follow(work, server, 3)
    server.close()


@pytest.mark.skipif(ninja() is None, reason="no ninja of 1.13 or later, which takes tokens")
def test_ninja_follows(work: Build, tmp_path: Path) -> None:
    """By the name of the FIFO."""
    server = Jobserver(str(tmp_path), "p", 3, form=FIFO)
    work.ninja_file()
    work.start([str(ninja())], hints(3, os.environ, server.auth))
    # It looks for tokens when a step ends, and does not wait for them.
    follow(work, server, 3, waits_for_tokens=False)
    server.close()


@pytest.mark.skipif(shutil.which("cargo") is None, reason="no cargo")
@pytest.mark.parametrize("form", FORMS)
def test_cargo_follows(work: Build, tmp_path: Path, form: str) -> None:
    """In both forms."""
    server = Jobserver(str(tmp_path), "p", 3, form=form)
    work.crates()
    work.start(["cargo", "build", "--offline"], hints(3, os.environ, server.auth), server.keep_fds)
    work.wait_at_work(3)
    wait_until(lambda: full(server), what="every token is taken")
    server.resize(5)
    work.wait_at_work(5)
    work.finish()
    wait_until(lambda: server.idle == 4, what="all tokens are back")
    server.close()


def test_tokens_of_killed_steps_come_back(work: Build, tmp_path: Path) -> None:
    """SIGKILL to make itself, at a random time: its tokens are lost, and the next make gets them all the same."""
    for _ in range(5):
        server = Jobserver(str(tmp_path), "p", 4, form=form_for(MAKE))
        work.makefile()
        work.start(["make"], hints(4, os.environ, server.auth), server.keep_fds)
        wanted = random.randint(1, 4)  # noqa: S311 - not for a secret
        wait_until(lambda wanted=wanted: work.begun >= wanted, what="some steps have begun")
        work.kill()
        wait_until(
            lambda server=server: server.audit(tasks=0) >= 0 and server.idle == 3, what="all tokens are back"
        )
        assert server.units == 4
        server.close()


def test_a_nested_make_shares_the_same_tokens(tmp_path: Path) -> None:
    """Makes below a make are one build: all of them together stay within the units."""
    with build(tmp_path) as work:
        server = Jobserver(str(tmp_path), "p", 3, form=form_for(MAKE))
        work.makefile()
        text = (tmp_path / "Makefile").read_text()
        (tmp_path / "inner.mk").write_text(text)
        half = STEPS // 2
        names = [f"s{number}" for number in range(STEPS)]
        (tmp_path / "Makefile").write_text(
            f"all: a b\na:\n\t@+$(MAKE) -s --no-print-directory -f inner.mk {' '.join(names[:half])}\n"
            f"b:\n\t@+$(MAKE) -s --no-print-directory -f inner.mk {' '.join(names[half:])}\n"
        )
        work.start(["make"], hints(3, os.environ, server.auth), server.keep_fds)
        work.wait_at_work(3)
        wait_until(lambda: full(server), what="every token is taken")
        assert work.at_work == 3
        work.finish()
        wait_until(lambda: server.idle == 2, what="all tokens are back")
        server.close()

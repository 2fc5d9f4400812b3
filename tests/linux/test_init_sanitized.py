"""contain-init under AddressSanitizer and UndefinedBehaviorSanitizer: whole jobs, and everything that is no message.

The keeper has no standard error, so the sanitizers write to files (``sanitizer_log.c``); every test here ends with the
proof that there is none, and two broken builds prove that there would be one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contain.linux import init_build, native
from tests.linux.driver import (
    NOBODY,
    SEALS,
    USERS,
    USUAL,
    Keeper,
    block,
    keeper,
    public_folder,
    readable,
    run_to_end,
)
from tests.programs import other_program
from tests.session import WAIT_S, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(240)
"""Many examples: seconds on an idle machine, and more where others work too."""

HERE = Path(__file__).parent
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
ONE_RUNTIME = ("-static-libasan", "-static-libubsan")
"""As shared libraries the two have a runtime each, and one of them writes to standard error."""

VERSION = int(struct.unpack_from("=I", USUAL)[0])
MANY = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
U32 = st.integers(0, 2**32 - 1)
GRACE_MS_AT = 8
"""In an order: kind, signal, then the grace."""


class Sanitized:
    """A sanitized program, and the reports that it wrote."""

    def __init__(
        self, folder: Path, sources: Path = init_build.SOURCES, sanitizers: tuple[str, ...] = SANITIZERS
    ) -> None:
        """Compiles it from ``sources`` into ``folder``, where everybody may write reports."""
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.logs.chmod(0o777)
        self.program = folder / "contain-init"
        log = f'-DLOG="{self.logs}/report"'
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(init_build, "SOURCES", sources)
            extra = (*sanitizers, *ONE_RUNTIME, log, str(HERE / "sanitizer_log.c"))
            init_build.compile_program(str(self.program), hosted=True, extra=extra)

    def reports(self) -> list[str]:
        """What the sanitizers found. A remark of theirs about a stack of its own is no finding."""
        texts = [path.read_text(errors="replace") for path in sorted(self.logs.iterdir())]
        return [text for text in texts if "ERROR:" in text or "runtime error:" in text]


@pytest.fixture(scope="module")
def whole() -> Iterator[Sanitized]:
    """The program as it is."""
    with public_folder() as folder:
        yield Sanitized(folder)


@pytest.fixture
def clean(whole: Sanitized) -> Iterator[Sanitized]:
    """The program as it is; the test fails when a sanitizer has spoken."""
    yield whole
    assert whole.reports() == []


@pytest.fixture(scope="module")
def started(whole: Sanitized) -> Iterator[Keeper]:
    """One keeper for all that is no message: it must survive every example."""
    with keeper(whole.program) as keeper_of_all:
        yield keeper_of_all
        assert not keeper_of_all.ended(0.0)
        unharmed(keeper_of_all)


JOBS: dict[str, tuple[str, dict[str, object]]] = {
    "ordinary": ("exit 3", {"cause": "exited", "code": 3}),
    "signal": ("kill -9 $$", {"cause": "signaled"}),
    "leftovers": ("trap '' TERM; sleep 30 & exit 0", {"cause": "exited", "code": 0}),
    "storm": ("i=0; while [ $i -lt 300 ]; do (true &) ; i=$((i+1)); done", {"cause": "exited", "code": 0}),
}


@pytest.mark.parametrize("kind", JOBS)
def test_whole_jobs(clean: Sanitized, receipts: Path, kind: str) -> None:
    """A job through ``contain run`` has its outcome and no report."""
    text, expected = JOBS[kind]
    with Session(receipts, program=other_program(clean.program)) as session:
        session.start("sh", "-c", text, graceMs=100)
        reply = session.finish()
    assert reply["event"] == "released"
    assert expected.items() <= reply["outcome"].items()


@pytest.mark.parametrize("grace_ms", [0, 200])
def test_a_cancelled_job(clean: Sanitized, receipts: Path, grace_ms: int) -> None:
    """Cancel of a deaf job."""
    with Session(receipts, program=other_program(clean.program)) as session:
        session.start("sh", "-c", "trap '' TERM; sleep 30 & wait; sleep 30")
        session.cancel(graceMs=grace_ms)
        reply = session.finish()
    assert (reply["event"], reply["outcome"]["cause"]) == ("released", "canceled")


@pytest.mark.parametrize(
    ("command", "number"), [("/nowhere", errno.ENOENT), ("/", errno.EACCES), ("nowhere", errno.ENOENT)]
)
def test_a_failed_exec(clean: Sanitized, receipts: Path, command: str, number: int) -> None:
    """Execve's errors, with and without PATH."""
    with Session(receipts, program=other_program(clean.program)) as session:
        session.start(command)
        assert session.finish()["outcome"]["errno"] == number


def test_a_large_command(clean: Sanitized, receipts: Path) -> None:
    """A megabyte of arguments, and a PATH of two thousand directories."""
    with Session(receipts, program=other_program(clean.program)) as session:
        path = ":".join(f"/nowhere/{number:05d}" for number in range(2000)) + ":/usr/bin:/bin"
        session.start("true", *["x" * 1000] * 1000, env={"PATH": path})
        assert session.finish()["outcome"]["code"] == 0


@pytest.mark.parametrize("user", USERS)
def test_steps_by_hand(clean: Sanitized, user: str) -> None:
    """Gate, output and end of one job of each user, and a refused gate."""
    with keeper(clean.program, user) as started:
        assert run_to_end(started.run("echo", "here"))[1] == "here\n"
        refused = started.launch(block("true")).arm().go(b"x")
        assert (refused.until(native.FAILED).step, refused.gone()) == ("gate", True)
        refused.close()


def unharmed(started: Keeper) -> None:
    """The keeper serves a good request."""
    ended, text = run_to_end(started.run("echo", "good"))
    assert (ended.status, text) == (0, "good\n")


@pytest.mark.usefixtures("clean")
@MANY
@given(data=st.binary(min_size=1, max_size=600), count=st.integers(0, 40))
def test_garbage_to_the_keeper(started: Keeper, data: bytes, count: int) -> None:
    """Any bytes with any number of descriptors are answered by EINVAL, and nothing else happens."""
    with Path(os.devnull).open("rb") as null:
        started.send(data, [null.fileno()] * count)
        (error, step, pid), pidfd = started.reply()
        if len(data) != len(USUAL):
            assert (error, step, pid, pidfd) == (errno.EINVAL, "request", 0, -1)


@pytest.mark.usefixtures("clean")
@MANY
@given(
    head=st.tuples(*[st.one_of(U32, st.just(0), st.just(VERSION))] * 6),
    flags=U32,
    counts=st.tuples(*[st.one_of(st.just(0), st.just(0), U32)] * 2),
    numbers=st.lists(st.integers(0, 2**64 - 1), min_size=33, max_size=33),
    keep=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=32, max_size=32),
)
def test_requests_of_the_right_size(
    started: Keeper,
    head: tuple[int, ...],
    flags: int,
    counts: tuple[int, int],
    numbers: list[int],
    keep: list[int],
) -> None:
    """Whatever the fields say, there is an answer; and an init that began says how it went."""
    request = struct.pack("=10I33Q32i", *head, flags, *counts, 0, *numbers, *keep)
    launch = started.launch(block("true"), request=request)
    assert (launch.error == errno.EINVAL) == (head[0] != VERSION or counts != (0, 0))
    if launch.error == 0:
        found = launch.report()
        assert found is None or found.kind in (native.READY, native.FAILED)
    launch.close()


BLOCKS = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda version, counts, body: struct.pack("=4I", version, *counts) + body,
        st.one_of(st.just(VERSION), U32),
        st.tuples(*[st.one_of(st.integers(0, 9), U32)] * 3),
        st.lists(st.sampled_from([b"\0", b"a", b"/bin/true\0", b"\xff\0"]), max_size=40).map(b"".join),
    ),
)


def is_sound(data: bytes) -> bool:
    """The rule of command_block in wire.h, said a second time."""
    if len(data) < 16:
        return False
    version, paths, args, variables = struct.unpack("=4I", data[:16])
    body = data[16:]
    ends = body.endswith(b"\0") and body.count(0) == paths + args + variables
    return version == VERSION and paths > 0 and args > 0 and ends


@pytest.mark.usefixtures("clean")
@MANY
@given(data=BLOCKS)
def test_command_blocks(started: Keeper, data: bytes) -> None:
    """A block is taken exactly when it is sound; any other fails the launch at its step with EINVAL."""
    launch = started.launch(data)
    found = launch.report()
    assert found is not None
    expected = (native.READY, 0) if is_sound(data) else (native.FAILED, errno.EINVAL)
    assert (found.kind, found.error) == expected
    assert found.kind == native.READY or found.step == "command"
    launch.close()


@pytest.mark.parametrize("seals", [0, SEALS & ~2, SEALS & ~8])
def test_unsealed_blocks(clean: Sanitized, seals: int) -> None:
    """A block that could be shortened or changed under the init is refused."""
    with keeper(clean.program) as started:
        launch = started.launch(block("true"), seals=seals)
        found = launch.until(native.FAILED)
        assert (found.step, found.error) == ("command", errno.EINVAL)
        launch.close()
        unharmed(started)


def test_descriptors_that_are_not_what_they_should_be(clean: Sanitized) -> None:
    """Seven null devices, seven pipes, seven directories: an answer each time, and the next request is served."""
    with keeper(clean.program) as started, contextlib.ExitStack() as stack:
        kinds = [
            os.open(os.devnull, os.O_RDWR),
            os.open("/", os.O_PATH),
            os.open("/", os.O_RDONLY),
            *os.pipe(),
        ]
        for fd in kinds:
            stack.callback(os.close, fd)
            started.send(USUAL, [fd] * 7)
            _, pidfd = started.reply()
            if pidfd >= 0:
                assert readable(pidfd, WAIT_S), "a job without a control socket ends"
                os.close(pidfd)
        unharmed(started)


@pytest.mark.usefixtures("clean")
@MANY
@given(data=st.binary(max_size=80))
def test_orders(started: Keeper, data: bytes) -> None:
    """An order of another size ends the job; one of the right size never harms the init."""
    launch = started.launch(block("sleep", "30")).arm()
    launch.order(data)
    if len(data) != 16:
        assert launch.gone()
    launch.close()


@pytest.mark.usefixtures("clean")
@MANY
@given(
    kind=st.integers(0, 5),
    number=st.integers(-(2**31), 2**31 - 1),
    grace_ms=st.sampled_from([0, 1, 2**32 - 1]),
)
def test_orders_of_the_right_size(started: Keeper, kind: int, number: int, grace_ms: int) -> None:
    """Any kind, signal and grace; the job is there afterwards, or has ended in order."""
    launch = started.launch(block("sleep", "30")).arm().go()
    launch.order(struct.pack("=IiII", kind, number, grace_ms, 0))
    launch.order(native.cancel_order(0))
    launch.until(native.EMPTY)
    launch.close()


def test_another_user_ends_the_keeper(clean: Sanitized) -> None:
    """A request from another user than the keeper's is not answered: the keeper ends."""
    if os.getuid() != 0:
        pytest.skip("capability: root, to speak as another user")
    with keeper(clean.program) as started:
        started.uid = NOBODY
        started.send(USUAL)
        assert started.ended()


def test_the_parser_alone(tmp_path: Path) -> None:
    """The strings of a block, on buffers of exactly their size."""
    program = _parser(tmp_path, init_build.SOURCES)
    assert subprocess.run([program, "7", "200000"], check=False).returncode == 0


def test_the_parser_one_byte_too_far_is_noticed(tmp_path: Path) -> None:
    """The check before sees a parser that looks one byte beyond the end."""
    sources = _broken(tmp_path, "command.c", "while (*at < end && **at) (*at)++;", "while (**at) (*at)++;")
    done = subprocess.run([_parser(tmp_path, sources), "7", "200000"], check=False, capture_output=True)
    assert b"heap-buffer-overflow" in done.stderr


@pytest.mark.parametrize(
    ("sanitizer", "words"), [("address", "stack-buffer-overflow"), ("undefined", "insufficient")]
)
def test_an_overflow_is_noticed(sanitizer: str, words: str) -> None:
    """A keeper that writes descriptors beyond its array leaves a report of each: the files are where we look."""
    with public_folder() as folder:
        sources = _broken(folder, "keeper.c", "if (count < MOST_FDS) __builtin_memcpy", "__builtin_memcpy")
        sanitized = Sanitized(folder, sources, (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"))
        with keeper(sanitized.program) as started, Path(os.devnull).open("rb") as null:
            started.send(USUAL, [null.fileno()] * 56)
            assert started.ended()
        assert words in sanitized.reports()[0]


def test_undefined_behaviour_in_an_init_is_noticed() -> None:
    """So does an init that shifts too far, from inside its namespace."""
    with public_folder() as folder:
        line = "init->reaped++;"
        sources = _broken(folder, "init.c", line, "init->reaped = (uint32_t)(1 << (32 + (int)init->reaped));")
        sanitized = Sanitized(folder, sources)
        with keeper(sanitized.program) as started:
            launch = started.run("true")
            assert launch.gone()
            launch.close()
        assert "shift exponent" in sanitized.reports()[0]


def _broken(folder: Path, file: str, text: str, instead: str) -> Path:
    sources = folder / "init"
    shutil.copytree(init_build.SOURCES, sources)
    code = (sources / file).read_text()
    assert code.count(text) == 1, f"{file} has changed: say anew how to break it"
    (sources / file).write_text(code.replace(text, instead))
    return sources


def _parser(folder: Path, sources: Path) -> Path:
    program = folder / "take_strings"
    command = ["cc", "-std=gnu11", "-g", "-O1", "-fno-builtin", *SANITIZERS, f"-I{sources}"]
    subprocess.run([*command, "-o", program, HERE / "take_strings.c", "-Wno-unused-function"], check=True)
    return program

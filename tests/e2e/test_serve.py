"""``contain serve``: many jobs over one pair of pipes, none of which is the worse for another."""

from __future__ import annotations

import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.serving import Served, Size
from tests.session import CONTAIN, ROOT, TOKEN, WAIT_S, Session, descendants, inspect, keeper_of, kill, new_id
from tests.survivors import Watch, adopting

VALID = Draft202012Validator(json.loads((ROOT / "contain" / "schemas" / "protocol.json").read_text()))
OTHER_TOKEN = "a0" * 32
MANY = 200


def turnover(served: Served, count: int, at_once: int) -> list[Size]:
    """``count`` jobs, ``at_once`` of them alive at a time; what the process held after each tenth."""
    sizes, begun, ended = [], 0, 0
    while ended < count:
        while begun < min(count, ended + at_once):
            served.request("true")
            begun += 1
        reply = served.read()
        assert reply is not None
        if reply["event"] == "prepared":
            served.go(reply["id"])
        if reply["event"] == "released":
            assert (reply["empty"], reply["outcome"]["code"]) == (True, 0)
            ended += 1
            if ended % (count // 10) == 0:
                sizes.append(Size(served.process.pid))
        served.replies.clear()
    return sizes


def assert_no_growth(sizes: list[Size], at_once: int, *, most_bytes: int = 2 << 20) -> None:
    """From the second tenth on: nothing but what the jobs that are alive hold."""
    assert max(size.fds for size in sizes) < 40 + 4 * at_once
    assert [size.zombies for size in sizes] == [0] * len(sizes)
    assert sizes[-1].rss_bytes - sizes[1].rss_bytes < most_bytes


def test_five_hundred_jobs_leave_nothing_behind(receipts: Path) -> None:
    """No descriptor, no zombie and no memory stay with the process, and every receipt is released."""
    with Served(receipts) as served:
        assert_no_growth(turnover(served, 500, 16), 16)
        served.hang_up()
        served.finish()
        assert served.process.returncode == 0
    assert len(list(receipts.glob("*.json"))) == 500


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_jobs_leave_nothing_behind(receipts: Path) -> None:
    """The same, twenty times as long; the look for old receipts among so many holds their names for a moment."""
    with Served(receipts) as served:
        assert_no_growth(turnover(served, 10_000, 32), 32, most_bytes=6 << 20)
        served.hang_up()
        served.finish()
        assert served.process.returncode == 0


def test_every_message_is_of_the_schema_and_in_the_order_of_its_job(receipts: Path) -> None:
    """As in ``contain run``, job by job, however they interleave."""
    with Served(receipts) as served:
        ids = [served.request("sh", "-c", f"exit {number}") for number in range(20)]
        for job_id in random.Random(7).sample(ids, len(ids)):  # noqa: S311 - an order, not a secret
            served.until("prepared", job_id)
            served.go(job_id)
        for job_id in ids:
            served.until("released", job_id)
        served.hang_up()
        served.finish()
    for number, job_id in enumerate(ids):
        assert served.events_of(job_id) == ["prepared", "running", "exited", "released"]
        assert served.last_of(job_id)["outcome"]["code"] == number
    for reply in served.replies:
        VALID.validate(reply)


def test_cancels_interleave(receipts: Path) -> None:
    """Every other job is cancelled, in any order, before and after its gate; the others end by themselves."""
    with Served(receipts) as served:
        ids = [served.request("sleep", "60" if number % 2 else "0.2") for number in range(40)]
        shuffled = random.Random(11).sample(ids, len(ids))  # noqa: S311 - an order, not a secret
        for job_id in shuffled:
            served.go(job_id)
        for job_id in shuffled:
            if ids.index(job_id) % 2:
                served.cancel(job_id, graceMs=ids.index(job_id) % 3 * 1000)
        for job_id in ids:
            served.until("released", job_id)
        served.hang_up()
        served.finish()
    causes = [served.last_of(job_id)["outcome"]["cause"] for job_id in ids]
    assert causes == ["exited", "canceled"] * 20
    assert served.process.returncode == 0


def test_a_wrong_token_ends_its_own_job_and_no_other(receipts: Path) -> None:
    """The job that the line names is refused and killed, as in ``contain run``; the other one ends by itself."""
    with Served(receipts) as served:
        first = served.start("sh", "-c", "read line < /dev/zero & sleep 0.5; exit 7", graceMs=0)
        second = served.start("sleep", "60")
        third = served.request("sleep", "60", token=OTHER_TOKEN)
        served.until("prepared", third)
        served.go(second, token=OTHER_TOKEN)
        served.go(third, token=TOKEN)
        for job_id in (second, third):
            assert served.until("refused", job_id)["reason"] == "bad-token"
            assert served.until("released", job_id)["outcome"]["cause"] == "refused"
        assert served.last_of(third)["ran"] is False
        assert served.until("released", first)["outcome"]["code"] == 7
        served.hang_up()
        served.finish()
    assert served.process.returncode == 0


NO_HARM: tuple[tuple[bytes, str | None], ...] = (
    (b"\n", None),
    (b"hello\n", None),
    (b"[1]\n", None),
    (b'{"id":"ID"}\n', "ID"),
    (b'{"id":"ID","action":"go"\n', None),
    (b'{"action":"go"}\n', None),
    (b'{"id":5,"action":"go","token":"x"}\n', None),
    (b"\xff\xfe{}\n", None),
    (b'{"id":"OTHER","permitId":"OTHER","token":"x","command":"true","args":[]}\n', "OTHER"),
    (b'{"id":"OTHER","permitId":"OTHER","command":"true","args":[],"limits":{"x":1}}\n', "OTHER"),
)


@pytest.mark.parametrize(("raw", "named"), NO_HARM)
def test_a_malformed_line_is_refused_and_harms_nobody(raw: bytes, named: str | None, receipts: Path) -> None:
    """With the id where the line has one; the live job goes on, the one that is named by mistake too."""
    other = new_id()
    with Served(receipts) as served:
        job_id = served.start("sleep", "60")
        names = {"ID": job_id, "OTHER": other, None: None}
        served.send_raw(raw.replace(b"ID", job_id.encode()).replace(b"OTHER", other.encode()))
        refused = served.until("refused")
        assert (refused["reason"], refused["id"]) == ("protocol", names[named])
        VALID.validate(refused)
        later = served.start("true")
        served.until("released", later)
        assert served.events_of(job_id)[-1] in ("running", "refused")
        served.cancel(job_id, graceMs=0)
        assert served.until("released", job_id)["outcome"]["by"] == "host"
        served.hang_up()
        served.finish()
    assert served.process.returncode == 0


def test_a_malformed_action_ends_the_job_that_it_names(receipts: Path) -> None:
    """A host that speaks of a live job in a way that is not allowed is not safe with it."""
    with Served(receipts) as served:
        one, two = served.start("sleep", "60"), served.start("sleep", "60")
        served.send(id=one, token=TOKEN, action="stop")
        assert served.until("refused", one)["reason"] == "protocol"
        assert served.until("released", one)["outcome"]["by"] == "protocol"
        served.cancel(two, graceMs=0)
        assert served.until("released", two)["outcome"]["by"] == "host"


def test_a_line_without_an_end_is_bounded(receipts: Path) -> None:
    """More than 16 MiB are thrown away as they come, refused once, and what follows the line feed is read."""
    with Served(receipts) as served:
        served.send_raw(b" " * (17 << 20))
        assert served.until("refused")["reason"] == "protocol"
        served.send_raw(b" " * (4 << 20) + b"\n")
        job_id = served.start("true")
        served.until("released", job_id)
        assert [reply["event"] for reply in served.replies].count("refused") == 1
        assert Size(served.process.pid).rss_bytes < 128 << 20


def test_a_live_id_is_refused_and_its_job_goes_on(receipts: Path) -> None:
    """In either case; afterwards the id is used, and refused as that."""
    with Served(receipts) as served:
        job_id = served.start("sleep", "60")
        for spelling in (job_id, job_id.upper()):
            served.request("true", job_id=spelling)
            assert served.until("refused", spelling)["reason"] == "busy"
        served.cancel(job_id.upper(), graceMs=0)
        served.until("released", job_id)
        served.replies.clear()
        served.request("true", job_id=job_id)
        assert served.until("refused", job_id)["reason"] == "duplicate-id"


def test_an_action_for_a_job_that_is_over_is_ignored(receipts: Path) -> None:
    """A cancel may meet the job's own end."""
    with Served(receipts) as served:
        job_id = served.start("true")
        served.until("released", job_id)
        served.cancel(job_id)
        ignored = served.until("ignored")
        assert (ignored["id"], ignored["reason"]) == (job_id, "not-live")
        VALID.validate(ignored)


def test_a_job_in_the_hands_of_another_is_refused(receipts: Path) -> None:
    """One directory, two wrappers: the lock decides, and neither job is the worse."""
    with Session(receipts) as session, Served(receipts) as served:
        session.start("sleep", "60")
        served.request("true", job_id=session.id)
        assert served.until("refused", session.id)["reason"] == "busy"
        session.cancel(graceMs=0)
        assert session.finish()["empty"] is True


LIMITED = "import os, resource, sys; n = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_NOFILE, (n // 2, n)); "
LIMITED += "os.execvp(sys.argv[2], sys.argv[2:])"


def limited(number: int) -> tuple[str, ...]:
    """``contain`` under a hard limit of so many open files, and half of it as the soft one."""
    return (sys.executable, "-c", LIMITED, str(number), *CONTAIN)


def test_more_jobs_than_can_be_carried_are_refused(receipts: Path) -> None:
    """The soft limit is raised to the hard one; what is beyond it is refused, and may be sent again later."""
    with Served(receipts, program=limited(200)) as served:
        ids = served.start_all((200 - 64) // 4, "sleep", "60")
        extra = served.request("true")
        refused = served.until("refused", extra)
        assert (refused["reason"], refused["detail"]) == ("too-many-jobs", "open-files")
        VALID.validate(refused)
        served.cancel(ids[0], graceMs=0)
        served.until_of(ids[0], "released")
        served.request("true", job_id=extra)
        served.until_of(extra, "prepared")
        served.hang_up()
        served.finish()
        assert served.released() >= set(ids)


@pytest.mark.parametrize(("asked", "expected"), [(None, "100 200"), (50, "50 50"), (150, "150 150")])
def test_a_job_gets_the_old_limit_back(
    asked: int | None, expected: str, receipts: Path, tmp_path: Path
) -> None:
    """Soft and hard as ``serve`` was started with; a limit of the job's own wins."""
    file = tmp_path / "limits"
    limits = {} if asked is None else {"limits": {"openFiles": asked}}
    with Served(receipts, program=limited(200)) as served:
        job_id = served.start("sh", "-c", f"echo $(ulimit -Sn) $(ulimit -Hn) > {file}", **limits)
        served.until("released", job_id)
        found = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
    assert file.read_text().strip() == expected
    assert found == (200, 200)


def leads_a_namespace(pid: int) -> bool:
    """It is PID 1 of one below ours: also of an undumpable process everybody may know that."""
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    numbers = next(text.split()[1:] for text in status.splitlines() if text.startswith("NSpid:"))
    return len(numbers) > 1 and numbers[-1] == "1"


def test_a_killed_session_leaves_nothing_and_inspect_releases_all(receipts: Path) -> None:
    """Kill -9 with many live jobs, some before their gate: the kernel ends all, and every receipt is released."""
    with adopting(), Served(receipts) as served:
        ids = served.start_all(MANY, "sh", "-c", "setsid sleep 60 & sleep 60")
        waiting = [served.request("true") for _ in range(10)]
        for job_id in waiting:
            served.until_of(job_id, "prepared")
        watch = Watch(served.process.pid).look()
        assert len([pid for pid in watch.births if leads_a_namespace(pid)]) == MANY + 10
        kill(served.process.pid)
        served.process.wait(WAIT_S)
        watch.assert_gone(10.0)
        code, found = inspect(receipts)
    assert code == 0
    assert {reply["id"]: reply["state"] for reply in found} == dict.fromkeys([*ids, *waiting], "released")


@pytest.mark.parametrize("end", ["eof", "SIGTERM", "SIGINT", "SIGHUP"])
def test_however_it_ends_every_job_is_released_and_told(end: str, receipts: Path) -> None:
    """Every last reply is written before the exit, and the exit code says which signal it was."""
    with Served(receipts) as served:
        ids = served.start_all(30, "sleep", "60")
        ids += [served.request("sleep", "60") for _ in range(5)]
        for job_id in ids[-5:]:
            served.until_of(job_id, "prepared")
        if end == "eof":
            served.hang_up()
        else:
            served.process.send_signal(getattr(signal, end))
        served.finish()
    assert served.released() == set(ids)
    assert {served.last_of(job_id)["outcome"]["by"] for job_id in ids} == {end}
    assert served.process.returncode == (0 if end == "eof" else 128 + getattr(signal, end))


def test_requests_that_are_not_begun_at_a_signal_are_answered(receipts: Path) -> None:
    """No id of a line that was read is left without a reply."""
    with Served(receipts) as served:
        first = served.start("sleep", "60")
        data = b"".join(
            json.dumps(
                {"id": new_id(), "permitId": new_id(), "token": TOKEN, "command": "true", "args": []}
            ).encode()
            + b"\n"
            for _ in range(200)
        )
        served.send_raw(data)
        served.read()
        served.process.send_signal(signal.SIGTERM)
        served.finish()
    asked = {json.loads(text)["id"] for text in data.splitlines()}
    for job_id in {reply["id"] for reply in served.replies} & asked:
        assert served.last_of(job_id)["event"] in ("released", "refused")
    assert served.last_of(first)["event"] == "released"
    assert inspect(receipts)[0] == 0


def test_input_that_ends_inside_a_line_is_refused(receipts: Path) -> None:
    """And ends the session like any end."""
    with Served(receipts) as served:
        job_id = served.start("sleep", "60")
        served.send_raw(b'{"id":')
        served.hang_up()
        served.finish()
    assert (served.until("refused")["id"], served.last_of(job_id)["event"]) == (None, "released")


def test_a_host_that_does_not_read_is_not_read_from(receipts: Path) -> None:
    """Its lines stay in its pipe, what waits for it is bounded; when it reads again, everything is there."""
    with Served(receipts) as served:
        assert served.process.stdin is not None
        fd = served.process.stdin.fileno()
        job_id = served.start("sleep", "60")
        before = Size(served.process.pid).rss_bytes
        line = json.dumps({"id": job_id, "token": TOKEN, "action": "go"}).encode() + b"\n"
        os.set_blocking(fd, False)
        sent_bytes = 0
        while select.select([], [fd], [], 1.0)[1]:
            at = sent_bytes % len(line)
            sent_bytes += os.write(fd, line[at:] + line * 100)
            assert sent_bytes < 8 << 20, "it reads on and on"
        assert Size(served.process.pid).rss_bytes - before < 16 << 20
        os.set_blocking(fd, True)
        served.read()
        served.send_raw(line[sent_bytes % len(line) :])
        served.cancel(job_id, graceMs=0)
        assert served.until("released", job_id)["outcome"]["by"] == "host"
        served.hang_up()
        served.finish()
    assert served.process.returncode == 0
    assert len([reply for reply in served.replies if reply["event"] == "ignored"]) >= sent_bytes // len(line)


def test_a_host_that_takes_nothing_is_dead(receipts: Path) -> None:
    """After a bounded time, while a reply waits: every job is ended, and its receipt says why."""
    read, write = os.pipe()
    try:
        with Served(receipts, stdout=write) as served:
            job_id = served.request("sleep", "60")
            for _ in range(200):  # more replies than the pipe takes
                served.request("sleep", "60", job_id="x" * 36)
                served.send_raw(b'{"x":"' + b"y" * 400 + b'"}\n' * 10)
            assert served.process.wait(WAIT_S) == 0
    finally:
        os.close(write)
        os.close(read)
    _, (found,) = inspect(receipts, job_id)
    assert (found["state"], found["empty"], found["outcome"]["by"]) == ("released", True, "reader-gone")


def test_a_host_that_closed_its_end_is_dead(receipts: Path) -> None:
    """At the next reply."""
    with Served(receipts) as served:
        job_id = served.start("sleep", "60")
        assert served.process.stdout is not None
        served.process.stdout.close()
        served.request("true")
        assert served.process.wait(WAIT_S) == 0
    _, (found,) = inspect(receipts, job_id)
    assert (found["state"], found["outcome"]["by"]) == ("released", "reader-gone")


def test_a_killed_keeper_takes_its_jobs_along_and_is_started_anew(receipts: Path) -> None:
    """The jobs say ``keeper-lost``; the next request runs."""
    with Served(receipts) as served:
        ids = served.start_all(10, "sleep", "60")
        kill(keeper_of(served.process.pid))
        for job_id in ids:
            assert served.until("released", job_id)["outcome"]["cause"] == "keeper-lost"
        job_id = served.start("true")
        assert served.until("released", job_id)["outcome"]["cause"] == "exited"
        assert Size(served.process.pid).zombies == 0


def test_a_stopped_keeper_refuses_and_recovers(receipts: Path) -> None:
    """One request waits for it; the next are refused at once; when it goes on, no job gets another's init."""
    with Served(receipts) as served:
        live = served.start("sleep", "60")
        keeper = keeper_of(served.process.pid)
        kill(keeper, signal.SIGSTOP)
        try:
            refused = [served.request("sh", "-c", "exit 1") for _ in range(3)]
            for job_id in refused:
                assert served.until("refused", job_id)["reason"] == "setup-failed"
        finally:
            kill(keeper, signal.SIGCONT)
        for number in range(2, 5):
            job_id = served.request("sh", "-c", f"exit {number}")
            while (reply := served.read()) is not None and reply["id"] == job_id:
                if reply["event"] == "refused":  # it has not yet woken up
                    job_id = served.request("sh", "-c", f"exit {number}")
                if reply["event"] == "prepared":
                    served.go(job_id)
                if reply["event"] == "released":
                    assert reply["outcome"]["code"] == number
                    break
        served.cancel(live, graceMs=0)
        assert served.until("released", live)["outcome"]["by"] == "host"
        assert [pid for pid in descendants(served.process.pid) if pid != keeper] == []


def test_requests_from_a_file(receipts: Path, tmp_path: Path) -> None:
    """Input and output may be regular files, which no poll ever waits for."""
    job_id = new_id()
    lines = tmp_path / "lines"
    lines.write_text(
        json.dumps({"id": job_id, "permitId": job_id, "token": TOKEN, "command": "true", "args": []}) + "\n"
    )
    with lines.open("rb") as source, (tmp_path / "replies").open("wb") as sink:
        subprocess.run(
            [*CONTAIN, "serve", str(receipts)], stdin=source, stdout=sink, timeout=WAIT_S, check=True
        )
    replies = [json.loads(text) for text in (tmp_path / "replies").read_text().splitlines()]
    assert [reply["event"] for reply in replies] == ["prepared", "released"]


def test_a_place_that_is_not_safe_is_refused_before_the_first_line(receipts: Path) -> None:
    """With the exit code of the table."""
    receipts.chmod(0o755)
    with Served(receipts) as served:
        assert served.until("refused")["reason"] == "unsafe-place"
        assert served.process.wait(WAIT_S) == 73

"""The sample: against this machine, and against machines that are written down."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from contain.linux import bounds, sample
from contain.linux.sample import Sampler, Ticks, judge
from contain.machine import Disk, Sample, Unknown
from tests.session import wait_until

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
HERTZ = os.sysconf("SC_CLK_TCK")
CPUS = sorted(os.sched_getaffinity(0))


class Written:
    """A /proc and cgroups in a directory. This process's cores are the first of its ``cpu`` lines."""

    def __init__(self, place: Path) -> None:
        """A quiet machine without a cgroup."""
        self.proc = place / "proc"
        self.groups = place / "groups"
        (self.proc / "pressure").mkdir(parents=True)
        (self.proc / "self").mkdir()
        self.groups.mkdir()
        self.stat(0)
        self.write("loadavg", "1.50 2.00 3.00 1/100 4242\n")
        self.write(
            "meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\nSwapTotal: 0 kB\n"
        )
        for name, some, full in (("cpu", 1.25, 0), ("io", 50, 40.5), ("memory", 12, 10)):
            self.write(
                f"pressure/{name}", f"some avg10={some} avg60=0 total=1\nfull avg10={full} avg60=0 total=1\n"
            )
        self.write("self/mountinfo", "")
        self.write("self/cgroup", "")

    def write(self, name: str, text: str) -> None:
        """A file of /proc."""
        (self.proc / name).write_text(text)

    def stat(self, busy_ticks: int, runnable: int = 1, blocked: int = 3) -> None:
        """/proc/stat: the busy ticks are the first core's, spread over the fields; the rest was idle or waited."""
        first, *rest = [CPUS[0], *(cpu for cpu in range(64) if cpu != CPUS[0])]
        parts = [busy_ticks // 6] * 5 + [busy_ticks - busy_ticks // 6 * 5]
        user, nice, system, irq, softirq, steal = parts
        lines = [f"cpu{first} {user} {nice} {system} 900 800 {irq} {softirq} {steal} 70 60"]
        lines += [f"cpu{cpu} 0 0 0 900 800 0 0 0 0 0" for cpu in rest[: len(CPUS) - 1]]
        tail = f"intr 5 0\nctxt 9\nprocs_running {runnable}\nprocs_blocked {blocked}\n"
        self.write("stat", "cpu  1 1 1 1\n" + "\n".join(lines) + "\n" + tail)

    def v2(self, *levels: dict[str, str]) -> None:
        """A v2 hierarchy, one directory a level; the last is this process's group."""
        self._mount("0::", "cgroup2 cgroup rw", self.groups, levels)

    def v1(self, controller: str, *levels: dict[str, str]) -> None:
        """One hierarchy of v1."""
        root = self.groups / controller
        self._mount(f"7:{controller}:", f"cgroup cgroup rw,{controller}", root, levels)

    def _mount(self, prefix: str, kind: str, root: Path, levels: tuple[dict[str, str], ...]) -> None:
        path = root
        for depth, files in enumerate(levels):
            path = path / f"l{depth}" if depth else path
            path.mkdir(parents=True, exist_ok=True)
            (path / "cgroup.procs").touch()
            for name, text in files.items():
                (path / name).write_text(text + "\n")
        inner = "/" + str(path.relative_to(root)) if path != root else "/"
        kinds = kind.split()
        with (self.proc / "self" / "mountinfo").open("a") as file:
            file.write(f"30 20 0:26 / {root} rw - {kinds[0]} {kinds[1]} {kinds[2]}\n")
        with (self.proc / "self" / "cgroup").open("a") as file:
            file.write(f"{prefix}{inner}\n")

    def read(self, busy_ticks: int, span_s: float = 1.0, used: tuple[int, ...] = ()) -> Sample:
        """A sample at the end of a window in which the first core was busy for so many ticks."""
        self.stat(1000 + busy_ticks)
        machine = judge(str(self.proc))
        before = Ticks(at_s=time.monotonic() - span_s, busy=1000, used=used)
        return Sampler(machine, before, str(self.proc)).sample()


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """A machine to be described."""
    return Written(tmp_path)


def number(value: float | Unknown | None) -> float:
    """A value that must be one."""
    assert isinstance(value, float), value
    return value


def test_every_value_is_read(written: Written) -> None:
    """Each from its own file, in its own unit."""
    got = written.read(HERTZ // 2)
    assert number(got.busy) == pytest.approx(0.5, abs=0.05)
    assert got.interval_s == pytest.approx(1.0, abs=0.05)
    assert (got.load1, got.blocked, got.psi_cpu) == (1.5, 3.0, 1.25)
    assert (got.psi_io, got.psi_io_some, got.psi_memory, got.psi_memory_some) == (40.5, 50.0, 10.0, 12.0)
    assert got.available_mib == 4096.0


def test_what_never_was_is_none_and_what_failed_is_unknown(written: Written) -> None:
    """Judged once: no swap and no PSI file are absent; what is gone or garbled later is unknown, with a reason."""
    (written.proc / "pressure" / "io").unlink()
    machine = judge(str(written.proc))
    sampler = Sampler(machine, None, str(written.proc))
    first = sampler.sample()
    assert (first.psi_io, first.psi_io_some, first.swap_used_mib) == (None, None, None)
    assert first.psi_memory == 10.0
    (written.proc / "pressure" / "memory").unlink()
    (written.proc / "loadavg").unlink()
    written.write("meminfo", "nothing of the kind")
    written.write("stat", "")
    got = sampler.sample()
    assert (got.psi_io, got.swap_used_mib) == (None, None)
    for value in (got.psi_memory, got.psi_memory_some, got.load1, got.available_mib, got.busy, got.blocked):
        assert isinstance(value, Unknown), value
        assert value.why


def test_a_kernel_without_pressure_or_available_has_neither(written: Written) -> None:
    """An old kernel is not a broken one."""
    for name in ("cpu", "io", "memory"):
        (written.proc / "pressure" / name).unlink()
    written.write("meminfo", "MemTotal: 8388608 kB\nSwapTotal: 2097152 kB\nSwapFree: 1048576 kB\n")
    got = written.read(0)
    assert (got.psi_cpu, got.psi_io, got.psi_memory, got.available_mib) == (None, None, None, None)
    assert got.swap_used_mib == 1024.0


def test_without_a_window_it_counts_who_runs(written: Written) -> None:
    """The first reading, or one after a long silence, is of this moment and says so; we ourselves do not count."""
    written.stat(0, runnable=2)
    machine = judge(str(written.proc))
    for before in (None, Ticks(at_s=time.monotonic() - 3600, busy=0)):
        got = Sampler(machine, before, str(written.proc)).sample()
        assert (got.busy, got.interval_s) == (1.0, 0.0)
    written.stat(0, runnable=500)
    assert Sampler(machine, None, str(written.proc)).sample().busy == float(machine.cores)


def test_a_window_is_not_cut_too_short(written: Written) -> None:
    """Two readings at once: the second says what the first said, and the window goes on."""
    machine = judge(str(written.proc))
    sampler = Sampler(machine, Ticks(at_s=time.monotonic() - 1, busy=0), str(written.proc))
    written.stat(HERTZ // 2)
    first, kept = sampler.sample(), sampler.ticks
    written.stat(99 * HERTZ)
    again = sampler.sample()
    assert (again.busy, again.interval_s) == (first.busy, first.interval_s)
    assert sampler.ticks == kept


def test_a_v2_quota_bounds_the_cores(written: Written) -> None:
    """The tightest one, wherever it is set; what it does not give counts as busy."""
    written.v2({}, {"cpu.max": "50000 100000", "cpu.stat": "usage_usec 250000"}, {"cpu.max": "max 100000"})
    machine = judge(str(written.proc))
    assert (machine.cores, machine.quota) == (1, 0.5)
    got = written.read(0, used=(0,))
    assert number(got.busy) == pytest.approx(1 - (0.5 - 0.25), abs=0.05)


def test_a_v1_quota_bounds_the_cores(written: Written) -> None:
    """With cpuacct in a hierarchy of its own."""
    written.v1(
        "cpu", {}, {"cpu.cfs_quota_us": "100000", "cpu.cfs_period_us": "100000"}, {"cpu.cfs_quota_us": "-1"}
    )
    written.v1("cpuacct", {}, {"cpuacct.usage": "900000000"}, {})
    machine = judge(str(written.proc))
    assert (machine.cores, machine.quota) == (1, 1.0)
    assert number(written.read(0, used=(0,)).busy) == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize(("text", "cores"), [("250000 100000", 3), ("100000 100000", 1), ("1000 100000", 1)])
def test_a_quota_is_rounded_up_and_at_least_one(written: Written, text: str, cores: int) -> None:
    """A part of a core is one unit."""
    written.v2({"cpu.max": text, "cpu.stat": "usage_usec 0"})
    assert judge(str(written.proc)).cores == min(cores, len(CPUS))


def test_no_quota_is_none(written: Written) -> None:
    """``max``, -1 and an empty file set no bound."""
    written.v2({"cpu.max": "max 100000", "memory.max": "max"})
    assert bounds.find(str(written.proc)) == bounds.Bounds()


def test_memory_is_bounded_by_the_tightest_cgroup(written: Written) -> None:
    """What the kernel would drop (inactive files) is still to be had; so for both versions."""
    level = {"memory.max": str(1024 * MIB), "memory.current": str(900 * MIB)}
    written.v2({}, level | {"memory.stat": f"anon 1\ninactive_file {300 * MIB}"}, {"memory.max": str(1 << 40),
        "memory.current": "0", "memory.stat": "inactive_file 0"})  # fmt: skip
    assert judge(str(written.proc)).memory_mib == 1024
    assert written.read(0).available_mib == 424.0


def test_v1_memory_is_bounded(written: Written) -> None:
    """The largest number of v1 is no limit."""
    written.v1(
        "memory",
        {"memory.limit_in_bytes": "9223372036854771712"},
        {
            "memory.limit_in_bytes": str(512 * MIB),
            "memory.usage_in_bytes": str(500 * MIB),
            "memory.stat": f"inactive_file 1\ntotal_inactive_file {100 * MIB}",
        },
    )
    assert judge(str(written.proc)).memory_mib == 512
    assert written.read(0).available_mib == 112.0


def test_a_group_that_is_gone_is_looked_for_again(written: Written) -> None:
    """Somebody moved us: that is no failed sensor."""
    files = {"memory.max": str(512 * MIB), "memory.current": "0", "memory.stat": ""}
    written.v2({}, files)
    sampler = Sampler(judge(str(written.proc)), None, str(written.proc))
    assert sampler.sample().available_mib == 512.0
    for name in (*files, "cgroup.procs"):
        (written.groups / "l1" / name).unlink()
    (written.groups / "l1").rmdir()
    written.write("self/cgroup", "0::/\n")
    assert sampler.sample().available_mib == 4096.0


def test_the_sources_of_the_core_count_are_shown() -> None:
    """In a process that may use one core of this machine, the affinity is what binds."""
    program = "import os; os.sched_setaffinity(0, {%d}); from contain.linux.sample import judge; m = judge();"
    shown = "print(m.cores, m.affinity, m.online)"
    said = subprocess.run(
        [sys.executable, "-c", program % CPUS[-1] + shown], capture_output=True, text=True, check=True
    ).stdout.split()
    assert said == ["1", "1", str(os.sysconf("SC_NPROCESSORS_ONLN"))]


def test_this_machine_agrees_with_psutil() -> None:
    """Two readers of one kernel."""
    machine = judge()
    got = Sampler(machine).sample({"work": "/", "nowhere": "/nowhere"})
    memory = psutil.virtual_memory()
    assert machine.online == psutil.cpu_count()
    assert machine.memory_mib <= memory.total / MIB
    assert number(got.available_mib) <= memory.available / MIB + 1024
    disks = dict(got.disks)
    assert isinstance(disks["work"], Disk)
    assert disks["work"].total_mib == pytest.approx(psutil.disk_usage("/").total / MIB, rel=0.2)
    assert isinstance(disks["nowhere"], Unknown)


def test_a_busy_loop_is_seen() -> None:
    """A core of ours that spins counts as busy, within one window."""
    sampler = Sampler(judge())
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as spinning:
        try:
            wait_until(
                lambda: number(sampler.sample().busy) > 0.5 and sampler.sample().interval_s > 0, what="busy"
            )
        finally:
            spinning.kill()


def test_it_is_fast() -> None:
    """Below a millisecond, at the median: it stands in the way of every grant."""
    sampler = Sampler(judge())
    took_s = []
    for _ in range(101):
        before_s = time.perf_counter()
        sampler.sample({"work": "/", "home": "/"})
        took_s.append(time.perf_counter() - before_s)
    assert statistics.median(took_s) < 0.001


def test_it_imports_no_library() -> None:
    """Psutil is for people's eyes; a grant does without."""
    program = "import sys, contain.linux.sample; print('psutil' in sys.modules, 're' in sys.modules)"
    bare = [
        sys.executable,
        "-S",
        "-c",
        f"sys_path = {sys.path!r}; import sys; sys.path = sys_path; {program}",
    ]
    assert subprocess.run(bare, capture_output=True, text=True, check=True).stdout.split() == [
        "False",
        "False",
    ]


def test_pressure_text_of_every_kernel() -> None:
    """Before 5.13 the cpu has no ``full``; nothing at all is no answer."""
    assert sample._averages("some avg10=2.50 avg60=0.00 avg300=0.00 total=1\n") == (2.5, 0.0)
    with pytest.raises(ValueError, match="no line"):
        sample._averages("")

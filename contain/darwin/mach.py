"""The machine's counters through Mach and sysctl. Raises OSError; a short answer is one too."""

from __future__ import annotations

import errno

from contain.darwin import layout
from contain.darwin.handle import failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from contain.darwin.handle import Handle

KERN_SUCCESS = 0
WORD_BYTES = 4
USER, SYSTEM = 0, 1
"""Of a core's four counters; the third is idle, the fourth always 0."""


def _refused(call: str, answer: int) -> OSError:
    return OSError(errno.EIO, f"{call} answers {answer}")


class Mach:
    """The questions, asked through one handle."""

    def __init__(self, handle: Handle) -> None:
        """Borrows the handle."""
        self._handle = handle
        self._ffi: Any = handle.ffi
        self._host = handle.call("mach_host_self")[0]  # once: each call adds a reference to the port

    def _named(self, name: str, into: Any, size_bytes: int) -> int:
        """How many bytes the kernel has written."""
        size = self._ffi.new("size_t *", size_bytes)
        result, number = self._handle.call("sysctlbyname", name.encode(), into, size, self._ffi.NULL, 0)
        if result != 0:
            raise failed(number)
        return int(size[0])

    def number(self, name: str) -> int:
        """A sysctl of four or eight bytes."""
        data = self._ffi.new("unsigned char[8]")
        size = self._named(name, data, 8)
        if size not in (4, 8):
            raise OSError(errno.EPROTO, f"{name} has {size} bytes")
        return int.from_bytes(bytes(self._ffi.buffer(data, size)), "little")

    def swap_used_bytes(self) -> int:
        """Of all swap files; their number grows and shrinks, so only this counts."""
        found = self._ffi.new("struct xsw_usage *")
        size = self._named("vm.swapusage", found, self._ffi.sizeof("struct xsw_usage"))
        if size != self._ffi.sizeof("struct xsw_usage"):
            raise OSError(errno.EPROTO, f"vm.swapusage has {size} bytes")
        return int(found.used)

    def memory_pages(self) -> tuple[int, int, int]:
        """(free, external, speculative), in the kernel's pages."""
        found = self._ffi.new("struct vm_statistics64 *")
        count = self._ffi.new("unsigned int *", layout.VM_INFO_COUNT)
        answer, _ = self._handle.call("host_statistics64", self._host, layout.VM_INFO, found, count)
        if answer != KERN_SUCCESS:
            raise _refused("host_statistics64", answer)
        if count[0] < layout.VM_INFO_COUNT:
            raise OSError(errno.EPROTO, f"host_statistics64 gave {count[0]} words")
        return int(found.free), int(found.external), int(found.speculative)

    def page_bytes(self) -> int:
        """The kernel's page: under Rosetta getpagesize() tells another."""
        return int(self._handle.lib.vm_kernel_page_size)

    def core_ticks(self) -> tuple[int, ...]:
        """Of each core, user and system together, as far as 32 bits go."""
        cores, words = self._ffi.new("unsigned int *"), self._ffi.new("unsigned int *")
        table = self._ffi.new("uint32_t **")
        answer, _ = self._handle.call(
            "host_processor_info", self._host, layout.CPU_LOAD_INFO, cores, table, words
        )
        if answer != KERN_SUCCESS:
            raise _refused("host_processor_info", answer)
        try:
            if words[0] < cores[0] * layout.CPU_STATES:
                raise OSError(errno.EPROTO, f"host_processor_info gave {words[0]} words")
            rows = [table[0][at * layout.CPU_STATES : (at + 1) * layout.CPU_STATES] for at in range(cores[0])]
            return tuple(int(row[USER]) + int(row[SYSTEM]) for row in rows)
        finally:
            address = int(self._ffi.cast("uintptr_t", table[0]))
            task = self._handle.lib.mach_task_self_
            self._handle.call("vm_deallocate", task, address, words[0] * WORD_BYTES)

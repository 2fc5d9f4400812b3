"""Capabilities by name: the numbers of <linux/capability.h>, and the bits that a launch drops."""

from __future__ import annotations

from contain.errors import ImpossibleRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_WORDS = (
    "chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable net_bind_service "
    "net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct "
    "sys_admin sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap "
    "mac_override mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore"
)
NAMES = _WORDS.split()
"""In the order of their numbers, from 0. The list has not grown since Linux 5.9."""

ALL = 2**64 - 1
"""Those of future kernels too: what the kernel does not know, nobody has."""


def numbers(names: Iterable[str]) -> int:
    """A bit for each name; ``all`` is every one. Raises ImpossibleRequest for a name that is none."""
    found = 0
    for name in names:
        plain = name.lower().removeprefix("cap_")
        if plain == "all":
            return ALL
        if plain not in NAMES:
            raise ImpossibleRequest(
                f"There is no capability {name[:40]!r}.", advice="Names are those of capabilities(7), or all."
            )
        found |= 1 << NAMES.index(plain)
    return found

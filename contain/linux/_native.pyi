# Types of the cffi module; the compiler has checked the layouts behind them.

from typing import Any

class _Lib:
    WIRE_VERSION: int
    KEEPER_REQUESTS: int
    KEEPER_WRAPPER: int
    KEEPER_WRAPPER_LIFE: int
    NICE_KEEP: int
    GATE_OPEN: int
    STEP_EXEC: int
    MOST_KEPT: int
    MOST_WATCHED: int
    SHARED_SESSION: int
    NO_NEW_PRIVS: int
    NEW_NETWORK: int
    REPORT_READY: int
    REPORT_ARMED: int
    REPORT_FAILED: int
    REPORT_EXITED: int
    REPORT_TERM: int
    REPORT_KILL: int
    REPORT_STOPPED: int
    REPORT_EMPTY: int
    ORDER_ARM: int
    ORDER_CANCEL: int
    ORDER_SIGNAL: int
    PIDFS_MAGIC: int
    def pidfs_handle(self, pidfd: int, handle: Any, kind: Any) -> int: ...
    def pidfs_open(self, any_pidfd: int, handle: bytes, count: int, kind: int) -> int: ...
    def signal_fd(self, mask: int) -> int: ...
    def file_system_magic(self, fd: int) -> int: ...

class _Ffi:
    def new(self, kind: Any, init: object = ...) -> Any: ...
    def buffer(self, data: Any) -> bytes: ...
    def from_buffer(self, kind: Any, data: bytes) -> Any: ...
    def sizeof(self, kind: str) -> int: ...
    def typeof(self, kind: str) -> Any: ...

lib: _Lib
ffi: _Ffi

"""The cffi module ``contain.linux._native`` in API mode: the compiler checks every layout that Python relies on.

It declares the messages of ``init/wire.h`` and the few calls that the standard library lacks.
"""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).parent

CALLS = """
int pidfs_handle(int pidfd, unsigned char *handle, int *type);
int pidfs_open(int any_pidfd, const unsigned char *handle, int bytes, int type);
int64_t file_system_magic(int fd);
int signal_fd(uint64_t mask);
#define PIDFS_MAGIC ...
"""


def _declarations() -> str:
    return re.sub(r"/\*.*?\*/", "", (HERE / "init" / "wire.h").read_text(), flags=re.DOTALL)


ffibuilder = FFI()
ffibuilder.cdef(_declarations() + CALLS)
ffibuilder.set_source(
    "contain.linux._native",
    (HERE / "native.c").read_text(),
    include_dirs=[str(HERE / "init")],
    extra_compile_args=["-Wall", "-Wextra", "-Wno-unused-parameter"],
    py_limited_api=True,
)

if __name__ == "__main__":
    ffibuilder.compile(verbose=True)

"""Builds the two native parts of the Linux backend; everything else is said in pyproject.toml.

`contain.linux._native` is a cffi extension, `contain/linux/contain-init` a static program without libc
that is shipped inside the package with its run bit. Neither exists on another platform, and a condition
on the platform is what `[[tool.setuptools.ext-modules]]` cannot say: hence this file.
"""

import os
import runpy
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

PROGRAM = Path("contain", "linux", "contain-init")


class BuildNative(build_ext):
    """Build the extension, then the program beside it: in the tree when editable."""

    def run(self) -> None:
        """Build both parts. The compile command itself lives in `contain/linux/init_build.py` only."""
        super().run()
        output = self._program()
        output.parent.mkdir(parents=True, exist_ok=True)
        # By path, not by import: the package's own dependencies are not there while it is being built.
        compile_program = runpy.run_path("contain/linux/init_build.py")["compile_program"]
        compile_program(str(output), cc=os.environ.get("CC", "cc"))
        output.chmod(0o755)

    def get_outputs(self) -> list[str]:
        """Name the program among the files that an installation consists of."""
        return [*super().get_outputs(), str(self._program())]

    def get_output_mapping(self) -> dict[str, str]:
        """Say where an editable installation finds what a build would have made."""
        mapping = super().get_output_mapping()
        if self.inplace:
            mapping[str(Path(self.build_lib, PROGRAM))] = str(PROGRAM)
        return mapping

    def _program(self) -> Path:
        return PROGRAM if self.inplace else Path(self.build_lib, PROGRAM)


if sys.platform == "linux":
    setup(
        cmdclass={"build_ext": BuildNative},
        cffi_modules=["contain/linux/native_build.py:ffibuilder"],
        # The extension uses the limited API, so one wheel serves every Python from the floor on.
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
else:
    setup()

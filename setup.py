"""Builds the native parts of this platform's backend; everything else is said in pyproject.toml.

On Linux `contain.linux._native` is a cffi extension, `contain/linux/contain-init` a static program without libc; on
macOS `contain/darwin/contain-anchor` is an ordinary one. The programs are shipped inside the package with their run
bit. A condition on the platform is what `[[tool.setuptools.ext-modules]]` cannot say: hence this file.
"""

import os
import runpy
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext

DARWIN = sys.platform == "darwin"
PROGRAM = Path("contain", "darwin", "contain-anchor") if DARWIN else Path("contain", "linux", "contain-init")
COMPILER = "contain/darwin/anchor_build.py" if DARWIN else "contain/linux/init_build.py"


class BuildNative(build_ext):
    """Build the extension, if there is one, then the program: in the tree when editable."""

    def run(self) -> None:
        """Build all parts. The compile command itself lives in ``COMPILER`` only."""
        super().run()
        output = self._program()
        output.parent.mkdir(parents=True, exist_ok=True)
        # By path, not by import: the package's own dependencies are not there while it is being built.
        compile_program = runpy.run_path(COMPILER)["compile_program"]
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


class WithProgram(Distribution):
    """No extension makes it a wheel of one platform: the program does."""

    def has_ext_modules(self) -> bool:
        """So `build_ext` runs, and the wheel is not for everybody."""
        return True


if sys.platform == "linux":
    setup(
        cmdclass={"build_ext": BuildNative},
        cffi_modules=["contain/linux/native_build.py:ffibuilder"],
        # The extension uses the limited API, so one wheel serves every Python from the floor on.
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
elif DARWIN:
    setup(distclass=WithProgram, cmdclass={"build_ext": BuildNative}, ext_modules=[])
else:
    setup()

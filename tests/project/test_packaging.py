"""What an installation is made of: Python of both backends everywhere, native parts of this system's alone."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import PurePath

import pytest
from packaging.requirements import Requirement

from tests.project.tree import ROOT, text, tracked

LINUX_ONLY = {"python-prctl", "pyroute2"}
"""They do not build on macOS."""

# setuptools is imported first: only setup.py itself is to think that it runs elsewhere.
CHOICE = """
import json, sys
import setuptools
from distutils.core import run_setup
sys.platform, sys.argv = sys.argv[1], ["setup.py"]
found = run_setup("setup.py", stop_after="init")
# cffi puts a command of its own over ours.
ours = [one for one in found.cmdclass.get("build_ext", object).__mro__ if one.__name__ == "BuildNative"]
said = ours[0].run.__globals__ if ours else {"PROGRAM": None, "COMPILER": None}
print(json.dumps({
    "program": said["PROGRAM"] and str(said["PROGRAM"]),
    "compiler": said["COMPILER"],
    "extensions": [one.name for one in found.ext_modules or ()],
    "for everybody": not found.has_ext_modules(),
}))
"""
CHOICES: dict[str, dict[str, object]] = {
    "linux": {
        "program": "contain/linux/contain-init",
        "compiler": "contain/linux/init_build.py",
        "extensions": ["contain.linux._native"],
        "for everybody": False,
    },
    "darwin": {
        "program": "contain/darwin/contain-anchor",
        "compiler": "contain/darwin/anchor_build.py",
        "extensions": [],
        "for everybody": False,
    },
    "freebsd14": {"program": None, "compiler": None, "extensions": [], "for everybody": True},
}


@pytest.mark.parametrize("platform", CHOICES)
def test_each_system_builds_its_own_native_parts(platform: str) -> None:
    """Linux the extension and the init, macOS the anchor, and another system nothing."""
    said = subprocess.run(
        [sys.executable, "-c", CHOICE, platform], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(said.stdout.splitlines()[-1]) == CHOICES[platform]
    assert CHOICES[platform]["compiler"] in (None, *tracked())


def needed(platform: str, requirements: list[str]) -> set[str]:
    """The names of what an installation there asks for."""
    where = {"sys_platform": platform}
    asked = [Requirement(one) for one in requirements]
    return {one.name for one in asked if one.marker is None or one.marker.evaluate(where)}


def test_what_only_linux_can_build_is_asked_for_there_alone() -> None:
    """By the markers of pyproject.toml; and without one it would be asked for on a Mac."""
    project = tomllib.loads(text("pyproject.toml"))["project"]
    asked = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    assert needed("darwin", asked) & LINUX_ONLY == set()
    assert needed("linux", asked) - needed("darwin", asked) == {"python-prctl"}
    assert needed("darwin", ["pyroute2>=0.7"]) & LINUX_ONLY == {"pyroute2"}


def test_both_backends_are_in_every_wheel() -> None:
    """Their Python is found, and none of the native parts is among the data that is shipped by name."""
    config = tomllib.loads(text("pyproject.toml"))["tool"]["setuptools"]
    from setuptools import find_packages  # noqa: PLC0415 - half a second that the other tests here do not need

    found = set(find_packages(str(ROOT), include=config["packages"]["find"]["include"]))
    assert {"contain.linux", "contain.darwin", "receipts"} <= found
    packages = {
        str(PurePath(name).parent).replace("/", ".") for name in tracked() if name.endswith("__init__.py")
    }
    assert found == {name for name in packages if name.split(".")[0] in ("contain", "receipts")}
    assert all(name.endswith((".typed", ".pyi", ".json")) for name in config["package-data"]["*"])


def test_a_source_distribution_has_what_both_systems_compile() -> None:
    """Each C file and header of the package is below a rule of MANIFEST.in."""
    assert "recursive-include contain *.c *.h" in text("MANIFEST.in").splitlines()
    native = {name for name in tracked() if name.startswith("contain/") and name.endswith((".c", ".h"))}
    assert {PurePath(name).parts[1] for name in native} == {"linux", "darwin"}
    shipped = {".py", ".pyi", ".typed", ".json", ".c", ".h"}
    others = {
        name for name in tracked() if name.startswith("contain/") and PurePath(name).suffix not in shipped
    }
    assert others == set()

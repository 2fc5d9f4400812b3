# shellcheck shell=bash
# Which Python the project is set up with: the first on the list that runs and is new enough.

PYTHON_FLOOR=3.11

# new_enough COMMAND: does it run at all (a version manager's shim may not), and is it at the floor?
new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < tuple(map(int, sys.argv[1].split("."))))' "$PYTHON_FLOOR" \
    </dev/null >/dev/null 2>&1
}

# find_python: prints the interpreter. $PYTHON, when set, is the only candidate: a choice is never overruled.
# Root's second choice is one in a private directory (a version manager's in root's home): what root sets up there,
# jobs and tests of a plain user could not run.
find_python() {
  local found private=""
  if [ -n "${PYTHON:-}" ]; then
    new_enough "$PYTHON" || stop "PYTHON=$PYTHON does not run, or is older than Python $PYTHON_FLOOR." \
      "Unset PYTHON, or set it to a newer interpreter."
    base_of "$PYTHON"
    return
  fi
  while read -r found; do
    new_enough "$found" || continue
    found=$(base_of "$found")
    if for_everybody "$found"; then
      printf '%s\n' "$found"
      return
    fi
    private=${private:-$found}
  done < <(candidates)
  [ -n "$private" ] || no_python
  printf '%s\n' "$private"
}

# candidates: the plain name first, wherever PATH has it, then the versioned ones, then where distributions put it.
candidates() {
  local name
  for name in python3 python3.14 python3.13 python3.12 python3.11; do type -aP "$name" || true; done
  [ ! -x /usr/bin/python3 ] || printf '/usr/bin/python3\n'
}

# for_everybody COMMAND: true for a plain user, whose own interpreter it is; for root, when a stranger could run it too.
# Through env, since setpriv itself still finds its program with root's capabilities.
for_everybody() {
  [ "$(id -u)" -ne 0 ] ||
    setpriv --reuid 65534 --regid 65534 --clear-groups env "$1" -I -c '' </dev/null >/dev/null 2>&1
}

# base_of COMMAND: the interpreter itself, not the shim or the environment (ours, perhaps) that leads to it.
base_of() { "$1" -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))' </dev/null; }

no_python() {
  local found="no working python3 is on PATH" version
  if version=$(python3 --version 2>/dev/null </dev/null); then
    found="python3 on PATH is ${version#Python } ($(command -v python3))"
  fi
  stop "contain needs Python $PYTHON_FLOOR or newer; $found." \
    "Debian 12 or newer, Ubuntu 24.04:  apt-get install python3" \
    "Ubuntu 22.04:                      apt-get install python3.11 python3.11-venv python3.11-dev" \
    "Elsewhere: install python3.11 to python3.14 and put it on PATH, or say PYTHON=/path/to/python before the command."
}

# distribution_name PYTHON: the prefix of its packages, "python3" for the distribution's default one.
distribution_name() {
  local real
  real=$(readlink -f "$1")
  if [ "$real" = "$(readlink -f /usr/bin/python3 2>/dev/null)" ]; then
    printf 'python3\n'
  else
    basename "$real"
  fi
}

# shellcheck shell=bash
# The project's own Python environment, .venv: either finished, which its stamp says, or made anew.

VENV=.venv
STAMP=$VENV/contain-setup

# fingerprint PYTHON EXTRA: what an installation depends on. Same fingerprint: nothing to do.
fingerprint() {
  printf '%s %s %s\n' "$(pwd -P)" "$(readlink -f "$1")" "$2"
  cksum pyproject.toml setup.py bin/* ci/venv.sh contain/linux/*build.py contain/linux/*.c contain/linux/init/*
}

# installed PYTHON EXTRA: is the environment finished, of this fingerprint, and does it still run?
# The developer's installation holds everything that the user's does.
installed() {
  [ -f "$STAMP" ] && [ -x contain/linux/contain-init ] || return 1
  if [ "$(<"$STAMP")" != "$(fingerprint "$1" "$2")" ]; then
    [ "$2" = user ] && [ "$(<"$STAMP")" = "$(fingerprint "$1" dev)" ] || return 1
  fi
  "$VENV/bin/python" -c 'import contain, receipts' >/dev/null 2>&1
}

# install_project PYTHON EXTRA: the stamp goes first and comes back last, so that an interruption leaves none.
install_project() {
  local python=$1 extra=$2 target=.
  [ "$extra" = user ] || target=".[$extra]"
  make_environment "$python"
  step "pip: installing contain into $VENV"
  pip_install -e "$target"
  fingerprint "$python" "$extra" >"$STAMP.new"
  mv "$STAMP.new" "$STAMP"
}

# Without a stamp, an environment is one that was interrupted or is not ours to trust: it is made anew.
make_environment() {
  if [ -f "$STAMP" ] && new_enough "$VENV/bin/python" && "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -f "$STAMP"
    return
  fi
  [ ! -e "$VENV" ] || note "$VENV is unfinished or broken: making it anew"
  rm -rf "$VENV"
  step "making $VENV with $("$1" --version) ($1)"
  "$1" -m venv "$VENV" || stop "$1 could not make an environment in $PWD/$VENV." \
    "Is the directory writable, and is there space? Its own words are above."
}

pip_install() {
  local log
  log=$(mktemp)
  if "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" >"$log" 2>&1; then
    rm -f "$log"
    return
  fi
  tail -n 25 "$log" >&2
  if grep -qiE 'could not find a version|no matching distribution|max retries|connection|timed out|name resolution|unreachable' "$log"; then
    rm -f "$log"
    stop "pip could not fetch what it needs." \
      "Check the network, proxy and index settings ($VENV/bin/pip config list), then run this again."
  fi
  rm -f "$log"
  stop "the installation failed; the last words are above." \
    "If a compiler or a header is named there: install it (README, 'What the set-up installs') and run this again."
}

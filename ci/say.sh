# shellcheck shell=bash
# How the scripts in ci/ speak: steps on stdout, troubles on stderr, and every trouble says what to do.

step() { printf '\n==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }

# stop WHAT ADVICE...: the one way out of these scripts.
stop() {
  printf '\nstopped: %s\n' "$1" >&2
  shift
  local line
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 1
}

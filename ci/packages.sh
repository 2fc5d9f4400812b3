# shellcheck shell=bash
# What the machine must have, probed by doing, and how what is missing gets there.

# missing_for_install PYTHON: the packages without which contain cannot be built, one a line.
missing_for_install() {
  local python=$1 name
  name=$(distribution_name "$python")
  "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || printf '%s-venv\n' "$name"
  "$python" -c 'import os, sysconfig, sys
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || printf '%s-dev\n' "$name"
  compiles '#include <stdio.h>' || printf 'gcc\nlibc6-dev\n'
  [ -e /usr/include/sys/capability.h ] || compiles '#include <sys/capability.h>' || printf 'libcap-dev\n'
}

# missing_for_test: what the checks and tests use beyond that.
missing_for_test() {
  needs strace strace
  needs unshare util-linux
  needs bwrap bubblewrap
  needs shellcheck shellcheck
  needs setcap libcap2-bin
  needs ps procps
  needs make make
  needs mkfs.ext4 e2fsprogs
  needs mount mount
  needs aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
  [ -e /usr/aarch64-linux-gnu/include/linux/types.h ] || printf 'libc6-dev-arm64-cross\n'
}

# A plain user's PATH may lack the directories of the administration tools, so they are looked at as well.
needs() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || printf '%s\n' "$2"; }

compiles() {
  command -v cc >/dev/null 2>&1 && printf '%s\nint main(void) { return 0; }\n' "$1" | cc -x c - -o /dev/null 2>/dev/null
}

# install_packages NAME...: through apt, as root or through sudo; a machine that cannot is told exactly what to do.
install_packages() {
  local command="apt-get install -y --no-install-recommends $*" log
  command -v apt-get >/dev/null 2>&1 || no_apt "$@"
  choose_root "$command"
  step "apt: installing $*"
  log=$(mktemp)
  if ! { apt update && apt install -y --no-install-recommends "$@"; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    stop "apt could not install: $*" \
      "Its last words are above. If it could not reach its servers: check the network and /etc/apt/sources.list*," \
      "then run this again. If another apt holds the lock: wait for it. By hand, as root:" "  $command"
  fi
  rm -f "$log"
}

apt() {
  "${ROOT[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 \
    -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 "$@" </dev/null
}

# choose_root COMMAND: sets ROOT to the words that make a command root's. Never waits for a password nobody can type.
choose_root() {
  ROOT=()
  [ "$(id -u)" -ne 0 ] || return 0
  if ! command -v sudo >/dev/null 2>&1; then
    stop "packages are missing, and this is neither root nor is there sudo." \
      "Ask an administrator to run, once:" "  $1" "then run this again; it needs no root after that."
  fi
  if sudo -n true 2>/dev/null; then
    ROOT=(sudo -n)
  elif [ -t 0 ]; then
    note "sudo may ask for your password, to run: $1"
    sudo -v || stop "sudo refused." "Ask an administrator to run, once:" "  $1"
    ROOT=(sudo -n)
  else
    stop "sudo wants a password and there is no terminal to type it on." \
      "Run this once in a terminal, then run this again:" "  sudo $1"
  fi
}

no_apt() {
  stop "these are missing, and this machine has no apt to install them with: $*" \
    "Install their counterparts, then run this again. By distribution:" \
    "  Fedora, RHEL:  dnf install python3-devel gcc glibc-devel libcap-devel" \
    "  Arch:          pacman -S python gcc libcap" \
    "  openSUSE:      zypper install python3-devel gcc glibc-devel libcap-devel" \
    "  Alpine:        apk add python3-dev gcc musl-dev linux-headers libcap-dev" \
    "For the tests also: strace, util-linux, bubblewrap, shellcheck, e2fsprogs, make and a gcc for aarch64."
}

#!/usr/bin/env bash
# fetch.sh ARCH CACHE TREE PACKAGE...: unpacks Debian packages of any architecture into CACHE/ARCH/TREE, and installs
# nothing.
#
# It asks the machine's own Debian sources through an apt of its own: with its own lists, its own idea of what is
# installed (nothing) and its own architecture, so that the machine's apt and dpkg never hear of it. A package that is
# there already is not fetched again. Dependencies are the caller's to name.
set -euo pipefail

private() {
  "$@" -o APT::Architecture="$ARCH" -o APT::Architectures="$ARCH" -o Dir::State="$HOME_OF_APT/state" \
    -o Dir::State::status="$HOME_OF_APT/status" -o Dir::Cache="$HOME_OF_APT/cache" \
    -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$HOME_OF_APT/sources" \
    -o APT::Sandbox::User=root -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o Acquire::Languages=none
}

# Only what Debian's own key signs: another vendor's source may know nothing of this architecture.
prepare() {
  local source
  mkdir -p "$HOME_OF_APT"/{state/lists/partial,cache/archives/partial,sources,deb}
  : >"$HOME_OF_APT/status"
  for source in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    grep -Eqs 'debian-archive-keyring|^deb .*/debian' "$source" || continue
    case $source in
      /etc/apt/sources.list) cp "$source" "$HOME_OF_APT/sources/machine.list" ;;
      *) cp "$source" "$HOME_OF_APT/sources/" ;;
    esac
  done
  [ -n "$(ls -A "$HOME_OF_APT/sources")" ] || { echo "fetch.sh: this machine has no Debian source" >&2; exit 1; }
  private apt-get -qq update
}

# A kernel's constant name is an empty package that depends on the real one.
real_name() {
  case $1 in
    linux-image-cloud-*) private apt-cache depends "$1" | awk '$1 == "Depends:" { print $2; exit }' ;;
    *) echo "$1" ;;
  esac
}

main() {
  local name missing=()
  ARCH=$1 HOME_OF_APT=$2/$1/apt
  local tree=$2/$1/$3 cache=$2/$1
  shift 3
  mkdir -p "$cache" "$tree/.have"
  exec 9>"$cache/.lock"
  flock 9
  for name in "$@"; do [ -e "$tree/.have/$name" ] || missing+=("$name"); done
  [ "${#missing[@]}" -gt 0 ] || return 0
  prepare
  cd "$HOME_OF_APT/deb"
  for name in "${missing[@]}"; do
    rm -f -- ./*.deb
    private apt-get -qq download "$(real_name "$name")" 9>&-
    dpkg -x ./*.deb "$tree"
    rm -f -- ./*.deb
    : >"$tree/.have/$name"
  done
}

main "$@"

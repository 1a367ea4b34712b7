# Installs missing programs for building, running and testing. Sourced by deploy/quickstart and .ci/test.
# shellcheck shell=bash

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo -n "$@"; else return 1; fi
}

apt_lists_are_current=
apt_install() {
  if [ -z "$apt_lists_are_current" ]; then
    as_root apt-get update -q >/dev/null || return
    apt_lists_are_current=yes
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >/dev/null
}

# install WHAT APT DNF APK PACMAN BREW: installs WHAT with the system's package manager. Each argument after WHAT names the
# packages for one package manager, separated by spaces.
install() {
  local what=$1 apt dnf apk pacman brew
  read -ra apt <<<"$2"; read -ra dnf <<<"$3"; read -ra apk <<<"$4"; read -ra pacman <<<"$5"; read -ra brew <<<"$6"
  say "$what is missing: installing it with the system's package manager"
  if command -v apt-get >/dev/null; then apt_install "${apt[@]}"
  elif command -v dnf >/dev/null; then as_root dnf install -q -y "${dnf[@]}"
  elif command -v apk >/dev/null; then as_root apk add -q "${apk[@]}"
  elif command -v pacman >/dev/null; then as_root pacman -S --noconfirm --needed "${pacman[@]}"
  elif command -v brew >/dev/null; then brew install "${brew[@]}"
  else false
  fi || die "cannot install $what: install it and run this again"
}

# need PROGRAM APT DNF APK PACMAN BREW: installs PROGRAM unless it is on the PATH.
need() {
  command -v "$1" >/dev/null || install "$@"
}

# Compiles a small program: a compiler can be present without the C library's headers.
c_compiles() {
  local folder status=0
  folder=$(mktemp -d) || return
  printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' >"$folder/try.c"
  cc -o "$folder/try" "$folder/try.c" >/dev/null 2>&1 || status=1
  rm -rf "$folder"
  return "$status"
}

need_to_build() {
  command -v cargo >/dev/null ||
    die "cargo is missing: install Rust from https://rustup.rs, open a new shell, and run this again"
  c_compiles || install "a C compiler with the C library's headers" "gcc libc6-dev" "gcc glibc-devel" "build-base" gcc gcc
}

need_git() {
  need git git git git git git
}

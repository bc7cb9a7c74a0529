#!/usr/bin/env bash
# Brings a fresh Debian or Ubuntu machine to where `make demo` and `make test` work: system packages and
# a virtual environment. Safe to run again; does nothing when nothing is missing.
#
#   scripts/setup.sh run|vm|test      YES=1 installs system packages without asking
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-run}
venv=${VENV:-.venv}
# A package index that is away for a minute does not end the set-up; pip's own children read this too.
export PIP_RETRIES=${PIP_RETRIES:-9}

# What the guest agent's native core is built with, what the golden image is baked with, and what maps
# subordinate ids for ordinary users.
packages=(
  python3-venv python3-dev gcc libc6-dev make pkg-config
  libxcb1-dev libxcb-damage0-dev libxcb-xtest0-dev libxcb-xfixes0-dev libxcb-shm0-dev libisal-dev
  mmdebstrap debian-archive-keyring uidmap ca-certificates
)
if [ "$purpose" != run ]; then
  # Virtual machines: QEMU, and what makes disks that boot.
  packages+=(
    qemu-system-x86 qemu-utils seabios ovmf mtools dosfstools syslinux syslinux-common gdisk e2fsprogs
  )
fi
if [ "$purpose" = test ]; then
  # Reflinks, and what the runner's containers and the machines' networks are made with.
  packages+=(xfsprogs docker.io nftables iproute2 openssh-client openssh-server curl zstd xz-utils procps packer prometheus sudo)
  # A bare X server and small clients, for tests of the guest agent outside a replica.
  packages+=(shellcheck xvfb tint2 xterm x11-utils x11-xserver-utils x11-xkb-utils openbox mousepad featherpad fonts-dejavu-core dbus dbus-x11 python3-xlib)
  # What instructions of hot paths are counted with; what a metric reads the text of pictures with.
  packages+=(valgrind tesseract-ocr)
fi

die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Runs a command and shows the last line that it wrote: in one line that changes on a terminal, in a line every ten
# seconds elsewhere. When the command fails, the end of what it wrote is shown.
shown() { # what it does, command
  local what=$1 log pid begin=$SECONDS next=0 line width
  shift
  width=$(($(tput cols 2>/dev/null || echo 80) - ${#what} - 20))
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM
  while kill -0 "$pid" 2>/dev/null; do
    line=$(tail -n 1 "$log" | tr '\t\r' '  ' | cut -c 1-$((width > 20 ? width : 20)))
    if [ -t 1 ]; then
      printf '\r\033[Ksetup: %s, %d s: %s' "$what" $((SECONDS - begin)) "$line"
    elif [ $((SECONDS - begin)) -ge "$next" ]; then
      printf 'setup: %s, %d s: %s\n' "$what" $((SECONDS - begin)) "$line"
      next=$((SECONDS - begin + 10))
    fi
    sleep 0.5
  done
  trap - INT TERM
  [ ! -t 1 ] || printf '\r\033[K'
  wait "$pid" || { tail -n 60 "$log" >&2; rm -f "$log"; die "$what failed"; }
  rm -f "$log"
}

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
  die "this set-up knows Debian and Ubuntu only; install the equivalents of: ${packages[*]}"

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  printf 'setup: system packages to install: %s\n' "${missing[*]}"
  if [ "${YES:-}" != 1 ]; then
    [ -t 0 ] || die "not a terminal to ask on; run again with YES=1, or install them yourself"
    read -r -p 'setup: install them now? [y/N] ' answer
    [[ "$answer" =~ ^[yY] ]] || die "nothing was changed"
  fi
  sudo=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "neither root nor sudo; as root: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  "${sudo[@]}" true  # asks for a password here, if at all
  shown "lists of packages" "${sudo[@]}" apt-get update -q -o Acquire::Retries=5
  shown "system packages" "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q -o Acquire::Retries=5 --no-install-recommends "${missing[@]}"
fi

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  die "Python 3.11 or newer is needed; $("$python" --version) found. Name another with PYTHON=..."

[ -x "$venv/bin/python" ] || shown "environment $venv" "$python" -m venv "$venv"
# The stamp holds what the environment was made from, so that an unchanged tree costs nothing.
stamp="$venv/.osgym-$purpose"
inputs=(pyproject.toml */pyproject.toml */_version.py tasks/families/{pyproject.toml,_version.py} guest_agent/setup.py guest_agent/native/* constraints.txt)
present=()
for input in "${inputs[@]}"; do [ -f "$input" ] && present+=("$input"); done
wanted=$(cat "${present[@]}" | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
  # A new setuptools builds wheels here, such as the guest agent's, without an environment for each that pip fills.
  targets=('setuptools>=77' -e protocol -e 'sdk[data]' -e guest_agent -e 'host_agent[osworld,web]' -e 'qemu[docker]' -e cli -e infra -e osworld -e tasks/families -e certify)
  [ "$purpose" = test ] && targets+=(-e '.[dev]' -e 'infra[aws,gcp,plot,fleet]')
  # What is imported is compiled then: the clouds' packages have thousands of modules, of which few ever are.
  pip=("$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off)
  shown "Python packages" "${pip[@]}" --no-compile -c constraints.txt "${targets[@]}"
  # OSWorld's own clients, to test against: without their dependencies, which are gigabytes.
  [ "$purpose" != test ] || shown "installing OSWorld's clients" "${pip[@]}" --no-deps desktop-env==1.0.2
  printf '%s' "$wanted" > "$stamp"
fi

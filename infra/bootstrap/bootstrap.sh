#!/usr/bin/env bash
# Brings a plain Debian or Ubuntu host to a serving OSGym host, tells what it is, and takes it down again.
#
#   bootstrap.sh up [STEP…]      all steps, or some; safe to run again: what is right is left alone
#   bootstrap.sh pending         why `up service` would restart the agent, a line for each reason; changes nothing
#   bootstrap.sh steps           the steps, and how many seconds each may take
#   bootstrap.sh status          JSON: what is installed and whether it serves
#   bootstrap.sh drain [OPTION…] no new episodes (`osgym host drain`: --deadline-s N, --wait; --stop takes it back)
#   bootstrap.sh down [--purge]  stops and removes everything that `up` made; --purge: images and data too
#
# Settings come from /etc/osgym/bootstrap.env (OSGYM_BOOTSTRAP_ENV), which holds no secret; the token is read
# from a secret store through the host's own role, or from a file only root can read.
# Each step prints one line: `osgym: STEP ok|changed|skipped: …`. A failed one names the command, prints its
# output and ends with code 1, or 3 when trying again is of no use; running `up` again goes on from there.
set -Eeuo pipefail
# The system's Python, whatever the caller has: what is installed here runs as another account.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
env_file=${OSGYM_BOOTSTRAP_ENV:-/etc/osgym/bootstrap.env}
# shellcheck source=/dev/null
if [ -f "$env_file" ]; then set -a; . "$env_file"; set +a; fi

: "${OSGYM_DATA:=/var/lib/osgym}" "${OSGYM_PORT:=20000}" "${OSGYM_LISTEN:=0.0.0.0}" "${OSGYM_HOST_RUNTIME:=local}"
: "${OSGYM_MAX:=64}" "${OSGYM_FLAVOR:=full}" "${OSGYM_POLICY:=none}" "${OSGYM_POLICY_ALLOW:=}"
: "${OSGYM_ALLOWED_CIDRS:=}" "${OSGYM_DEVICES:=none}" "${OSGYM_TOKEN_SOURCE:=file:/etc/osgym/token}"
: "${OSGYM_AGENT_URI:=}" "${OSGYM_AGENT_SHA256:=}" "${OSGYM_IMAGE_URI:=}" "${OSGYM_IMAGE_SHA256:=}"
: "${OSGYM_IMAGE_DIGEST:=}" "${OSGYM_HEALTH_TIMEOUT_S:=180}" "${OSGYM_NOTICES:=off}"
: "${OSGYM_METRICS_TO:=none}" "${OSGYM_METRICS_FLEET:=}"

readonly etc=/etc/osgym opt=/opt/osgym lib=/usr/local/lib/osgym account=osgym
readonly units=/etc/systemd/system sysctl_file=/etc/sysctl.d/60-osgym.conf
# The range that images baked by root are owned by (osgym_host.images.idmap); the account gets the same one.
readonly id_base=1000000000 id_count=65536
readonly steps=(packages account kernel storage agent image secret firewall service health)
# How long each may take, in seconds; whoever runs them one by one keeps to it.
readonly steps_s=(1800 60 60 300 900 7200 60 60 180 900)

say() { printf 'osgym: %s\n' "$*"; }
die() { printf 'osgym: %s failed: %s\n' "${step:-bootstrap}" "$*" >&2; exit 1; }
# What the same again cannot mend: whoever tries again need not hurry.
readonly for_good=3
die_for_good() { printf 'osgym: %s failed: %s\n' "${step:-bootstrap}" "$*" >&2; exit "$for_good"; }
trap 'die "line $LINENO: $BASH_COMMAND (exit code $?)"' ERR

# Runs a command quietly; its output is shown only when it fails.
quietly() {
  local output
  if ! output=$("$@" 2>&1); then
    printf '%s\n' "$output" | tail -n 40 >&2
    die "$*"
  fi
}

# HTTPS when whoever set this host up put a certificate there: ca.pem, cert.pem, key.pem.
readonly tls=$etc/tls
url() {
  if [ -f "$tls/cert.pem" ]; then echo "https://127.0.0.1:$OSGYM_PORT"; else echo "http://127.0.0.1:$OSGYM_PORT"; fi
}
# curl, trusting our own authority only, as far as there is one.
ask() {
  local trust=()
  [ ! -f "$tls/cert.pem" ] || trust=(--cacert "$tls/ca.pem")
  curl -fsS -m 10 --noproxy '*' "${trust[@]}" "$@" 2>/dev/null
}

# Writes stdin to a file when it differs (with `only_look`: would write it); says by its exit code whether.
place() {
  local path=$1 mode=${2:-644} new
  if [ "${only_look:-}" ]; then if cmp -s - "$path"; then return 1; else return 0; fi; fi
  new=$(mktemp "$(dirname "$path")/.osgym-XXXXXX")
  cat > "$new"
  chmod "$mode" "$new"
  if cmp -s "$new" "$path"; then rm -f "$new"; return 1; fi
  mv -f "$new" "$path"
}

in_container() { [ -e /.dockerenv ] || [ "${container:-}" ] || systemd-detect-virt -cq 2>/dev/null; }
has_systemd() { [ -d /run/systemd/system ]; }

# Each holds some steps, or what they are made of; nothing runs before `main`.
# shellcheck source=system.sh
. "$here/system.sh"
# shellcheck source=storage.sh
. "$here/storage.sh"
# shellcheck source=archives.sh
. "$here/archives.sh"
# shellcheck source=firewall.sh
. "$here/firewall.sh"
# shellcheck source=units.sh
. "$here/units.sh"
# shellcheck source=service.sh
. "$here/service.sh"

# For the resource provider's `read`: what is there, nothing secret.
status() {
  local active=false serving=false image=""
  if has_systemd; then systemctl is-active -q osgym.service && active=true; elif running; then active=true; fi
  healthy >/dev/null && serving=true
  if [ "$OSGYM_IMAGE_DIGEST" ] && [ -f "$OSGYM_DATA/images/${OSGYM_IMAGE_DIGEST#sha256:}/manifest.json" ]; then
    image=$OSGYM_IMAGE_DIGEST
  fi
  printf '{"agent": "%s", "image_digest": "%s", "active": %s, "serving": %s, "port": %s, "max_replicas": %s}\n' \
    "$(readlink "$opt/current" 2>/dev/null || true)" "$image" "$active" "$serving" "$OSGYM_PORT" "$OSGYM_MAX"
}

# The token goes through the environment, which nobody but root can see.
drain() {
  local token verb=(host drain --host)
  # The agent that is about to be replaced may be of the release that knew another spelling.
  "$opt/current/bin/osgym" "${verb[@]:0:2}" --help >/dev/null 2>&1 || verb=(drain --url)
  token=$(sed -n 's/^OSGYM_TOKEN=//p' "$etc/secret.env")
  [ ! -f "$tls/ca.pem" ] || export OSGYM_CA=$tls/ca.pem
  OSGYM_TOKEN=$token exec "$opt/current/bin/osgym" "${verb[@]}" "$(url)" "$@"
}

down() {
  step=down
  if has_systemd; then
    # Or the next start of a cloud's host would bring all of it back.
    systemctl disable -q --now osgym-boot.service 2>/dev/null || true
    rm -rf "$units/osgym-boot.service" /usr/local/lib/osgym-boot /run/osgym-boot.json
    remove_notices || true
    systemctl disable -q --now osgym-leave.service 2>/dev/null || true
    rm -f "$units/osgym-leave.service"
    remove_metrics || true
    systemctl disable -q --now osgym-watchdog.timer osgym.service osgym-firewall.service 2>/dev/null || true
    systemctl stop -q osgym-watchdog.service 2>/dev/null || true
    rm -f "$units"/osgym.service "$units"/osgym-watchdog.{service,timer} "$units/osgym-firewall.service" /run/osgym-watchdog
    quietly systemctl daemon-reload
    systemctl reset-failed 'osgym*' 2>/dev/null || true
  else
    stop_alone
    rm -f /var/log/osgym.log
  fi
  nft delete table inet osgym 2>/dev/null || true
  rm -f "$sysctl_file"
  if [ "${1:-}" = --purge ]; then
    if grep -q '^LABEL=osgym-data ' /etc/fstab 2>/dev/null && findmnt -no SOURCE "$OSGYM_DATA" >/dev/null; then
      quietly umount "$OSGYM_DATA"
      sed -i '/^LABEL=osgym-data /d' /etc/fstab
      rmdir "$OSGYM_DATA"
    elif [ -e "$OSGYM_DATA/.osgym-bootstrap" ]; then
      find "$OSGYM_DATA" -xdev -mindepth 1 -delete
      rmdir "$OSGYM_DATA" 2>/dev/null || true # a disk of somebody's own is mounted there
    fi
  fi
  rm -rf "$opt" "$lib" "$etc"
  if getent passwd "$account" >/dev/null; then
    # Machines of an agent that did not end in order.
    pkill -KILL -u "$account" || true
    quietly userdel "$account"
  fi
  for file in /etc/subuid /etc/subgid; do [ ! -f "$file" ] || sed -i "/^$account:/d" "$file"; done
  say "down ok${1:+ (purged)}"
}

main() {
  local command=${1:-}
  [ $# -gt 0 ] && shift
  case $command in
    up | down | drain | pending) [ "$(id -u)" = 0 ] || die "root is needed" ;;
  esac
  case $command in
    up)
      exec 9> /run/osgym-bootstrap.lock
      flock -w 600 9 || die "another bootstrap runs"
      local wanted=("$@")
      [ ${#wanted[@]} -gt 0 ] || wanted=("${steps[@]}")
      for step in "${wanted[@]}"; do
        [[ " ${steps[*]} " == *" $step "* ]] || die "there is no step $step; there are ${steps[*]}"
        "step_$step"
      done
      ;;
    steps) for step in "${!steps[@]}"; do echo "${steps[step]} ${steps_s[step]}"; done ;;
    status) status ;;
    pending) pending ;;
    drain) drain "$@" ;;
    down)
      exec 9> /run/osgym-bootstrap.lock
      flock -w 600 9 || die "another bootstrap runs"
      down "$@"
      ;;
    *)
      sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 2
      ;;
  esac
}

main "$@"

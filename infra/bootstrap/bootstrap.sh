#!/usr/bin/env bash
# Brings a plain Debian or Ubuntu host to a serving OSGym host, tells what it is, and takes it down again.
#
#   bootstrap.sh up [STEP…]      all steps, or some; safe to run again: what is right is left alone
#   bootstrap.sh status          JSON: what is installed and whether it serves
#   bootstrap.sh drain [OPTION…] no new episodes (`osgym drain`: --deadline-s N, --wait; --stop takes it back)
#   bootstrap.sh down [--purge]  stops and removes everything that `up` made; --purge: images and data too
#
# Settings come from /etc/osgym/bootstrap.env (OSGYM_BOOTSTRAP_ENV), which holds no secret; the token is read
# from a secret store through the host's own role, or from a file only root can read.
# Each step prints one line: `osgym: STEP ok|changed|skipped: …`. A failed one names the command, prints its
# output and ends with code 1; running `up` again goes on from there.
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

readonly etc=/etc/osgym opt=/opt/osgym lib=/usr/local/lib/osgym account=osgym
readonly units=/etc/systemd/system sysctl_file=/etc/sysctl.d/60-osgym.conf
# The range that images baked by root are owned by (osgym_host.images.idmap); the account gets the same one.
readonly id_base=1000000000 id_count=65536
readonly steps=(packages account kernel storage agent secret image firewall service health)

say() { printf 'osgym: %s\n' "$*"; }
die() { printf 'osgym: %s failed: %s\n' "${step:-bootstrap}" "$*" >&2; exit 1; }
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
  curl -fsS -m 10 "${trust[@]}" "$@" 2>/dev/null
}

# Writes stdin to a file when it differs; says by its exit code whether it did.
place() {
  local path=$1 mode=${2:-644} new
  new=$(mktemp "$(dirname "$path")/.osgym-XXXXXX")
  cat > "$new"
  chmod "$mode" "$new"
  if cmp -s "$new" "$path"; then rm -f "$new"; return 1; fi
  mv -f "$new" "$path"
}

in_container() { [ -e /.dockerenv ] || [ "${container:-}" ] || systemd-detect-virt -cq 2>/dev/null; }
has_systemd() { [ -d /run/systemd/system ]; }

step_packages() {
  local wanted=(python3-venv uidmap ca-certificates curl tar xz-utils zstd nftables xfsprogs procps) missing=() name
  [ "$OSGYM_HOST_RUNTIME" = qemu ] && wanted+=(qemu-system-x86 qemu-utils)
  [ "$OSGYM_DEVICES" != none ] && wanted+=(mdadm)
  for name in "${wanted[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  if [ ${#missing[@]} = 0 ]; then say "packages ok"; return; fi
  # A run that was stopped in the middle of an installation left it to be finished.
  quietly env DEBIAN_FRONTEND=noninteractive dpkg --configure -a
  quietly apt-get -o DPkg::Lock::Timeout=300 update -q
  quietly env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q \
    --no-install-recommends "${missing[@]}"
  say "packages changed: ${missing[*]}"
}

step_account() {
  local did=() file
  install -d -m 755 "$etc" "$opt" "$lib"
  if ! getent passwd "$account" >/dev/null; then
    quietly useradd --system --user-group --home-dir "$OSGYM_DATA" --no-create-home --shell /usr/sbin/nologin "$account"
    did+=("account $account")
  fi
  for file in /etc/subuid /etc/subgid; do
    if ! grep -qx "$account:$id_base:$id_count" "$file" 2>/dev/null; then
      touch "$file"
      sed -i "/^$account:/d" "$file"
      echo "$account:$id_base:$id_count" >> "$file"
      did+=("$file")
    fi
  done
  # /dev/kvm belongs to the group kvm; without the group there is no KVM to use either.
  if getent group kvm >/dev/null && ! id -nG "$account" | grep -qw kvm; then
    quietly usermod -aG kvm "$account"
    did+=("group kvm")
  fi
  say "account ${did[*]:+changed: }${did[*]:-ok}"
}

step_kernel() {
  local changed=ok key value now skipped=()
  if place "$sysctl_file" <<'CONF'
# Limits that thousands of desktops on one host run into (OSGym).
# QEMU and databases inside applications hold asynchronous I/O contexts; the default 65536 is shared by all.
fs.aio-max-nr = 1048576
# Every desktop watches files (panel, file manager, D-Bus): the default is 128 instances per user.
fs.inotify.max_user_instances = 8192
fs.inotify.max_user_watches = 4194304
# A desktop is a dozen processes with many threads; the default 32768 is one host of 500.
kernel.pid_max = 4194304
# One user namespace, and one of each other kind, for every replica.
user.max_user_namespaces = 65536
# Chromium, LibreOffice and QEMU map many files; the default is 65530 per process.
vm.max_map_count = 1048576
# Sockets of desktops that are opened at once.
net.core.somaxconn = 4096
# Keyrings of containers and namespaces count against the user that made them.
kernel.keys.maxkeys = 65536
kernel.keys.maxbytes = 4194304
CONF
  then changed=changed; fi
  while IFS=' =' read -r key value; do
    [[ "$key" =~ ^[a-z] ]] || continue
    now=$(sysctl -n "$key" 2>/dev/null || echo none)
    [ "$now" = "$value" ] && continue
    if sysctl -qw "$key=$value" 2>/dev/null; then changed=changed
    elif [ "$now" = none ] || in_container; then skipped+=("$key")
    else die "sysctl $key cannot be set to $value (is $now)"; fi
  done < "$sysctl_file"
  # Ubuntu forbids unprivileged user namespaces by AppArmor, Debian could by a switch of its own.
  for key in kernel.apparmor_restrict_unprivileged_userns=0 kernel.unprivileged_userns_clone=1; do
    now=$(sysctl -n "${key%=*}" 2>/dev/null) || continue
    [ "$now" = "${key#*=}" ] && continue
    sysctl -qw "$key" && echo "${key/=/ = }" >> "$sysctl_file" && changed=changed
  done
  say "kernel $changed${skipped[*]:+ (not settable here: ${skipped[*]})}"
}

# Disks that replicas may be written to: those named, or with `auto` local NVMe, else whole disks that are
# blank. A disk with anything on it is never touched, but for our own file system.
data_disks() {
  local disk
  # shellcheck disable=SC2086  # a list, separated by blanks
  if [ "$OSGYM_DEVICES" != auto ]; then printf '%s\n' $OSGYM_DEVICES; return; fi
  local found=()
  for disk in /dev/disk/by-id/google-local-nvme-ssd-* /dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_*; do
    [[ "$disk" == *-part* || "$disk" =~ _[0-9]+$ || ! -e "$disk" ]] || found+=("$(readlink -f "$disk")")
  done
  if [ ${#found[@]} = 0 ]; then
    while read -r disk; do
      [ -z "$(lsblk -nro MOUNTPOINT,FSTYPE,PARTTYPE "$disk" | tr -d ' \n')" ] &&
        [ "$(lsblk -nro NAME "$disk" | wc -l)" = 1 ] && found+=("$disk")
    done < <(lsblk -dnpro NAME,TYPE,RO | awk '$2 == "disk" && $3 == 0 {print $1}')
  fi
  printf '%s\n' "${found[@]}" | sort -u
}

step_storage() {
  local changed=ok disks=() disk target
  if [ "$OSGYM_DEVICES" = none ] && [ ! -e "$OSGYM_DATA/.osgym-bootstrap" ] && [ "$(ls -A -I lost+found "$OSGYM_DATA" 2>/dev/null)" ]; then
    die "$OSGYM_DATA holds data that this did not put there; move it away, or set OSGYM_DATA to another folder"
  fi
  install -d -m 755 "$OSGYM_DATA"
  if [ "$OSGYM_DEVICES" = none ]; then
    say "storage skipped: $OSGYM_DATA is on $(findmnt -no FSTYPE,SOURCE -T "$OSGYM_DATA" | tr '\n' ' ')"
  elif findmnt -no SOURCE "$OSGYM_DATA" >/dev/null; then
    say "storage ok"
  else
    mapfile -t disks < <(data_disks | sed '/^$/d')
    [ ${#disks[@]} -gt 0 ] || die "OSGYM_DEVICES=$OSGYM_DEVICES names no disk that could be used"
    target=$(blkid -L osgym-data || true)
    if [ -z "$target" ]; then
      for disk in "${disks[@]}"; do
        [ -b "$disk" ] || die "$disk is not a block device"
        [ -z "$(blkid -p -o value -s TYPE "$disk" 2>/dev/null)" ] || die "$disk is not empty; it was left alone"
      done
      target=${disks[0]}
      if [ ${#disks[@]} -gt 1 ]; then
        # Striped: local NVMe is gone with the host anyway, and replicas want its throughput together.
        quietly mdadm --create /dev/md/osgym --run --level=0 --raid-devices=${#disks[@]} "${disks[@]}"
        target=/dev/md/osgym
      fi
      # reflink: a replica's disk is a copy of the golden one without copying.
      quietly mkfs.xfs -q -f -m reflink=1 -L osgym-data "$target"
    fi
    # nofail: local NVMe comes back empty after a stop, and the host must boot nevertheless.
    if ! grep -q '^LABEL=osgym-data ' /etc/fstab; then
      echo "LABEL=osgym-data $OSGYM_DATA xfs noatime,nofail,x-systemd.device-timeout=30 0 2" >> /etc/fstab
    fi
    quietly mount -o noatime "$target" "$OSGYM_DATA"
    changed="changed: $target"
    say "storage $changed"
  fi
  # The store's folders belong to the agent; images below keep their shifted owners.
  chown "$account:$account" "$OSGYM_DATA"
  chmod 755 "$OSGYM_DATA"
  # `down --purge` removes a folder only when it was made here.
  touch "$OSGYM_DATA/.osgym-bootstrap"
}

step_agent() {
  if [ ! "$OSGYM_AGENT_URI" ] || [ ! "$OSGYM_AGENT_SHA256" ]; then
    die "OSGYM_AGENT_URI and OSGYM_AGENT_SHA256 are needed"
  fi
  local name=${OSGYM_AGENT_SHA256#sha256:} work
  name=${name:0:16}
  if [ "$(readlink "$opt/current" 2>/dev/null)" = "$name" ] && [ -x "$opt/$name/bin/osgym" ]; then
    say "agent ok"
    return
  fi
  rm -rf "$opt"/.work-*
  work=$(mktemp -d "$opt/.work-XXXXXX")
  python3 "$here/fetch.py" file "$OSGYM_AGENT_URI" "$work/agent.tar" "$OSGYM_AGENT_SHA256" || die "see above"
  mkdir "$work/wheels"
  quietly tar -xf "$work/agent.tar" -C "$work/wheels" --no-same-owner
  rm -rf "${opt:?}/$name"
  quietly python3 -m venv "$opt/$name"
  # Nothing but what was fetched: no index is asked.
  quietly "$opt/$name/bin/python" -m pip install -q --disable-pip-version-check --no-index \
    --find-links "$work/wheels" osgym-host
  ln -sfn "$name" "$opt/current"
  rm -rf "$work"
  find "$opt" -mindepth 1 -maxdepth 1 -type d ! -name "$name" -exec rm -rf {} +
  say "agent changed: $name"
}

step_secret() {
  local before after
  before=$(sha256sum "$etc/secret.env" 2>/dev/null || true)
  python3 "$here/fetch.py" secret "$OSGYM_TOKEN_SOURCE" "$etc/secret.env" || die "see above"
  after=$(sha256sum "$etc/secret.env")
  if [ -f "$tls/key.pem" ]; then
    # Read by the agent itself, unlike the token.
    chown "root:$account" "$tls" "$tls"/*.pem
    chmod 750 "$tls"
    chmod 640 "$tls"/*.pem
    before+=$(cat "$tls/.seen" 2>/dev/null || true)
    sha256sum "$tls"/*.pem > "$tls/.seen"
    after+=$(cat "$tls/.seen")
  fi
  if [ "$before" = "$after" ]; then say "secret ok"; else touch "$etc/.restart"; say "secret changed"; fi
}

step_image() {
  if [ ! "$OSGYM_IMAGE_URI" ] || [ ! "$OSGYM_IMAGE_SHA256" ] || [ ! "$OSGYM_IMAGE_DIGEST" ]; then
    die "OSGYM_IMAGE_URI, OSGYM_IMAGE_SHA256 and OSGYM_IMAGE_DIGEST are needed"
  fi
  local digest=${OSGYM_IMAGE_DIGEST#sha256:} archive=${OSGYM_IMAGE_SHA256#sha256:} work
  # For virtual machines a new archive may hold another disk or snapshot of the same image.
  if [ -f "$OSGYM_DATA/images/$digest/manifest.json" ] &&
    { [ "$OSGYM_HOST_RUNTIME" != qemu ] || [ "$(cat "$etc/.image" 2>/dev/null)" = "$archive" ]; }; then
    say "image ok"
    return
  fi
  rm -rf "$OSGYM_DATA"/.image-*
  work=$(mktemp -d "$OSGYM_DATA/.image-XXXXXX")
  python3 "$here/fetch.py" file "$OSGYM_IMAGE_URI" "$work/image.tar" "$OSGYM_IMAGE_SHA256" || die "see above"
  mkdir "$work/store"
  # An archive of the store's own folders; owners are the shifted ids they were baked with.
  quietly tar -xf "$work/image.tar" -C "$work/store" --numeric-owner --same-owner --xattrs --xattrs-include='*'
  rm "$work/image.tar"
  [ -f "$work/store/images/$digest/manifest.json" ] || die "the archive does not hold image $digest"
  python3 - "$work/store/images/$digest/manifest.json" "$digest" <<'CHECK' || die "the manifest is of another image"
import json, sys
sys.exit(json.load(open(sys.argv[1]))["digest"].removeprefix("sha256:") != sys.argv[2])
CHECK
  local kind entry
  for kind in images disks snapshots; do
    [ -d "$work/store/$kind" ] || continue
    install -d -o "$account" -g "$account" "$OSGYM_DATA/$kind" "$OSGYM_DATA/$kind/tags"
    for entry in "$work/store/$kind"/*; do
      [ "$(basename "$entry")" = tags ] || [ -e "$OSGYM_DATA/$kind/$(basename "$entry")" ] ||
        mv -T "$entry" "$OSGYM_DATA/$kind/$(basename "$entry")"
    done
    [ ! -d "$work/store/$kind/tags" ] || cp -a "$work/store/$kind/tags/." "$OSGYM_DATA/$kind/tags/"
    chown -R "$account:$account" "$OSGYM_DATA/$kind/tags"
    find "$OSGYM_DATA/$kind" -mindepth 1 -maxdepth 2 ! -name rootfs -user root -exec chown "$account:$account" {} +
  done
  rm -rf "$work"
  echo "$archive" > "$etc/.image"
  touch "$etc/.restart"
  say "image changed: ${digest:0:12}"
}

step_firewall() {
  local rules="" cidr
  if [ "$OSGYM_ALLOWED_CIDRS" ]; then
    for cidr in $OSGYM_ALLOWED_CIDRS; do
      case $cidr in
        *:*) rules+="    ip6 saddr $cidr tcp dport $OSGYM_PORT accept"$'\n' ;;
        *) rules+="    ip saddr $cidr tcp dport $OSGYM_PORT accept"$'\n' ;;
      esac
    done
    rules+="    iif != lo tcp dport $OSGYM_PORT drop"$'\n'
  fi
  local changed=ok
  # What runs as the agent's account, replicas included, never reaches a cloud's metadata service: that
  # would hand a guest the host's role. The bootstrap itself runs as root, osgym-notices as a user of its own.
  if place "$etc/firewall.nft" <<NFT
table inet osgym
delete table inet osgym
table inet osgym {
  chain input {
    type filter hook input priority filter; policy accept;
$rules  }
  chain output {
    type filter hook output priority filter; policy accept;
    meta skuid $account ip daddr { 169.254.0.0/16, 168.63.129.16, 100.100.100.200 } counter drop
    meta skuid $account ip6 daddr { fd00:ec2::254, fe80::a9fe:a9fe } counter drop
  }
  chain forward {
    type filter hook forward priority filter; policy accept;
    ip daddr { 169.254.0.0/16, 168.63.129.16, 100.100.100.200 } counter drop
    ip6 daddr { fd00:ec2::254, fe80::a9fe:a9fe } counter drop
  }
}
NFT
  then changed=changed; fi
  nft list table inet osgym >/dev/null 2>&1 || changed=changed
  [ "$changed" = ok ] || quietly nft -f "$etc/firewall.nft"
  if has_systemd && place "$units/osgym-firewall.service" <<UNIT
[Unit]
Description=Firewall rules of OSGym
Before=osgym.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=$(command -v nft) -f $etc/firewall.nft
[Install]
WantedBy=multi-user.target
UNIT
  then
    quietly systemctl daemon-reload
    quietly systemctl enable --now osgym-firewall.service
    changed=changed
  fi
  say "firewall $changed"
}

# Where the agent learns that this host will be taken away. A cloud's metadata service is out of its reach, and
# must be (see the firewall): a process with an account of its own asks it and leaves a file.
readonly notice=/run/osgym-notices/notice
notices_of_agent() {
  case $OSGYM_NOTICES in
    aws | gcp) echo "file:$notice" ;;
    *) echo "$OSGYM_NOTICES" ;;
  esac
}

# These two say by their exit code whether anything changed.
remove_notices() {
  [ -e "$units/osgym-notices.service" ] || return 1
  systemctl disable -q --now osgym-notices.service 2>/dev/null || true
  rm -f "$units/osgym-notices.service"
}
write_notices() {
  if [ "$OSGYM_NOTICES" != aws ] && [ "$OSGYM_NOTICES" != gcp ]; then
    remove_notices
    return
  fi
  place "$units/osgym-notices.service" <<UNIT
[Unit]
Description=Asks the cloud whether this host will be taken away, for OSGym
After=network-online.target
Wants=network-online.target
Before=osgym.service
StartLimitIntervalSec=0
[Service]
Type=exec
DynamicUser=yes
# A folder that goes with the process; the agent keeps to what it last read there (see osgym_host.notices).
RuntimeDirectory=osgym-notices
ExecStartPre=/bin/sh -c 'echo starting > $notice.failing'
ExecStart=$opt/current/bin/python -m osgym_host.notices $OSGYM_NOTICES $notice
Restart=always
RestartSec=2
# The metadata service, and nothing else.
IPAddressDeny=any
IPAddressAllow=169.254.169.254
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateDevices=yes
RestrictAddressFamilies=AF_INET AF_UNIX
MemoryMax=128M
[Install]
WantedBy=multi-user.target
UNIT
}

write_config() {
  place "$etc/agent.yaml" <<CONF
host: $OSGYM_LISTEN
ports: [$OSGYM_PORT]
data_dir: $OSGYM_DATA
runtime: $OSGYM_HOST_RUNTIME
image: $OSGYM_FLAVOR
max_replicas: $OSGYM_MAX
egress: $OSGYM_POLICY
notices: "$(notices_of_agent)"
${OSGYM_POLICY_ALLOW:+egress_allow: [$OSGYM_POLICY_ALLOW]}
$([ ! -f "$tls/cert.pem" ] || printf 'tls_cert: %s\ntls_key: %s\n' "$tls/cert.pem" "$tls/key.pem")
CONF
}

# Machines outlive an agent that was killed, and the next one goes on with them (other desktops end with it).
# systemd starts nothing in a group that passes controllers on, as the agent's then does (219/CGROUP): the agent
# passes them on again, and caps the machines anew.
write_make_room() {
  place "$lib/make-room" 755 <<'ROOM'
#!/bin/sh
group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
group=${group%/.control}
for folder in "$group"/osgym-* "$group"; do
  [ ! -e "$folder/cgroup.subtree_control" ] || echo '-memory -cpu -pids' > "$folder/cgroup.subtree_control"
done
ROOM
}

write_unit() {
  local kill_mode=mixed
  [ "$OSGYM_HOST_RUNTIME" != qemu ] || kill_mode=process
  place "$units/osgym.service" <<UNIT
[Unit]
Description=OSGym host agent
After=network-online.target osgym-firewall.service
Wants=network-online.target
# Without its rules a guest that broke out would reach the metadata service: rather no agent.
Requires=osgym-firewall.service
RequiresMountsFor=$OSGYM_DATA
StartLimitIntervalSec=600
StartLimitBurst=10
[Service]
User=$account
Group=$account
# The token: read by systemd as root; the account cannot read the file.
EnvironmentFile=$etc/secret.env
Environment=OSGYM_DATA_DIR=$OSGYM_DATA
ExecStopPost=-+$lib/make-room
ExecStart=$opt/current/bin/osgym serve --config $etc/agent.yaml
ExecStop=-+$lib/going-down
Restart=on-failure
RestartSec=2
# Ctrl-C's way out removes every desktop first.
KillSignal=SIGINT
KillMode=$kill_mode
TimeoutStopSec=90
# A socket and some files for each replica; the default is 1024.
LimitNOFILE=1048576
LimitNPROC=infinity
TasksMax=infinity
# Replicas get cgroups of their own below the unit.
Delegate=yes
# The agent is the last to go when memory runs out; replicas are capped one by one.
OOMScoreAdjust=-500
OOMPolicy=continue
ProtectHome=yes
# Nothing here that implies NoNewPrivileges (ProtectClock, PrivateDevices, SystemCallFilter…): newuidmap, which
# gives replicas their ids, is setuid.
ReadWritePaths=$OSGYM_DATA
[Install]
WantedBy=multi-user.target
UNIT
}

# Google Cloud tells a spot machine by beginning to shut it down, 30 s before it cuts it off.
write_going_down() {
  place "$lib/going-down" 755 <<DOWN
#!/bin/sh
# When the whole machine goes down, open episodes get their end first; a restart of the agent is not held up.
[ "\$(systemctl is-system-running)" = stopping ] || exit 0
exec timeout 25 $here/bootstrap.sh drain --deadline-s 20 --wait
DOWN
}

# An agent that runs but does not answer three times in a row is started anew.
write_watchdog() {
  local changed=1
  place "$lib/watchdog" 755 <<WATCH && changed=0
#!/bin/sh
# One that was stopped, or just is being, does not answer either, and is to stay so.
count=\$(cat /run/osgym-watchdog 2>/dev/null || echo 0)
if ! systemctl is-active -q osgym.service || curl -fsS -m 10 -o /dev/null $([ ! -f "$tls/cert.pem" ] || echo "--cacert $tls/ca.pem") $(url)/v1/health; then count=0; else count=\$((count + 1)); fi
if [ "\$count" -ge 3 ]; then count=0; systemctl try-restart osgym.service; fi
echo "\$count" > /run/osgym-watchdog
WATCH
  place "$units/osgym-watchdog.service" <<UNIT && changed=0
[Unit]
Description=Does the OSGym host agent answer?
[Service]
Type=oneshot
ExecStart=$lib/watchdog
UNIT
  place "$units/osgym-watchdog.timer" <<UNIT && changed=0
[Unit]
Description=Asks the OSGym host agent for its health
[Timer]
OnActiveSec=120
OnUnitActiveSec=20
AccuracySec=1
[Install]
WantedBy=timers.target
UNIT
  return $changed
}

step_service() {
  local changed=ok
  write_config && changed=changed
  if [ -e "$etc/.restart" ] || [ "$(cat "$etc/.agent" 2>/dev/null)" != "$(readlink "$opt/current")" ]; then changed=changed; fi
  if has_systemd; then
    write_unit && changed=changed
    write_going_down || true
    write_make_room || true
    write_watchdog && changed=changed
    write_notices && changed=changed
    systemctl is-active -q osgym.service || changed=changed
    if [ "$changed" = changed ]; then
      quietly systemctl daemon-reload
      if [ -e "$units/osgym-notices.service" ]; then
        quietly systemctl enable osgym-notices.service
        quietly systemctl restart osgym-notices.service
      fi
      quietly systemctl enable osgym.service osgym-watchdog.timer
      # One that failed too often is not started for ten minutes; what was wrong may be right by now.
      systemctl reset-failed osgym.service 2>/dev/null || true
      quietly systemctl restart osgym.service
      quietly systemctl start osgym-watchdog.timer
    fi
  else
    running || changed=changed
    if [ "$changed" = changed ]; then stop_alone; start_alone; fi
  fi
  readlink "$opt/current" > "$etc/.agent"
  rm -f "$etc/.restart"
  say "service $changed"
}

# Without systemd (a container): the same account and limits, a process of its own, its id in a file.
running() {
  local stat
  [ -s /run/osgym.pid ] || return 1
  stat=$(cat "/proc/$(cat /run/osgym.pid)/stat" 2>/dev/null) || return 1
  # Ended, but nobody has taken note: the first process of many containers never does.
  [[ "${stat##*) }" != Z* ]]
}
start_alone() {
  ulimit -n 1048576 2>/dev/null || ulimit -n "$(ulimit -Hn)"
  (
    local data=$OSGYM_DATA name
    # The agent takes any OSGYM_ variable for a setting; it gets the token and its folder, and nothing else.
    for name in $(compgen -v OSGYM_); do unset "$name"; done
    export OSGYM_DATA_DIR=$data HOME=$data USER=$account LOGNAME=$account
    set -a
    # shellcheck source=/dev/null
    . "$etc/secret.env"
    exec setsid setpriv --reuid "$account" --regid "$account" --init-groups \
      "$opt/current/bin/osgym" serve --config "$etc/agent.yaml"
  ) </dev/null >/var/log/osgym.log 2>&1 9>&- &
  echo $! > /run/osgym.pid
}
stop_alone() {
  running || return 0
  local pid i
  pid=$(cat /run/osgym.pid)
  kill -INT "$pid"
  for ((i = 0; i < 900; i++)); do running || break; sleep 0.1; done
  kill -KILL "$pid" 2>/dev/null || true
  rm -f /run/osgym.pid
}

healthy() { ask "$(url)/v1/health"; }

# What the pool says; the token goes through a pipe, never through an argument that others could see.
pool() {
  sed -n 's/^OSGYM_TOKEN=/Authorization: Bearer /p' "$etc/secret.env" |
    ask -H @- "$(url)/v1/pool"
}

# Serving means: the agent answers, and a desktop is ready.
step_health() {
  local end=$((SECONDS + OSGYM_HEALTH_TIMEOUT_S)) answer="" why
  while true; do
    if healthy >/dev/null; then
      answer=$(pool) || answer=""
      if [[ "$answer" =~ \"(ready|leased)\":[1-9] ]]; then break; fi
    fi
    if [ $SECONDS -ge $end ] || { ! has_systemd && ! running; }; then
      { if has_systemd; then journalctl -u osgym.service -n 30 --no-pager; else tail -n 30 /var/log/osgym.log; fi; } >&2 || true
      why="the agent does not answer on port $OSGYM_PORT"
      [ -z "$answer" ] || why="no desktop became ready: $answer"
      die "$why (waited for up to $OSGYM_HEALTH_TIMEOUT_S s)"
    fi
    sleep 0.5
  done
  say "health ok"
}

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
  local token
  token=$(sed -n 's/^OSGYM_TOKEN=//p' "$etc/secret.env")
  [ ! -f "$tls/ca.pem" ] || export OSGYM_CA=$tls/ca.pem
  OSGYM_TOKEN=$token exec "$opt/current/bin/osgym" drain --url "$(url)" "$@"
}

down() {
  step=down
  if has_systemd; then
    remove_notices || true
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
    up | down | drain) [ "$(id -u)" = 0 ] || die "root is needed" ;;
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
    status) status ;;
    drain) drain "$@" ;;
    down)
      exec 9> /run/osgym-bootstrap.lock
      flock -w 600 9 || die "another bootstrap runs"
      down "$@"
      ;;
    *)
      sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 2
      ;;
  esac
}

main "$@"

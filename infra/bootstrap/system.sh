# shellcheck shell=bash
# Steps packages, account, kernel: what a plain Debian or Ubuntu lacks. Read by bootstrap.sh.

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

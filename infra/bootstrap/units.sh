# shellcheck shell=bash
# The agent's settings and its units of systemd. Read by bootstrap.sh.

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
  [ ! "${only_look:-}" ] || return 0
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

# A host of an Auto Scaling group drains before the group ends it (leave.py); as root, since it speaks with the
# group by the host's role. Nothing of the agent's: whether it changed restarts no agent.
write_leave() {
  if [ ! "${OSGYM_LIFECYCLE:-}" ]; then return; fi
  place "$units/osgym-leave.service" <<UNIT || return 0
[Unit]
Description=Drains the OSGym host agent before an Auto Scaling group ends this host
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0
[Service]
# Region, group and hook are words.
ExecStart=/usr/bin/python3 $here/leave.py $OSGYM_LIFECYCLE ${OSGYM_DRAIN_TIMEOUT_S:-1800} $here/bootstrap.sh drain --deadline-s ${OSGYM_DRAIN_TIMEOUT_S:-1800} --wait
Restart=on-failure
RestartSec=5
[Install]
WantedBy=multi-user.target
UNIT
  quietly systemctl daemon-reload
  quietly systemctl enable osgym-leave.service
  quietly systemctl restart osgym-leave.service
}

# How much this host is asked for goes to the cloud's scaling by a process of its own too: only it gets to the
# role's credentials, and the agent leaves it a file.
readonly pressure=/run/osgym/lease-pressure
remove_metrics() {
  [ -e "$units/osgym-metrics.service" ] || return 1
  [ ! "${only_look:-}" ] || return 0
  systemctl disable -q --now osgym-metrics.service 2>/dev/null || true
  rm -f "$units/osgym-metrics.service"
}
write_metrics() {
  if [ "$OSGYM_METRICS_TO" = none ]; then
    remove_metrics
    return
  fi
  place "$units/osgym-metrics.service" <<UNIT
[Unit]
Description=Publishes how much this host is asked for, for the scaling of OSGym's fleet
After=network-online.target osgym.service
Wants=network-online.target
StartLimitIntervalSec=0
[Service]
Type=exec
DynamicUser=yes
ExecStart=$opt/current/bin/python -m osgym_host.scaling $OSGYM_METRICS_TO $pressure $OSGYM_METRICS_FLEET
Restart=always
RestartSec=60
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateDevices=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
MemoryMax=256M
[Install]
WantedBy=multi-user.target
UNIT
}

write_config() {
  local more=""
  # `off` alone would be a truth value.
  [ ! "${OSGYM_KEEP_WARM:-}" ] || more+=$'\n'"warm: $OSGYM_KEEP_WARM"
  [ ! "${OSGYM_KEEP_TRAJECTORY:-}" ] || more+=$'\n'"trajectory: \"$OSGYM_KEEP_TRAJECTORY\""
  [ ! "${OSGYM_KEEP_TRAJECTORY_MIB:-}" ] || more+=$'\n'"trajectory_max_mib: $OSGYM_KEEP_TRAJECTORY_MIB"
  place "$etc/agent.yaml" <<CONF
host: $OSGYM_LISTEN
ports: [$OSGYM_PORT]
data_dir: $OSGYM_DATA
runtime: $OSGYM_HOST_RUNTIME
image: $OSGYM_FLAVOR
max_replicas: $OSGYM_MAX
egress: $OSGYM_POLICY
notices: "$(notices_of_agent)"$more
$([ "${OSGYM_METRICS_TO:-none}" = none ] || echo "metrics_to: \"file:$pressure\"")
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
$([ "$OSGYM_METRICS_TO" = none ] || echo RuntimeDirectory=osgym)
ExecStopPost=-+$lib/make-room
ExecStart=$opt/current/bin/python -m osgym_host serve --config $etc/agent.yaml
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
if ! systemctl is-active -q osgym.service || curl -fsS -m 10 --noproxy '*' -o /dev/null $([ ! -f "$tls/cert.pem" ] || echo "--cacert $tls/ca.pem") $(url)/v1/health; then count=0; else count=\$((count + 1)); fi
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

# shellcheck shell=bash
# Steps service and health: the agent runs and answers. Read by bootstrap.sh.

# Changes over to the agent that was installed last; true when that is another one.
use_agent() {
  local name=${OSGYM_AGENT_SHA256#sha256:}
  name=${name:0:16}
  [ "$name" ] && [ -e "$opt/$name/.complete" ] && [ "$(readlink "$opt/current")" != "$name" ] || return 1
  [ "${only_look:-}" ] || ln -sfn "$name" "$opt/current"
}
# Once the former one has ended.
remove_other_agents() {
  find "$opt" -mindepth 1 -maxdepth 1 -type d ! -name "$(readlink "$opt/current")" -exec rm -rf {} +
}

# Whoever updates a fleet drains the host before what this announces.
pending() {
  only_look=1
  ! use_agent || say "another agent"
  ! write_config || say "other settings"
  [ ! -e "$etc/.restart" ] || say "another image or token"
  [ "$(cat "$etc/.agent" 2>/dev/null)" = "$(readlink "$opt/current")" ] || say "another agent"
  if has_systemd; then
    if write_unit || write_watchdog || write_notices || write_metrics; then say "other units"; fi
  fi
}

step_service() {
  local changed=ok
  use_agent || true
  write_config && changed=changed
  if [ -e "$etc/.restart" ] || [ "$(cat "$etc/.agent" 2>/dev/null)" != "$(readlink "$opt/current")" ]; then changed=changed; fi
  if has_systemd; then
    write_unit && changed=changed
    write_going_down || true
    write_make_room || true
    write_leave
    write_watchdog && changed=changed
    write_notices && changed=changed
    write_metrics && changed=changed
    systemctl is-active -q osgym.service || changed=changed
    if [ "$changed" = changed ]; then
      quietly systemctl daemon-reload
      if [ -e "$units/osgym-notices.service" ]; then
        quietly systemctl enable osgym-notices.service
        quietly systemctl restart osgym-notices.service
      fi
      if [ -e "$units/osgym-metrics.service" ]; then
        quietly systemctl enable osgym-metrics.service
        quietly systemctl --no-block restart osgym-metrics.service
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
  remove_other_agents
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
      "$opt/current/bin/python" -m osgym_host serve --config "$etc/agent.yaml"
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

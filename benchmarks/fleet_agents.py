"""Hosts of `fleet_hosts` with a host agent on each: what `fleet_roll` updates under load.

The agent is the real one (`osgym host serve`: API, TLS, token, pool, leases, drain), over replicas that have
no desktop: each is a small server that speaks the guest protocol. It is started, restarted and asked by the
stand-in bootstrap below, in the same steps and with the same answers as the real one; `hold_drained`, which
drains it, is the real one too. Run as `python -m benchmarks.fleet_agents serve …` it is that agent.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from tests.support.fake_runtime import FakeImage, FakeRuntime

from benchmarks import fleet_hosts
from benchmarks.common import ROOT
from osgym_host.app import HostAgent
from osgym_host.cli import serve
from osgym_host.cli.main import main
from osgym_host.runtimes.kind import ImageRef
from osgym_host.settings import Settings

AGENT_PORT = 20000

BOOTSTRAP = r"""#!/bin/bash
# Stands in for bootstrap.sh where the agent is real: waits where that one installs, starts what it starts.
set -eu
. "${OSGYM_BOOTSTRAP_ENV:-/etc/osgym/bootstrap.env}"
etc=/etc/osgym opt=/opt/osgym data=/var/lib/osgym-many run=/run/osgym.pid only_look=
name=${OSGYM_AGENT_SHA256:0:16} image=$data/images/${OSGYM_IMAGE_DIGEST#sha256:}
address=$(sed -n 's/^ListenAddress //p' /run/sshd_config)
die() { echo "osgym: $step failed: $*" >&2; exit 1; }
sent() { [ "$(sha256sum < "${1#file://}")" = "$2  -" ] || die "$1 is not what was sent"; }
# once MARK SECONDS: a host's own work.
once() { sleep "$2"; mkdir -p "${1%/*}"; touch "$1"; did=changed; }
there() { readlink $opt/current 2>/dev/null || true; }
runs() {
  local stat
  [ ! -e /run/without-agent ] || { [ -e $opt/.installed ]; return; }
  [ -s $run ] && stat=$(cat "/proc/$(cat $run)/stat" 2>/dev/null) && [[ "${stat##*) }" != Z* ]]
}
ask() {
  if [ -e /run/without-agent ]; then echo '{"ready":1}'; [ -e $opt/.installed ]; return; fi
  curl -fsS -m 10 --cacert $etc/tls/ca.pem "$@" "https://$address:@PORT@$path" 2>/dev/null
}
place() {
  if [ "$only_look" ]; then if cmp -s - "$1"; then return 1; else return 0; fi; fi
  cat > "$1.new"
  if cmp -s "$1.new" "$1"; then rm "$1.new"; return 1; else mv "$1.new" "$1"; fi
}
write_config() {
  place $etc/agent.yaml <<CONF
host: $address
ports: [@PORT@]
data_dir: $data
image: $OSGYM_FLAVOR
max_replicas: $OSGYM_MAX
warm: $OSGYM_MAX
ram_reserve_mib: 0
replica_ram_mib: 64
disk_reserve_mib: 0
cpu_per_replica: 0
trajectory: "off"
tls_cert: $etc/tls/cert.pem
tls_key: $etc/tls/key.pem
CONF
}
stop() {
  [ ! -e /run/without-agent ] || return 0
  runs || return 0
  kill -INT "$(cat $run)"
  for _ in $(seq 600); do runs || return 0; sleep 0.1; done
  die "the agent does not end"
}
start() {
  touch $opt/.installed
  [ ! -e /run/without-agent ] || return 0
  . $etc/secret.env
  cd @ROOT@
  env -i PATH="$PATH" OSGYM_TOKEN="$OSGYM_TOKEN" FAKE_IMAGE_DIGEST="${OSGYM_IMAGE_DIGEST#sha256:}" \
    setsid @PYTHON@ -m benchmarks.fleet_agents serve --config $etc/agent.yaml \
    >>/var/log/osgym.log 2>&1 </dev/null &
  echo $! > $run
}
up() {
  did=ok
  [ ! -e "/run/broken-$step" ] || die "No space left on device"
  case $step in
    packages) [ -e $opt/.packages ] || once $opt/.packages @PACKAGES_S@ ;;
    agent)
      if [ ! -e "$opt/$name/.complete" ]; then
        sent "$OSGYM_AGENT_URI" "$OSGYM_AGENT_SHA256"
        once "$opt/$name/.complete" @AGENT_S@
        [ -e $opt/current ] || ln -sfn "$name" $opt/current
      fi ;;
    image)
      if [ ! -e "$image" ]; then
        sent "$OSGYM_IMAGE_URI" "$OSGYM_IMAGE_SHA256"
        once "$image" @IMAGE_S@
        touch $etc/.restart
      fi ;;
    secret)
      (umask 077; printf 'OSGYM_TOKEN=%s\n' "$(cat $etc/token)" > $etc/secret.env.new)
      cmp -s $etc/secret.env.new $etc/secret.env || touch $etc/.restart
      mv $etc/secret.env.new $etc/secret.env ;;
    service)
      [ "$(there)" = "$name" ] || { ln -sfn "$name" $opt/current; touch $etc/.restart; }
      ! write_config || touch $etc/.restart
      if [ -e $etc/.restart ] || ! runs; then
        date +%s.%N >> $opt/.stopped
        stop; start
        rm -f $etc/.restart; did=changed
      fi ;;
    health)
      path=/v1/pool
      for _ in $(seq 240); do
        runs || die "$(tail -n 20 /var/log/osgym.log)"
        pool=$(sed -n 's/^OSGYM_TOKEN=/Authorization: Bearer /p' $etc/secret.env | ask -H @- || true)
        if [[ "$pool" =~ \"(ready|leased)\":[1-9] ]]; then break; fi
        sleep 0.5
      done
      [[ "$pool" =~ \"(ready|leased)\":[1-9] ]] || die "no desktop became ready: $pool"
      date +%s.%N >> $opt/.serves ;;
  esac
  echo "osgym: $step $did"
}
case $1 in
  up) for step in "${@:2}"; do up; done ;;
  pending)
    only_look=1
    [ "$(there)" = "$name" ] || echo "osgym: another agent"
    ! write_config || echo "osgym: other settings"
    [ ! -e $etc/.restart ] || echo "osgym: another image or token" ;;
  status)
    digest= serves=false active=false path=/v1/health
    [ ! -e "$image" ] || digest=$OSGYM_IMAGE_DIGEST
    ! runs || active=true
    ! ask >/dev/null || serves=true
    printf '{"agent": "%s", "image_digest": "%s", "active": %s, "serving": %s}\n' \
      "$(there)" "$digest" $active $serves ;;
  down) step=down; stop; rm -rf $opt $data $etc $run ;;
esac
"""


def bootstrap(work_s: float) -> str:
    """Return a stand-in bootstrap for hosts that would work for so long."""
    text = BOOTSTRAP.replace("@PORT@", str(AGENT_PORT)).replace("@ROOT@", str(ROOT))
    text = text.replace("@PYTHON@", sys.executable)
    for name, share in fleet_hosts.WORK.items():
        text = text.replace(f"@{name}@", f"{share * work_s:g}")
    return text


def _agent(settings: Settings, image: ImageRef, **more: Any) -> HostAgent:
    return HostAgent(settings, image, FakeRuntime(settings.data_dir / "run" / "replicas"), **more)


if __name__ == "__main__":
    served = ImageRef(FakeImage(os.environ["FAKE_IMAGE_DIGEST"]), "small")
    serve.find_images = lambda settings: [served]
    serve.HostAgent = functools.partial(_agent)
    main()

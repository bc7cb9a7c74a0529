#!/usr/bin/env bash
# Run as root on a fresh Debian that Packer started, with the bootstrap and agent.tar beside it: does all of
# the bootstrap that needs neither token nor data disk, and then forgets which machine this was. The first
# start of a host runs the whole bootstrap again, which finds these steps done.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# Its own packages and updates first; it says "degraded" by its exit code too.
if command -v cloud-init >/dev/null; then cloud-init status --wait >/dev/null 2>&1 || true; fi

# For either runtime, and for striped disks: what a host is for is said when it starts.
export OSGYM_HOST_RUNTIME=qemu OSGYM_DEVICES=auto
export OSGYM_AGENT_URI="file://$here/agent.tar" OSGYM_AGENT_SHA256=${1:?SHA-256 of agent.tar}
bash "$here/bootstrap.sh" up packages account kernel agent

apt-get clean
rm -rf /var/lib/apt/lists/* /var/log/journal/* /etc/ssh/ssh_host_*
truncate -s 0 /etc/machine-id
if command -v cloud-init >/dev/null; then cloud-init clean --logs; fi
sync

#!/usr/bin/env bash
# Stops the host agent of this data directory and removes what it, or one that was killed, left:
# its own desktops, nothing else on this machine. Images and trajectories stay.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
osgym=.venv/bin/osgym
[ -x "$osgym" ] || osgym=osgym
exec "$osgym" host clean "$@"

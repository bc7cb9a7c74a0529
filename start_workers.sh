#!/usr/bin/env bash
# Runs the host agent on all ports of config.yaml, in the foreground.
#   ./start_workers.sh           on all interfaces; needs OSGYM_ALLOWED_IPS or OSGYM_TOKEN
#   ./start_workers.sh --local   on 127.0.0.1 only
# Further arguments go to `osgym host serve`. Stop it with Ctrl-C, or ./clean.sh from elsewhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

host=0.0.0.0
arguments=()
for argument in "$@"; do
  case "$argument" in
    --local) host=127.0.0.1 ;;
    *) arguments+=("$argument") ;;
  esac
done

osgym=.venv/bin/osgym
[ -x "$osgym" ] || osgym=osgym
"$osgym" host clean
exec "$osgym" host serve --config config.yaml --host "$host" ${arguments[@]+"${arguments[@]}"}

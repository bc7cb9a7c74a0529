#!/usr/bin/env bash
# Runs the tests. Without arguments: everything, in two processes beside each other, since one waits for
# emulated machines most of the time. With arguments: pytest with these.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${VENV:-.venv}/bin/python

[ $# -eq 0 ] || exec "$python" -m pytest "$@"

# What brings up hosts of a fleet needs no replica beside it.
fleet=(tests/integration/test_{golden_image,infra_*,packer_*,ssh_*}.py)

log=$(mktemp)
trap 'kill "$beside" 2>/dev/null; rm -f "$log"' EXIT
"$python" -m pytest tests/unit tests/contract tests/fuzz "${fleet[@]}" --durations=25 >"$log" 2>&1 &
beside=$!
"$python" -m pytest tests/e2e tests/integration "${fleet[@]/#/--ignore=}" --durations=25
status=$?
wait "$beside" || status=1
cat "$log"
exit "$status"

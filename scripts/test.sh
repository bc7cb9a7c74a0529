#!/usr/bin/env bash
# Runs the tests. Without arguments: everything, in two processes beside each other, since one waits for
# emulated machines most of the time. With arguments: pytest with these.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${VENV:-.venv}/bin/python

[ $# -eq 0 ] || exec "$python" -m pytest "$@"

# What needs no replica: hosts of a fleet, what the client knows of them, the evaluator alone.
apart=(tests/integration/test_{docs_walk,fleet_*,golden_image,hosts_drained,infra_*,notices,packer_*}.py)
apart+=(tests/integration/test_{sdk_discovery,sdk_members,ssh_*,tasks_downloads,tasks_sandbox}.py)

log=$(mktemp)
trap 'kill "$beside" 2>/dev/null; rm -f "$log"' EXIT
"$python" -m pytest tests/unit tests/contract tests/fuzz "${apart[@]}" --durations=25 >"$log" 2>&1 &
beside=$!
"$python" -m pytest tests/e2e tests/integration "${apart[@]/#/--ignore=}" --durations=25
status=$?
wait "$beside" || status=1
cat "$log"
exit "$status"

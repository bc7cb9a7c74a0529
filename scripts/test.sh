#!/usr/bin/env bash
# Runs the tests. Without arguments: everything, in two processes beside each other, since either waits for
# desktops and machines most of the time; what failed beside the other is run once more alone, and named.
# With arguments: pytest with these. Machines that start by themselves and a real Prometheus take minutes:
# tests/long, which `make test-long` runs.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
python=${VENV:-.venv}/bin/python

[ $# -eq 0 ] || exec "$python" -m pytest "$@"

# What needs no replica: hosts of a fleet, what the client knows of them, the evaluator alone; and bakes.
apart=(tests/integration/test_{docs_walk,fleet_*,golden_image,hosts_drained,image_bake,infra_*,notices}.py)
apart+=(tests/integration/test_{sdk_discovery,sdk_members,ssh_*,tasks_blame,tasks_downloads,tasks_sandbox,wheels}.py)
# Emulated machines, and what calibrates desktops: here so that both processes take about as long.
apart+=(tests/integration/test_{qemu_*,calibration}.py)

work=$(mktemp -d)
trap 'kill "$beside" 2>/dev/null; rm -rf "$work"' EXIT
run() { # name, arguments of pytest
  "$python" -m pytest -o cache_dir="$work/$1" "${@:2}"
}

run beside tests/unit tests/contract tests/fuzz "${apart[@]}" --durations=25 >"$work/log" 2>&1 &
beside=$!
run front tests/e2e tests/integration "${apart[@]/#/--ignore=}" --durations=25
front_status=$?
wait "$beside"
beside_status=$?
cat "$work/log"

# pytest ends with 1 when tests failed, with more when it was broken off: that is not tried again.
status=0
again() { # name, status of the first run
  [ "$2" -ne 0 ] || return 0
  [ "$2" -eq 1 ] || { status=1; return 0; }
  printf '\n%s: these failed beside the other tests and are run once more, alone:\n' "$1"
  "$python" - "$work/$1/v/cache/lastfailed" <<'PY' || { status=1; return 0; }
import json, pathlib, sys
failed = sorted(json.loads(pathlib.Path(sys.argv[1]).read_text()))
print(*(f"  {test}" for test in failed), sep="\n")
if len(failed) > 12:
    sys.exit(f"{len(failed)} tests failed: that is not for lack of time")
PY
  run "$1" --last-failed || status=1
}
again front "$front_status"
again beside "$beside_status"
exit "$status"

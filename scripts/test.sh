#!/usr/bin/env bash
# Runs groups of tests, each in a process beside the others, since all wait for desktops and machines much of
# the time. A process that has run its own group takes files of the groups that are shared, so that all end at about
# the same time. What failed beside the others is run once more alone, and named.
#
#   scripts/test.sh unit   most unit tests
#   scripts/test.sh first  the same, with lint and the bakes of images beside them
#   scripts/test.sh core   what `make test` runs after that
#   scripts/test.sh slow   what `make test-all` adds first: the other unit tests, fuzzing, the rest of the API's
#                          contract; beside them a virtual machine is baked, booted and frozen
#   scripts/test.sh rest   what `make test-all` runs last
#   scripts/test.sh ARGS   pytest with these arguments
#
# What takes minutes is in tests/long, `make test-long`: machines that start by themselves, what policies do to break
# virtual machines, a real Prometheus, warm applications, documents with and without the images' remedies.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
python=${VENV:-.venv}/bin/python
set_of_groups=${1:-}
case $set_of_groups in
  unit | first | core | slow | rest) [ $# -eq 1 ] || { echo "scripts/test.sh: $1 takes no arguments" >&2; exit 2; } ;;
  *) exec "$python" -m pytest "$@" ;;
esac

other_files() { # folder, files to leave out; prints the other files of tests in the folder
  find "$1" -name 'test_*.py' | sort | grep -vxFf <(printf '%s\n' "${@:2}") | tr '\n' ' '
}

# Unit tests of certificates, fleets, parsers and big samples take half of the time of all: they belong to the rest.
slow_units=(tests/unit/test_{certify_*,infra_*,fleet_*,families*,data_hostile,tasks_image_text,bench_*}.py)
declare -A groups=([unit]="tests/unit ${slow_units[*]/#/--ignore=}")
# The first steps of everybody: the API, the SDK, desktops, tasks and their scores, the dashboard.
core_api=(tests/contract/test_api_{drain,episodes,evaluation,forks,looking,osgym_client,policy_losses,reach,requests}.py)
core_api+=(tests/contract/test_api_{runs,scopes,surface}.py tests/e2e/test_task_run.py)
core_api+=(tests/integration/test_{runtime_local,sdk_episode,tasks_replica}.py)
core_desktops=(tests/e2e/test_{desktop,host_life,oracles}.py)
core_desktops+=(tests/integration/test_{dashboard,guest_input,guest_typing,windows,sdk_first_contact}.py)
groups[api]=${core_api[*]}
groups[desktops]=${core_desktops[*]}
# Hosts of a fleet and what the client knows of them, the evaluator alone, and tests with hosts of their own.
hosts=(tests/integration/test_{docs_walk,fleet_*,hosts_drained,infra_*,notices}.py)
hosts+=(tests/integration/test_{sdk_discovery,sdk_members,ssh_*,tasks_blame,tasks_downloads,tasks_sandbox,wheels}.py)
hosts+=(tests/e2e/test_{chaos,ordinary_user}.py)
hosts+=(tests/integration/test_{remedies_*,tasks_browser,newcomer}.py)
# Emulated machines, bakes, what calibrates desktops, and much of the SDK.
machines=(tests/contract/runtimes tests/integration/test_{qemu_*,guest_frozen}.py)
machines+=(tests/integration/test_{calibration,golden_image,image_bake}.py)
hosts+=(tests/integration/test_{a11y_trees,hostile_*,session_*}.py)
machines+=(tests/integration/test_sdk_{agents*,batch,branching,data*,desktops,grammars,gym,policies,r*,sigterm}.py)
machines+=(tests/integration/test_{policy_losses,survival,slow_guests}.py)
groups[fleets]=${slow_units[*]}
groups[contract]="tests/fuzz $(other_files tests/contract "${core_api[@]}" tests/contract/runtimes/*.py)"
groups[hosts]=${hosts[*]}
groups[machines]=${machines[*]}
elsewhere=("${core_api[@]}" "${core_desktops[@]}" "${hosts[@]}" "${machines[@]}")
groups[others]="$(other_files tests/e2e "${elsewhere[@]}") $(other_files tests/integration "${elsewhere[@]}")"

# Targets of the Makefile that run beside the tests: bakes wait for the disk and the archive of packages, and an
# emulated machine, ten times slower than a real one, boots while nothing but unit tests runs.
targets=() shared=()
case $set_of_groups in
  unit) names=(unit) ;;
  first) names=(unit) targets=(lint images) ;;
  core) names=(api desktops) shared=(api desktops) ;;
  slow) names=(fleets contract) shared=(fleets contract) targets=(test-images) ;;
  rest) names=(hosts machines others) shared=(others) ;;
esac

work=$(mktemp -d)
declare -A pids
set -m # a process group for each job, so that a signal reaches pytest and all that it runs
stop() { # as Ctrl-C does, so that tests remove their desktops and machines
  for pid in "${pids[@]}"; do
    kill -INT -- "-$pid" 2>/dev/null
  done
  wait
  rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
run() { # name of the group, further arguments of pytest
  local arguments group words=${groups[$1]}
  for group in "${shared[@]}"; do
    [ "$group" = "$1" ] || words+=" ${groups[$group]}"
  done
  read -ra arguments <<<"$words"
  # Folders of its own, with short names for the sockets in them: a process ends with an error if it cannot clear
  # what another one left mounted.
  "$python" -m pytest -p tests.support.shared_files -o cache_dir="$work/$1.cache" --basetemp="$work/$1" \
    "${arguments[@]}" "${@:2}"
}
run_here() { # the arguments of run
  local status
  run "$@" &
  pids[$1]=$!
  wait "${pids[$1]}"
  status=$?
  unset "pids[$1]"
  return "$status"
}
first_run=(--durations=25 --taken="$work/taken")

last=${names[-1]}
beside() { # name, command
  "${@:2}" >"$work/$1.log" 2>&1 &
  pids[$1]=$!
  printf '"%s" runs beside the tests "%s"; its output follows.\n' "$1" "$last"
}
for target in "${targets[@]}"; do
  beside "$target" make --no-print-directory "$target"
done
for name in "${names[@]:0:${#names[@]}-1}"; do
  beside "$name" run "$name" "${first_run[@]}"
done
run_here "$last" "${first_run[@]}"
declare -A statuses=([$last]=$?)
for name in "${!pids[@]}"; do
  wait "${pids[$name]}"
  statuses[$name]=$?
  printf '\n%s:\n' "$name"
  cat "$work/$name.log"
done

# pytest ends with 1 when tests failed, with more when it was broken off: that is not tried again.
status=0
again() { # name, status of the first run
  [ "$2" -ne 0 ] || return 0
  [ "$2" -eq 1 ] || { status=1; return 0; }
  printf '\n%s: these failed beside the other tests and are run once more, alone:\n' "$1"
  "$python" - "$work/$1.cache/v/cache/lastfailed" <<'PY' || { status=1; return 0; }
import json, pathlib, sys
failed = sorted(json.loads(pathlib.Path(sys.argv[1]).read_text()))
print(*(f"  {test}" for test in failed), sep="\n")
if len(failed) > 12:
    sys.exit(f"{len(failed)} tests failed: that is not for lack of time")
PY
  run_here "$1" --last-failed || status=1
}
for target in "${targets[@]}"; do
  [ "${statuses[$target]}" -eq 0 ] || { printf '\n"make %s" failed.\n' "$target"; status=1; }
done
for name in "${names[@]}"; do
  again "$name" "${statuses[$name]}"
done
exit "$status"

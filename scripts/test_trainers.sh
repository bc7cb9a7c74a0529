#!/usr/bin/env bash
# Installs each trainer's framework into an environment of its own (they need different versions of what they share)
# and runs one step of it on real desktops. Without arguments: all of them. Gigabytes, and minutes.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
root=${TRAINERS_VENVS:-.venv-trainers}
names=("$@")
[ $# -gt 0 ] || names=(trl verl verifiers openenv skyrl inspect osworld)

status=0
for name in "${names[@]}"; do
  venv="$root/$name"
  [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv" || exit
  echo "trainers: installing $name into $venv"
  wanted=(-e "sdk[$name]")
  [ "$name" != osworld ] || wanted=(-e sdk -e osworld -r tests/trainers/osworld.txt)
  if ! "$venv/bin/python" -m pip install -q --disable-pip-version-check \
    -e protocol "${wanted[@]}" -e guest_agent -e host_agent pytest pytest-asyncio pytest-timeout hypothesis ||
    { [ "$name" = osworld ] && ! "$venv/bin/python" -m pip install -q --no-deps desktop-env==1.0.2; }; then
    echo "trainers: $name could not be installed" >&2
    status=1
    continue
  fi
  # Warnings of the frameworks are theirs.
  PATH="$PWD/$venv/bin:$PATH" "$venv/bin/python" -m pytest -o filterwarnings=default --durations=5 \
    "tests/trainers/test_trainers_$name.py" || status=1
done
exit "$status"

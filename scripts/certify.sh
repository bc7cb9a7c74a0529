#!/usr/bin/env bash
# Certifies the shipped tasks and an instance of each family on the desktops of a host with the full image, and writes
# the table that tests compare with today's tasks. It goes on where it was broken off, unless a commit came between.
set -euo pipefail
cd "$(dirname "$0")/.."
osgym=${VENV:-.venv}/bin/osgym
out=out/certify-$(git rev-parse --short HEAD)
mapfile -t families < <("$osgym" task family ls | cut -d ' ' -f 1)
long=() others=()
for family in "${families[@]}"; do
  if [[ $family == long.* ]]; then long+=("$family"); else others+=("$family"); fi
done
faulty=3 # exit code of certify when a task is faulty; the others follow all the same
"$osgym" task certify tasks "${others[@]}" --out "$out" "$@" || [ $? -eq "$faulty" ]
"$osgym" task certify "${long[@]}" --levels 1 --out "$out" "$@" || [ $? -eq "$faulty" ]
"$osgym" task certificates "$out/certificates.jsonl" --table tasks/CERTIFICATES.md

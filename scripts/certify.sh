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
failed=0
"$osgym" task certify tasks "${others[@]}" --out "$out" "$@" || failed=$?
"$osgym" task certify "${long[@]}" --levels 1 --out "$out" "$@" || failed=$?
"$osgym" task certificates "$out/certificates.jsonl" --table tasks/CERTIFICATES.md || failed=$?
exit "$failed"

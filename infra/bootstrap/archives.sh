# shellcheck shell=bash
# Steps agent, secret, image: what a host fetches. Read by bootstrap.sh.

# Fetches, or says why not; whether it will never work is in the exit code, too.
fetched() {
  local said code=0
  said=$(python3 "$here/fetch.py" "$@" 2>&1) || code=$?
  case $code in
    0) ;;
    "$for_good") die_for_good "$said" ;;
    *) die "$said" ;;
  esac
}

# Beside the one that runs, which goes on; `service` changes over to it.
step_agent() {
  if [ ! "$OSGYM_AGENT_URI" ] || [ ! "$OSGYM_AGENT_SHA256" ]; then
    die_for_good "OSGYM_AGENT_URI and OSGYM_AGENT_SHA256 are needed"
  fi
  local name=${OSGYM_AGENT_SHA256#sha256:} work program=() runtime='osgym-host[docker]'
  name=${name:0:16}
  if [ -x "$opt/$name/bin/osgym" ] &&
    { [ -e "$opt/$name/.complete" ] || [ "$(readlink "$opt/current" 2>/dev/null)" = "$name" ]; }; then
    say "agent ok"
    return
  fi
  rm -rf "$opt"/.work-*
  work=$(mktemp -d "$opt/.work-XXXXXX")
  fetched file "$OSGYM_AGENT_URI" "$work/agent.tar" "$OSGYM_AGENT_SHA256"
  mkdir "$work/wheels"
  quietly tar -xf "$work/agent.tar" -C "$work/wheels" --no-same-owner
  rm -rf "${opt:?}/$name"
  quietly python3 -m venv "$opt/$name"
  # Archives of the release before have the program `osgym` and the runtime qemu in osgym-host.
  ! compgen -G "$work/wheels/osgym_cli-*.whl" >/dev/null || program=(osgym-cli)
  ! compgen -G "$work/wheels/osgym_qemu-*.whl" >/dev/null || runtime='osgym-qemu[docker]'
  # Nothing but what was fetched: no index is asked.
  quietly "$opt/$name/bin/python" -m pip install -q --disable-pip-version-check --no-index \
    --find-links "$work/wheels" osgym-host "$runtime" "${program[@]}"
  # What the scaling's metric needs; an archive without it still makes a host that serves.
  if [ "$OSGYM_METRICS_TO" != none ] && ! "$opt/$name/bin/python" -m pip install -q --disable-pip-version-check \
    --no-index --find-links "$work/wheels" "osgym-host[${OSGYM_METRICS_TO%%:*}]" >/dev/null 2>&1; then
    say "agent: the archive lacks what OSGYM_METRICS_TO=$OSGYM_METRICS_TO needs; pack it anew (osgym fleet pack)"
  fi
  touch "$opt/$name/.complete"
  [ -e "$opt/current" ] || ln -sfn "$name" "$opt/current"
  rm -rf "$work"
  say "agent changed: $name"
}

step_secret() {
  local before after
  before=$(sha256sum "$etc/secret.env" 2>/dev/null || true)
  fetched secret "$OSGYM_TOKEN_SOURCE" "$etc/secret.env"
  after=$(sha256sum "$etc/secret.env")
  if [ -f "$tls/key.pem" ]; then
    # Read by the agent itself, unlike the token.
    chown "root:$account" "$tls" "$tls"/*.pem
    chmod 750 "$tls"
    chmod 640 "$tls"/*.pem
    before+=$(cat "$tls/.seen" 2>/dev/null || true)
    sha256sum "$tls"/*.pem > "$tls/.seen"
    after+=$(cat "$tls/.seen")
  fi
  if [ "$before" = "$after" ]; then say "secret ok"; else touch "$etc/.restart"; say "secret changed"; fi
}

step_image() {
  if [ ! "$OSGYM_IMAGE_URI" ] || [ ! "$OSGYM_IMAGE_SHA256" ] || [ ! "$OSGYM_IMAGE_DIGEST" ]; then
    die_for_good "OSGYM_IMAGE_URI, OSGYM_IMAGE_SHA256 and OSGYM_IMAGE_DIGEST are needed"
  fi
  local digest=${OSGYM_IMAGE_DIGEST#sha256:} archive=${OSGYM_IMAGE_SHA256#sha256:} work
  # For virtual machines a new archive may hold another disk or snapshot of the same image.
  if [ -f "$OSGYM_DATA/images/$digest/manifest.json" ] &&
    { [ "$OSGYM_HOST_RUNTIME" != qemu ] || [ "$(cat "$etc/.image" 2>/dev/null)" = "$archive" ]; }; then
    say "image ok"
    return
  fi
  rm -rf "$OSGYM_DATA"/.image-*
  work=$(mktemp -d "$OSGYM_DATA/.image-XXXXXX")
  fetched file "$OSGYM_IMAGE_URI" "$work/image.tar" "$OSGYM_IMAGE_SHA256"
  mkdir "$work/store"
  # An archive of the store's own folders; owners are the shifted ids they were baked with.
  quietly tar -xf "$work/image.tar" -C "$work/store" --numeric-owner --same-owner --xattrs --xattrs-include='*'
  rm "$work/image.tar"
  [ -f "$work/store/images/$digest/manifest.json" ] || die_for_good "the archive does not hold image $digest"
  python3 - "$work/store/images/$digest/manifest.json" "$digest" <<'CHECK' || die_for_good "the manifest is of another image"
import json, sys
sys.exit(json.load(open(sys.argv[1]))["digest"].removeprefix("sha256:") != sys.argv[2])
CHECK
  if [ "${OSGYM_NEEDS_KVM:-}" ]; then
    python3 - "$work/store/snapshots" <<'CHECK' || die_for_good "the archive's machine was frozen without KVM: make it where \`osgym doctor\` says that KVM works (docs/fleet.md, The image)"
import json, pathlib, sys
found = [json.loads(path.read_text()) for path in pathlib.Path(sys.argv[1]).glob("*/manifest.json")]
sys.exit(any(one["shape"].get("accel") == "tcg" for one in found))
CHECK
  fi
  local kind entry
  for kind in images disks snapshots; do
    [ -d "$work/store/$kind" ] || continue
    install -d -o "$account" -g "$account" "$OSGYM_DATA/$kind" "$OSGYM_DATA/$kind/tags"
    for entry in "$work/store/$kind"/*; do
      [ "$(basename "$entry")" = tags ] || [ -e "$OSGYM_DATA/$kind/$(basename "$entry")" ] ||
        mv -T "$entry" "$OSGYM_DATA/$kind/$(basename "$entry")"
    done
    [ ! -d "$work/store/$kind/tags" ] || cp -a "$work/store/$kind/tags/." "$OSGYM_DATA/$kind/tags/"
    chown -R "$account:$account" "$OSGYM_DATA/$kind/tags"
    find "$OSGYM_DATA/$kind" -mindepth 1 -maxdepth 2 ! -name rootfs -user root -exec chown "$account:$account" {} +
  done
  rm -rf "$work"
  echo "$archive" > "$etc/.image"
  touch "$etc/.restart"
  say "image changed: ${digest:0:12}"
}

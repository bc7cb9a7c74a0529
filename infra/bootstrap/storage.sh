# shellcheck shell=bash
# Step storage: a file system for what replicas write. Read by bootstrap.sh.

# Disks that replicas may be written to: those named, or with `auto` local NVMe, else whole disks that are
# blank. A disk with anything on it is never touched, but for our own file system.
data_disks() {
  local disk
  # shellcheck disable=SC2086  # a list, separated by blanks
  if [ "$OSGYM_DEVICES" != auto ]; then printf '%s\n' $OSGYM_DEVICES; return; fi
  local found=()
  for disk in /dev/disk/by-id/google-local-nvme-ssd-* /dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_*; do
    [[ "$disk" == *-part* || "$disk" =~ _[0-9]+$ || ! -e "$disk" ]] || found+=("$(readlink -f "$disk")")
  done
  if [ ${#found[@]} = 0 ]; then
    while read -r disk; do
      [ -z "$(lsblk -nro MOUNTPOINT,FSTYPE,PARTTYPE "$disk" | tr -d ' \n')" ] &&
        [ "$(lsblk -nro NAME "$disk" | wc -l)" = 1 ] && found+=("$disk")
    done < <(lsblk -dnpro NAME,TYPE,RO | awk '$2 == "disk" && $3 == 0 {print $1}')
  fi
  printf '%s\n' "${found[@]}" | sort -u
}

step_storage() {
  local changed=ok disks=() disk target
  if [ "$OSGYM_DEVICES" = none ] && [ ! -e "$OSGYM_DATA/.osgym-bootstrap" ] && [ "$(ls -A -I lost+found "$OSGYM_DATA" 2>/dev/null)" ]; then
    die "$OSGYM_DATA holds data that this did not put there; move it away, or set OSGYM_DATA to another folder"
  fi
  install -d -m 755 "$OSGYM_DATA"
  if [ "$OSGYM_DEVICES" = none ]; then
    say "storage skipped: $OSGYM_DATA is on $(findmnt -no FSTYPE,SOURCE -T "$OSGYM_DATA" | tr '\n' ' ')"
  elif findmnt -no SOURCE "$OSGYM_DATA" >/dev/null; then
    say "storage ok"
  else
    mapfile -t disks < <(data_disks | sed '/^$/d')
    [ ${#disks[@]} -gt 0 ] || die "OSGYM_DEVICES=$OSGYM_DEVICES names no disk that could be used"
    target=$(blkid -L osgym-data || true)
    if [ -z "$target" ]; then
      for disk in "${disks[@]}"; do
        [ -b "$disk" ] || die "$disk is not a block device"
        [ -z "$(blkid -p -o value -s TYPE "$disk" 2>/dev/null)" ] || die "$disk is not empty; it was left alone"
      done
      target=${disks[0]}
      if [ ${#disks[@]} -gt 1 ]; then
        # Striped: local NVMe is gone with the host anyway, and replicas want its throughput together.
        quietly mdadm --create /dev/md/osgym --run --level=0 --raid-devices=${#disks[@]} "${disks[@]}"
        target=/dev/md/osgym
      fi
      # reflink: a replica's disk is a copy of the golden one without copying.
      quietly mkfs.xfs -q -f -m reflink=1 -L osgym-data "$target"
    fi
    # nofail: local NVMe comes back empty after a stop, and the host must boot nevertheless.
    if ! grep -q '^LABEL=osgym-data ' /etc/fstab; then
      echo "LABEL=osgym-data $OSGYM_DATA xfs noatime,nofail,x-systemd.device-timeout=30 0 2" >> /etc/fstab
    fi
    quietly mount -o noatime "$target" "$OSGYM_DATA"
    changed="changed: $target"
    say "storage $changed"
  fi
  # The store's folders belong to the agent; images below keep their shifted owners.
  chown "$account:$account" "$OSGYM_DATA"
  chmod 755 "$OSGYM_DATA"
  # `down --purge` removes a folder only when it was made here.
  touch "$OSGYM_DATA/.osgym-bootstrap"
}

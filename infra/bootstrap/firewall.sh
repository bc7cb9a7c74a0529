# shellcheck shell=bash
# Step firewall: who reaches the agent, and what its account never reaches. Read by bootstrap.sh.

step_firewall() {
  local rules="" cidr
  if [ "$OSGYM_ALLOWED_CIDRS" ]; then
    for cidr in $OSGYM_ALLOWED_CIDRS; do
      case $cidr in
        *:*) rules+="    ip6 saddr $cidr tcp dport $OSGYM_PORT accept"$'\n' ;;
        *) rules+="    ip saddr $cidr tcp dport $OSGYM_PORT accept"$'\n' ;;
      esac
    done
    rules+="    iif != lo tcp dport $OSGYM_PORT drop"$'\n'
  fi
  local changed=ok
  # What runs as the agent's account, replicas included, never reaches a cloud's metadata service: that
  # would hand a guest the host's role. The bootstrap itself runs as root, osgym-notices as a user of its own.
  if place "$etc/firewall.nft" <<NFT
table inet osgym
delete table inet osgym
table inet osgym {
  chain input {
    type filter hook input priority filter; policy accept;
$rules  }
  chain output {
    type filter hook output priority filter; policy accept;
    meta skuid $account ip daddr { 169.254.0.0/16, 168.63.129.16, 100.100.100.200 } counter drop
    meta skuid $account ip6 daddr { fd00:ec2::254, fe80::a9fe:a9fe } counter drop
  }
  chain forward {
    type filter hook forward priority filter; policy accept;
    ip daddr { 169.254.0.0/16, 168.63.129.16, 100.100.100.200 } counter drop
    ip6 daddr { fd00:ec2::254, fe80::a9fe:a9fe } counter drop
  }
}
NFT
  then changed=changed; fi
  nft list table inet osgym >/dev/null 2>&1 || changed=changed
  [ "$changed" = ok ] || quietly nft -f "$etc/firewall.nft"
  if has_systemd && place "$units/osgym-firewall.service" <<UNIT
[Unit]
Description=Firewall rules of OSGym
Before=osgym.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=$(command -v nft) -f $etc/firewall.nft
[Install]
WantedBy=multi-user.target
UNIT
  then
    quietly systemctl daemon-reload
    quietly systemctl enable --now osgym-firewall.service
    changed=changed
  fi
  say "firewall $changed"
}

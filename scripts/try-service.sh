#!/usr/bin/env bash
# Upgrades a switch under systemd itself: a service manager (systemd --user, in namespaces of its
# own) starts the switch with its unit's type, rights and filter of system calls, and must follow
# each upgrade without a restart. What takes a system manager (mounts, devices) is left out of the
# unit. Needs root, systemd and a cgroup2 file system. See docs/switch.md, Upgrades.
#
#   try-service.sh [BINARY]
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

UPGRADES=5
LEFT_OUT='Protect|Private|Device|ReadWrite|RuntimeDirectory|Condition'

if [ "${1:-}" != inside ]; then
	binary=$(readlink -f "${1:-$SG_TARGET/release/sluicegate}")
	exec timeout -k 5 120 unshare --mount --pid --fork --kill-child --cgroup "$0" inside "$binary" </dev/null
fi

mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs none /run
if mountpoint -q /sys/fs/cgroup; then umount -R /sys/fs/cgroup; fi
mount -t cgroup2 none /sys/fs/cgroup
units=/run/user/0/systemd/user
mkdir -p "$units" /run/systemd/system /run/sluicegate
export XDG_RUNTIME_DIR=/run/user/0 HOME=/root
program=/run/sluicegate/sluicegate
cp "$2" "$program"
printf '[[port]]\nname = "vm1"\nvhost_user = "/run/sluicegate/vm1.sock"\n' >/run/sluicegate/switch.toml
sed -E -e "/^($LEFT_OUT)/d" -e "s|/usr/bin/sluicegate|$program|; s|/etc/sluicegate/|/run/sluicegate/|" \
	"$SG_ROOT/dist/systemd/sluicegate-switch.service" >"$units/sluicegate-switch.service"

/usr/lib/systemd/systemd --user --log-target=console >/run/systemd.log 2>&1 &
trap 'cat /run/systemd.log >&2' ERR
for _ in $(seq 100); do
	[ ! -S /run/user/0/systemd/private ] || break
	sleep 0.1
done
shown() { systemctl --user show sluicegate-switch -p "$1" --value; }

systemctl --user start sluicegate-switch
for _ in $(seq "$UPGRADES"); do
	before=$(shown MainPID)
	# As dpkg replaces it.
	cp "$program" "$program.new"
	mv "$program.new" "$program"
	"$program" switch upgrade
	[ "$(shown MainPID)" != "$before" ] || die "systemd has not followed"
	[ "$(readlink "/proc/$(shown MainPID)/exe")" = "$program" ] || die "it runs another program"
done
sleep 1
[ "$(shown ActiveState) $(shown NRestarts)" = "active 0" ] || die "systemd has restarted it"
kill -9 "$(shown MainPID)"
sleep 2
[ "$(shown ActiveState) $(shown NRestarts)" = "active 1" ] || die "systemd has not seen it die"
systemctl --user stop sluicegate-switch
[ "$(shown MainPID)" = 0 ] && [ ! -e /run/sluicegate/switch.sock ] || die "it was not stopped"
echo "$UPGRADES upgrades, a kill and a stop"

#!/usr/bin/env bash
# Second half of test-deb.sh, in namespaces of its own: the packages' life in a copy of this system.
#
#   test-deb-life.sh FIRST NEXT   packages of two versions
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

PATIENCE_S=60

# Writes go to memory; reads are of this machine's files.
enter_copy() {
	local root=/mnt/root
	mount --make-rprivate /
	mount -t tmpfs none /mnt
	mkdir /mnt/upper /mnt/work "$root"
	mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work none "$root"
	mount -t proc none "$root/proc"
	mount -t sysfs none "$root/sys"
	mount -t bpf -o mode=700 none "$root/sys/fs/bpf"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs none "$root/run"
	cp "$1" "$root/run/first.deb"
	cp "$2" "$root/run/next.deb"
	exec chroot "$root" env -i PATH="$PATH" HOME=/root bash "$SG_ROOT/scripts/test-deb-life.sh" inside
}

quietly() { "$@" >/run/said 2>&1 || { cat /run/said >&2; die "failed: $*"; }; }

install_package() { quietly dpkg --no-triggers --force-confold -i "$1"; }

# until COMMAND…: waits for it to succeed.
until_true() {
	local deadline=$((SECONDS + PATIENCE_S))
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$deadline" ] || die "waited $PATIENCE_S s for: $*"
		sleep 0.1
	done
}

attached() { sluicegate doctor --json --interface veth-t | grep -q '"from_tenant"'; }
says() { grep -q -- "$1" /run/agent.log; }

# unit KEY [NAME]: its values in an installed unit, the agent's.
unit() {
	sed -e ':join /\\$/ { N; s/\\\n//; b join }' "/usr/lib/systemd/system/${2:-sluicegate}.service" | sed -n "s/^$1=//p"
}

# rights [NAME]: those of a unit, as setpriv has them.
rights() { unit CapabilityBoundingSet "$@" | tr '[:upper:]' '[:lower:]' | sed 's/cap_/+/g; s/ /,/g'; }

# The unit's commands, with the rights that it has.
start_agent() {
	local words
	# shellcheck source=dist/debian/default
	read -ra words <<<"$(set -f && . /etc/default/sluicegate && eval "printf '%s ' $(unit ExecStart)")"
	# Not what the one before said: the redirection below is carried out by the child, some time.
	: >/run/agent.log
	setpriv --bounding-set="-all,$(rights)" --no-new-privs "${words[@]}" 2>/run/agent.log &
	agent=$!
	until_true says "enforcing; stop" || { cat /run/agent.log >&2; exit 1; }
}

stop_agent() {
	kill "$agent"
	wait "$agent"
}

# upgrade_of PID: the switch starts a successor, with no other rights than it has.
upgrade_of() {
	quietly sluicegate switch upgrade
	successor=$(sluicegate switch show --json | sed -n 's/^ *"pid": \([0-9]*\),$/\1/p')
	[ "$successor" != "$1" ] || die "the switch was not replaced"
	until_true ended "$1"
	grep -q "^CapPrm:.*$(grep '^CapBnd:' "/proc/$successor/status" | cut -f2)$" "/proc/$successor/status" ||
		die "the successor has other rights"
	sluicegate switch ports | grep -q vm1 || die "the successor has no ports"
}

ended() { ! kill -0 "$1"; }

# The switch, by its unit's commands: a port, another one after a reload, and a new process.
switch_runs() {
	local words switch
	printf '[[port]]\nname = "vm1"\nvhost_user = "/run/sluicegate/vm1.sock"\n' >>/etc/sluicegate/switch.toml
	read -ra words <<<"$(unit ExecStart sluicegate-switch)"
	for port in sgt0 sgt1; do
		setpriv --bounding-set="-all,$(rights sluicegate-switch)" --no-new-privs "${words[@]}" 2>/run/switch.log &
		switch=$!
		until_true sluicegate switch show
		[ -S /run/sluicegate/vm1.sock ] || die "the switch listens nowhere"
		printf '[[port]]\nname = "%s"\ntap = "%s"\n' "$port" "$port" >>/etc/sluicegate/switch.toml
		read -ra words <<<"$(unit ExecReload sluicegate-switch)"
		quietly "${words[@]}"
		sluicegate switch ports | grep -q "$port" || die "a reload has not made the port $port"
		read -ra words <<<"$(unit ExecStart sluicegate-switch)"
		upgrade_of "$switch"
		kill "$successor"
		until_true ended "$successor"
		wait "$switch" || { cat /run/switch.log >&2; die "the switch has failed"; }
	done
	[ -f /run/sluicegate/switch.state ] || die "the switch has kept no state"
}

life() {
	# Where a unit is that is right, nothing is said.
	install_package /run/first.deb
	quietly systemd-analyze verify --man=no /usr/lib/systemd/system/sluicegate{,-switch}.service
	[ ! -s /run/said ] || { cat /run/said; die "systemd complains of a unit"; }
	sluicegate policy check /etc/sluicegate/policy.toml | grep -q 'nothing is edited'
	switch_runs
	ip netns add tenant
	ip link add veth-t type veth peer name eth0 netns tenant
	! attached || die "installing has attached something"
	start_agent
	attached || { cat /run/agent.log; die "the agent has attached nothing"; }

	echo '# mine' >>/etc/sluicegate/policy.toml
	install_package /run/next.deb
	attached || die "the upgrade has ended enforcement"
	stop_agent
	attached || die "stopping the service has ended enforcement"
	start_agent
	says 'took over from an earlier agent' || die "the new version did not take over"
	grep -q '^# mine' /etc/sluicegate/policy.toml || die "the upgrade has replaced the policy"
	stop_agent
	install_package /run/first.deb
	start_agent
	says 'took over from an earlier agent' || die "the old version did not take over"

	stop_agent
	quietly dpkg --no-triggers -r sluicegate
	[ ! -e /sys/fs/bpf/sluicegate ] || die "removing the package has left pins"
	[ -f /etc/sluicegate/policy.toml ] || die "removing the package has removed the policy"
	quietly dpkg --no-triggers -P sluicegate
	[ -z "$(find /etc /usr/bin /usr/lib/systemd /usr/share/{doc,man,sluicegate} /var/lib/systemd -iname '*sluicegate*' \
		2>/dev/null)" ] || die "purging the package has left files"
	echo "installed, upgraded, downgraded, removed and purged"
}

case "${1:?usage: test-deb-life.sh FIRST NEXT}" in
inside) life ;;
*) enter_copy "$@" ;;
esac

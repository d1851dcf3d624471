#!/usr/bin/env bash
# Two machines of libvirt (emulated) at the userspace switch, by <interface type='vhostuser'> as docs/switch.md prints
# it: vm1 connects to its port (mode client), vm2 listens (mode server). They exchange numbered frames, each of which
# must arrive once and in order; then the switch is killed and started again, and both must go on. Last, vm2 is killed:
# its port must be free for a new one.
#
# Needs root, to be another user: a session of libvirt, whose daemon ends with this script. Installs what is missing.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

SLUICEGATE=${SLUICEGATE:-$SG_TARGET/release/sluicegate}
LIMIT_S=${LIMIT_S:-120}

[ "$(id -u)" -eq 0 ] || die "try-libvirt.sh: root, please: it runs libvirt as the user nobody"
scripts/setup.sh libvirt || exit 1

work=$(mktemp -d /tmp/sg-libvirt.XXXXXX)
switch='' daemon=''
AS_USER=(setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME="$work" XDG_RUNTIME_DIR="$work/run"
	XDG_CONFIG_HOME="$work/config" XDG_CACHE_HOME="$work/cache" LIBVIRT_DEFAULT_URI="qemu:///session")
clean() {
	local name
	for name in vm1 vm2; do
		timeout 20 "${AS_USER[@]}" virsh destroy "sg-$name" >/dev/null 2>&1 || true
	done
	[ -z "$switch" ] || kill "$switch" 2>/dev/null || true
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	wait
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

mkdir -p "$work"/{run,config/libvirt,cache}
# No daemon for logs beside it.
echo 'stdio_handler = "file"' >"$work/config/libvirt/qemu.conf"
crates/dataplane/guest/machine.sh crates/dataplane/guest/machine.c "$work/machine.elf"
cp "$SLUICEGATE" "$work/sluicegate"
cat >"$work/switch.toml" <<TOML
[switch]
socket = "$work/switch.sock"

[[port]]
name = "vm1"
vhost_user = "$work/vm1.sock"

[[port]]
name = "vm2"
vhost_user = "$work/vm2.sock"
listen = false
TOML

# domain NAME ARGUMENTS INTERFACE: a machine without anything else.
domain() {
	cat >"$work/$1.xml" <<XML
<domain type='qemu'>
  <name>sg-$1</name>
  <memory unit='MiB'>64</memory>
  <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>
  <os><type arch='x86_64' machine='q35'>hvm</type><kernel>$work/machine.elf</kernel><cmdline>$2</cmdline></os>
  <devices>
    <emulator>$(command -v qemu-system-x86_64)</emulator>
    $3
    <serial type='file'><source path='$work/$1.log'/></serial>
    <memballoon model='none'/>
  </devices>
</domain>
XML
}
domain vm1 "1 2" "<interface type='vhostuser'><mac address='02:00:00:00:00:01'/><source type='unix' path='$work/vm1.sock' mode='client'><reconnect enabled='yes' timeout='1'/></source><model type='virtio'/></interface>"
domain vm2 "2 1" "<interface type='vhostuser'><mac address='02:00:00:00:00:02'/><source type='unix' path='$work/vm2.sock' mode='server'/><model type='virtio'/></interface>"
chown -R nobody:nogroup "$work"

run_switch() {
	"${AS_USER[@]}" "$work/sluicegate" switch run "$work/switch.toml" >>"$work/switch.log" 2>&1 &
	switch=$!
}

received() { sed -n 's/^at //p' "$work/$1.log" 2>/dev/null | tail -n 1; }

# goes_on NAME: a thousand frames more come to it.
goes_on() {
	local before end=$((SECONDS + LIMIT_S))
	before=$(received "$1")
	until [ "$(received "$1")" != "$before" ]; do
		[ "$SECONDS" -lt "$end" ] || { cat "$work/switch.log"; die "try-libvirt.sh: no frames come to $1"; }
		sleep 0.1
	done
	! grep -h '^wrong\|^error' "$work/$1.log" || die "try-libvirt.sh: at $1"
}

run_switch
"${AS_USER[@]}" libvirtd >"$work/libvirtd.log" 2>&1 &
daemon=$!
for _ in {1..100}; do [ ! -S "$work/run/libvirt/libvirt-sock" ] || break; sleep 0.1; done
for name in vm1 vm2; do "${AS_USER[@]}" timeout 60 virsh create "$work/$name.xml" || { cat "$work/libvirtd.log"; exit 1; }; done
goes_on vm1
goes_on vm2
say "frames flow in both modes"
kill -KILL "$switch"
wait "$switch" 2>/dev/null || true
run_switch
goes_on vm1
goes_on vm2
say "and after the switch was killed"
"${AS_USER[@]}" timeout 60 virsh destroy sg-vm2
rm -f "$work/vm2.log"
"${AS_USER[@]}" timeout 60 virsh create "$work/vm2.xml"
goes_on vm2
say "and to a new machine at the port of one that was killed"

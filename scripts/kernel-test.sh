#!/usr/bin/env bash
# The agent's and the lab's kernel programs on another kernel: one of Debian's, booted in emulated
# machines with the very test programs (and so the very kernel programs inside them) that are built
# here. Needs no KVM and, once its tools are installed, no root.
#
#   kernel-test.sh [6.12|6.1] [TEST…]   without a TEST, all of them
#
# TEST  of the crates agent and labkit: CRATE/FILE of its folder tests, CRATE:FILE::TEST, CRATE for
#       its unit tests; "verifier": what the verifier of that kernel sees, with few frames, for
#       make test
#
# 6.12  the oldest that is supported: all that loads kernel programs and runs them on packets must pass there
# 6.1   one that is not: doctor and agent must say so and what to install, and leave nothing behind
#
# The kernel comes through the mirror that apt uses here and stays in /var/cache/sluicegate/kernels,
# or in out/kernels where that cannot be written; apt's own state is left alone.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

LIMIT_S=${LIMIT_S:-1200}
# Random frames of each kind in the vectors, where a machine of its own takes thousands.
FRAMES=3000
FRAMES_VERIFIER=400
MEMORY_MB=1024
# One CPU each: where emulated ones share real ones, a program that holds a flow's lock stops for so
# long that the other one's gives up, as it may, and tests that want every packet edited fail. Two
# machines use two real CPUs.
LANES_TESTS=("acceptance agent/vectors agent/cc_vectors agent/charge agent/faults agent agent/strangers"
	"agent/instance agent/live_edit agent/live_adopt agent/live_hostile labkit/ignore_window agent/reload")
LANES_TESTS[0]+=" labkit labkit/pool labkit/switch_port labkit/tenant_cc"
# Doctor and agent load all programs, the tenants' stacks too.
LANES_VERIFIER=("acceptance agent:vectors::random_frames_are_the_same")
LANES_REFUSAL=("refusal")
# Tests that take minutes there and say little of a kernel; TEST may name them all the same.
LEFT_OUT="agent/compliant"
# Programs that the guests call; the rest is busybox.
TOOLS=(ip tc ethtool setpriv bpftool)
# Modules that tests may ask for, below kernel/ in the package.
MODULES=(net lib 'drivers/net/*.ko*')

version=${1:-6.12}
[ $# -eq 0 ] || shift
case "$version" in
6.12) suites=(bookworm-backports trixie) lanes=("${LANES_TESTS[@]}") ;;
6.1) suites=(bookworm) lanes=("${LANES_REFUSAL[@]}") ;;
*) die "kernel-test.sh: no kernel '$version' here; use 6.12 or 6.1" ;;
esac
frames=$FRAMES
case "$*" in
"") ;;
verifier) lanes=("${LANES_VERIFIER[@]}") frames=$FRAMES_VERIFIER ;;
*) lanes=("$*") ;;
esac
[ "$(uname -m)" = x86_64 ] || die "kernel-test.sh boots x86-64 kernels with this machine's own test programs: it needs an x86-64 machine"

export_to_guest="SLUICEGATE_VECTOR_FRAMES=${SLUICEGATE_VECTOR_FRAMES:-$frames}"

kernels=$SG_CACHE/kernels
mkdir -p "$kernels" 2>/dev/null && [ -w "$kernels" ] || kernels=$SG_ROOT/out/kernels
cache=$kernels/$version
work=$(mktemp -d)
guest=$work/guest
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# apt_here SUITE PROGRAM ARGUMENTS…: apt with sources, lists and cache of its own.
apt_here() {
	local own=$kernels/apt-$1 program=$2
	shift 2
	"$program" -q -o Dir::Etc::SourceList="$own/sources.list" -o Dir::Etc::SourceParts=- \
		-o Dir::State::Lists="$own/lists" -o Dir::Cache="$own/cache" -o APT::Sandbox::User="$(id -un)" "$@"
}

# The archive that apt has its own distribution from.
archive() {
	# shellcheck disable=SC2016 # apt's own fields
	apt-get indextargets --format '$(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
		awk '$1 == "Debian" && $2 == "main" { print $3; exit }'
}

# fetch SUITE: the package of its cloud kernel, if that is of the wanted version.
fetch() {
	local own=$kernels/apt-$1 uri image
	uri=$(archive)
	[ -n "$uri" ] || die "apt has no Debian archive among its sources to fetch a kernel from"
	mkdir -p "$own/lists/partial" "$own/cache/archives/partial" "$cache"
	echo "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $1 main" >"$own/sources.list"
	apt_here "$1" apt-get update || return 1
	image=$(apt_here "$1" apt-cache show linux-image-cloud-amd64 |
		sed -n 's/^Depends: \(linux-image-[^ ]*\).*/\1/p' | head -n 1)
	case $image in
	linux-image-"$version".*) (cd "$cache" && apt_here "$1" apt-get download "$image") ;;
	*) return 1 ;;
	esac
}

# Prints the package of the kernel, fetched unless a former run has.
kernel_package() {
	local suite
	for suite in "${suites[@]}"; do
		compgen -G "$cache/linux-image-*.deb" | head -n 1 && return
		fetch "$suite" >&2 || echo "no Linux $version in $suite" >&2
	done
	compgen -G "$cache/linux-image-*.deb" | head -n 1 || die "no Linux $version in ${suites[*]}"
}

# into_guest FILE…: the same at the same places there, with the libraries that they are linked with.
into_guest() {
	local file library
	for file in "$@"; do
		cp -L --parents "$file" "$guest"
		for library in $(ldd "$file" 2>/dev/null | grep -o '/[^ ]*' | grep -v ':$'); do
			cp -nL --parents "$library" "$guest"
		done
	done
}

# Builds what is to be tested, prints lines "NAME PATH": the command, and of a crate "CRATE" for its
# unit tests, "CRATE-all" for the others. All of the workspace: another choice of packages would have
# other features, and be built again.
test_programs() {
	cargo test --release --locked --no-run --message-format=json --workspace --lib --bins --tests --examples |
		sed -nE -e '/"executable":null/d' \
			-e 's~.*/crates/(agent|labkit)[#@].*"kind":\["lib"\].*"test":true\},.*"executable":"([^"]*)".*~\1 \2~p' \
			-e 's~.*/crates/(agent|labkit)[#@].*"kind":\["test"\].*"executable":"([^"]*)".*~\1-all \2~p' \
			-e 's~.*/crates/cli[#@].*"kind":\["bin"\].*"test":false\},.*"executable":"([^"]*)".*~sluicegate \1~p'
}

# A new file of tests belongs into a lane, or is left out.
every_file_is_named() {
	local file name
	for file in crates/{agent,labkit}/tests/*.rs; do
		name=${file#crates/}
		name=${name/tests\//}
		name=${name%.rs}
		[[ $name == */all || " ${LANES_TESTS[*]} $LEFT_OUT " == *" $name "* ]] ||
			die "kernel-test.sh: is the test $name for other kernels? Name it in LANES_TESTS or LEFT_OUT"
	done
}

# programs_into_guest: those of standard input that a lane calls, tests by their names below /tests;
# the command itself where its tests look for it.
programs_into_guest() {
	local program name
	while read -r name program; do
		case $name in
		*-all) grep -qE "\b${name%-all}[/:]" <<<"${lanes[*]}" || continue ;;
		agent | labkit) grep -qE "\b$name( |$)" <<<"${lanes[*]}" || continue ;;
		esac
		into_guest "$program"
		strip "$guest$program"
		if [ "$name" = sluicegate ]; then
			ln -s "$program" "$guest/bin/$name"
		else
			mv "$guest$program" "$guest/tests/$name"
		fi
	done
}

modules_into_guest() { # modules_into_guest RELEASE
	local from=$work/kernel/lib/modules/$1 to=$guest/lib/modules/$1
	mkdir -p "$to/kernel"
	# shellcheck disable=SC2068 # patterns
	(cd "$from/kernel" && cp -r --parents ${MODULES[@]} "$to/kernel")
	# Where the kernel has a congestion control, a tenant gets that one and not ours, which is to be
	# tested.
	rm -f "$to"/kernel/net/ipv4/tcp_*
	cp "$from"/modules.* "$to"
	find "$to" -name '*.xz' -exec busybox unxz {} +
	busybox depmod -b "$guest" "$1"
}

# Without cmpxchg16b, of which QEMU 7.2 (Debian 12) makes wrong flags now and then: the kernel's
# allocator dies of it.
CPU=max,-cx16

# boot VMLINUZ NUMBER TESTS: one machine runs them; its console goes into a file of that number.
boot() {
	timeout --kill-after=10 "$LIMIT_S" qemu-system-x86_64 \
		-accel tcg -cpu "$CPU" -m "$MEMORY_MB" -nodefaults -no-user-config -display none -no-reboot \
		-serial "file:$work/console-$2" -kernel "$1" -initrd "$work/initrd" \
		-append "console=ttyS0 loglevel=1 panic=-1 oops=panic $export_to_guest TESTS=${3// /,}" </dev/null
}

every_file_is_named
package=$(kernel_package)
say "Linux $version: ${package##*/}"
programs=$(test_programs)
dpkg-deb -x "$package" "$work/kernel"
vmlinuz=$(echo "$work"/kernel/boot/vmlinuz-*)
mkdir -p "$guest"/{bin,proc,sys,dev,run,tmp,tests,tools,var}
ln -s bin "$guest/sbin"
modules_into_guest "${vmlinuz##*/vmlinuz-}"
cp -L "$(command -v busybox)" "$guest/bin/busybox"
for tool in "${TOOLS[@]}"; do
	into_guest "$(command -v "$tool")"
	ln -s "$(command -v "$tool")" "$guest/tools/$tool"
done
programs_into_guest <<<"$programs"
install -m 755 scripts/kernel-guest.sh "$guest/init"
(cd "$guest" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"

for lane in "${!lanes[@]}"; do boot "$vmlinuz" "$lane" "${lanes[$lane]}" & done
wait
failed=0
for lane in "${!lanes[@]}"; do
	say "Linux $version: ${lanes[$lane]}"
	sed 's/\r//' "$work/console-$lane" | tee "$work/lines"
	grep -qx 'guest: all is well' "$work/lines" || failed=1
done
[ "$failed" -eq 0 ] || die "Linux $version: not all is well, see above (a machine that says nothing at its end ran into the limit of $LIMIT_S s)"

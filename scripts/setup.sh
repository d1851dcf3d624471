#!/usr/bin/env bash
# Installs what is missing, and only that, with apt. Safe to run again and again.
#
#   setup.sh [PURPOSE]   what the tools are for (default: build)
#
# build         compilers and libraries
# deb           build + what knows packages' libraries
# demo          build + what the lab world calls
# docs          Python, into whose virtual environment the site's generator goes
# switch        build + other userspace switches, for a benchmark
# libvirt       build + libvirt and QEMU, for machines at the switch
# test          demo + deb + guests, Open vSwitch, a browser for the report's test, sanitizers for
#               fuzzing, stacks of other makes, and what lint reads scripts with
# guest-kernel  what builds the kernel of guests
# programs      MPI and the programs that record-programs.sh records
# profile       what counts instructions, and compares results
# bare          what builds the bare root, in which everything above is tried
#
# Without root or apt it installs nothing, says what is missing and how to get
# it, and exits with 1. It never asks anything and removes no package.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

APT_LOCK_WAIT_S=600

purpose=${1:-build}
case "$purpose" in
build | deb | demo | docs | switch | libvirt | test | guest-kernel | programs | profile | bare) ;;
*) die "setup.sh: unknown purpose '$purpose'; its first lines name those that there are" ;;
esac

missing=() # package, one per element
reasons=() # why, same index

need() { # need PACKAGE WHY
	missing+=("$1")
	reasons+=("$2")
}

need_command() { # need_command COMMAND PACKAGE WHY
	command -v "$1" >/dev/null || need "$2" "$3"
}

compiles() { # compiles HEADER: the C compiler finds it
	printf '#include <%s>\n' "$1" | gcc -E -x c - >/dev/null 2>&1
}

# The clang package to install where there is none: the distribution's default if
# new enough, else the versioned one that Debian 12 carries.
clang_package() {
	local candidate
	candidate=$(apt-cache policy clang 2>/dev/null | sed -n 's/^ *Candidate: *\([0-9]*:\)\?\([0-9]*\).*/\2/p')
	if [ "${candidate:-0}" -ge "$SG_CLANG_MAJOR" ]; then echo clang; else echo clang-16; fi
}

want_rust() {
	if sg_find_cargo; then return; fi
	need rustc-web "cargo and rustc >= 1.$SG_RUST_MINOR"
	need cargo-web "cargo and rustc >= 1.$SG_RUST_MINOR"
}

want_build() {
	want_rust
	need_command gcc gcc "C compiler and linker"
	need_command make make "build recipes, libbpf"
	need_command pkg-config pkg-config "finds libelf and zlib"
	compiles stdio.h || need libc6-dev "C library headers"
	compiles libelf.h || need libelf-dev "libbpf reads ELF objects"
	compiles zlib.h || need zlib1g-dev "libbpf reads compressed kernel configurations"
	sg_find_clang || need "$(clang_package)" "compiles the kernel programs (>= $SG_CLANG_MAJOR)"
	[ -e /etc/ssl/certs/ca-certificates.crt ] || need ca-certificates "cargo downloads crates over TLS"
}

want_demo() {
	want_build
	need_command ip iproute2 "network namespaces"
	need_command tc iproute2 "queues of the lab's links"
	need_command ethtool ethtool "offloads of the lab's interfaces"
}

want_deb() {
	want_build
	need_command dpkg-shlibdeps dpkg-dev "names the packages that libraries come from"
}

# want_open_vswitch WHY: with DPDK, and what DPDK loads by itself and no package of it depends on:
# the driver of memory pools. It is packaged by the version of DPDK, which the daemon shows once it
# is there.
want_open_vswitch() {
	local daemon=/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk version
	need_command ovs-vsctl openvswitch-switch "its daemon and commands"
	need_command ovsdb-server openvswitch-common "its database"
	[ -x "$daemon" ] || { need openvswitch-switch-dpdk "$1" && return; }
	version=$(ldd "$daemon" | sed -n 's/^.*librte_mempool\.so\.\([0-9]*\) => .*/\1/p')
	[ -n "$version" ] || return 0
	compgen -G "/usr/lib/*/librte_mempool_ring.so.$version" >/dev/null ||
		need "librte-mempool-ring$version" "memory pools of DPDK"
}

want_switch() {
	want_build
	need_command ip iproute2 "network namespaces"
	need_command dpdk-testpmd dpdk-dev "copies frames between two ports, as a limit"
	want_open_vswitch "the other userspace switch"
}

want_libvirt() {
	want_build
	need_command virsh libvirt-clients "starts machines"
	need_command libvirtd libvirt-daemon "has machines"
	[ -e /usr/lib/"$(uname -m)"-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so ] ||
		need libvirt-daemon-driver-qemu "has machines of QEMU"
	need_command qemu-system-x86_64 qemu-system-x86 "emulates them"
}

want_guest_kernel() {
	[ -e /usr/src/linux-source-6.1.tar.xz ] || need linux-source-6.1 "the source of guests' kernel"
	need_command gcc gcc "compiles it"
	need_command make make "its recipes"
	compiles stdio.h || need libc6-dev "C library headers"
	need_command strip binutils "the linker, and what makes the kernel small"
	need_command flex flex "its configuration"
	need_command bison bison "its configuration"
	need_command patch patch "our changes to it"
	need_command xz xz-utils "unpacks it"
	need_command bc bc "its tables of time"
}

want_programs() {
	want_mpi
	need_command lmp lammps "molecular dynamics"
	[ -e /usr/share/lammps/examples/peptide/data.peptide ] || need lammps-examples "what it computes"
	need_command icoFoam openfoam "fluid dynamics"
	need_command blockMesh openfoam "its grid"
	need_command decomposePar openfoam "shares of its grid"
}

want_mpi() {
	need_command mpirun openmpi-bin "runs the MPI programs that are recorded"
	need_command mpicc libopenmpi-dev "compiles them, and what records them"
}

want_profile() {
	want_build
	need_command valgrind valgrind "counts instructions"
	need_command jq jq "compares results"
	[ -x /usr/bin/time ] || need time "a process's memory"
}

want_bare() {
	need_command mmdebstrap mmdebstrap "builds a minimal root"
	need_command git git "copies the checkout"
	need_command tar tar "copies what is not committed"
}

# want_venv WHY: Python's virtual environments, into which pip installs.
want_venv() {
	need_command python3 python3 "$1"
	python3 -c 'import ensurepip, venv' 2>/dev/null || need python3-venv "$1"
}

want_docs() {
	want_venv "builds the documentation site"
}

want_test() {
	want_demo
	want_deb
	need_command man man-db "reads the manual's pages in a test"
	need_command systemd-analyze systemd "checks the service's unit"
	need_command linux.uml user-mode-linux "guest kernels as tenants"
	want_open_vswitch "another switch of the lab's hosts"
	need_command ss iproute2 "drops at packet sockets"
	need_command dpdk-testpmd dpdk-dev "a client of others at two ports of the switch"
	need_command chromium chromium "opens the report"
	need_command tshark tshark "decodes the feedback option in a test"
	need_command bpftool bpftool "lists what the kernel holds after the tests"
	[ "$(uname -m)" != x86_64 ] || need_command qemu-system-x86_64 qemu-system-x86 "boots another kernel"
	need_command busybox busybox-static "commands of the machine that boots it"
	want_mpi
	want_venv "cargo-nextest comes as a wheel"
	need_command pgrep procps "finds what a run has left"
	need_command strip binutils "test programs for another kernel"
	need_command jq jq "reads what shfmt says, compares results"
	need_command shfmt shfmt "which commands scripts call"
	[ -x /usr/local/go/bin/go ] || need_command go golang-go "builds tenants with stacks of other makes"
	[ -e /usr/include/lwip/lwip/tcp.h ] || need liblwip-dev "a tenant's stack"
	if ! cargo fmt --version >/dev/null 2>&1; then
		need rustfmt-web "cargo fmt"
	fi
	# Debian's clippy works with Debian's cargo alone.
	if [[ " ${missing[*]} " == *" cargo-web "* ]] ||
		{ [ "$(command -v cargo)" = /usr/bin/cargo ] && dpkg-query -W cargo-web >/dev/null 2>&1; }; then
		cargo clippy --version >/dev/null 2>&1 || need rust-web-clippy "cargo clippy"
	fi
	if sg_find_clang && ! sg_clang_has_fuzzer "$SG_CLANG"; then
		need "libclang-rt-$(sg_clang_version "$SG_CLANG")-dev" "libFuzzer and sanitizers"
	fi
}

list_missing() {
	local i
	for i in "${!missing[@]}"; do
		printf '  %-22s %s\n' "${missing[$i]}" "${reasons[$i]}"
	done
}

# apt waits for dpkg's lock by itself, but not for that of the package lists.
apt_update() {
	local waited=0 output
	while ! output=$(apt-get -q -o DPkg::Lock::Timeout="$APT_LOCK_WAIT_S" update 2>&1); do
		if ! grep -q 'Could not get lock' <<<"$output" || [ "$waited" -ge "$APT_LOCK_WAIT_S" ]; then
			printf '%s\n' "$output" >&2
			return 1
		fi
		sleep 5
		waited=$((waited + 5))
	done
}

apt_install() {
	DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends --no-remove \
		-o DPkg::Lock::Timeout="$APT_LOCK_WAIT_S" -o Dpkg::Options::=--force-confold \
		install "$@" </dev/null
}

install_missing() {
	local packages
	mapfile -t packages < <(printf '%s\n' "${missing[@]}" | sort -u)
	say "installing ${packages[*]}"
	apt_install "${packages[@]}" || die "apt-get could not install: ${packages[*]}
       Packages in the way are not removed: where an older rustc or cargo from
       Debian is installed, remove it (apt-get remove rustc cargo) or put a cargo
       >= 1.$SG_RUST_MINOR in PATH; see apt's message above for anything else."
}

explain_how() {
	local packages
	packages=$(printf '%s\n' "${missing[@]}" | sort -u | tr '\n' ' ')
	echo "missing for '$purpose':" >&2
	list_missing >&2
	if ! command -v apt-get >/dev/null; then
		echo "There is no apt here; install what provides these with your distribution's tools." >&2
	else
		echo "Not root, so nothing was installed. As root:" >&2
		echo "  apt-get update && apt-get install --no-install-recommends $packages" >&2
	fi
	echo "Rust >= 1.$SG_RUST_MINOR may also come from anywhere else that puts cargo in PATH or ~/.cargo/bin." >&2
}

look() { # look: what is missing now
	missing=() reasons=()
	hash -r
	"want_${purpose//-/_}"
}

main() {
	look
	[ "${#missing[@]}" -gt 0 ] || return 0
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
		explain_how
		exit 1
	fi
	echo "missing for '$purpose':"
	list_missing
	apt_update || echo "warning: apt-get update failed; trying with the package lists as they are" >&2
	# Twice: which run-time library a compiler needs shows once it is there.
	for _ in 1 2; do
		look
		[ "${#missing[@]}" -gt 0 ] || return 0
		install_missing
	done
	look
	[ "${#missing[@]}" -eq 0 ] || {
		list_missing >&2
		die "still missing after installation"
	}
}

main

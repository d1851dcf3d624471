#!/usr/bin/env bash
# The kernel of guests whose reception waits for room in UDP sockets: Debian's source of Linux 6.1 with
# kernel/guest/*.patch and kernel/guest/config, for User-Mode Linux. Built once: it is kept by a hash of the source's
# version, the patches, the configuration, its tools and this script.
#
#   guest-kernel.sh          builds it where it is missing, as root: below /var/cache/sluicegate/guest-kernel, where
#                            the lab finds it as "linux"; says the seconds that it took
#   guest-kernel.sh check    says whether it is there, builds nothing
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

CACHE=/var/cache/sluicegate/guest-kernel
SOURCE=/usr/src/linux-source-6.1.tar.xz
JOBS=${JOBS:-$(nproc)}

# What the kernel is made of, as one word.
fingerprint() {
	{
		dpkg-query -W -f '${Version}\n' linux-source-6.1
		gcc -dumpfullversion
		uname -m
		cat kernel/guest/*.patch kernel/guest/config scripts/guest-kernel.sh
		sed -n '/^want_guest_kernel/,/^}/p' scripts/setup.sh
	} | sha256sum | cut -c1-16
}

# build DIRECTORY: the file DIRECTORY/linux.
build() {
	local tree=$work/linux-source-6.1 patch
	tar -C "$work" -xf "$SOURCE"
	for patch in kernel/guest/*.patch; do
		patch -d "$tree" -p1 --forward --fuzz=0 --quiet <"$patch" || die "$patch does not fit $SOURCE"
	done
	KCONFIG_ALLCONFIG=$SG_ROOT/kernel/guest/config make -C "$tree" ARCH=um -s allnoconfig
	check_configuration "$tree/.config"
	make -C "$tree" ARCH=um -s -j "$JOBS" linux
	strip --strip-debug -o "$1/linux" "$tree/linux"
}

# An option that the configuration asks for and the kernel does not have is a mistake.
check_configuration() {
	local line
	while read -r line; do
		grep -qxF "$line" "$1" || die "kernel/guest/config: the kernel did not take $line"
	done < <(grep -E '^CONFIG_[A-Z0-9_]*=[^n]' kernel/guest/config)
}

case "${1:-build}" in
check)
	[ -e "$SOURCE" ] && [ -x "$CACHE/$(fingerprint)/linux" ] || die "no kernel for holding guests; scripts/guest-kernel.sh"
	;;
build)
	[ "$(id -u)" -eq 0 ] || die "guest-kernel.sh needs root: it installs packages and writes to $CACHE"
	scripts/setup.sh guest-kernel
	kept=$(fingerprint)
	if [ ! -x "$CACHE/$kept/linux" ]; then
		say "building the kernel of holding guests with $JOBS jobs"
		work=$(mktemp -d)
		trap 'rm -rf "$work"' EXIT
		trap 'exit 130' INT TERM
		mkdir -p "$work/done" "$CACHE"
		build "$work/done"
		rm -rf "${CACHE:?}/$kept"
		cp -r "$work/done" "$CACHE/$kept.part-$$"
		mv -T "$CACHE/$kept.part-$$" "$CACHE/$kept"
		echo "built in $SECONDS s: $CACHE/$kept/linux"
	fi
	# One step for whoever boots it meanwhile.
	ln -sfn "$kept/linux" "$CACHE/linux.new-$$"
	mv -T "$CACHE/linux.new-$$" "$CACHE/linux"
	;;
*) die "guest-kernel.sh: unknown word '$1'; use build or check" ;;
esac

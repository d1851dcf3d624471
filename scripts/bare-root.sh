#!/usr/bin/env bash
# Runs commands in a Debian of its own that has `make` and `git` beside the base: what somebody once
# installed on this machine cannot hide that scripts/setup.sh lacks it. As root.
#
#   bare-root.sh PURPOSE COMMAND [PURPOSE COMMAND]…
#
# COMMAND   goes to bash, in a clean clone of this checkout with its uncommitted changes; all of
#           them have the same clone, and `out` is out/bare here
# PURPOSE   what `setup.sh PURPOSE` has installed before (demo, test), or `none`
#
# Each command has a root, processes, mounts, a bpffs and a /run of its own; the network and the
# kernel are this machine's. All of that ends with the command. Where the machine lets us make no
# mounts or namespaces, or gives no Debian for the base, nothing runs, and the exit code is 125.
#
# Kept are, below /var/cache/sluicegate: the base, and what `setup.sh` adds to it, by all that they
# are made of and the week; what was built with these; archives of packages; sources of crates and
# of Go's modules; kernels. Files that are as they were at the last build have their date of then in
# the clone, so that cargo builds what has changed since.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

CACHE=$SG_CACHE/bare
IMPOSSIBLE=125
# Where the clone is, inside.
INSIDE=/src/sluicegate
# What is kept outside: DIRECTORY below SG_CACHE, and its place inside.
KEPT=(
	bare/apt:/var/cache/apt/archives bare/pip:/root/.cache/pip
	bare/cargo:/root/.cargo/registry bare/go:/root/go/pkg/mod bare/go-build:/root/.cache/go-build
	bare/crates:/var/cache/sluicegate/crates bare/guest-kernel:/var/cache/sluicegate/guest-kernel
	kernels:/var/cache/sluicegate/kernels
)
# How this machine reaches its archives and registries, as files and as variables; and what tells
# the tests how much to do.
FILES=(/etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates)
HOME_FILES=(.config/pip/pip.conf .pip/pip.conf .cargo/config.toml .cargo/config)
VARIABLES='(https?|ftp|all|no)_proxy|(HTTPS?|FTP|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR)|CURL_CA_BUNDLE'
VARIABLES+='|REQUESTS_CA_BUNDLE|GIT_SSL_CAINFO|PIP_[A-Z_]*|GO(PROXY|SUMDB|NOSUMDB|NOPROXY|PRIVATE|INSECURE)'
VARIABLES+='|CARGO_(HTTP|NET|REGISTR|SOURCE|BUILD_JOBS)[A-Z_]*|CI|TERM|FUZZ_SECONDS|PROPTEST_[A-Z_]*|SEEDS'

# Debian's archives among apt's sources, as a list.
sources() {
	# shellcheck disable=SC2016 # apt's own fields
	apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		awk '$1 == "Debian" { print "deb", $2, $3, $4 }' | sort -u
}

# How apt reaches them.
apt_options() { apt-config dump | grep -E '^Acquire::(https?|ftp|Check-|Retries|ForceIP)[^ ]* "[^"]' || true; }

# build_base DIRECTORY: the base, `make` and `git`.
build_base() {
	local option options=()
	while read -r option; do options+=(--aptopt="${option%;}"); done < <(apt_options)
	# shellcheck disable=SC2016 # $1 is for the hook
	mmdebstrap --quiet --mode=root --variant=minbase --include=make,git "${options[@]}" \
		--dpkgopt=force-unsafe-io --skip=essential/unlink,cleanup/apt \
		--setup-hook='mkdir -p "$1/var/cache/apt/archives"' \
		--setup-hook="sync-in $CACHE/apt /var/cache/apt/archives" \
		--customize-hook="sync-out /var/cache/apt/archives $CACHE/apt" \
		--customize-hook='rm -f "$1"/var/cache/apt/archives/*.deb' \
		"$(. /etc/os-release && echo "$VERSION_CODENAME")" "$1" - < <(sources)
}

# build_tools DIRECTORY PURPOSE: what setup.sh adds.
build_tools() { enter "$1" "scripts/setup.sh $2"; }

# layer NAME COMMAND [PURPOSE]: a directory of CACHE, which the command fills once, on top of those
# in `lower`, if any. Its name tells all that it is made of.
layer() {
	local path begin=$SECONDS
	made+=$*
	path=$CACHE/$1-$(sha256sum <<<"$made" | cut -c1-16)
	if [ ! -d "$path" ]; then
		say "bare root: $1"
		rm -rf "$CACHE/$1-"* "${CACHE:?}/crates"/* "${CACHE:?}/target"
		mkdir "$path.part"
		"$2" "$path.part" "${@:3}" || return
		mv "$path.part" "$path"
		echo "$1: $((SECONDS - begin)) s"
	fi
	lower=$path${lower:+:$lower}
}

# layers PURPOSE: sets `lower`, the directories that make its root, the topmost first.
layers() {
	lower=
	made=$(sources; apt_options; date +%G-%V; uname -m; cat scripts/bare-root.sh)
	layer base build_base || impossible "mmdebstrap has failed, see above"
	[ "$1" != none ] || return 0
	made+=$(cat scripts/setup.sh scripts/env.sh Cargo.toml)
	layer demo build_tools demo
	[ "$1" = demo ] || layer "$1" build_tools "$1"
}

# enter UPPER COMMAND: in namespaces that end with it, or with this script. The clone is a part of
# its root and no mount: tests copy the root, and copies have no mounts.
enter() {
	local status=0
	rm -rf "$run/work"
	mkdir -p "$run/work" "$run/root" "$1/${INSIDE%/*}"
	mv "$run/checkout" "$1$INSIDE"
	# No file is read again: the checkout may change meanwhile.
	setpriv --pdeathsig KILL unshare --mount --propagation=private --pid --fork --kill-child bash -euo pipefail -c \
		"$(declare -p SG_CACHE SG_ROOT INSIDE KEPT FILES HOME_FILES VARIABLES run && declare -f inside configure)
		inside \"\$@\"" - "$lower" "$@" </dev/null &
	child=$!
	wait "$child" || status=$?
	child=
	mv "$1$INSIDE" "$run/checkout"
	return "$status"
}

# As process 1 of its namespaces: makes the root, runs the command in it.
inside() {
	local root=$run/root place name variables=()
	mount -t overlay -o "lowerdir=$1,upperdir=$2,workdir=$run/work" overlay "$root"
	mkdir "$root/.outside"
	configure "$root"
	mount --bind "$SG_ROOT/out/bare" "$root$INSIDE/out"
	for place in "${KEPT[@]}"; do
		mkdir -p "$root${place#*:}"
		mount --bind "$SG_CACHE/${place%%:*}" "$root${place#*:}"
	done
	mount --rbind /dev "$root/dev"
	mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
	mount -t proc proc "$root/proc"
	mount -t sysfs sys "$root/sys"
	mount -t bpf -o mode=700 bpf "$root/sys/fs/bpf"
	mount -t tmpfs -o mode=755 run "$root/run"
	mkdir "$root/run/lock" "$root/run/netns"
	for name in $(compgen -e | grep -xE "$VARIABLES"); do variables+=("$name=${!name}"); done
	cd "$root"
	# Programs that a chroot holds may have no user namespaces, as browsers want.
	pivot_root . .outside
	cd "$INSIDE"
	umount -l /.outside
	rmdir /.outside
	# This shell is the parent of whatever loses its own.
	env -i "${variables[@]}" HOME=/root LANG=C.UTF-8 \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -c "$3" &
	wait $!
}

# configure ROOT: how this machine reaches archives and registries.
configure() {
	local file
	for file in "${FILES[@]}"; do
		[ ! -e "$file" ] || cp -rL --parents "$file" "$1"
	done
	for file in "${HOME_FILES[@]}"; do
		[ ! -e "$HOME/$file" ] || install -D -m 600 "$HOME/$file" "$1/root/$file"
	done
}

# clone DIRECTORY: this checkout as it would be committed.
clone() {
	git clone --quiet --depth 1 "file://$SG_ROOT" "$1"
	git diff --binary HEAD | git -C "$1" apply --allow-empty
	git ls-files -z --others --exclude-standard | tar --null -T - -c | tar -x -C "$1"
}

# contents: the clone's files: hash, date and name.
contents() {
	(
		cd "$run/checkout"
		paste -d' ' <(git ls-files -z --cached --others --exclude-standard | xargs -0 sha256sum | cut -d' ' -f1) \
			<(git ls-files -z --cached --others --exclude-standard | xargs -0 stat --printf '%.9Y %n\n')
	)
}

# restore_target: what was built at last, and for each file that has not changed since, the date that
# it had then. A file that has changed is newer than all that was built of another content.
restore_target() {
	[ -f "$CACHE/target/contents" ] || return 0
	awk 'NR == FNR { date[$1 " " $3] = $2; next }
		($1 " " $3) in date { print date[$1 " " $3], $3 }' "$CACHE/target/contents" <(contents) |
		while read -r date name; do touch --no-create -d "@$date" "$run/checkout/$name"; done
	mv "$CACHE/target" "$run/checkout/target"
}

# save_target: for the next run; nothing is left of one that was killed.
save_target() {
	[ -d "$run/checkout/target" ] || return 0
	contents >"$run/contents"
	mv "$run/contents" "$run/checkout/target/contents"
	mv "$run/checkout/target" "$CACHE/target"
}

# impossible WHY: nothing of ours is at fault.
impossible() {
	echo "the bare root cannot be built: $1" >&2
	exit "$IMPOSSIBLE"
}

# Whether this machine lets us.
permitted() {
	[ "$(id -u)" -eq 0 ] || die "bare-root.sh needs root: it mounts a root of its own"
	mkdir -p "$CACHE"
	unshare --mount --propagation=private --pid --fork bash -ec '
		mount -t tmpfs none "$1" && mkdir "$1"/{lower,upper,work,root}
		mount -t overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" none "$1/root"
		mkdir "$1/root/proc" && mount -t proc none "$1/root/proc"' - "$CACHE" ||
		impossible "this machine lets us make no mounts or namespaces (see above; a container needs
CAP_SYS_ADMIN and no filter of mount)"
}

[ $# -ge 2 ] && [ $(($# % 2)) -eq 0 ] || die "usage: bare-root.sh PURPOSE COMMAND [PURPOSE COMMAND]…"
cd "$SG_ROOT"
permitted
scripts/setup.sh bare || impossible "setup has failed, see above"
for place in "${KEPT[@]}"; do mkdir -p "$SG_CACHE/${place%%:*}"; done
mkdir -p out/bare
exec {lock}>"$CACHE/lock"
flock --nonblock "$lock" || { echo "waiting for another bare root of this machine" >&2 && flock "$lock"; }
# What runs that were killed have left.
rm -rf "$CACHE"/run.* "$CACHE"/*.part
run=$(mktemp -d "$CACHE/run.XXXXXX")
child=
trap '[ -z "$child" ] || kill -KILL "$child" 2>/dev/null; wait; rm -rf "$run"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
clone "$run/checkout"
mkdir -p "$run/checkout/out"
[ -n "$(sources)" ] || apt-get -q update
[ -n "$(sources)" ] || impossible "apt has no Debian archive among its sources"
failed=0
while [ $# -gt 0 ]; do
	layers "$1"
	say "bare root after $SECONDS s: $2"
	restore_target
	rm -rf "$run/upper"
	status=0
	enter "$run/upper" "$2" || status=$?
	[ "$status" -eq 0 ] || failed=$status
	shift 2
done
save_target
exit "$failed"

# shellcheck shell=sh disable=SC2154  # variables and functions of `x`, which reads this file
# `./x fresh`: demo and quick tests in a bare root made with debootstrap, with minutes and megabytes of each step; `./x fresh test`:
# all tests there.

# The outer half owns the directory and removes it however it ends. Mounts and processes live in namespaces of the
# inner half, so they are gone by then, whatever happened.
fresh() {
    tried='quick'
    [ "${1:-}" != test ] || { tried='test' && shift; }
    suite=${1:-bookworm}
    [ "$(id -u)" = 0 ] || die 3 "fresh needs root (debootstrap, chroot)"
    command -v cargo >/dev/null || die 3 "fresh lends this machine's Rust toolchain to the new root; cargo is missing"
    need_packages debootstrap git ca-certificates
    [ -z "$(git status --porcelain)" ] || echo "x: fresh tries the last commit; uncommitted changes are not in it"
    root=$(mktemp -d "${TMPDIR:-/tmp}/wv-fresh.XXXXXX")
    # As the root of a machine is: a test starts a program for a user without rights, who cannot even load libc below 0700.
    chmod 755 "$root"
    inner=
    # shellcheck disable=SC2064  # the path as it is now
    trap "rm -rf --one-file-system '$root'" EXIT
    trap 'trap - INT TERM HUP; [ -z "$inner" ] || kill "$inner" 2>/dev/null; wait; exit 130' INT TERM HUP
    there=target/fresh/tests.txt
    mkdir -p target/fresh && rm -f "$there"
    unshare --mount --pid --fork --kill-child --propagation private sh ./x fresh-inside "$root" "$suite" "$tried" &
    inner=$!
    inner_status=0
    wait "$inner" || inner_status=$?
    [ "$tried" = quick ] || compare_lists || inner_status=1
    return $inner_status
}

# The list of the fresh root beside that of this machine: what `./x test` has left here if it ran on the same commit, else the
# tests that exist, asked for by name.
compare_lists() {
    here=target/x-logs/tests.txt
    [ -s "$there" ] || { echo "x: the fresh root has left no list of tests" && return 1; }
    prepare quick
    if [ "$(cat target/x-logs/tests.commit 2>/dev/null)" != "test $(git rev-parse HEAD)" ]; then
        [ -z "$(git status --porcelain)" ] || echo "x: this machine's list is of its files, which differ from the last commit"
        here=target/fresh/exist.txt
        export logs=target/fresh
        { build_tests && tests list "$here"; } || return 1
    fi
    tests compare "$here" "$there"
}

received_mb() { awk '/:/ && !/lo:/ { sub(/.*:/, ""); sum += $1 } END { printf "%d", sum / 1e6 }' /proc/net/dev; }
size_mb() { du -sxm --exclude="$root/opt/rust" "$root" | cut -f1; }

# What an install step could have changed: packages, wheels, downloaded crates.
installed_state() {
    chroot "$root" dpkg-query -W | cksum
    find "$root/warpverbs/.tools" "$root/root/.cargo" -type f 2>/dev/null | LC_ALL=C sort | cksum
}

# measured NAME COMMAND..: one line with minutes and MB for the table at the end.
measured() {
    name=$1
    shift
    at=$(date +%s) size=$(size_mb) received=$(received_mb)
    "$@" || die 1 "in the fresh root: $name failed"
    seconds=$(($(date +%s) - at))
    fresh_report="$fresh_report$(printf '%-28s %3d min %02d s %6d MB on disk %6d MB received by the machine' "$name" \
        $((seconds / 60)) $((seconds % 60)) $(($(size_mb) - size)) $(($(received_mb) - received)))
"
}

in_root() { chroot "$root" env -i "$@"; }

# all_tests ENVIRONMENT..
all_tests() {
    in_root "$@" sh /warpverbs/x test || failed_inside='./x test'
    cp "$root/warpverbs/target/x-logs/tests.txt" target/fresh/tests.txt || failed_inside='./x test'
}

make_root() {
    # shellcheck disable=SC1091,SC2016  # a file of the machine; fields of apt
    mirror=${WV_MIRROR:-$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
        sed -n "s/^$(. /etc/os-release && echo "$VERSION_CODENAME") //p" | head -1)}
    [ -n "$mirror" ] || die 3 "no mirror found in this machine's apt sources: set WV_MIRROR"
    case $suite in
        noble | plucky | questing) components=main,universe ;; # Ubuntu
        *) components=main ;;
    esac
    debootstrap --variant=minbase --include=ca-certificates --components="$components" "$suite" "$root" "$mirror" \
        >/dev/null || { tail -5 "$root/debootstrap/debootstrap.log" >&2 && return 1; }
    # The machine's settings, not the project's: certificates, name service, package managers.
    for file in /etc/ssl/certs/ca-certificates.crt /etc/resolv.conf /etc/hosts /etc/pip.conf; do
        [ ! -f $file ] || cp -L $file "$root$file"
    done
    apt-config dump | grep '^Acquire::' >"$root/etc/apt/apt.conf.d/00machine"
    mkdir -p "$root/root/.cargo" "$root/opt/rust"
    cp "${CARGO_HOME:-$HOME/.cargo}"/config* "$root/root/.cargo/" 2>/dev/null || true
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --bind -o ro "$(rustc --print sysroot)" "$root/opt/rust"
    git clone -q . "$root/warpverbs"
}

fresh_inside() {
    root=$1 suite=$2 tried=$3 fresh_report='' failed_inside=''
    measured "debootstrap $suite, clone" make_root
    # Environment of the new root: a plain one, and this machine's settings for TLS, proxies and package managers.
    set -- HOME=/root LANG=C.UTF-8 PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p' |
        grep -iE '_proxy$|SSL_CERT|CA_BUNDLE|^PIP_|^CARGO_(HTTP|NET|REGISTR)'); do
        set -- "$@" "$name=$(printenv "$name")"
    done
    if [ "$tried" = test ]; then
        # The list is wanted however the tests end.
        measured "./x test" all_tests "$@"
        printf '\n%s' "$fresh_report"
        [ -z "$failed_inside" ] || die 1 "in the fresh root: $failed_inside failed"
        return
    fi
    measured "./x demo" in_root "$@" sh /warpverbs/x demo
    before=$(installed_state)
    measured "./x demo again" in_root "$@" sh /warpverbs/x demo
    [ "$before" = "$(installed_state)" ] || die 1 "the second ./x demo installed something"
    measured "./x test quick" in_root "$@" sh /warpverbs/x test quick
    before=$(installed_state)
    measured "./x test quick again" in_root "$@" sh /warpverbs/x test quick
    [ "$before" = "$(installed_state)" ] || die 1 "the second ./x test quick installed something"
    printf '\n%s' "$fresh_report"
    echo "second runs installed nothing; $(size_mb) MB on disk in all"
}

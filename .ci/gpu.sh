# shellcheck shell=sh disable=SC2154  # variables and functions of `x`, which reads this file
# `./x gpu`: everything that a machine with a GPU and nothing else needs, packed into one folder, and run.

pack=target/gpu/pack

# Tests that run kernels: on the device that WARPVERBS_TEST_GPU names. Those that take long are in the full pack only.
gpu_tests='gpu post put signal put_errors'
long_gpu_tests='conformance failures ops ring_all_gather'

# The verbs libraries, as files: the other machine has no packages. Downloaded; or where that fails, those of this machine.
verbs_libraries() {
    debs=target/gpu/debs
    if [ ! -e $debs/done ]; then
        rm -rf $debs && mkdir -p $debs/root
        (cd $debs && apt-get download -qq libibverbs1 ibverbs-providers libnl-3-200 libnl-route-3-200 \
            >apt.log 2>&1 && for deb in *.deb; do dpkg-deb -x "$deb" root || exit 1; done) && touch $debs/done ||
            echo "x: no packages to be had; packing the installed libraries"
    fi
    for library in libibverbs.so.1 libmlx5.so.1 libnl-3.so.200 libnl-route-3.so.200; do
        found=
        for folder in "$debs"/root/usr/lib/*-linux-gnu "$debs"/root/lib/*-linux-gnu /usr/lib/*-linux-gnu /lib/*-linux-gnu; do
            [ -z "$found" ] && [ -e "$folder/$library" ] && found=$folder/$library
        done
        [ -n "$found" ] || die 3 "no $library: neither in a package nor installed"
        cp -L "$found" "$pack/lib/$library"
    done
    # libibverbs adds the suffix of its providers to what IBV_DRIVERS names.
    suffix=$(strings "$pack/lib/libibverbs.so.1" | sed -n 's/.*\(-rdmav[0-9]*\.so\).*/\1/p' | head -1)
    ln -sf libmlx5.so.1 "$pack/lib/libmlx5${suffix:--rdmav34.so}"
}

# PTX of the test kernels, which is not checked in; compiled again where a source is newer.
test_ptx() {
    for source in crates/test-support/kernels/*.cu; do
        name=test/$(basename "$source" .cu)
        case $name in test/mutants | test/cost* | test/moe* | test/guard) continue ;; esac # of other tests
        fresh=target/kernels/sm_90/$name.ptx
        if [ ! -e "$fresh" ] || [ -n "$(find kernels crates/test-support/kernels -name '*.cu*' -newer "$fresh" -o -name '*.h' -newer "$fresh")" ]; then
            compile_ptx "$source" target/kernels "$name" || return 1
        fi
        for arch in sm_80 sm_90; do
            mkdir -p "$pack/ptx/$arch" && cp "target/kernels/$arch/$name.ptx" "$pack/ptx/$arch/"
        done
    done
}

# gpu_pack full|quick: quick leaves out the PTX of the test kernels, which only a GPU needs.
gpu_pack() {
    prepare kernels
    build || return 1
    rm -rf $pack && mkdir -p $pack/bin $pack/lib $pack/tests
    tests=$gpu_tests
    [ "$1" = quick ] || tests="$tests $long_gpu_tests"
    chosen=$(for test in $tests; do printf ' --test %s' "$test"; done)
    # shellcheck disable=SC2086  # a list of words
    cargo test --locked --workspace $chosen --no-run --message-format=json >target/gpu/tests.json || return 1
    for test in $tests; do
        made=$(sed -n "s|.*\"executable\":\"\([^\"]*/deps/$test-[0-9a-f]*\)\".*|\1|p" target/gpu/tests.json | tail -1)
        [ -n "$made" ] || die 1 "cargo made no test $test"
        strip -o "$pack/tests/$test" "$made" || return 1
    done
    strip -o $pack/bin/wv "$target/wv" && strip --strip-unneeded -o $pack/bin/libsofthca.so "$target/libsofthca.so" || return 1
    verbs_libraries
    [ "$1" = quick ] || test_ptx || return 1
    cp .ci/gpu-run.sh $pack/run.sh
    git rev-parse --short=12 HEAD >$pack/COMMIT
    echo "packed: $pack, $(du -sm $pack | cut -f1) MB. On a machine with a GPU: sh run.sh [RESULTS]"
}

# gpu_run RESULTS [quick]: what is packed, with nothing of this machine but the kernel, sh and the C library. Results of a
# GPU also go to where they can be committed.
gpu_run() {
    [ -e $pack/run.sh ] || die 2 "nothing is packed: ./x gpu pack"
    env -i HOME="${HOME:-/root}" PATH=/usr/bin:/bin sh $pack/run.sh "$@" || return 1
    for result in "$1"/NVIDIA-*; do
        [ ! -e "$result" ] || { mkdir -p crates/wv/kernels/bench/results && cp "$result" crates/wv/kernels/bench/results/; }
    done
}

gpu() {
    case ${1:-} in
        pack) gpu_pack full ;;
        run) gpu_run "${2:-target/gpu/results}" ;;
        '') gpu_pack full && gpu_run target/gpu/results ;;
        *) usage >&2 && exit 2 ;;
    esac
}

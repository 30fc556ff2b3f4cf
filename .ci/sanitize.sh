# shellcheck shell=sh disable=SC2030,SC2031,SC2154  # variables and functions of `x`, which reads this file
# Part of ./x: kernels on the CPU under the checker of memory order and under AddressSanitizer (kernels/README.md).

# sanitizer FEATURE SEEDS ARGS..: tests with kernels that are compiled with a sanitizer, in a target directory of their own, so
# that `wv` stays the one that was tested. SEEDS: few, or many for some hundred.
sanitizer() {
    feature=$1 seeds=$2
    shift 2
    has_nextest || { echo "skipped: $feature: cargo-nextest is not installed" && return; }
    (
        if [ "$seeds" = many ]; then
            WV_TEST_FULL=1 && export WV_TEST_FULL
            set -- --profile full "$@"
        fi
        CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/sanitize && export CARGO_TARGET_DIR
        logged "$feature-$seeds.log" cargo nextest run --locked --features "$feature" "$@"
    )
}

# One sample for `./x test`: planted defects and their repaired twins. The library itself needs a build of its own, which
# takes minutes: `./x sanitize` and `./x test full`.
sanitize_sample() {
    step "order of memory accesses" sanitizer tsan few -p simt --test order
    step "wild accesses" sanitizer asan few -p simt --test memory
    if [ -n "${WV_TEST_FULL:-}" ]; then
        step "order of memory accesses in puts" sanitizer tsan few -p warpverbs --test order
    else
        echo "skipped: order of memory accesses in puts: it runs with ./x sanitize and ./x test full" | tee "$logs/sanitize.log"
    fi
}

sanitize() {
    prepare demo
    start_run
    part order
    step "order, planted and not" sanitizer tsan many -p simt -p warpverbs --test order
    step "order in puts and signals" sanitizer tsan few -p warpverbs --test put --test signal -E 'not test(70_000)'
    part memory
    step "wild accesses" sanitizer asan few -p simt --test memory
    finish_parts
    print_summary
}

# shellcheck shell=sh disable=SC2030,SC2031,SC2154  # variables and functions of `x`, which reads this file
# Part of ./x: kernels on the CPU under the checker of memory order and under AddressSanitizer (kernels/README.md).

# sanitizer FEATURE SEEDS ARGS..: tests with kernels that are compiled with a sanitizer, in a target directory of their own, so
# that `wv` stays the one that was tested. SEEDS: few, or many for some hundred. A log per call.
sanitizer() {
    feature=$1 seeds=$2
    shift 2
    sanitizer_calls=$((${sanitizer_calls:-0} + 1))
    has_nextest || { echo "skipped: $feature: cargo-nextest is not installed" && return; }
    (
        if [ "$seeds" = many ]; then
            WV_TEST_FULL=1 && export WV_TEST_FULL
        fi
        set -- --profile full "$@" # checked accesses take their time
        CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/sanitize && export CARGO_TARGET_DIR
        logged "$feature-$seeds-$sanitizer_calls.log" cargo nextest run --locked --features "$feature" "$@"
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

# Which tests of the library: every operation at every scope, signals, guards, recovery, hold-back, MoE; every kind of QP is
# in the table of `conformance`. Not: rates, and messages of a GiB, each byte of which would be noted.
sanitize_tests='--test put --test put_hold --test signal --test ops --test team --test moe --test ring_all_gather'
sanitize_filter='not (test(70_000) | test(more_than_a_gib))'

# One package per step: `-p simt -p warpverbs` would resolve features otherwise and build everything once more.
sanitize() {
    prepare demo
    start_run
    part order
    step "order, planted and not" sanitizer tsan many -p simt --test order
    step "order in puts and MoE, planted and not" sanitizer tsan many -p warpverbs --test order
    step "order in every kind of QP" sanitizer tsan many -p warpverbs --test conformance
    # shellcheck disable=SC2086  # a list of words
    step "order in operations, teams and MoE" sanitizer tsan few -p warpverbs $sanitize_tests -E "$sanitize_filter"
    part memory
    step "wild accesses" sanitizer asan few -p simt --test memory
    finish_parts
    print_summary
}

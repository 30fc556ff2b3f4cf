# shellcheck shell=sh disable=SC2030,SC2031,SC2154  # variables and functions of `x`, which reads this file
# Part of ./x: kernels on the CPU under the checker of memory order and under AddressSanitizer (kernels/README.md).

# sanitizer FEATURE SEEDS ARGS..: tests with kernels that are compiled with a sanitizer, in a target directory of their own, so
# that `wv` stays the one that was tested. SEEDS: few, or many for some hundred. A log per call. Tests whose names hold a word of
# $left_out are skipped.
sanitizer() {
    feature=$1 seeds=$2
    shift 2
    sanitizer_calls=$((${sanitizer_calls:-0} + 1))
    (
        name=$feature-$seeds-$sanitizer_calls profile=sanitize
        if [ "$seeds" = many ]; then
            WV_TEST_FULL=1 profile=full && export WV_TEST_FULL
        fi
        CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/sanitize && export CARGO_TARGET_DIR
        tests build --label "$feature" "$name" --features "$feature" "$@" || return 1
        # shellcheck disable=SC2086  # a list of words
        logged "$name.log" tests run all --of "$name" --as "$name" --profile "$profile" \
            --why "under $feature (.ci/sanitize.sh)" --skip ${left_out:-}
    )
}

# One sample for `./x test`: planted defects and their repaired twins. The library itself needs a build of its own, which
# takes minutes: `./x sanitize` and `./x test full`.
sanitize_sample() {
    step "order of memory accesses" sanitizer tsan few -p simt-tests --test order
    step "wild accesses" sanitizer asan few -p simt-tests --test memory
    if [ -n "${WV_TEST_FULL:-}" ]; then
        step "order of memory accesses in puts" sanitizer tsan few -p warpverbs --test order
    else
        echo "left out: order of memory accesses in puts: it runs with ./x sanitize and ./x test full"
    fi
}

# The library under the checker of memory order: every operation at every scope, every kind of QP, every failure, signals, guards,
# recovery, hold-back, and MoE: data, every order of phases, late and dead ranks, masks, held calls, views. Left out, by name:
# - 70_000, 65534, more_than_a_gib: each byte would be noted;
# - a_wrong_choice_is_seen_to_break: it plants signals that overtake their data and looks for them in bytes; the checker says so first;
# - the_protocol_itself_shows_none_of_this: its NIC is a thread of the test, of whose reads the checker knows nothing, so that the
#   second lap of the ring looks like a race. `put` and `conformance` run the same kernels on softhca for many laps.
order_tests='--test order --test conformance --test failures --test ops --test put --test put_hold --test signal --test team
    --test ring_all_gather --test moe --test moe_data --test moe_faults'
order_left_out='70_000 65534 more_than_a_gib a_wrong_choice_is_seen_to_break the_protocol_itself_shows_none_of_this'

# And under AddressSanitizer, in one binary with the software HCA: a store beside its memory ends the process with its line.
memory_tests='--test put_mutants --test put --test ops --test moe'
memory_left_out=more_than_a_gib

# One package per step: `-p simt-tests -p warpverbs` would resolve features otherwise and build everything once more. What a build
# costs is why each sanitizer has one step for the library.
sanitize() {
    prepare quick
    start_run sanitize
    few=few
    [ -z "${WV_TEST_FULL:-}" ] || few=many
    part order
    step "order, planted and not" sanitizer tsan many -p simt-tests --test order
    left_out=$order_left_out
    # shellcheck disable=SC2086  # a list of words
    step "order in the library, planted and not" sanitizer tsan "$few" -p warpverbs $order_tests
    part memory
    left_out=
    step "wild accesses" sanitizer asan few -p simt-tests --test memory
    left_out=$memory_left_out
    # shellcheck disable=SC2086  # a list of words
    step "wild accesses in the library, planted and not" sanitizer asan "$few" -p warpverbs $memory_tests
    finish_parts
    print_summary
}

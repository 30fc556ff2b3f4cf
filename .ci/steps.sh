# shellcheck shell=sh disable=SC2154  # variables and functions of `x`, which reads this file
# The steps of a run of `x`, with their times; its tests; and its last lines.

# start_run NAME: what the run leaves behind lies in $logs.
start_run() {
    failed='' report='' part_name='' run_name=$1
    logs=target/x-logs
    rm -rf $logs && mkdir -p $logs
}

part() {
    finish_parts
    part_name=$1
    part_start=$(date +%s)
}

# Closes the running part: its seconds, beside its budget.
finish_parts() {
    [ -n "$part_name" ] || return 0
    line=$(printf '%-10s %4d s' "$part_name" $(($(date +%s) - part_start)))
    budget=$(budget_of "$part_name")
    [ -z "$budget" ] || [ "$run_name" != test ] || line="$line of $budget s"
    report="$report$line
"
    part_name=
}

fail() {
    failed="$failed
  $1"
}

# step NAME COMMAND..: runs it, and goes on after a failure, so that one run shows all of them. `outcome` says how it went.
step() {
    step_name=$1 && shift
    printf '\n== %s\n' "$step_name"
    step_start=$(date +%s)
    if "$@" </dev/null; then outcome=ok; else outcome=FAILED && fail "$step_name"; fi
    printf '== %s: %s, %d s\n' "$step_name" "$outcome" $(($(date +%s) - step_start))
}

# logged LOG COMMAND..: shows the output and keeps it; its status is the command's.
logged() {
    log=$logs/$1 && shift
    { "$@" 2>&1 && echo 0 >"$log.status" || echo $? >"$log.status"; } | tee "$log"
    return "$(cat "$log.status")"
}

# ---- Tests --------------------------------------------------------------------------------------------------

# tests COMMAND..: .ci/tests, which knows which tests there are and runs them, with cargo-nextest or without.
tests() { WV_LOGS=$logs WV_PARTS=$parts .tools/venv/bin/python -B .ci/tests "$@"; }

test_the_lists() { .tools/venv/bin/python -B -m unittest discover -s .ci/tests; }

# Everything that is tested, in one build: with the features that all packages together choose, as `cargo test --workspace`.
build_tests() { tests build --whole tests --workspace; }

# run_part PART [ARGS]
run_part() {
    part_run=$1 && shift
    # shellcheck disable=SC2046  # a word or none
    logged "$part_run.log" tests run "$part_run" --of tests --profile "$(profile)" $(threads_of "$part_run") "$@"
}

profile() { [ -n "${WV_TEST_FULL:-}" ] && echo full || echo default; }

# This commit, and whether files differ from it.
commit() {
    git rev-parse HEAD 2>/dev/null || echo unknown
    [ -z "$(git status --porcelain 2>/dev/null)" ] || echo changed
}

# The last line, in the form `x: N passed, N failed, N skipped`; what was skipped is named above it. `tests.txt` lists all of
# it, `tests.commit` says of what.
print_summary() {
    printf '\n'
    tests summary || fail "the tests that ran are not the tests that exist"
    # shellcheck disable=SC2046  # words
    echo "$run_name" $(commit) >"$logs/tests.commit"
    printf '\n%s' "$report"
    [ -z "$failed" ] || printf 'FAILED:%s\n' "$failed"
    cat "$logs/totals"
    [ -z "$failed" ]
}

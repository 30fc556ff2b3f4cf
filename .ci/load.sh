# shellcheck shell=sh disable=SC2154  # variables and functions of `x`, which reads this file
# `./x load`: the tests of one part, again and again on a machine that is busy. A test that judges the machine fails here.

# load [--quiet] PART [TIMES]: everything is built before the load starts.
load() {
    busy=yes
    [ "${1:-}" != --quiet ] || { busy='' && shift; }
    name=${1:-} times=${2:-1} round=0 bad=0
    case $name in
        tests | all) ;;
        *) printf '%s' "$parts" | grep -q "^$name  *[^ ]" ||
            die 2 "no such part: '$name'. Parts: all tests $(printf '%s' "$parts" | sed 's/ .*//' | uniq | tr '\n' ' ')" ;;
    esac
    [ "$times" -gt 0 ] 2>/dev/null || die 2 "TIMES is a number above 0, not '$times'"
    prepare test
    [ -z "$busy" ] || need_packages stress-ng
    start_run load
    { build && build_tests; } || die 1 "the build failed"
    [ -z "$busy" ] || start_stress
    while [ "$round" -lt "$times" ]; do
        round=$((round + 1))
        # shellcheck disable=SC2046  # a word or none
        step "$name, run $round of $times" logged "$name-$round.log" \
            tests run "$name" --of tests --as "$name-$round" --profile load $(threads_of "$name")
        [ "$outcome" = ok ] || bad=$((bad + 1))
    done
    [ -z "$busy" ] || kill -0 "$stress" || die 1 "stress-ng has ended before the tests: this was no load"
    [ -z "$busy" ] || stop_stress
    printf '\n'
    tests failures
    echo "x: part $name${busy:+ beside stress-ng}: $times runs, $bad of them with a failure"
    [ "$bad" = 0 ]
}

# Two busy threads and one that writes 256 MiB over and over. It ends with this script, and in any case two hours
# a run later.
start_stress() {
    stress-ng --quiet --cpu 2 --vm 1 --vm-bytes 256M --timeout "$((times * 2))h" </dev/null &
    stress=$!
    trap stop_stress EXIT
    trap 'exit 130' INT TERM HUP
    sleep 1
    kill -0 "$stress" || die 1 "stress-ng has ended at once"
}

stop_stress() {
    trap - EXIT
    kill "$stress" 2>/dev/null || return 0
    wait "$stress" || true
}

# shellcheck shell=sh disable=SC2034
# The parts of `./x test`: what each may take, and which tests it runs. Sourced by ../x.

# Seconds on 2 cores; one and a half times as long fails the part.
budget_of() {
    case $1 in
        builds) echo 420 ;;
        tests) echo 180 ;;
        judges) echo 300 ;;
        sanitizers) echo 60 ;;
        sass) echo 120 ;;
        device) echo 150 ;;
        moe) echo 210 ;;
        membership) echo 90 ;;
    esac
}

# Suites and tools of others that judge the software HCA, and what it is compared with from outside.
judges='binary(/^(judges|rxe|captures?(_.*)?)$/)'

# What proves the device library: every operation in every mode, every failure, the posting protocol's model.
device='binary(/^(conformance|failures|ops|order|peer_defects|posting|put_(hold|model|modes|mutants)|team)$/)'

# What proves dispatch and combine: data, orders, faults, models, and the C interface.
moe='binary(/^moe(_.*)?$/) or package(warpverbs-capi)'

# Ranks that die and come back, and the stores they meet in. They wait more than they work: several run at the same time.
membership='binary(/^(group|store)$/) or (binary(demo) and test(/^members::/))'

# Everything that is tested but the programs of part moe, which are built when that part runs them.
but_moe() {
    echo --workspace --lib --bins
    for at in tests/*.rs tests/*/main.rs crates/*/tests/*.rs crates/*/tests/*/main.rs; do
        name=$(basename "${at%/main.rs}" .rs)
        case $at in */moe* | crates/capi/*) ;; *) echo "--test=$name" ;; esac
    done
}

# run_but_moe LOG FILTER: those of them that FILTER names.
run_but_moe() {
    # shellcheck disable=SC2046  # a list of words
    run_tests "$@" $(but_moe)
}

compile_but_moe() {
    # shellcheck disable=SC2046  # a list of words
    cargo test --locked --no-run $(but_moe)
}

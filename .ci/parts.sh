# shellcheck shell=sh disable=SC2034
# The parts of `./x test`: what each may take, and which tests it runs. Sourced by ../x.

# Seconds on 2 cores. What a part took is printed beside it; a machine at work on other things takes longer.
budget_of() {
    case $1 in
        builds) echo 480 ;;
        tests) echo 180 ;;
        judges) echo 300 ;;
        sanitizers) echo 60 ;;
        sass) echo 120 ;;
        device) echo 150 ;;
        moe) echo 150 ;;
        membership) echo 90 ;;
    esac
}

# Which test programs a part runs, by the names that cargo-nextest gives them; `program.module::` are some tests of one, `*`
# stands for anything. What no line names is in part `tests`. `./x test` fails where two parts have a test, and where a name
# is no program's (.ci/tests).
# - judges: suites and tools of others that judge the software HCA, and what it is compared with from outside.
# - device: the device library: every operation in every mode, every failure, the posting protocol's model.
# - moe: dispatch and combine: data, orders, faults, models, and the C interface.
# - membership: ranks that die and come back, and the stores they meet in. They wait more than they work.
parts='
judges      softhca::judges softhca::rxe softhca::capture_processes
device      warpverbs::conformance warpverbs::failures warpverbs::ops warpverbs::order simt-tests::order
device      models::posting warpverbs::peer_defects warpverbs::put_hold warpverbs::put_model warpverbs::put_modes
device      warpverbs::put_mutants warpverbs::team
moe         models::moe warpverbs::moe warpverbs::moe_* warpverbs-capi*
membership  warpverbs::membership rendezvous::store wv::demo.members::
'

# threads_of PART: how many of its tests run at the same time, where that is not for the runner to say.
threads_of() {
    case $1 in
        membership) echo --threads=4 ;;
    esac
}

#!/bin/sh
# Runs what `./x gpu pack` has packed on the GPU of this machine, against the software HCA: what the machine is, what its
# primitives cost, posting, MoE, the device tests. Without a GPU the same steps run on simt, with no claim of speed.
#
# run.sh [RESULTS] [quick] [--require-gpu] [--budget SECONDS] [--limit SECONDS] [--from STEP] [--dev FOLDER]
#   quick          leaves out the longest tests
#   --require-gpu  fails where no kernel runs on a GPU; implied by FOLDER/nvidia0 (FOLDER is /dev) and by nvidia-smi
#   --budget       the run ends within so many seconds (570) and names the step to go on with, by status 3
#   --limit        no step takes longer, whatever its own limit is
#   --from         goes on with this step; results of earlier steps in RESULTS stay
#
# After each step RESULTS/NAME.json is replaced as a whole, so a run that is killed leaves the steps that it has finished.
# RESULTS/steps has the output of each.
set -u
LC_ALL=C
export LC_ALL
started=$(date +%s)
here=$(cd "$(dirname "$0")" && pwd)
results=${OUT:-$here/results} size=full require='' budget=570 most=99999 from='' dev=/dev
usage() {
    echo "run.sh: $1" >&2
    sed -n '5,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
        --require-gpu) require='--require-gpu' ;;
        --budget | --limit | --from | --dev)
            [ $# -gt 1 ] || usage "$1 needs a value"
            case $1 in
                --budget) budget=$2 ;;
                --limit) most=$2 ;;
                --from) from=$2 ;;
                *) dev=$2 ;;
            esac
            shift
            ;;
        -*) usage "there is no option $1" ;;
        quick) size=quick ;;
        *) results=$1 ;;
    esac
    shift
done
for seconds in "$budget" "$most"; do
    case $seconds in *[!0-9]* | '' | 0 | ??????*) usage "'$seconds' is no number of seconds from 1 to 99999" ;; esac
done
# A cut step has five seconds to end by itself, and the results are written.
GRACE=5 RESERVE=8

# Steps in their order: NAME LIMIT. `run_step` has their commands.
steps='facts 40
primitives 100
registers 60
post-device 100
post-host 100
post-checked 60
others 120
moe 120
profile-128 60
profile-4096 60
gpuhca-2 90
gpuhca-4 90
demo 90
libraries 40
tests-gpu 150
tests-post 100
tests-put 100
tests-signal 100
tests-put_errors 100
tests-conformance 150
tests-failures 150
tests-ops 150
tests-ring_all_gather 100'
if [ -n "$from" ]; then
    echo "$steps" | grep -q "^$from " || usage "no step '$from'; the steps are: $(echo "$steps" | sed 's/ .*//' | tr '\n' ' ')"
fi

mkdir -p "$results/steps" && results=$(cd "$results" && pwd) || exit 1
[ -n "$from" ] || rm -f "$results"/steps/*
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

# Programs, libraries and kernels, unpacked for this run alone: a pack is the same after it.
files=$here
if [ -e "$here/files.tar.gz" ]; then
    files=$scratch/files
    if ! mkdir "$files" || ! tar -C "$files" -xzf "$here/files.tar.gz"; then
        echo "run.sh: $here/files.tar.gz cannot be unpacked into $files: is it whole, and is there room?" >&2
        exit 1
    fi
fi

# The folders that the caller names stay: libcuda may lie in one of them.
export LD_LIBRARY_PATH="$files/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export IBV_DRIVERS="$files/lib/libmlx5"
export WARPVERBS_SOFTHCA="$files/bin/libsofthca.so"
export XDG_RUNTIME_DIR="$scratch"
export WARPVERBS_TEST_PTX="$files/ptx"
# Machine code of the kernels that the programs hold as PTX.
[ ! -d "$files/cubins" ] || export WARPVERBS_CUBINS="$files/cubins"
# What the driver compiles of PTX is kept for the next run of this pack, and of no other.
export CUDA_CACHE_PATH="$here/jit"
# No stream waits for another because the device has fewer queues than streams.
export CUDA_DEVICE_MAX_CONNECTIONS=32
wv=$files/bin/wv
commit=$(cat "$here/COMMIT" 2>/dev/null)

# What the loader really takes: `sh -c` with the program and this folder.
# shellcheck disable=SC2016  # another shell reads it
LIBRARIES='
maps=$(LD_DEBUG=libs "$1" demo --ranks 2 --tokens 4 --steps 1 --device sim --gpu simt 2>&1 >/dev/null |
    sed -n "s/.*calling init: \\(.*lib\\(ibverbs\\|mlx5\\|nl\\)[^/]*\\)\$/\\1/p" | sort -u)
[ -n "$maps" ] || { echo "no verbs library was loaded" && exit 1; }
for library in $maps; do
    case $library in "$2"/lib/*) ;; *) echo "not from the pack: $library" && exit 1 ;; esac
done'

# `sh -c` with options and program: the profiler ends the program behind the last launch that it was asked for, and has printed how
# long each took. Its status is not looked at: that of a program that it has ended is nowhere specified.
# shellcheck disable=SC2016  # another shell reads it
PROFILE='
found=$(ncu --target-processes all --kill yes --clock-control none --cache-control none "$@" 2>&1)
printf "%s\n" "$found"
case $found in *Duration*) ;; *) exit 1 ;; esac'

left() { echo $((budget - ($(date +%s) - started) - RESERVE)); }
quoted() { printf '%s' "$1" | tr -c '[:print:]' ' ' | sed 's/\\/\\\\/g; s/"/\\"/g'; }

# What has been found out so far, replaced as a whole: nobody ever finds half of it.
write_results() {
    new=$results/.$name.json.new
    {
        printf '{\n  "ran_on": "softhca+%s",\n  "speed": %s,\n' "$(quoted "$device")" "$([ "$gpu" = 0 ] && echo true || echo false)"
        printf '  "driver": "%s",\n  "commit": "%s",\n' "$(quoted "$driver")" "$(quoted "$commit")"
        printf '  "gpu_required": "%s",\n  "ended": "%s",\n  "go_on_with": "%s",\n' "$(quoted "$require")" "$1" "$2"
        printf '  "steps": ['
        comma=
        for record in "$results"/steps/*.json; do
            [ -e "$record" ] || continue
            printf '%s\n' "$comma" && cat "$record"
            comma=,
        done
        printf '\n  ]\n}\n'
    } >"$new" && mv "$new" "$results/$name.json"
}

# record NAME OUTCOME SECONDS: a step that is over, with what it has measured.
record() {
    file=$results/steps/$(printf '%02d' "$number")-$1
    cp "$scratch/log" "$file.log"
    ok=false
    [ "$2" != ok ] || ok=true
    {
        printf '    {"name": "%s", "ok": %s, "outcome": "%s", "seconds": %s' "$1" $ok "$(quoted "$2")" "$3"
        # Only a program that has ended well has written all of it.
        if [ $ok = true ] && [ -s "$scratch/data.json" ]; then printf ', "data":\n' && cat "$scratch/data.json"; fi
        printf '}'
    } >"$file.new" && mv "$file.new" "$file.json"
    rm -f "$scratch/data.json"
    printf '%-24s %s, %d s\n' "$1" "$2" "$3"
}

# step COMMAND..: the step $step, bounded by its limit and by what is left of the budget.
step() {
    bound=$limit cut="over its limit of $limit s"
    remaining=$(left)
    if [ "$remaining" -lt "$limit" ]; then bound=$remaining cut="cut by the budget of $budget s after $remaining s"; fi
    begin=$(date +%s)
    timeout -k $GRACE "$bound" "$@" >"$scratch/log" 2>&1
    status=$?
    took=$(($(date +%s) - begin))
    case $status in
        0) outcome=ok ;;
        124) outcome=$cut ;;
        137) if [ $took -ge "$bound" ]; then outcome=$cut; else outcome="failed (killed)"; fi ;;
        *) outcome="failed ($status)" ;;
    esac
    if [ "$bound" != "$limit" ] && [ "$outcome" = "$cut" ]; then
        # It did not have its time: it is the step to go on with, and no failure.
        printf '%-24s %s\n' "$step" "$outcome"
        return 1
    fi
    if [ "$outcome" != ok ]; then
        failed=1
        tail -40 "$scratch/log"
    fi
    grep -h '^test result' "$scratch/log"
    record "$step" "$outcome" "$took"
    return 0
}

# The command of the step $step; nothing for one that this pack or machine does not have.
run_step() {
    few=
    [ "$gpu" = 0 ] || few='--blocks 1,3 --calls 48'
    # shellcheck disable=SC2086  # words
    case $step in
        facts) step "$wv" bench facts --gpu $gpu --json "$scratch/data.json" ;;
        primitives) step "$wv" bench primitives --gpu $gpu --json "$scratch/data.json" ;;
        registers) step "$wv" bench registers --gpu $gpu --json "$scratch/data.json" ;;
        post-device) step "$wv" bench post --gpu $gpu --doorbell device --json "$scratch/data.json" $few ;;
        post-host) step "$wv" bench post --gpu $gpu --doorbell host --json "$scratch/data.json" $few ;;
        post-checked) step "$wv" bench post --gpu $gpu --check $few ;;
        others)
            # Where headers of other projects were given to the pack.
            [ -d "$files/others" ] || return 0
            step "$wv" bench others --gpu $gpu --kernels "$files/others" --json "$scratch/data.json" $few
            ;;
        moe)
            # What a step costs where the HCA is a kernel of this device, and how fast one rank's kernels move tokens.
            shape='--ranks 2,4'
            [ "$gpu" = 0 ] || shape='--ranks 2 --tokens 16 --hidden 512 --experts 16'
            step "$wv" bench moe --device gpuhca --gpu $gpu --routing uniform --json "$scratch/data.json" $shape
            ;;
        profile-*)
            # Where the MoE kernels of one rank wait, if the machine has NVIDIA's profiler: the four phases of BF16 behind the first
            # call. 168 launches of both formats with 4,096 tokens come before those with 128. Caches stay as the last call left them.
            if [ "$gpu" != 0 ] || ! command -v ncu >/dev/null 2>&1; then return 0; fi
            skip=4
            [ "$step" = profile-4096 ] || skip=172
            step sh -c "$PROFILE" sh --kernel-name regex:wv_moe --launch-skip $skip --launch-count 4 \
                --section SpeedOfLight --section WarpStateStats --section LaunchStats --section Occupancy \
                "$wv" bench moe --gpu $gpu --alone
            ;;
        gpuhca-*)
            shape='--tokens 128 --steps 1000'
            [ "$gpu" = 0 ] || shape='--tokens 24 --steps 2'
            step "$wv" demo --device gpuhca --gpu $gpu --ranks "${step#gpuhca-}" --timeout 80 $shape
            ;;
        demo) step "$wv" demo --ranks 2 --tokens 32 --steps 2 --device sim --gpu $gpu --timeout 80 ;;
        libraries) step sh -c "$LIBRARIES" sh "$wv" "$files" ;;
        tests-gpu)
            [ "$gpu" = 0 ] || return 0
            step "$files/tests/gpu" --test-threads=1 --include-ignored --skip the_other_process
            ;;
        tests-*)
            test=${step#tests-}
            if [ ! -e "$files/tests/$test" ] || [ "$size$test" = quickput ]; then return 0; fi
            step "$files/tests/$test" --test-threads=1
            ;;
    esac
}

why=
for node in "$dev"/nvidia[0-9]*; do [ ! -e "$node" ] || why="$node is there"; done
[ -n "$why" ] || ! command -v nvidia-smi >/dev/null 2>&1 || why="nvidia-smi is there"
require=${require:-$why}
failed=0 number=0 gpu=0 device=unknown name=GPU-that-does-not-run
driver=$(sed -n 's/^NVRM.*[^0-9.]\([0-9][0-9]*\.[0-9.]*\) .*/\1/p' /proc/driver/nvidia/version 2>/dev/null)
bound=$(left)
[ "$bound" -le 90 ] || bound=90
[ "$bound" -gt 0 ] || usage "--budget is $budget: more than $RESERVE seconds"
begin=$(date +%s)
timeout -k $GRACE "$bound" "$wv" bench post --gpu 0 --mode shared --scope thread --blocks 1 --calls 1 >"$scratch/log" 2>&1
probed=$?
took=$(($(date +%s) - begin))
last=$(tail -1 "$scratch/log")
[ $probed = 0 ] || case $probed$(cat "$scratch/log") in
    124* | 137*) gpu=broken last="the probe did not end within $bound s" ;;
    *"no CUDA driver"* | *"no CUDA device"*) if [ -n "$require" ]; then gpu=broken; else gpu=simt; fi ;;
    *) gpu=broken ;;
esac
case $gpu in
    0)
        device=$(sed -n 's/^posting on sink+\([^:]*\):.*/\1/p' "$scratch/log" | head -1)
        name=$(printf '%s' "$device" | tr -c 'A-Za-z0-9' '-')
        ;;
    simt)
        echo "no GPU here ($last)"
        echo "the same runs on simt: it shows that all is there and right, and nothing about speed"
        device=simt name=simt
        ;;
    *)
        cat "$scratch/log"
        record probe "failed ($last)" "$took"
        write_results failed facts
        echo "a GPU is required (${require:-the driver knows one}), and no kernel runs on it: $last"
        echo "gpu run: FAILED"
        exit 1
        ;;
esac
echo "softhca+$device${driver:+, driver $driver}, commit $commit"
export WARPVERBS_TEST_GPU=$gpu

next=
skipping=$from
while read -r step limit <&3; do
    number=$((number + 1))
    [ "$step" != "$skipping" ] || skipping=
    [ -z "$skipping" ] || continue
    [ "$limit" -le "$most" ] || limit=$most
    write_results running "$step"
    if [ "$(left)" -lt 1 ] || ! run_step; then
        next=$step
        break
    fi
done 3<<STEPS
$steps
STEPS

ended=ok
[ -z "$next" ] || ended=unfinished
# A step of an earlier run may have failed too.
if [ $failed != 0 ] || grep -q '"ok": false' "$results"/steps/*.json; then ended=failed; fi
write_results "$ended" "$next"
for file in "$results"/steps/*-post-*.log "$results"/steps/*-others.log "$results"/steps/*-moe.log; do [ ! -e "$file" ] || cat "$file"; done
echo "results: $results/$name.json"
if [ -n "$next" ]; then
    echo "gpu run: the budget of $budget s is spent; go on with: sh $0 $results --from $next"
    [ $ended = failed ] || exit 3
fi
if [ $ended = failed ]; then
    echo "gpu run: FAILED"
    exit 1
fi
echo "gpu run: ok"

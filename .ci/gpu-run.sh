#!/bin/sh
# Runs what `./x gpu pack` has packed: device tests, the MoE demo and the measurements of posting, on the GPU of this machine
# against the software HCA; without a GPU the same on simt, with no claim of speed. RESULTS/NAME.json and NAME.txt hold it.
# run.sh [RESULTS [quick]]; quick leaves out the longest tests.
set -u
here=$(cd "$(dirname "$0")" && pwd)
results=${1:-${OUT:-$here/results}}
mkdir -p "$results" && results=$(cd "$results" && pwd) || exit 1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export IBV_DRIVERS="$here/lib/libmlx5"
export WARPVERBS_SOFTHCA="$here/bin/libsofthca.so"
export XDG_RUNTIME_DIR="$scratch"
export WARPVERBS_TEST_PTX="$here/ptx"

failed=0
steps=
# step NAME SECONDS COMMAND..: bounded; the end of the output of a failed one is shown.
step() {
    name=$1 seconds=$2
    shift 2
    start=$(date +%s)
    timeout -k 5 "$seconds" "$@" >"$scratch/log" 2>&1
    status=$?
    took=$(($(date +%s) - start))
    if [ $status = 0 ]; then outcome=ok; else
        outcome="FAILED ($status)" failed=1
        tail -40 "$scratch/log"
    fi
    grep -h '^test result' "$scratch/log"
    printf '%-34s %s, %d s\n' "$name" "$outcome" "$took" | tee -a "$scratch/steps"
    steps="$steps${steps:+,
}    {\"name\": \"$name\", \"ok\": $([ $status = 0 ] && echo true || echo false), \"seconds\": $took}"
}

wv=$here/bin/wv
probe=$("$wv" bench post --gpu 0 --mode shared --scope thread --blocks 1 --calls 1 2>&1)
probed=$?
case $probe in
    *"no CUDA driver"* | *"no CUDA device"*)
        echo "no GPU here ($(echo "$probe" | tail -1))"
        echo "the same runs on simt: it shows that all is there and right, and nothing about speed"
        gpu=simt
        ;;
    *)
        [ $probed = 0 ] || { echo "$probe" && echo "there is a GPU, and it does not work" && exit 1; }
        gpu=0
        ;;
esac
device=$(echo "$probe" | sed -n 's/^posting on sink+\([^:]*\):.*/\1/p')
[ "$gpu" = 0 ] || device=simt
driver=$(sed -n 's/^NVRM.*[^0-9.]\([0-9][0-9]*\.[0-9.]*\) .*/\1/p' /proc/driver/nvidia/version 2>/dev/null)
echo "softhca+$device, commit $(cat "$here/COMMIT")"

# What the loader really takes.
maps=$(LD_DEBUG=libs "$wv" demo --ranks 2 --tokens 4 --steps 1 --device sim --gpu simt 2>&1 >/dev/null |
    sed -n 's/.*calling init: \(.*lib\(ibverbs\|mlx5\|nl\)[^/]*\)$/\1/p' | sort -u)
for library in $maps; do
    case $library in
        "$here"/lib/*) ;;
        *) echo "not from the pack: $library" && failed=1 ;;
    esac
done
[ -n "$maps" ] || { echo "no verbs library was loaded" && failed=1; }

export WARPVERBS_TEST_GPU=$gpu
if [ "$gpu" = 0 ]; then
    step "the GPU's own tests" 200 "$here/tests/gpu" --test-threads=1 --include-ignored --skip the_other_process
    extra=
else
    extra='--blocks 1,3 --calls 48'
fi
for test in post put signal put_errors conformance failures ops ring_all_gather; do
    if [ "${2:-}$test" = quickput ] || [ ! -e "$here/tests/$test" ]; then continue; fi
    step "conformance: $test" 150 "$here/tests/$test" --test-threads=1
done
# shellcheck disable=SC2086  # words
step "every WQE looked at by the sink" 100 "$wv" bench post --gpu $gpu --check $extra
step "MoE demo, 2 ranks" 120 "$wv" demo --ranks 2 --tokens 32 --steps 2 --device sim --gpu $gpu --timeout 100
posts=
for doorbell in device host; do
    # shellcheck disable=SC2086  # words
    step "posting, doorbell in $doorbell memory" 100 \
        "$wv" bench post --gpu $gpu --doorbell $doorbell --json "$scratch/post.json" $extra
    cat "$scratch/log" >>"$scratch/tables"
    [ ! -s "$scratch/post.json" ] || posts="$posts${posts:+,
}$(cat "$scratch/post.json")"
    rm -f "$scratch/post.json"
done

name=$(echo "$device" | tr -c 'A-Za-z0-9\n' '-')
{
    printf '{\n  "ran_on": "softhca+%s",\n  "speed": %s,\n  "driver": "%s",\n  "commit": "%s",\n' \
        "$device" "$([ "$gpu" = 0 ] && echo true || echo false)" "$driver" "$(cat "$here/COMMIT")"
    printf '  "steps": [\n%s\n  ],\n  "post": [\n%s\n  ]\n}\n' "$steps" "$posts"
} >"$results/$name.json"
{
    echo "softhca+$device${driver:+, driver $driver}, commit $(cat "$here/COMMIT")"
    cat "$scratch/steps" "$scratch/tables"
} >"$results/$name.txt"
cat "$scratch/tables"
echo "results: $results/$name.json and .txt"
if [ $failed != 0 ]; then
    echo "gpu run: FAILED"
    exit 1
fi
echo "gpu run: ok"

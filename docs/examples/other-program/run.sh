#!/bin/sh
# A program that is not part of Warpverbs on software HCAs: Debian's ibv_devinfo and ibv_rc_pingpong, the latter once more with lost packets.
# Needs ibverbs-utils. wv must be in the path.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

wv sim -- ibv_devinfo | grep -w hca_id

# Server and client are two processes below one wv sim: each finds a mlx5_0 of its own.
# Client and server exit right after the last message. An end that has exited acknowledges no repeat of it, so the last packets stay.
for fault in '' 'drop-out=#20,drop-in=#40,drop-out=#150,drop-in=#180'; do
    # shellcheck disable=SC2016  # another shell reads it
    wv sim ${fault:+--fault "$fault"} --check all -- sh -ec '
        ibv_rc_pingpong -d mlx5_0 -g 3 -n 200 -p "$1" >/dev/null &
        server=$!
        until ibv_rc_pingpong -d mlx5_0 -g 3 -n 200 -p "$1" localhost >"$2/client" 2>"$2/failed"; do
            kill -0 "$server" # the server is there: it does not listen yet
        done
        wait "$server"
    ' sh "${PORT:-18515}" "$dir"
    echo "200 round trips, ${fault:-no packet lost}"
done

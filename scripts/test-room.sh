#!/usr/bin/env bash
# Cargo's runner of test programs in `make test`: runs a program of the room that SG_TEST_ROOM names
# and passes over the others. So the whole workspace is one build with one set of features, whatever
# part of it runs.
#
#   test-room.sh PROGRAM ARGUMENTS…
#
# measuring  the programs of the next; what in them measures runs alone, test.sh names it
# live       sends over live links, one test at a time; holds on a busy machine
# kernel     loads kernel programs or builds networks, one test at a time; holds on a busy machine
# parallel   needs neither kernel nor time
set -euo pipefail

program=$(basename "$1")
name=$CARGO_PKG_NAME/${program%-*}
case $name in
sluicegate-lab/* | sluicegate-labkit/* | sluicegate-agent/compliant | sluicegate-agent/live_edit) rooms="measuring live" ;;
sluicegate/* | sluicegate-agent/*) rooms=kernel ;;
*) rooms=parallel ;;
esac
room=${SG_TEST_ROOM:-${rooms%% *}}
[[ " $rooms " == *" $room "* ]] || exit 0
# Only what was disturbed may be tried again.
[ "$room" != measuring ] || exec "$(dirname "$0")/others.sh" "$name" "$@"
exec "$@"

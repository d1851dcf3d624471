#!/usr/bin/env bash
# The long count of the userspace switch: numbered frames between guests of the tests' own, each of
# which must arrive once and in order; a tenth as many while the switch is killed over and over,
# while other processes take over, and while ports come, go and change and a guest is unplugged.
#
#   FRAMES=N frames.sh     N frames, 10^9 if it says nothing (half an hour and more)
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$SG_ROOT"

export SG_FRAMES=${FRAMES:-1000000000}
cargo test --release --locked -q -p sluicegate-dataplane --test all -- lossless::numbered_frames
cargo test --release --locked -q -p sluicegate-dataplane --test all -- survive:: --test-threads 1 --nocapture

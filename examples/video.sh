#!/usr/bin/env bash
# A real stream over a guaranteed channel: an H.264 video travels frame by frame through `laxity send | laxity recv`, beside a
# best-effort flood that has more to send than the link carries. What arrives must be what was sent, byte for byte.
#
#   examples/video.sh                 30 seconds of video
#   DURATION=5 examples/video.sh      shorter
#   LAXITY=path/to/laxity             another binary than the one that cargo builds
#
# Exit status: 0 identical and no miss by Laxity, or skipped because a tool is missing; 1 otherwise.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

readonly DURATION=${DURATION:-30} FRAMES_PER_SECOND=30
# The flood sends messages of one packet each.
readonly FLOOD_MESSAGE_BYTES=1400

skip() {
  echo "skipped: $1"
  exit 0
}
for tool in ffmpeg python3 sha256sum; do
  command -v "$tool" > /dev/null || skip "$tool is not installed"
done
# No pipe into `grep -q`: it would stop reading, and ffmpeg would fail.
[[ $(ffmpeg -hide_banner -encoders 2> /dev/null) == *libx264* ]] || skip "ffmpeg has no libx264"
[[ $DURATION =~ ^[1-9][0-9]*$ ]] || { echo "DURATION is \"$DURATION\", expected whole seconds such as 30" >&2; exit 2; }

work=$(mktemp -d)
# Our processes by what they do; whatever ends this script ends them.
declare -A running=()
cleanup() {
  local pid
  for pid in "${running[@]}"; do
    kill "$pid" 2> /dev/null || true
  done
  wait
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

if [ -z "${LAXITY:-}" ]; then
  (cd "$here/.." && cargo build --release --quiet --package laxity-cli)
  LAXITY=${CARGO_TARGET_DIR:-$here/../target}/release/laxity
fi

# A background process of a script ignores Ctrl-C unless told otherwise.
laxity() {
  exec env --default-signal=INT "$LAXITY" "$@"
}

# Waits for a process to end by itself, then as if by Ctrl-C, then by force. Leaves its exit status in `status`.
finish() { # what it does, seconds
  local what=$1 pid=${running[$1]} tenths=$(($2 * 10)) signal
  for signal in INT KILL; do
    while [ "$tenths" -gt 0 ] && kill -0 "$pid" 2> /dev/null; do
      sleep 0.1
      tenths=$((tenths - 1))
    done
    if ! kill -0 "$pid" 2> /dev/null; then
      break
    fi
    kill -s "$signal" "$pid" 2> /dev/null || true
    tenths=50
  done
  status=0
  wait "$pid" || status=$?
  unset "running[$what]"
}

echo "making $DURATION s of video"
ffmpeg -nostdin -v error -f lavfi -i "testsrc2=size=640x360:rate=$FRAMES_PER_SECOND" -t "$DURATION" \
  -c:v libx264 -preset veryfast -bf 0 -g "$FRAMES_PER_SECOND" -b:v 2M -maxrate 2M -bufsize 500k -x264-params aud=1 \
  -f h264 "$work/video.h264"
sizes=$(python3 "$here/h264_frames.py" split "$work/video.h264" 2>&1 > "$work/sent")
read -r frames largest smallest <<< "$sizes"
echo "$frames frames of $smallest to $largest bytes"

# Two ports that are free now; both are held until both are known.
ports=$(python3 - << 'END'
import socket
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
for s in sockets:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))
END
)
read -r video_port flood_port <<< "$ports"

laxity recv video --bind "127.0.0.1:$video_port" --framing length32 --json --figures "$work/video.json" \
  > "$work/received" 2> "$work/recv-video.log" &
running[recv-video]=$!
laxity recv flood --bind "127.0.0.1:$flood_port" --framing "fixed:$FLOOD_MESSAGE_BYTES" --json \
  --figures "$work/flood.json" 2> "$work/recv-flood.log" > >(wc -c > "$work/flood.bytes") &
running[recv-flood]=$!
sleep 0.5

# The flood writes as fast as it is read, for a second longer than the video: more than any link carries, bounded in time.
python3 - "$FLOOD_MESSAGE_BYTES" $((DURATION + 1)) << 'END' 2> /dev/null |
import sys, time
messages = bytes(int(sys.argv[1]) * 32)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    sys.stdout.buffer.write(messages)
END
  laxity send "127.0.0.1:$flood_port/flood" --best-effort --max-message "${FLOOD_MESSAGE_BYTES}B" \
    --framing "fixed:$FLOOD_MESSAGE_BYTES" --json --figures "$work/flood-send.json" \
    > /dev/null 2> "$work/send-flood.log" &
running[send-flood]=$!

python3 "$here/h264_frames.py" play "$work/sent" "$FRAMES_PER_SECOND" |
  laxity send "127.0.0.1:$video_port/video" --max-message "${largest}B" --interval 33ms --burst 4 --deadline 100ms \
    --framing length32 --json --figures "$work/video-send.json" > /dev/null 2> "$work/send-video.log" &
running[send-video]=$!

echo "sending for $DURATION s"
failed=0
check() { # what it does, seconds
  finish "$1" "$2"
  if [ "$status" -ne 0 ]; then
    echo "$1 ended with status $status:" >&2
    tail -n 5 "$work/$1.log" >&2
    failed=1
  fi
}
# The processes that send end with their input; those that receive when their senders have closed, or by Ctrl-C.
check send-video $((DURATION + 15))
check send-flood 15
check recv-video 3
check recv-flood 3

sent=$(sha256sum < "$work/sent")
received=$(sha256sum < "$work/received")
if [ "$sent" != "$received" ]; then
  echo "DIFFERENT: $(wc -c < "$work/sent") bytes sent, $(wc -c < "$work/received") bytes received" >&2
  failed=1
else
  echo "identical: $frames frames, sha256 ${sent%% *}"
fi

# The file of the flood's byte count is written when its pipe is closed, which may be a moment after `recv` has ended.
for _ in {1..50}; do
  [ -s "$work/flood.bytes" ] && break
  sleep 0.1
done
python3 - "$work" "$DURATION" << 'END' || failed=1
import json, os, sys

work, duration = sys.argv[1], int(sys.argv[2])


def figures(name):
    path = os.path.join(work, name)
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        sys.exit(f"{name} was not written")
    with open(path) as file:
        return json.load(file)


def milliseconds(nanos):
    return "unknown" if nanos is None else f"{nanos / 1e6:.3f} ms"


names = ["video-send.json", "video.json", "flood-send.json", "flood.json"]
reports = {name: figures(name) for name in names}
channels = reports["video.json"]["channels"]
if not channels:
    sys.exit("the receiver of the video reports no channel")
video = channels[0]
deadline, bound, largest = video["deadline_ns"], video["bound_ns"], video["max_ns"]
least = None if deadline is None or largest is None else deadline - largest
print(f"video: least laxity {milliseconds(least)} (deadline {milliseconds(deadline)}, bound {milliseconds(bound)}, "
      f"largest {milliseconds(largest)}), misses {video['misses']}, over bound {video['over_bound']}")
with open(os.path.join(work, "flood.bytes")) as file:
    print(f"flood: {int(file.read()) / (duration + 1) / 1e6:.3f} MB/s received")
drops = ["send_dropped", "receive_overflow", "receive_truncated"]
total = {drop: sum(report["link"][drop] for report in reports.values()) for drop in drops}
print("links, all four ends: " + ", ".join(f"{drop} {count}" for drop, count in total.items()))
END

[ "$failed" -eq 0 ] || exit 1

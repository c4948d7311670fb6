#!/usr/bin/env bash
# A real stream over a guaranteed channel: an H.264 video travels frame by frame through `laxity send | laxity recv`, beside a
# best-effort flood that has more to send than the link carries. The flood is there first and has taken
# half of the link, which is what best effort gets of what is free; the video is admitted beside it, and would be given more if it
# needed more. What arrives must be what was sent, byte for byte.
#
# Then the first seconds of it across an emulated link of 100 Mbit/s under attack, over Laxity, plain UDP and UDP as an expert
# tunes it: a flood, a channel that sends ten times what it declared, and processor-bound processes.
#
#   examples/video.sh                 30 seconds of video
#   DURATION=5 examples/video.sh      shorter
#   ATTACK=none examples/video.sh     without the second part; or idle, flood, violator, hogs, all (if not said)
#   LAXITY=path/to/laxity             another binary than the one that cargo builds
#   LAXITY_VIDEO=path/to/video        likewise, for the second part: the example of laxity-lab
#
# Exit status: 0 identical and no miss by Laxity, or skipped because a tool is missing; 1 otherwise.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

readonly DURATION=${DURATION:-30} ATTACK=${ATTACK:-all} FRAMES_PER_SECOND=30
# Of the second part, for each stack.
readonly ATTACKED_SECONDS=8
# The flood sends messages of one packet each.
readonly FLOOD_MESSAGE_BYTES=1400
# Seconds of flood before the video.
readonly LEAD=2

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
case $ATTACK in
  none | idle | flood | violator | hogs | all) ;;
  *)
    echo "ATTACK is \"$ATTACK\", expected none, idle, flood, violator, hogs or all" >&2
    exit 2
    ;;
esac

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

root=$here/..
release=${CARGO_TARGET_DIR:-$root/target}/release
if [ -z "${LAXITY:-}" ]; then
  (cd "$root" && cargo build --release --quiet --package laxity-cli)
  LAXITY=$release/laxity
fi
if [ "$ATTACK" != none ] && [ -z "${LAXITY_VIDEO:-}" ]; then
  command -v cargo > /dev/null || skip "cargo is not installed, which builds the second part (or ATTACK=none)"
  (cd "$root" && cargo build --release --quiet --package laxity-lab --example video)
  LAXITY_VIDEO=$release/examples/video
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

# Bytes on stdin so far, every 100 ms, after the time.
count() {
  exec python3 -c '
import os, time
total, told = 0, 0.0
while chunk := os.read(0, 1 << 16):
    total += len(chunk)
    if time.time() >= told + 0.1:
        told = time.time()
        print(told, total, flush=True)
print(time.time(), total, flush=True)
'
}

laxity recv video --claims off --bind "127.0.0.1:$video_port" --framing length32 --json --figures "$work/video.json" \
  > "$work/received" 2> "$work/recv-video.log" &
running[recv-video]=$!
laxity recv flood --claims off --bind "127.0.0.1:$flood_port" --framing "fixed:$FLOOD_MESSAGE_BYTES" --json \
  --figures "$work/flood.json" 2> "$work/recv-flood.log" > >(count > "$work/flood.bytes") &
running[recv-flood]=$!
sleep 0.5

# The flood writes as fast as it is read, for a second longer than the video: more than any link carries, bounded in time.
python3 - "$FLOOD_MESSAGE_BYTES" $((LEAD + DURATION + 1)) << 'END' 2> /dev/null |
import sys, time
messages = bytes(int(sys.argv[1]) * 32)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    sys.stdout.buffer.write(messages)
END
  laxity send "127.0.0.1:$flood_port/flood" --claims off --best-effort --max-message "${FLOOD_MESSAGE_BYTES}B" \
    --framing "fixed:$FLOOD_MESSAGE_BYTES" --json --figures "$work/flood-send.json" \
    > /dev/null 2> "$work/send-flood.log" &
running[send-flood]=$!
sleep "$LEAD"

video_begin=$EPOCHREALTIME
python3 "$here/h264_frames.py" play "$work/sent" "$FRAMES_PER_SECOND" |
  laxity send "127.0.0.1:$video_port/video" --claims off --max-message "${largest}B" --interval 33ms --burst 4 --deadline 100ms \
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
video_end=$EPOCHREALTIME
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

# `LC_NUMERIC` decides about the point in $EPOCHREALTIME.
python3 - "$work" "${video_begin/,/.}" "${video_end/,/.}" << 'END' || failed=1
import json, os, sys

work, video_begin, video_end = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])


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
deadline, bound, largest = video["deadline_ns"], video["bound_ns"], video["response_max_ns"]
least = None if deadline is None or largest is None else deadline - largest
print(f"video: least laxity {milliseconds(least)} (deadline {milliseconds(deadline)}, bound {milliseconds(bound)}, "
      f"largest {milliseconds(largest)}), misses {video['misses']}, over bound {video['over_bound']}")
with open(os.path.join(work, "flood.bytes")) as file:
    counts = [(float(at), int(total)) for at, total in map(str.split, file)]


def rate(begin, end):
    """Of the flood between two points in time."""
    within = [count for count in counts if begin <= count[0] <= end]
    if len(within) < 2:
        return "nothing"
    (begin, before), (end, after) = within[0], within[-1]
    return f"{(after - before) / (end - begin) / 1e6:.3f} MB/s"


# The video needs a moment to be admitted, and the flood to hear of it.
print(f"flood: {rate(0, video_begin)} before the video, {rate(video_begin + 1, video_end - 0.5)} beside it")
drops = ["send_dropped", "receive_overflow", "receive_truncated"]
total = {drop: sum(report["link"][drop] for report in reports.values()) for drop in drops}
print("links, all four ends: " + ", ".join(f"{drop} {count}" for drop, count in total.items()))
END

if [ "$ATTACK" != none ]; then
  seconds=$((DURATION < ATTACKED_SECONDS ? DURATION : ATTACKED_SECONDS))
  echo
  echo "attack: $ATTACK, $seconds s each across an emulated link of 100 Mbit/s"
  echo "(least laxity: of the frames that arrived; in hand: until the receiving application's thread had it)"
  # In the background, so that a signal ends it at once; its attacks end with it.
  env --default-signal=INT "$LAXITY_VIDEO" "$work/sent" --fps "$FRAMES_PER_SECOND" --seconds "$seconds" --attack "$ATTACK" \
    2> "$work/attack.log" &
  running[attack]=$!
  check attack $((3 * seconds + 60))
  sed 's/^/  /' "$work/attack.log"
fi

[ "$failed" -eq 0 ] || exit 1

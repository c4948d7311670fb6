#!/usr/bin/env bash
# Before and after, with programs that know nothing of Laxity: a ping-pong of sockperf (UDP) beside a flood of iperf3 (TCP) from the same host, over a wire of
# 100 Mbit/s; first as the kernel has it, then with a guard and a stream for the ping-pong. Hosts and wire are network namespaces of this machine.
#
#   sudo examples/streams.sh [LAXITY]     LAXITY is the command, by default target/release/laxity
#
# Needs root, and ip, tc, ethtool, iperf3 and sockperf (Debian has packages of those names).
set -euo pipefail
laxity=$(realpath "${1:-$(dirname "$0")/../target/release/laxity}")
seconds=${SECONDS_EACH:-10}
for tool in ip tc ethtool iperf3 sockperf; do
  command -v "$tool" > /dev/null || { echo "$tool is needed" >&2; exit 2; }
done
[ "$(id -u)" = 0 ] || { echo "root is needed" >&2; exit 4; }

scratch=$(mktemp -d)
name=laxity-streams-$$
a=$name-a wire=$name-wire b=$name-b
started=()
finish() {
  # Executives undo what they changed when they are asked to end.
  for process in "${started[@]}"; do kill "$process" 2> /dev/null || true; done
  for process in "${started[@]}"; do wait "$process" 2> /dev/null || true; done
  for namespace in "$a" "$wire" "$b"; do ip netns delete "$namespace" 2> /dev/null || true; done
  rm -rf "$scratch"
}
trap finish EXIT

on() { # HOST COMMAND...
  ip netns exec "$@"
}
start() { # HOST COMMAND... : in the background, until the end
  (exec ip netns exec "$@") &
  started+=($!)
}
for namespace in "$a" "$wire" "$b"; do ip netns add "$namespace"; done
ip link add a0 netns "$a" type veth peer name wa netns "$wire"
ip link add b0 netns "$b" type veth peer name wb netns "$wire"
on "$a" ip address add 192.0.2.1/24 dev a0
on "$b" ip address add 198.51.100.1/24 dev b0
on "$wire" ip address add 192.0.2.254/24 dev wa
on "$wire" ip address add 198.51.100.254/24 dev wb
for place in "$a a0" "$b b0" "$wire wa" "$wire wb"; do
  read -r namespace device <<< "$place"
  on "$namespace" ip link set lo up
  on "$namespace" ip link set "$device" up
  # A virtual pair leaves checksums and cutting to a device that is not there; what tells packets apart wants whole ones. The same for both rows.
  on "$namespace" ethtool -K "$device" tx off tso off gso off gro off > /dev/null
done
on "$a" ip route add default via 192.0.2.254
on "$b" ip route add default via 198.51.100.254
on "$wire" sysctl -q -w net.ipv4.ip_forward=1
for device in wa wb; do on "$wire" tc qdisc add dev "$device" root tbf rate 100mbit burst 3028 limit 150000; done

start "$b" iperf3 --server > /dev/null
start "$b" chrt -f 60 sockperf server --ip 198.51.100.1 --port 11111 > /dev/null
sleep 1

measure() { # ROW
  on "$a" iperf3 --client 198.51.100.1 --time $((seconds + 3)) --json > "$scratch/iperf" &
  local flood=$!
  sleep 1
  on "$a" chrt -f 60 sockperf ping-pong --ip 198.51.100.1 --port 11111 --time "$seconds" --mps 1000 --msg-size 64 > "$scratch/sockperf" 2>&1 || {
    cat "$scratch/sockperf" >&2
    exit 1
  }
  wait "$flood"
  local bulk
  bulk=$(python3 -c 'import json, sys; print(round(json.load(open(sys.argv[1]))["end"]["sum_received"]["bits_per_second"] / 1e6))' "$scratch/iperf")
  awk -v row="$1" -v bulk="$bulk" '
    { gsub(/\033\[[0-9;]*m/, "") }
    /avg-latency=/ { match($0, /avg-latency=[0-9.]+/); mean = substr($0, RSTART + 12, RLENGTH - 12) }
    /percentile 50.000/ { p50 = $NF }
    /percentile 99.000/ { p99 = $NF }
    /percentile 99.900/ { p999 = $NF }
    /<MAX> observation/ { largest = $NF }
    /ReceivedMessages=/ && !count { match($0, /ReceivedMessages=[0-9]+/); count = substr($0, RSTART + 17, RLENGTH - 17) }
    END { printf "%-22s %9d %9.0f %9.0f %9.0f %9.0f %9.0f %12d\n", row, count, mean, p50, p99, p999, largest, bulk }' "$scratch/sockperf"
}

echo "half a round trip of sockperf, µs; what iperf3 carries meanwhile"
printf '%-22s %9s %9s %9s %9s %9s %9s %12s\n' "" answers mean p50 p99 p99.9 largest "Mbit/s"
measure "as the kernel has it"

printf '[platform]\nlink_rate = "100Mbit/s"\n' > "$scratch/platform.toml"
serve() { # HOST ADDRESS
  start "$1" "$laxity" serve --bind "$2" --claims "$scratch/$1" --platform "$scratch/platform.toml" --guard --streams=20% 2> "$scratch/$1.said"
  for _ in $(seq 100); do
    grep -q '^serving at' "$scratch/$1.said" && return
    sleep 0.1
  done
  cat "$scratch/$1.said" >&2
  exit 1
}
serve "$a" 192.0.2.1
serve "$b" 198.51.100.1
on "$a" "$laxity" stream add ping --claims "$scratch/$a" --udp --remote :11111 --packets 15 --period 10ms --bytes 92B --excess dropped
on "$b" "$laxity" stream add ping --claims "$scratch/$b" --udp --local :11111 --packets 15 --period 10ms --bytes 92B --excess dropped
measure "guard and stream"
on "$b" "$laxity" stream list --claims "$scratch/$b"

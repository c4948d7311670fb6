//! What `laxity bench` takes.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use laxity_lab::Attack;
use laxity_lab::roundtrip::PriorityPaths;

/// Exit status: 0 every promise was kept; 1 one that must hold was broken; 2 bad input; live also 3 refused by admission; 4 not
/// permitted on this host; 5 network or port.
///
/// JSON: {bench, simulated, attack, guarantee, miss_probability, calibration, seed, duration_ns, completion, rows, notes}. Each of rows:
/// {best_effort_offered_bytes_s, channel0_factor, mode, channels, gaps: {count, longest_ns}, notes}; what is not known, or does not
/// apply, is null. Each of channels: the figures that all commands report, then throughput_bytes_s, in_hand_max_ns (from the
/// sending application's stamp to the receiving application's hand), min_laxity_ns and mean_laxity_ns
/// (deadline minus completion, below zero if late), late_packets and dropped_packets. All numbers are integers but channel0_factor
/// (1, 1.25, 1.5 and so on).
///
/// Simulated, counted is what happened at the sending host in the steady state. Latencies count from the logical
/// arrival there. completion is transmission: a message is complete
/// when the transmission of its last packet is over. sent are the messages that ended in that time: delivered, or dropped because
/// their channel had no room for them.
///
/// Live, counted is what became of every message of a run. completion is delivery: a message is complete when it is in the
/// receiving application's queue. sent are the messages that the application wanted to send: delivered, lost, or dropped because
/// their channel had no room for them. Throughput is counted after a warm-up. late_packets is not known. gaps are the times when
/// the platform took the processor away beyond its envelope. guarantee is none, statistical or calibrated: the lowest level of
/// the grants. miss_probability is a decimal fraction as text: a message misses because of one host with that probability at most;
/// null if nothing is claimed. calibration is null if nothing is measured, otherwise {date, kernel, processor, processors,
/// duration_ns, hogs, flood_packets_s, link}. Nothing is promised, and so there is no bound, where mode is not cooperative.
///
/// xdp-path measures the link, not the core: what bare AF_XDP and UDP loops need for the same packets, beside laxity's links driven as
/// the executive drives them (doorbell and link waited for, receive, transmit, flush, real frames through the demultiplexer, which polices
/// a real-time channel), without contracts, queues and messages. It makes two network namespaces and removes them. Exit status: 1 if a
/// ratio is not as expected, 4 without the rights. Its JSON: {bench, processors, waiting: poll|spin, packet_bytes, rounds, duration_ns,
/// real_time, kept_awake, rows, ratios, notes}. Each of rows: {path: bare-xdp|laxity-xdp|bare-udp|laxity-udp, round_trip: {samples, lost,
/// min_ns, p50_ns, p99_ns, p999_ns, max_ns}, packets_s, packets: {sent, received}}; packets_s are those received in one direction, the
/// median of the rounds. Each of ratios: {name, ppm, least_ppm, most_ppm, met}.
///
/// roundtrip asks for an answer every millisecond (or --interval), over Laxity and over plain sockets: as they come (udp), and as an expert uses them with a
/// processor for each end (expert-2, who asks spins for 150 µs) or one for both (expert-1, with a receiving thread of the kernel). Of each stack of Laxity's there is one whose applications' threads do the
/// executive's work (inline), one of these that asks as expert-2 does (spin), and over xdp one that has one processor for both ends as expert-1 does (1). It makes two network namespaces, too; a turn is a second, and every stack has ten under each attack, or under the one of --attack. Exit status: 1 if a
/// message was missed by Laxity's own fault, 4 without the rights. Its JSON: {bench, message_bytes, interval_ns, flood_packets_s, duration_ns,
/// real_time, kept_awake, rows, segments, channels, notes}. Each of rows: {attack, stack: udp|expert-2|expert-1|laxity-udp|laxity-xdp|
/// laxity-udp-inline|laxity-xdp-inline|laxity-udp-inline-spin|laxity-xdp-inline-spin|laxity-xdp-1|laxity-xdp-inline-1|laxity-udp-server|laxity-xdp-server (attached to laxity serve), round_trip: {samples, min_ns, p50_ns, p99_ns, p999_ns, max_ns, beyond_interval}, lost, flooded_packets, processor_ns_per_message (null under a flood), rounds}; round_trip is of all turns, each of
/// rounds the same of one. Round trips count from the asking application's call until the answer is in its hand. Each of segments: {stack, answers,
/// p50: {until_handed_over_ns, until_arrived_ns, until_found_ns, until_complete_ns, until_in_hand_ns}}, the medians of where the time of an answer goes, over Laxity at rest, each in a turn of its own behind the others. channels are the figures that
/// all commands report, of requests and answers over Laxity.
///
/// stack-roundtrip and stack-throughput compare where the stack is: in the kernel (UDP, under the same conditions: SCHED_FIFO, a processor for each end, without spinning), in the
/// application's threads (inline), in a thread of its process, in a process of its own (server: `laxity serve`). The first asks as roundtrip does, at rest, with messages of 64 to
/// 1,400 bytes, and opens and closes one more channel, or socket, again and again; the second sends best effort in one direction for each turn, which is the thread's work also with inline. Exit status as roundtrip; ratios that are missed
/// are said. JSON of stack-roundtrip: {bench, interval_ns, duration_ns, real_time, kept_awake, rows, openings, ratios, segments, channels, notes}. Each of rows: {stack, message_bytes,
/// round_trip, lost, processor_ns_per_message}; of openings: {stack, open, close}; round_trip, open and close are {samples, min_ns, p50_ns, p99_ns, p999_ns, max_ns}. Each of ratios, of the
/// medians of all sizes together: {of, to, ppm, most_ppm, met}. Of stack-throughput: {bench, duration_ns, real_time, kept_awake, rows, notes}. Each of rows: {stack, message_bytes, messages_s,
/// bytes_s, taken, missing, processor_ns_per_message}; messages_s are those in the receiving application's hand, the median of the turns.
///
/// livelock makes two network namespaces, too. Exit status: 1 if a message of the guaranteed channel was missed by Laxity's own fault, 4
/// without the rights. Its JSON: {bench, duration_ns, flood_packet_bytes, own_processor, rows, notes}. Each of rows: {link: udp|xdp,
/// offered_packets_s (null for as many as can be sent), flood: {packets, elapsed_ns, packets_s}, real_time, real_time_goodput_bytes_s,
/// best_effort, best_effort_goodput_bytes_s, dropped_early, dropping_ns, socket_overflow, soft_interrupts_ns, notes}; real_time and
/// best_effort are the figures that all commands report, from before the flood until after it, goodput is under the flood, and in time.
/// dropped_early and dropping_ns are null over udp.
///
/// stack-monitor measures what placement inline needs: a lock that several threads of a host take. Under plain, inheritance (its owner is as urgent as who
/// waits for it), ceiling (as urgent as any that may come) and ceiling-held (its owner is that urgent already) it tells the time of taking and giving
/// back the lock (uncontended), what is added when a more urgent thread wants it meanwhile (contended), and how long that one waits if a third
/// computes for between_ns (inversion). Exit status: 1 if ceiling-held does not remove 70 % of the cost of a contended lock with inheritance; 4 without
/// SCHED_FIFO. Its JSON: {bench, duration_ns, between_ns, rows, removed_ppm, least_removed_ppm, met}. Each of rows: {protocol, case, samples,
/// min_ns, p50_ns, p99_ns, max_ns}.
///
/// rio-cost, rio-latency and rio-bandwidth are the experiments with packets that the kernel processes in threads of their own, one for each stream. They make network namespaces,
/// too; all ends of one kind share a processor. rio-cost echoes 64 bytes, back to back, client and server under SCHED_FIFO: over TCP as the kernel comes (default), with ordinary kernel threads
/// (threads-normal), with that of the echo just above the applications (threads-realtime), and over channels of Laxity in their shortest interval. A turn is a second, or 20,000
/// round trips; every path has ten. rio-latency is the same beside a bulk transfer over TCP, ordinary threads that overload the receiver. Exit status: 1 if a message was missed by Laxity's own
/// fault; ratios that are missed are said. JSON of both: {bench, message_bytes, duration_ns, real_time, kept_awake, rows, ratios, channels, notes}. Each of rows: {path: default|threads-normal|
/// threads-realtime|laxity-udp|laxity-xdp, samples, min_ns, p50_ns, p99_ns, p999_ns, max_ns, mean_ns, jitter_ns (the standard deviation), beyond_1ms, lost, bulk_bytes_s (of the bulk transfer, null without one),
/// rounds}; a path that this host does not have is missing. Each of ratios, to the default path, the median of those of each round: {path, figure: mean|p99.9|jitter, ppm, quartiles_ppm, most_ppm, met}; p99
/// stands in for p99.9 where, in most rounds, more than 0.1 % took longer than 1 ms on every path, or a path had fewer than 1,000 round trips; most_ppm and met are null in rio-cost.
///
/// rio-bandwidth starts a best-effort transfer over TCP, and then, each --duration later, streams of 6,400, 3,200 and 1,600 KiB a second, which are sent by a schedule, and whose threads are
/// SCHED_FIFO in the kernel and in the applications. Exit status: 1 if a guaranteed stream has a second, from its first full one on, that is not within 5 % of its request. Its JSON: {bench,
/// duration_ns, block_bytes, period_ns, real_time, kept_awake, rows, within_ppm, met, notes}. Each of rows: {second (since the first start), stream, requested_bytes_s (null: what is left), received_bytes_s}.
///
/// shared-link sends the channels of the paper on real-time channels, in bursts of a random length, and best effort at twice what they leave, over a wire of 100 Mbit/s that a program of
/// the same host floods: as experts set up the kernel's queueing disciplines (pfifo-fast: the first band by SO_PRIORITY; htb-class: a class for all real-time streams; htb-streams: one for
/// each), and over Laxity with its guard. It needs ip and tc of iproute2. Responses count from the logical arrival, as the sending application reckons it, to the receiving application's hand;
/// an early one counts as zero, which only Laxity's are. Exit status: 1 if a message was missed by Laxity's own fault; ratios that are missed are said. Its JSON: {bench, duration_ns, real_time, kept_awake, rows, least_ppm (what one of three messages that come at once has of its deadline,
/// whatever their order), ratios, channels, experts, notes}. Each of rows: {stack: pfifo-fast|htb-class|htb-streams|laxity-udp|laxity-xdp|laxity-xdp-lag (with a guard that follows what Laxity uses), streams, largest_ppm (the largest p99 to its deadline, the median of the turns), best_effort_bytes_s and
/// flood_bytes_s (that arrived, likewise; of the experts' best effort each datagram counts, of Laxity's whole messages), rounds}; each of streams: {name, deadline_ns, samples, lost, late, p50_ns,
/// p99_ns, max_ns}, null where so many were lost; rounds have the same of each turn. Each of ratios, to the best expert: {stack, to, p99_ppm (of largest_ppm, the median of those of each round),
/// quartiles_ppm, most_ppm, best_effort_ppm (to the most that an expert carries), least_best_effort_ppm, met}. Each of experts: {stack, commands}.
///
/// upcall-deadlines, upcall-switches and upcall-udp are the experiments on upcalls. Exit status: 1 if a run of an upcall that admission, or the
/// exact test, had accepted missed its deadline by Laxity's own fault. JSON of upcall-deadlines: {bench, simulated, duration_ns, rows, notes}.
/// Each of rows: {utilisation, background, scheme: upcalls|fifo-threads|timer-threads|deadline-threads, accepted, reason (why the kernel
/// refused), upcalls}. accepted is what the exact test says of the set, null where it is not asked. Each of upcalls: {period_ns, invocations,
/// missed, misses: {upcall, platform, laxity}, min_slack_ns}; misses is null where causes are not told. Of upcall-switches: {bench, simulated,
/// seed, duration_ns, rows, notes}. Each of rows: {utilisation, mode: immediate|half|all, switch_ns, switches_per_s, misses, accepted,
/// largest_utilisation_without_miss}. Of upcall-udp: {bench, simulated, duration_ns, rows, notes}. Each of rows: {packet_bytes, scheme:
/// process|upcall-server|upcall-both, background, offered_bytes_s, received_bytes_s, sent, lost, misses}. utilisation and
/// largest_utilisation_without_miss are decimal fractions of a processor; all other numbers are integers.
///
/// event-latency, event-bandwidth and event-jitter send 512 bytes to a server that answers with the same, beside 0 to 4 processes that compete for the processor of both. Servers are programs with a UDP
/// socket (blocking, epoll, sigio, aio, io-uring), and handlers of messages in an executive of Laxity (laxity-udp, laxity-xdp) and in the kernel (laxity-kernel), each at normal and at real-time priority; real-time processes compete with real-time
/// servers alone. All have the same client, a plain UDP socket. They make network namespaces, too. A turn is 1,000 messages one behind the answer to the other, of event-bandwidth 8,192, or --duration; every row has
/// ten (three of event-bandwidth), or two if they are shorter than 50ms. Exit status: 1 if a message was missed by Laxity's own fault, 4 without the rights; ratios that are missed are said. Their JSON: {bench, message_bytes, messages, duration_ns, real_time, kept_awake,
/// rows, ratios, channels, notes}. Each of rows: {server, priority: normal|real-time, competing: normal|real-time, processes, samples, min_ns, p50_ns, p99_ns, p999_ns, max_ns, mean_ns, deviation_ns, spread_ns (from p50 to p99.9), bytes_s (the median of
/// the turns), lost, rounds}; rounds have the same of each turn. A server that this host does not have is missing. Each of ratios, of Laxity's servers at real-time priority, the median of those of each round: {server, figure, to: best-socket (the least of all
/// servers with a socket)|single (of the largest with 2 to 4 competing processes to that with one), competing, processes (null for single), ppm, quartiles_ppm, most_ppm, met}; most_ppm and met are null without an aim.
///
/// event-dispatch sends a message each millisecond, and tells where its time goes until the server has it. Its JSON: {bench, message_bytes, duration_ns, real_time, kept_awake, rows, notes}. Each of rows: {server, samples, lost,
/// until_arrived, until_noticed, until_in_hand, from_arrival, from_call}, each of these but the first two {mean_ns, p50_ns, p99_ns, deviation_ns}: from the client's call until the kernel, or the program in the driver, stamped the message; from there until
/// the server's thread ran, or the executive found it; from there until the program has it, or the handler's first instruction; and the last two, and all three, together.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// The experiment
    #[arg(value_enum)]
    pub(crate) name: BenchName,
    /// Run in virtual time, on the machine of the paper. Without it, live on this host, across an emulated wire
    #[arg(long)]
    pub(crate) simulated: bool,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw a picture like the paper's figure. An .html file also has the printed tables, and of roundtrip each round
    #[arg(long, value_name = "FILE.svg|FILE.html")]
    pub(crate) plot: Option<PathBuf>,
    /// The seed of the sources' phases; 0 starts them all together. Of the experiments on upcalls only upcall-switches uses it, for the
    /// upcalls' phases
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How long each run is observed after its warm-up. By default 9.6s of virtual time, or 3s live. xdp-path: the whole run, 20s.
    /// livelock: each step with each link, 4s. roundtrip: each turn of each stack, 1s. stack-roundtrip and stack-throughput: each turn of
    /// each stack with each size, 100ms. stack-monitor: 4s. rio-cost and rio-latency: each turn of each path, 1s. rio-bandwidth: from one
    /// start of a stream to the next, 2s. shared-link: each turn of each stack, 3s; there are ten turns, or three if they are shorter than
    /// 1s. upcall-deadlines and upcall-switches: 25.2s of virtual time, after which all repeats, or 1.2s live. upcall-udp: 1s.
    /// event-latency and event-jitter: each turn of each server at most, 100ms. event-bandwidth: 500ms. event-dispatch: each turn, 200ms
    #[arg(long, value_name = "SPAN")]
    pub(crate) duration: Option<String>,
    /// Simulated: how many runs at a time [default: the number of processors]. The figures do not depend on it
    #[arg(long, requires = "simulated")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Live: the attack: idle, flood, violator, hogs, or all for all of them at once [default: idle]
    #[arg(long, value_name = "ATTACK", conflicts_with = "simulated")]
    pub(crate) attack: Option<Attack>,
    /// Live: costs of this host and the link of the wire: a TOML file with a [platform] table. Costs that are missing there are measured or
    /// assumed
    #[arg(long, value_name = "FILE", conflicts_with = "simulated")]
    pub(crate) platform: Option<PathBuf>,
    /// Live: the measured costs of this host: a file of laxity calibrate, or none. By default the calibration of this host
    #[arg(long, value_name = "FILE|none", conflicts_with = "simulated")]
    pub(crate) calibration: Option<PathBuf>,
    /// Live: keep processors out of deep idle states meanwhile, where permitted (/dev/cpu_dma_latency)
    #[arg(long, conflicts_with = "simulated")]
    pub(crate) keep_awake: bool,
    /// Live: stay an ordinary process, even where real-time priority and locked memory are permitted
    #[arg(long, conflicts_with = "simulated")]
    pub(crate) no_realtime: bool,
    /// roundtrip: bytes of a request and of its answer, 8B to 100kB [default: 512B]. stack-roundtrip and stack-throughput: this size alone,
    /// up to 1400B
    #[arg(long, value_name = "SIZE")]
    pub(crate) message: Option<String>,
    /// roundtrip: the interval between requests, 100us to 100ms [default: 1ms]
    #[arg(long, value_name = "SPAN")]
    pub(crate) interval: Option<String>,
    /// roundtrip, over xdp: kernel threads that process packets before the executive. For Laxity's packets a real-time thread just above
    /// the executive (thread), for all other packets an ordinary thread (others), or both
    #[arg(long, value_parser = prioritised(), value_name = "thread|others|both", conflicts_with = "simulated")]
    pub(crate) prioritised: Option<PriorityPaths>,
    /// xdp-path: put both ends on one processor. Without it each has its own
    #[arg(long, conflicts_with = "simulated")]
    pub(crate) one_processor: bool,
    /// xdp-path: both ends poll for packets, and never wait
    #[arg(long, conflicts_with_all = ["simulated", "one_processor"])]
    pub(crate) spin: bool,
}

/// Which packets have a thread of their own.
fn prioritised() -> impl TypedValueParser<Value = PriorityPaths> {
    PossibleValuesParser::new(["thread", "others", "both"])
        .map(|name| PriorityPaths { thread: name != "others", others: name != "thread" })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchName {
    /// Real-time channels beside more and more best effort (Fig. 7 of the paper on real-time channels)
    ChannelsGuarantee,
    /// A channel that offers more than its contract (Fig. 8)
    ChannelsViolation,
    /// Runs without cooperative preemption, to show its use (Fig. 9)
    ChannelsPreemption,
    /// The links over AF_XDP and UDP beside bare loops over both: round trips, and packets in one direction
    XdpPath,
    /// Channels of a host while unknown peers send more and more packets, over UDP and over AF_XDP
    Livelock,
    /// A request and its answer every millisecond, over Laxity, over plain sockets, and over sockets as experts use them
    Roundtrip,
    /// Round trips with the stack in the kernel, in the application, in a thread, or in a server; messages of 64 to 1,400 bytes (Figs. 3
    /// and 6 of the paper on network subsystems)
    StackRoundtrip,
    /// The same stacks with messages in one direction, as many as possible (Figs. 4 and 7)
    StackThroughput,
    /// The cost of a lock that several threads of a host take: alone, contended, and with a thread of a priority between theirs; under each
    /// protocol against priority inversion
    StackMonitor,
    /// The cost of a kernel thread of its own for the packets of a stream (Fig. 7 of the paper on real-time I/O)
    RioCost,
    /// The benefit of such a thread: an echo beside a bulk transfer that overloads the receiver (Figs. 9 and 10)
    RioLatency,
    /// Three streams with guaranteed bandwidth beside one that takes what is left (Fig. 11)
    RioBandwidth,
    /// The channels of the paper on real-time channels, on a link of 100 Mbit/s that a program of the same host floods: with the guard, and
    /// with the kernel's queueing disciplines as experts set them up
    SharedLink,
    /// Twelve upcalls that take more and more of a processor: which deadlines they meet, and how closely (Fig. 7 of the paper on upcalls)
    UpcallDeadlines,
    /// 96 upcalls that are preempted at once, after half a batch, after a batch; in virtual time alone (Fig. 8)
    UpcallSwitches,
    /// A client and a server over UDP as plain processes and as upcalls, live (Fig. 9)
    UpcallUdp,
    /// The time from the arrival of a message until a handler of Laxity, or a program with a socket, has it, part by part (Figs. 1 and 2 of
    /// the paper on event upcalls)
    EventDispatch,
    /// 4 MB in messages of 512 bytes that are echoed, beside 0 to 4 competing processes: handlers of Laxity, and the kernel's asynchronous I/O
    /// (Fig. 4)
    EventBandwidth,
    /// How long a message and its answer take (Fig. 5)
    EventLatency,
    /// How evenly they come (Fig. 6)
    EventJitter,
}

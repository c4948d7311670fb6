//! The gate on growth: instructions per packet over the whole path, from `submit` at the sender to the delivery at the
//! receiver, with 100 and with 100,000 open channels. They may at most double.
//!
//! Counted by callgrind, never timed: the answer is the same on a busy machine. The program runs itself under valgrind,
//! which counts inside the phases of [`common`] only; opening the channels is set-up. Without valgrind it says `skipped`.
//!
//! Two kinds of traffic, because they fill different structures:
//! - *all active*: every channel has a message under way at the same time, so each heap holds all channels;
//! - *few active*: 64 channels of all, spread over the whole range, so what is idle must cost nothing.

mod common;

use std::process::{Command, ExitCode};

use common::Pair;

/// How much instructions per packet may grow.
const LIMIT: f64 = 2.0;
const SIZES: [usize; 2] = [100, 100_000];
/// A message of one small packet: copying bytes, which does not depend on channels, must not hide what does.
const PACKET: u32 = 64;
const FEW: usize = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, run, traffic, channels, packets] = &arguments[..]
        && run == "--run"
    {
        run_path(traffic, number(channels), number(packets));
        return ExitCode::SUCCESS;
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    if let Some(reason) = common::missing("valgrind") {
        println!("growth of instructions: skipped: {reason}");
        return ExitCode::SUCCESS;
    }
    let mut within = true;
    println!("instructions per packet, submit to delivery, messages of one packet of {PACKET} bytes");
    println!("{:>12} {:>10} {:>10} {:>8}", "traffic", SIZES[0], SIZES[1], "growth");
    for (traffic, packets) in [("all", 100_000), ("few", 10_000)] {
        let counts = SIZES.map(|channels| instructions(traffic, channels, packets));
        let [small, large] = match counts {
            [Ok(small), Ok(large)] => [small, large],
            [Err(error), _] | [_, Err(error)] => {
                eprintln!("{traffic} active: {error}");
                return ExitCode::FAILURE;
            }
        };
        let per_packet = [small, large].map(|count| count as f64 / packets as f64);
        let growth = per_packet[1] / per_packet[0];
        within &= growth <= LIMIT;
        println!("{:>12} {:>10.0} {:>10.0} {growth:>7.2}x", format!("{traffic} active"), per_packet[0], per_packet[1]);
    }
    if within {
        println!("within the limit of {LIMIT}x");
        ExitCode::SUCCESS
    } else {
        eprintln!("instructions per packet grow by more than {LIMIT}x from {} to {} channels", SIZES[0], SIZES[1]);
        ExitCode::FAILURE
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number, from ourselves")
}

/// What valgrind runs: `packets` packets over `channels` open channels.
fn run_path(traffic: &str, channels: usize, packets: usize) {
    let mut pair = Pair::open(channels, 1, PACKET);
    let active: Vec<usize> = match traffic {
        "all" => (0..channels).collect(),
        _ => (0..FEW).map(|index| index * channels / FEW).collect(),
    };
    let rounds = packets.div_ceil(active.len());
    for round in 0..rounds {
        let left = (packets - round * active.len()).min(active.len());
        pair.round(&active[..left]);
    }
    assert_eq!(pair.delivered, packets, "every message arrived");
}

/// Runs this program under callgrind and reads what it counted.
fn instructions(traffic: &str, channels: usize, packets: usize) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let file = program.with_file_name(format!("growth-{traffic}-{channels}.callgrind"));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--toggle-collect={}", common::COUNTED)])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(&program)
        .args(["--run", traffic, &channels.to_string(), &packets.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    let profile = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let total = profile.lines().find_map(|line| line.strip_prefix("totals:").or(line.strip_prefix("summary:")));
    match total.and_then(|total| total.trim().parse().ok()) {
        Some(count) if count > 0 => Ok(count),
        _ => Err(format!("{}: nothing was counted", file.display())),
    }
}

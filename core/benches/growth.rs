//! The gate on growth: instructions per packet over the whole path, from `submit` at the sender to the delivery at the
//! receiver, with 100 and with 100,000 open channels. They may at most double.
//!
//! Counted by callgrind, never timed: the answer is the same on a busy machine. The program runs itself under valgrind,
//! which counts inside the phases of [`common`] only; opening the channels is set-up. Without valgrind it says `skipped`.
//!
//! Two kinds of traffic, because they fill different structures:
//! - *all active*: every channel has a message under way at the same time, so each heap holds all channels;
//! - *few active*: 64 channels of all, spread over the whole range, so what is idle must cost nothing.
//!
//! And instructions per accept (reserve and relax) of one more sending channel on [`Platform::assumed_host`] with 100 and with
//! 10,000 channels admitted, of one kind and of as many kinds as channels: they, too, may at most double. And instructions per run of an
//! upcall beside its handler, with 100 and with 10,000 upcalls, of which all are released together or one after the other.

mod common;
#[path = "growth/runs.rs"]
mod runs;

use std::process::{Command, ExitCode};
use std::thread;

use common::Pair;
use common::admitted::{self, ChannelMix};
use laxity_core::platform::Platform;

/// How much instructions per packet may grow.
const LIMIT: f64 = 2.0;
const SIZES: [usize; 2] = [100, 100_000];
/// How many channels are admitted when one more asks, and how often it asks.
const ADMITTED: [usize; 2] = [100, 10_000];
const ACCEPTS: usize = 100;
/// How many upcalls there are, and how many runs are counted.
const UPCALLS: [usize; 2] = [100, 10_000];
const RUNS: usize = 20_000;
/// A message of one small packet: copying bytes, which does not depend on channels, must not hide what does.
const PACKET: u32 = 64;
const FEW: usize = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, run, traffic, channels, packets] = &arguments[..]
        && run == "--run"
    {
        match traffic.as_str() {
            "alike" => run_accepts(ChannelMix::One, number(channels), number(packets)),
            "together" | "spread" => runs::run(traffic == "together", number(channels), number(packets)),
            "distinct" => run_accepts(ChannelMix::Distinct, number(channels), number(packets)),
            _ => run_path(traffic, number(channels), number(packets)),
        }
        return ExitCode::SUCCESS;
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    if let Some(reason) = common::missing("valgrind") {
        println!("growth of instructions: skipped: {reason}");
        return ExitCode::SUCCESS;
    }
    println!("instructions per packet, submit to delivery, messages of one packet of {PACKET} bytes");
    let packets = [("all", "all active", 100_000), ("few", "few active", 10_000)];
    let path = table(SIZES, &packets, common::COUNTED);
    println!("instructions per accept of a sending channel, so many being admitted");
    let accepts = [("alike", "alike", ACCEPTS), ("distinct", "distinct", ACCEPTS)];
    let admission = table(ADMITTED, &accepts, admitted::COUNTED);
    println!("instructions per run of an upcall, beside its handler, with so many upcalls");
    let upcalls = [("together", "together", RUNS), ("spread", "spread", RUNS)];
    let upcalls = table(UPCALLS, &upcalls, runs::COUNTED);
    match path.and_then(|path| Ok(path && admission? && upcalls?)) {
        Ok(true) => {
            println!("within the limit of {LIMIT}x");
            ExitCode::SUCCESS
        }
        Ok(false) => {
            eprintln!("instructions grow by more than {LIMIT}x");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the growth of each run (its name here and there, how often it is done); whether all are within the limit.
fn table(sizes: [usize; 2], runs: &[(&str, &str, usize)], counted: &str) -> Result<bool, String> {
    let mut within = true;
    println!("{:>12} {:>10} {:>10} {:>8}", "channels", sizes[0], sizes[1], "growth");
    // All at once: they are counted, not timed.
    let of_run = |&(run, name, times): &(&str, &str, usize)| {
        sizes.map(|channels| {
            let count = instructions(run, channels, times, counted).map_err(|error| format!("{name}: {error}"))?;
            Ok::<f64, String>(count as f64 / times as f64)
        })
    };
    let counts: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = runs.iter().map(|run| scope.spawn(move || of_run(run))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it returns errors")).collect()
    });
    for ((_, name, _), [small, large]) in runs.iter().zip(counts) {
        let (small, large) = (small?, large?);
        let growth = large / small;
        within &= growth <= LIMIT;
        println!("{name:>12} {small:>10.0} {large:>10.0} {growth:>7.2}x");
    }
    Ok(within)
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

/// What valgrind runs: one more channel is accepted `accepts` times beside `channels`.
fn run_accepts(kinds: ChannelMix, channels: usize, accepts: usize) {
    let mut admission = admitted::filled(Platform::assumed_host(), kinds, channels);
    let next = admitted::contract(kinds, ADMITTED[1]);
    for _ in 0..accepts {
        let id = admitted::phase::accept(&mut admission, &next);
        assert!(admission.release(id), "it was just accepted");
    }
}

/// Runs this program under callgrind and reads what it counted.
fn instructions(traffic: &str, channels: usize, packets: usize, counted: &str) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let file = program.with_file_name(format!("growth-{traffic}-{channels}.callgrind"));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--toggle-collect={counted}")])
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

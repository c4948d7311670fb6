//! A film over each stack, one after the other, while an attack goes on:
//! `cargo run --release -p laxity-lab --example video -- FRAMES [--fps 30] [--seconds N] [--attack all]`.
//!
//! FRAMES is a file as `examples/h264_frames.py split` writes it: each frame after its length, 32 bits, big endian. Beside the
//! film are a channel that breaks its contract, if the attack has a violator, and best effort. Every stack is held against the
//! same deadline. Exit status: 0; 1 if a miss was Laxity's, or it delivered a frame other than it was sent; 2 for arguments.

use std::process::ExitCode;
use std::time::Duration as StdDuration;

use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_lab::workload::VIDEO;
use laxity_lab::{Attack, ChannelOutcome, Film, FloodPath, ScenarioOutcome, Setup, Stack, Workload, run};

type Failure = Box<dyn std::error::Error>;

/// How many frames may come at once, after the application was held up.
const BURST: u64 = 4;
const DEADLINE: Duration = Duration::from_millis(100);

struct Arguments {
    file: String,
    fps: u64,
    seconds: Option<u64>,
    attack: Attack,
}

fn arguments() -> Result<Arguments, Failure> {
    let (mut file, mut fps, mut seconds, mut attack) = (None, 30, None, Attack::All);
    let mut each = std::env::args().skip(1);
    while let Some(argument) = each.next() {
        let mut value = || each.next().ok_or(format!("{argument} has no value"));
        match argument.as_str() {
            "--fps" => fps = value()?.parse()?,
            "--seconds" => seconds = Some(value()?.parse()?),
            "--attack" => attack = value()?.parse()?,
            _ if argument.starts_with('-') || file.is_some() => return Err(format!("what is {argument}?").into()),
            _ => file = Some(argument),
        }
    }
    if !(1..=1000).contains(&fps) || seconds == Some(0) {
        return Err("expected 1 to 1000 frames a second, and a second at least".into());
    }
    Ok(Arguments { file: file.ok_or("which file?")?, fps, seconds, attack })
}

/// The frames of the file: each after its length.
fn frames(mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk().ok_or("the file ends within a length")?;
        let length = u32::from_be_bytes(*length) as usize;
        let (frame, rest) = rest.split_at_checked(length).ok_or("the file ends within a frame")?;
        frames.push(frame.to_vec());
        bytes = rest;
    }
    Ok(frames)
}

fn line(outcome: &ScenarioOutcome, video: &ChannelOutcome) -> String {
    let figures = &video.figures;
    let laxity = |largest: Option<Duration>| match (figures.deadline, largest) {
        (Some(deadline), Some(largest)) => {
            let nanos = i128::from(deadline.as_nanos()) - i128::from(largest.as_nanos());
            format!("{:.3} ms", nanos as f64 / 1e6)
        }
        _ => "unknown".to_owned(),
    };
    // What the stack is responsible for, which is what is called late; and how long the application waited, from when it wanted to
    // send until the receiving one's thread ran.
    let least = laxity(figures.response);
    let in_hand = video.in_hand.max.map_or_else(|| "unknown".to_owned(), |longest| longest.to_string());
    let identical = if video.altered == 0 && figures.delivered == video.offered { "yes" } else { "no" };
    let (lost, wire, (gaps, longest)) = (figures.lost + figures.dropped, &outcome.wire, outcome.gaps);
    let mut line = format!(
        "{:9}  least laxity {least:>11} (in hand after {in_hand:>11} at most), late {:>3}, lost {lost:>3} of {}, frames identical {identical}; wire: {} dropped, \
         {} released late (most {})",
        outcome.stack,
        figures.late,
        video.offered,
        wire.high.dropped + wire.low.dropped + wire.overflow,
        wire.late_releases,
        wire.largest_lateness,
    );
    if video.altered > 0 {
        line += &format!("; {} ALTERED", video.altered);
    }
    if video.misses_known {
        let m = figures.misses;
        line += &format!(
            "; executives' gaps: {gaps} (most {longest}); misses: sender {}, receiver {}, network {}, platform {}, laxity {}",
            m.sender, m.receiver, m.network, m.platform, m.laxity
        );
    }
    line
}

fn play(arguments: &Arguments) -> Result<bool, Failure> {
    let mut frames = frames(&std::fs::read(&arguments.file)?)?;
    if let Some(seconds) = arguments.seconds {
        frames.truncate(usize::try_from(seconds.saturating_mul(arguments.fps))?);
    }
    let interval = Duration::from_secs(1).mul_ratio(1, arguments.fps);
    let duration = interval * frames.len() as u64;
    let film = Film::new(frames, interval, BURST, DEADLINE)?;
    let workload = Workload::Film(film);
    let mut kept = true;
    for stack in Stack::EACH {
        let setup = Setup {
            attack: arguments.attack,
            stack,
            flood: FloodPath::Through,
            duration: StdDuration::from_nanos(duration.as_nanos()),
            seed: 1,
            realtime: true,
            keep_awake: false,
            costs: Platform::assumed_host().into(),
        };
        let outcome = run(&setup, &workload, &mut |_| true)?;
        let video = outcome.channels.iter().find(|channel| channel.figures.name == VIDEO);
        let video = video.ok_or("there is no channel of the film")?;
        println!("{}", line(&outcome, video));
        for note in outcome.notes.iter().chain(&outcome.disturbances) {
            eprintln!("{stack}: {note}");
        }
        if stack == Stack::Laxity {
            kept &= video.figures.misses.laxity == 0 && video.altered == 0;
        }
    }
    Ok(kept)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("video: {error}");
            return ExitCode::from(2);
        }
    };
    match play(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("video: {error}");
            ExitCode::FAILURE
        }
    }
}

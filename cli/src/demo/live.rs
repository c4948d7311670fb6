//! The live part: two hosts in this process, real sockets, real threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity::{ChannelSpec, Error, Host, HostConfig, Receiver, Scheduling, Sender};
use laxity_core::contract::Contract;
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

use super::{MESSAGE_BYTES, Part, table_3};
use crate::failure::Failure;

/// Runs for `duration`.
pub(super) fn run(platform: &Platform, duration: Duration, realtime: bool) -> Result<Part, Failure> {
    let config = HostConfig {
        platform: platform.clone(),
        fifo_priority: HostConfig::default().fifo_priority.filter(|_| realtime),
        // Two hosts, emulated in one process: each has a link of its own.
        registry: None,
        ..HostConfig::default()
    };
    let (here, there) = (Host::start(config.clone())?, Host::start(config)?);
    let mut notes = here.standing().notes.clone();
    if let Scheduling::Fifo(priority) = here.standing().scheduling {
        notes.push(format!("the executives run as SCHED_FIFO {priority}"));
    }
    let mut channels = Vec::new();
    for row in table_3() {
        let contract = granted(&here, &there, row.name, row.contract, &mut notes)?;
        channels.push((contract.1, contract.2, Some(contract.0)));
    }
    let spec = ChannelSpec::best_effort(MESSAGE_BYTES.into(), 10)?;
    let (sender, receiver) = connect(&here, &there, "best-effort", spec)?;
    channels.push((sender, receiver, None));

    let stop = Arc::new(AtomicBool::new(false));
    let mut running = Vec::new();
    for (sender, receiver, contract) in channels {
        let sink = thread::spawn(move || receive(receiver));
        let stop = Arc::clone(&stop);
        let source = thread::spawn(move || send(sender, contract, &stop));
        running.push((source, sink));
    }
    let start = StdInstant::now();
    while start.elapsed() < StdDuration::from_nanos(duration.as_nanos()) {
        thread::sleep(StdDuration::from_millis(50));
    }
    stop.store(true, Ordering::Relaxed);
    let elapsed = Duration::from_nanos(start.elapsed().as_nanos() as u64);
    let mut figures = Vec::new();
    for (source, sink) in running {
        let sent = source.join().expect("a source does not panic");
        let mut channel: Figures = sink.join().expect("a sink does not panic");
        channel.sent = sent?;
        figures.push(channel);
    }
    let (gaps, longest) = here.gaps();
    let (gaps_there, longest_there) = there.gaps();
    if gaps + gaps_there > 0 {
        notes.push(format!(
            "the platform took the processor away {} times beyond its envelope, {} at the longest",
            gaps + gaps_there,
            longest.max(longest_there)
        ));
    }
    let (sent, received) = (here.link_counters(), there.link_counters());
    if sent.send_dropped + received.receive_overflow > 0 {
        notes.push(format!(
            "the kernel dropped {} packets on sending and {} on receiving",
            sent.send_dropped, received.receive_overflow
        ));
    }
    Ok(Part { link: "udp", simulated: false, elapsed, figures, notes })
}

/// Opens a channel, with the least deadline that admission offers if its own is refused.
fn granted(
    from: &Host,
    to: &Host,
    name: &str,
    contract: Contract,
    notes: &mut Vec<String>,
) -> Result<(Contract, Sender, Receiver), Failure> {
    let refused = match connect(from, to, name, ChannelSpec::real_time(contract)) {
        Ok((sender, receiver)) => return Ok((contract, sender, receiver)),
        Err(error) => error,
    };
    let Error::Refused { refusal, .. } = &refused else { return Err(refused.into()) };
    let Some(least) = refusal.least_deadline else { return Err(refused.into()) };
    notes.push(format!("{name}: {refused}; going on with that"));
    let contract = contract.with_deadline(least).map_err(Error::from)?;
    let (sender, receiver) = connect(from, to, name, ChannelSpec::real_time(contract))?;
    Ok((contract, sender, receiver))
}

fn connect(from: &Host, to: &Host, name: &str, spec: ChannelSpec) -> Result<(Sender, Receiver), Error> {
    let listener = to.listen(name)?;
    let sender = from.open(to.address(), name, spec)?;
    Ok((sender, listener.accept(Some(StdDuration::from_secs(2)))?))
}

/// Sends bursts as the contract allows, each followed by the pause that it costs; best effort without a pause. Returns the
/// messages that were accepted.
fn send(mut sender: Sender, contract: Option<Contract>, stop: &AtomicBool) -> Result<u64, Error> {
    let message = vec![0x5a; MESSAGE_BYTES as usize];
    let mut next = StdInstant::now();
    while !stop.load(Ordering::Relaxed) {
        let burst = contract.map_or(1, |contract| contract.burst());
        for _ in 0..burst {
            sender.send(&message)?;
        }
        if let Some(contract) = contract {
            next += StdDuration::from_nanos((contract.interval() * u64::from(burst)).as_nanos());
            thread::sleep(next.saturating_duration_since(StdInstant::now()));
        }
    }
    sender.close().map(|(counters, _)| counters.accepted)
}

fn receive(mut receiver: Receiver) -> Figures {
    while receiver.recv().is_ok() {}
    receiver.figures()
}

//! How much memory and work a scenario may ask for, before anything of it is allocated or run.
//!
//! The sums are upper bounds of what the world will need; they saturate.

use laxity::FileError;
use laxity::source::SourceFile;
use laxity::text::DisplaySize;
use laxity_core::admission::buffers;
use laxity_core::contract::{Overload, Service};
use laxity_core::limits::{DECAY_FACTOR, MAX_LISTENERS};
use laxity_sim::FaultKind;

use super::{Channel, Feed, Host, Scenario};

/// Frames that find a place at a host which arrive and have not been looked at: far more than arrive between two looks, unless a
/// fault makes them.
pub(in super::super) const RECEIVE_RING: u32 = 1024;
/// Memory of all buffers.
const MOST_MEMORY: u64 = 4 << 30;
/// Packets that all sources offer together.
const MOST_PACKETS: u64 = 200_000_000;
/// Frames that floods have together.
const MOST_FLOOD: u64 = 20_000_000;

/// Says which table goes beyond a limit.
pub(super) fn check(source: SourceFile<'_>, scenario: &Scenario) -> Result<(), FileError> {
    let Scenario { hosts, channels, sources, faults, .. } = scenario;
    let beyond = |at, problem| Err(source.error(at, "", problem));
    let of_hosts = hosts.iter().map(of_host).fold(0, u64::saturating_add);
    let of_channels = channels.iter().map(|channel| {
        // No host in between needs more than both ends together.
        let copies = (scenario.lives() as u64).saturating_mul(1 + channel.via.len() as u64);
        (channel.at, of_channel(channel, &hosts[channel.from]).saturating_mul(copies))
    });
    if let Some((at, memory)) = exceeding(MOST_MEMORY, std::iter::once((0, of_hosts)).chain(of_channels)) {
        let (found, most) = (DisplaySize(memory), DisplaySize(MOST_MEMORY));
        return beyond(at, format!("the buffers of the scenario would take {found}, expected at most {most}"));
    }
    let mut received = vec![0; hosts.len()];
    for channel in channels {
        for host in channel.hosts().skip(1) {
            received[host] += 1;
            if received[host] > MAX_LISTENERS {
                let name = &hosts[host].name;
                return beyond(channel.at, format!("{name:?} receives more than {MAX_LISTENERS} channels"));
            }
        }
    }
    let offered = sources.iter().map(|Feed { source, at }| {
        let packets = channels[source.channel.0].packets(hosts, source.sizes.largest());
        (*at, source.most_messages().saturating_mul(packets))
    });
    if let Some((at, packets)) = exceeding(MOST_PACKETS, offered) {
        return beyond(at, format!("the sources would offer {packets} packets, expected at most {MOST_PACKETS}"));
    }
    let flood = faults.iter().filter_map(|fault| match fault.kind {
        FaultKind::FloodBack { spacing, .. } => Some(fault.until.since(fault.from).div_ceil(spacing)),
        _ => None,
    });
    let flood = flood.fold(0, u64::saturating_add);
    if flood > MOST_FLOOD {
        return beyond(0, format!("the floods would have {flood} frames, expected at most {MOST_FLOOD}"));
    }
    Ok(())
}

/// The first of these places with which the sum exceeds `most`, and the sum.
fn exceeding(most: u64, parts: impl Iterator<Item = (usize, u64)>) -> Option<(usize, u64)> {
    let mut sum = 0u64;
    for (at, part) in parts {
        sum = sum.saturating_add(part);
        if sum > most {
            return Some((at, sum));
        }
    }
    None
}

/// The ring, the wire, and frames if the file says how many.
fn of_host(host: &Host) -> u64 {
    const WIRE: u64 = 1024;
    let frames = u64::from(RECEIVE_RING) + u64::from(host.frames.unwrap_or(0)) + WIRE;
    // Tables of the endpoint, generously.
    frames * frame(host) + u64::from(host.channels.unwrap_or(0)) * 1024
}

fn frame(host: &Host) -> u64 {
    u64::from(host.platform.packet) + 256
}

/// Messages at both ends, and frames for as many.
fn of_channel(channel: &Channel, host: &Host) -> u64 {
    let (messages, largest) = (of_messages(channel), u64::from(channel.service.max_message()));
    let packets = largest.div_ceil(host.platform.packet.into());
    let oversize = if channel.overload == Overload::Decay { u64::from(DECAY_FACTOR) } else { 1 };
    let each = largest.saturating_add(packets.saturating_mul(frame(host)));
    messages.saturating_mul(each).saturating_mul(oversize)
}

fn of_messages(channel: &Channel) -> u64 {
    match &channel.service {
        Service::RealTime(contract) => {
            let receiving = buffers::receive_messages(contract, contract.deadline(), contract.deadline());
            contract.queued_messages() + u64::from(receiving) + u64::from(contract.burst())
        }
        Service::BestEffort { queue, .. } => 2 * u64::from(*queue),
    }
}

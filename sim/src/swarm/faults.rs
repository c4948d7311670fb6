//! The faults in a world of the swarm: up to three faults, each at a host, in a window.

use laxity_core::units::{Duration, Instant};

use super::draw::DrawnChannel;
use crate::{ChannelHandle, Fault, FaultKind, HostId, Random, World};

/// Draws and adds them; in two worlds of five there is none.
pub(super) fn add(
    random: &mut Random,
    world: &mut World,
    (hosts, channels, granted): (&[HostId], &[ChannelHandle], &[DrawnChannel]),
    same_clock: bool,
    (start, end): (Instant, Instant),
) {
    let few_or_many = |random: &mut Random| random.pick(&[20_000, 200_000, 600_000]);
    let micros = |random: &mut Random, most| Duration::from_micros(1 + random.up_to(most));
    let count = random.pick(&[0, 0, 1, 2, 3]);
    let mut taken = vec![false; hosts.len()];
    for _ in 0..count {
        let number = random.up_to(hosts.len() as u64 - 1) as usize;
        let from = start + Duration::from_nanos(random.up_to(end.since(start).as_nanos()));
        let longest = random.pick(&[1_000, 8_000, 25_000]);
        let length = Duration::from_micros(200 + random.up_to(longest));
        let kind = match random.up_to(12) {
            0 => FaultKind::Loss { ppm: few_or_many(random) },
            1 => FaultKind::Reordering { most: micros(random, 3_000) },
            2 => FaultKind::Duplication { ppm: few_or_many(random) },
            3 => FaultKind::Corruption { ppm: few_or_many(random) },
            4 => FaultKind::Delay { extra: micros(random, 12_000) },
            5 => FaultKind::LinkDown,
            6 => FaultKind::Crash { reopen: random.one_in(2) },
            // Not drawn, so that each seed stays as near as can be to the world that it was.
            7 if !same_clock => match micros(random, 30_000) {
                by if (by.as_nanos() / 1_000).is_multiple_of(2) => FaultKind::ClockStep { by },
                _ => FaultKind::ClockStandstill,
            },
            8 if !same_clock => FaultKind::ClockDrift { ppm: random.pick(&[-50_000, -300, 300, 50_000]) },
            7..=9 => FaultKind::Interference,
            10 => {
                let peer = (number + 1 + random.up_to(hosts.len() as u64 - 2) as usize) % hosts.len();
                FaultKind::FloodBack { peer: hosts[peer], spacing: micros(random, 40) }
            }
            11 => {
                let received = channels.iter().zip(granted).filter(|(_, channel)| channel.to == number);
                let received: Vec<_> = received.map(|(&handle, _)| handle).collect();
                if received.is_empty() {
                    continue;
                }
                FaultKind::SlowReceiver { channel: random.pick(&received), each: micros(random, 40_000) }
            }
            _ => FaultKind::SmallRing { places: random.up_to(4) as usize },
        };
        // A host without a processor twice at a time, or that crashes while it is down: once is enough.
        let alone = matches!(kind, FaultKind::Interference | FaultKind::Crash { .. });
        if alone && core::mem::replace(&mut taken[number], true) {
            continue;
        }
        world.add_fault(Fault { host: hosts[number], from, until: from + length, kind });
    }
}

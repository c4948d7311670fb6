//! The events of an episode of a small system: random, or a little different from what came close to a bound.

use laxity_core::platform::{Interference, Platform};
use laxity_core::units::Duration;
use laxity_core::upcall::Upcall;

use super::{NumberSource, us};
pub use crate::tiny::Pattern;
use crate::tiny::{Release, SmallSystem};

/// Best effort that keeps processor and link busy from the beginning of the episode for about `span`.
pub fn saturating(platform: &Platform, span: Duration, full: bool) -> Vec<Release> {
    let packets = platform.best_effort.message_packets;
    if packets == 0 {
        return Vec::new();
    }
    let (least, most) = (platform.best_effort.packet_min, platform.best_effort.packet_max);
    let bytes = (packets - 1) * most + if full { most } else { least };
    let cost = platform.first_packet + platform.packet_cost * u64::from(packets - 1);
    let count = (span.div_ceil(cost.max(platform.link.occupancy(least))) + 1).min(40);
    vec![Release::best_effort(Duration::ZERO, bytes); count as usize]
}

/// As much as the platform may take until `end`, mostly as often as it may; a gap beside another one is left out.
fn gaps(draw: &mut impl NumberSource, interference: &Interference, end: Duration) -> Vec<(Duration, Duration)> {
    let mut gaps: Vec<(Duration, Duration)> = Vec::new();
    let mut add = |at: Duration, length: Duration| {
        let free = gaps.iter().all(|&(other, taken)| at + length < other || other + taken < at);
        if free && !length.is_zero() {
            gaps.push((at, length));
        }
    };
    let anywhere = |draw: &mut dyn FnMut(u64) -> u64, span: Duration| Duration::from_nanos(draw(span.as_nanos()));
    add(anywhere(draw, end), interference.burst);
    for &(period, cost) in &interference.periodic {
        let mut at = anywhere(draw, period);
        while at < end {
            add(at, cost);
            at += period + if draw(3) == 0 { anywhere(draw, period) } else { Duration::ZERO };
        }
    }
    // The least of the envelopes counts; there is one at most. Within windows of one grid, and of one that begins half a window later: always in the same
    // half of a window, at its end and at the beginning of the next one's, or anywhere; or a window apart, from anywhere on.
    for &(window, budget) in &interference.envelopes {
        let half = window.mul_ratio(1, 2);
        let (mut begin, room) = match draw(2) {
            0 => (anywhere(draw, window), Duration::ZERO),
            which => (half * (which - 1), half.saturating_sub(budget)),
        };
        while begin < end {
            let within = match draw(2) {
                0 => Duration::ZERO,
                1 => room,
                _ => anywhere(draw, room),
            };
            add(begin + within, budget);
            begin += window;
        }
    }
    gaps.sort_unstable();
    gaps
}

/// Bursts, late and small messages, best effort now and then; or all channels at once and as much as may be.
pub fn random_pattern(draw: &mut impl NumberSource, system: &SmallSystem) -> Pattern {
    let mut releases = match draw(2) {
        0 => saturating(&system.platform, us(300), true),
        1 => saturating(&system.platform, us(300), false),
        _ => Vec::new(),
    };
    let together = draw(2) == 0;
    let mut phase = Duration::from_nanos(draw(120_000));
    // All as large as they may be, or each channel as it likes.
    let full = draw(1) == 0;
    for (number, channel) in system.channels.iter().enumerate() {
        let contract = &channel.contract;
        if !together {
            phase = Duration::from_nanos(draw(120_000));
        }
        let sizes = if full { 0 } else { draw(2) };
        let (mut at, mut ahead) = (phase + Duration::from_nanos(if together { draw(1) * draw(20_000) } else { 0 }), 0);
        for _ in 0..1 + draw(3) {
            let least = u64::from(contract.min_message());
            let bytes = match sizes {
                0 => u64::from(contract.max_message()),
                1 => least,
                _ => least + draw(u64::from(contract.max_message()) - least),
            };
            releases.push(Release::of(number, at, bytes as u32));
            // Within the burst, or when the next one may come, or later.
            if contract.interval() * (ahead + 1) <= contract.most_ahead() && draw(1) == 0 {
                ahead += 1;
            } else {
                at += contract.interval() * (ahead + 1) + Duration::from_nanos(draw(3) / 3 * draw(60_000));
                ahead = 0;
            }
        }
    }
    let end = releases.iter().map(|release| release.at).max().unwrap_or(Duration::ZERO) + us(200);
    let gaps = if draw(3) > 0 { gaps(draw, &system.platform.interference, end) } else { Vec::new() };
    let phases = phases(draw, system);
    // While something is unfinished.
    let change = system.change.as_ref().map_or(Duration::ZERO, |_| {
        let beside = releases[draw(releases.len() as u64 - 1) as usize].at;
        beside + Duration::from_nanos(draw(40_000))
    });
    Pattern { releases, gaps, phases, change }
}

/// The same with something moved: a channel, best effort, all gaps; or a channel to where it is due when another one is.
pub fn moved(draw: &mut impl NumberSource, system: &SmallSystem, pattern: &Pattern) -> Pattern {
    let mut pattern = pattern.clone();
    let span = [500, 3_000, 30_000][draw(2) as usize];
    let (earlier, by) = (draw(1) == 0, Duration::from_nanos(draw(span)));
    if system.change.is_some() && draw(2) == 0 {
        pattern.change = shifted(pattern.change, earlier, by, pattern.change);
        return pattern;
    }
    if !pattern.phases.is_empty() && (system.channels.is_empty() || draw(2) == 0) {
        let which = draw(pattern.phases.len() as u64 - 1) as usize;
        let phase = &mut pattern.phases[which];
        *phase = shifted(*phase, earlier, by, *phase);
        return pattern;
    }
    let which = draw(system.channels.len() as u64 + 1) as usize;
    if which > system.channels.len() {
        let least = pattern.gaps.first().map_or(Duration::ZERO, |gap| gap.0);
        pattern.gaps.iter_mut().for_each(|(at, _)| *at = shifted(*at, earlier, by, least));
        return pattern;
    }
    if which == system.channels.len() {
        shift(&mut pattern, None, earlier, by);
    } else if draw(2) > 0 {
        shift(&mut pattern, Some(which), earlier, by);
    } else {
        due_together(draw, system, &mut pattern, which);
    }
    pattern
}

fn shifted(at: Duration, earlier: bool, by: Duration, least: Duration) -> Duration {
    if earlier { at - by.min(least) } else { at + by }
}

/// All messages of a channel, or of best effort, by as much; nothing before the beginning of the episode.
fn shift(pattern: &mut Pattern, channel: Option<usize>, earlier: bool, by: Duration) {
    let of = |release: &&mut Release| release.channel == channel;
    let least = pattern.releases.iter().filter(|release| release.channel == channel).map(|release| release.at).min();
    for release in pattern.releases.iter_mut().filter(of) {
        release.at = shifted(release.at, earlier, by, least.unwrap_or_default());
    }
}

/// Moves a channel so that a message of it is due at the same instant as one of another channel, or a nanosecond beside: what
/// is due together competes most.
fn due_together(draw: &mut impl NumberSource, system: &SmallSystem, pattern: &mut Pattern, which: usize) {
    let due: Vec<(usize, Duration)> = (pattern.releases.iter())
        .filter_map(|release| {
            let number = release.channel?;
            Some((number, release.at + system.channels[number].stages.processor))
        })
        .collect();
    let mut any = |own: bool| {
        let of: Vec<Duration> = due.iter().filter(|due| (due.0 == which) == own).map(|due| due.1).collect();
        (!of.is_empty()).then(|| of[draw(of.len() as u64 - 1) as usize])
    };
    if let (Some(own), Some(other)) = (any(true), any(false)) {
        let other = other + Duration::from_nanos(draw(4) / 4);
        let (earlier, by) = if own > other { (true, own - other) } else { (false, other - own) };
        shift(pattern, Some(which), earlier, by);
    }
}

/// The times of the upcalls' first releases: all together, one of them or none a nanosecond before; or anywhere.
pub fn phases(draw: &mut impl NumberSource, system: &SmallSystem) -> Vec<Duration> {
    let count = system.periodic().count() as u64;
    if count == 0 {
        return Vec::new();
    }
    let together = draw(2) > 0;
    let first = draw(count);
    let phase = |(number, upcall): (usize, &Upcall)| match together {
        true => Duration::from_nanos(u64::from(number as u64 != first)),
        false => Duration::from_nanos(draw(upcall.period().as_nanos())),
    };
    system.periodic().enumerate().map(phase).collect()
}

/// The phases that are worst for each upcall in turn if nothing else runs: the longest iteration below it begins a nanosecond before all
/// others are released.
pub fn critical(system: &SmallSystem) -> impl Iterator<Item = Pattern> + use<> {
    let upcalls: Vec<Upcall> = system.periodic().copied().collect();
    let mut order: Vec<usize> = (0..upcalls.len()).collect();
    order.sort_by_key(|&number| upcalls[number].period());
    (0..order.len()).map(move |place| {
        let blocker = order[place + 1..].iter().copied().max_by_key(|&number| upcalls[number].quantum());
        let phase = |number| Duration::from_nanos(u64::from(Some(number) != blocker));
        Pattern { phases: (0..upcalls.len()).map(phase).collect(), ..Pattern::default() }
    })
}

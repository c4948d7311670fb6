//! A split test for the papers' machine by brute force: all instants one by one, and the least deadline by bisection.
//!
//! ```text
//! CPU:  W(t) = Σ n_i (H_i + C_csp) + C_csp min(Σ n_i, Σ n_i q_i);   B(t) = C_csp + block, of best effort or of d_j > t
//!       J(s) = C_l ⌈s/(L_min + C_l)⌉ inline, 0 offload
//! link: W(t) = Σ_i Σ_k L'_ik (⌊(t − e_ik)/I_i⌋ + 1)^+, e_ik = d_link,i + (N_i − k) C_p;   B(t) = L' of best effort or e > t
//! require FIX(W + B, J) ≤ t
//! ```
//!
//! It leaves out interference and C_d, which its callers do not have.

use laxity_core::contract::{SendingStages, packets};
use laxity_core::platform::{MachineModel, Platform};
use laxity_core::units::Duration;
use laxity_sim::tiny::{Channel, Role};

/// How far instants are looked at.
const HORIZON: u64 = 4_000_000;

/// A term that is left out, to see whether anybody notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    Nothing,
    /// The switch back to a message that was preempted.
    SwitchesBack,
    /// A block by those who are due later.
    Block,
    /// P C_p for a quantum inside a message (premise P1).
    InnerQuantum,
    /// The smallest packet: that of the largest messages instead (premise P2).
    SmallestPacket,
    /// The interrupts of others while a message is processed.
    Interrupts,
    /// A block of the link.
    LinkBlock,
}

struct Job {
    interval: u64,
    deadline: u64,
    cost: u64,
    inner: u64,
    block: u64,
}

struct Stream {
    interval: u64,
    deadline: u64,
    /// L' of each packet, the first one first.
    packets: Vec<u64>,
}

/// The set as it grows.
struct Twin {
    platform: Platform,
    jobs: Vec<Job>,
    streams: Vec<Stream>,
    /// L_min.
    smallest: u64,
    without: Without,
}

impl Twin {
    fn block(&self, packets: u64, first: Duration, other: Duration) -> u64 {
        let (quantum, first, other) = (u64::from(self.platform.quantum), first.as_nanos(), other.as_nanos());
        let start = first + (packets.min(quantum) - 1) * other;
        if packets > quantum && self.without != Without::InnerQuantum { start.max(quantum * other) } else { start }
    }

    fn occupancy(&self, bytes: u32) -> u64 {
        (self.platform.link.occupancy(bytes) + self.platform.link_cost).as_nanos()
    }

    fn stolen(&self, span: u64) -> u64 {
        let link_cost = self.platform.link_cost.as_nanos();
        match self.platform.machine {
            MachineModel::PapersInline if self.without == Without::Interrupts => link_cost,
            MachineModel::PapersInline => link_cost * span.div_ceil((self.smallest + link_cost).max(1)),
            _ => 0,
        }
    }

    fn processor_holds(&self, t: u64) -> bool {
        let (platform, switch) = (&self.platform, self.platform.change_of_handler().as_nanos());
        let (mut work, mut messages, mut inner, mut block) = (0, 0, 0, 0);
        if platform.best_effort.message_packets > 0 {
            let packets = u64::from(platform.best_effort.message_packets);
            block = switch + self.block(packets, platform.first_packet, platform.packet_cost);
        }
        for job in &self.jobs {
            match t.checked_sub(job.deadline) {
                Some(span) => {
                    let n = span / job.interval + 1;
                    work += n * (job.cost + switch);
                    messages += n;
                    inner += n * job.inner;
                }
                None => block = block.max(switch + job.block),
            }
        }
        let back = if self.without == Without::SwitchesBack { 0 } else { switch * messages.min(inner) };
        let work = work + back + if self.without == Without::Block { 0 } else { block };
        // The least fixed point, or more than t.
        let mut span = work;
        while span <= t && work + self.stolen(span) > span {
            span = work + self.stolen(span);
        }
        span <= t
    }

    /// e_k of each packet, with its L'.
    fn due<'a>(&self, stream: &'a Stream) -> impl Iterator<Item = (u64, u64)> + 'a {
        let (count, spacing) = (stream.packets.len() as u64, self.platform.packet_cost.as_nanos());
        let packets = stream.packets.iter().zip(1..);
        packets.map(move |(&occupancy, k)| (stream.deadline + (count - k) * spacing, occupancy))
    }

    fn link_holds(&self, t: u64) -> bool {
        let best_effort = &self.platform.best_effort;
        let other = best_effort.message_packets > 0;
        let (mut work, mut block) = (0, if other { self.occupancy(best_effort.packet_max) } else { 0 });
        for stream in &self.streams {
            for (due, occupancy) in self.due(stream) {
                match t.checked_sub(due) {
                    Some(span) => work += (span / stream.interval + 1) * occupancy,
                    None => block = block.max(occupancy),
                }
            }
        }
        work + if self.without == Without::LinkBlock { 0 } else { block } <= t
    }

    fn processor_fits(&self) -> bool {
        let instants = |job: &Job| (job.deadline..HORIZON).step_by(job.interval as usize);
        self.jobs.iter().flat_map(instants).all(|t| self.processor_holds(t))
    }

    fn link_fits(&self) -> bool {
        let instants = |(due, interval): (u64, u64)| (due..HORIZON).step_by(interval as usize);
        let dues = |stream| self.due(stream).map(|(due, _)| (due, stream.interval)).collect::<Vec<_>>();
        self.streams.iter().flat_map(dues).flat_map(instants).all(|t| self.link_holds(t))
    }

    /// Adds a channel with the stages that it has.
    fn place(&mut self, channel: &Channel) {
        let (platform, contract) = (self.platform.clone(), &channel.contract);
        let count = packets(contract.max_message(), platform.packet);
        let (first, other) = match channel.role {
            Role::Sends => (platform.first_packet, platform.packet_cost),
            Role::Receives => (platform.receive_first, platform.receive_packet),
        };
        let interval = contract.interval().as_nanos();
        self.jobs.push(Job {
            interval,
            deadline: channel.stages.processor.as_nanos(),
            cost: (first + other * u64::from(count - 1)).as_nanos(),
            inner: u64::from((count - 1) / platform.quantum),
            block: self.block(count.into(), first, other),
        });
        if channel.role == Role::Receives {
            return;
        }
        let last = contract.max_message() - (count - 1) * platform.packet;
        let mut occupancies = vec![self.occupancy(platform.packet); count as usize - 1];
        occupancies.push(self.occupancy(last));
        let deadline = channel.stages.link.as_nanos();
        self.streams.push(Stream { interval, deadline, packets: occupancies });
    }

    /// Adds a channel with the least stages that fit.
    fn add(&mut self, channel: &Channel) -> Option<SendingStages> {
        self.place(channel);
        let number = self.jobs.len() - 1;
        let processor = least(|deadline| {
            self.jobs[number].deadline = deadline;
            self.processor_fits()
        })?;
        self.jobs[number].deadline = processor;
        let processor = Duration::from_nanos(processor);
        if channel.role == Role::Receives {
            return Some(SendingStages { processor, link: Duration::ZERO });
        }
        let number = self.streams.len() - 1;
        let link = least(|deadline| {
            self.streams[number].deadline = deadline;
            self.link_fits()
        })?;
        self.streams[number].deadline = link;
        Some(SendingStages { processor, link: Duration::from_nanos(link) })
    }
}

/// The least deadline that fits, to a nanosecond, if one of half the horizon does.
fn least(mut fits: impl FnMut(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (0, HORIZON / 2);
    if !fits(high) {
        return None;
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

fn twin(platform: &Platform, channels: &[Channel], without: Without) -> Twin {
    let smallest = |channel: &Channel| {
        let (min, max) = (channel.contract.min_message(), channel.contract.max_message());
        let sizes = if without == Without::SmallestPacket { max } else { min }..=max;
        sizes.map(|bytes| (bytes - 1) % platform.packet + 1).min()
    };
    let sent = channels.iter().filter(|channel| channel.role == Role::Sends).filter_map(smallest);
    let best_effort = platform.best_effort;
    let others = (best_effort.message_packets > 0).then_some(best_effort.packet_min);
    let least = sent.chain(others).min().unwrap_or(platform.packet);
    let smallest = platform.link.occupancy(least).as_nanos();
    Twin { platform: platform.clone(), jobs: Vec::new(), streams: Vec::new(), smallest, without }
}

/// The least stages of each channel beside those before it.
pub fn split(platform: &Platform, channels: &[Channel], without: Without) -> Option<Vec<SendingStages>> {
    let mut twin = twin(platform, channels, without);
    channels.iter().map(|channel| twin.add(channel)).collect()
}

/// The least stages of the first channel beside the others with the stages that they have.
pub fn first(platform: &Platform, channels: &[Channel], without: Without) -> Option<SendingStages> {
    let mut twin = twin(platform, channels, without);
    channels[1..].iter().for_each(|channel| twin.place(channel));
    twin.add(&channels[0])
}

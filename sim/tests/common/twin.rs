//! Both tests of admission by brute force, written apart from it: instant by instant, packet by packet, from the formulas.
//!
//! ```text
//! R = K C_d;  E = k (C_csp + R + dearest step);  A = max(E, W + R) + C_l + 1 ns;  m = max(L_min, C_l)
//! block(N) = C^1st + (min(N, P) − 1) C, and at least P C if N > P;  q = ⌊(N − 1)/P⌋
//!
//! split, processor: W(t) = Σ n_i (H_i + C_csp + (q_i + 1) R) + C_csp min(Σ n_i, Σ n_i q_i)
//!                   B(t) = max(W_wake + R, C_csp + block + R of best effort or d_j > t)
//!                   J(s) = Intf(s) + tax(s)
//! tax(s) = C_l min(⌈(s + A)/m⌉ + 1,      b + ⌈(s + A)/sp⌉ + Σ N_i ⌈(s + D_i)/I_i⌉)     executive
//!          or, if less, C_l (⌈(s + A)/L_be⌉ + 2) + Σ ⌈(s + D_i)/I_i⌉ ⌈C_l (L_be − L_i)^+/L_be⌉, L_i its smallest packet
//!          C_l min(⌈s/(L_min + C_l)⌉,    b + ⌈s/sp⌉ + Σ N_i ⌈(s + D_i)/I_i⌉)           inline;  0 offload
//! split, link:      e_ik = d_link,i + (N_i − k) C_p;   W(t) = Σ_ik L_ik (⌊(t − e_ik)/I_i⌋ + 1)^+
//!                   L = max(L_x, C_l), B = C_l + A + largest L_x of all                  executive
//!                   L = C_l + L_x,     B(t) = largest L of best effort or e > t          papers
//! composite:        K_i = max_j [ f(C^1st + g C_csp + (q + 1) R) + (j − 1) f(C) + Σ_{k>j} L_k ]
//!                   B(t) = f(B_cpu(t) + extra) + A' + largest packet + max_i L_i
//! require FIX(W + B, J) ≤ t for all t
//! ```

use laxity_core::admission::Settings;
use laxity_core::admission::answer::Rule;
use laxity_core::contract::{SendingStages, packets};
use laxity_core::limits::MAX_CONTROL_PAYLOAD;
use laxity_core::platform::{MachineModel, Platform};
use laxity_core::units::Duration;
use laxity_sim::tiny::{Role, SmallChannel};

/// How far instants are looked at.
const HORIZON: u64 = 4_000_000;

/// A term that is left out, to see whether a test notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OmittedTerm {
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
    /// In the composite test: those who are due by t, and were served early (premise P3).
    EarlyBlocks,
}

#[derive(Clone, Debug)]
struct Task {
    sends: bool,
    interval: u64,
    /// d_cpu, or D.
    processor: u64,
    /// d_link.
    link: u64,
    first: u64,
    other: u64,
    /// N.
    packets: u64,
    /// L_x of each packet, the first one first.
    occupancies: Vec<u64>,
    /// The least time beyond its transmission that each packet counts.
    spare: u64,
    /// The time by which it may be in advance of its logical arrivals.
    queue: u64,
    /// L_x of its smallest packet, by the twin's reading of the contract.
    smallest: u64,
}

impl Task {
    /// Messages released before `s`, at least one.
    fn begun(&self, s: u64) -> u64 {
        s.div_ceil(self.interval).max(1)
    }

    /// Of messages released from 0 on: those due within `t`, due `deadline` after their release.
    fn due(&self, deadline: u64, t: u64) -> u64 {
        (0..).take_while(|k| deadline + k * self.interval <= t).count() as u64
    }
}

/// A set of channels on a host.
#[derive(Clone)]
pub struct Twin {
    platform: Platform,
    settings: Settings,
    without: OmittedTerm,
    tasks: Vec<Task>,
    /// L_min.
    smallest: u64,
    /// No channel sends.
    silent: bool,
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos()
}

impl Twin {
    /// The channels with the stages that they have.
    pub fn new(platform: &Platform, settings: Settings, channels: &[SmallChannel], without: OmittedTerm) -> Self {
        let last_packet = |channel: &SmallChannel| {
            let (min, max) = (channel.contract.min_message(), channel.contract.max_message());
            let sizes = if without == OmittedTerm::SmallestPacket { max } else { min }..=max;
            sizes.map(|bytes| (bytes - 1) % platform.packet + 1).min()
        };
        let best_effort = platform.best_effort;
        let others = best_effort.message_packets > 0 || !platform.machine.is_papers();
        let sent = channels.iter().filter(|channel| channel.role == Role::Sends).filter_map(last_packet);
        let least = sent.chain(others.then_some(best_effort.packet_min)).min();
        let (silent, smallest) = (least.is_none(), least.map_or(1, |bytes| nanos(platform.link.occupancy(bytes))));
        let tasks = channels.iter().map(|channel| Task {
            smallest: last_packet(channel).map_or(0, |bytes| nanos(platform.link.occupancy(bytes))),
            ..task(platform, settings, channel)
        });
        let tasks = tasks.collect();
        Self { platform: platform.clone(), settings, without, tasks, smallest, silent }
    }

    /// Gives the channel with this number other stages.
    pub fn set(&mut self, number: usize, stages: SendingStages) {
        (self.tasks[number].processor, self.tasks[number].link) = (nanos(stages.processor), nanos(stages.link));
    }

    /// True if all instants up to the horizon hold.
    pub fn holds(&self) -> bool {
        match self.settings.rule {
            Rule::Split | Rule::Levels => self.processor_fits() && self.link_fits(),
            Rule::Composite => self.instants(|task| vec![task.processor]).into_iter().all(|t| self.together_hold(t)),
        }
    }

    fn papers(&self) -> bool {
        self.platform.machine.is_papers()
    }
    fn switch(&self) -> u64 {
        nanos(self.platform.change_of_handler())
    }
    fn link_cost(&self) -> u64 {
        nanos(self.platform.link_cost)
    }
    /// R.
    fn frames(&self) -> u64 {
        if self.papers() { 0 } else { nanos(self.platform.demultiplex) * u64::from(self.platform.receive_batch) }
    }
    /// A.
    fn look_ahead(&self) -> u64 {
        let p = &self.platform;
        let step = p.first_packet.max(p.packet_cost).max(p.receive_first).max(p.receive_packet);
        let gap = u64::from(p.transmit_batch) * (self.switch() + self.frames() + nanos(step));
        if self.papers() { 0 } else { gap.max(nanos(p.wake_up) + self.frames()) + self.link_cost() + 1 }
    }
    /// m.
    fn cycle(&self) -> u64 {
        self.smallest.max(self.link_cost())
    }

    fn block(&self, packets: u64, first: u64, other: u64) -> u64 {
        let quantum = u64::from(self.platform.quantum);
        let start = first + (packets.min(quantum) - 1) * other;
        let inner = packets > quantum && self.without != OmittedTerm::InnerQuantum;
        self.switch() + self.frames() + if inner { start.max(quantum * other) } else { start }
    }

    /// The longest block at t, in which the tasks that `blocks` names take part.
    fn longest_block(&self, blocks: impl Fn(&Task) -> bool) -> u64 {
        let p = &self.platform;
        let wake_up = if self.papers() { 0 } else { nanos(p.wake_up) + self.frames() };
        let packets = u64::from(p.best_effort.message_packets);
        let sent = || self.block(packets, nanos(p.first_packet), nanos(p.packet_cost));
        let received = || self.block(packets, nanos(p.receive_first), nanos(p.receive_packet));
        let best_effort = if packets > 0 { sent().max(received()) } else { 0 };
        let tasks = self.tasks.iter().filter(|task| blocks(task));
        tasks.map(|task| self.block(task.packets, task.first, task.other)).fold(wake_up.max(best_effort), u64::max)
    }

    /// At once only on the processor, but where the adapter interrupts.
    fn interference_at_link(&self, span: u64) -> u64 {
        let interference = &self.platform.interference;
        let all = nanos(interference.within(Duration::from_nanos(span)));
        if self.papers() { all } else { all - nanos(interference.burst) }
    }

    fn interference(&self, span: u64) -> u64 {
        let mut taken = nanos(self.platform.interference.within(Duration::from_nanos(span)));
        if self.papers() {
            taken += span.div_ceil(nanos(self.platform.link.occupancy(1))) * nanos(self.platform.demultiplex);
        }
        taken
    }

    fn tax(&self, span: u64) -> u64 {
        let (p, cost, ahead) = (&self.platform, self.link_cost(), self.look_ahead());
        let by_link = match p.machine {
            MachineModel::PapersOffload => return 0,
            _ if self.silent => return 0,
            _ if self.without == OmittedTerm::Interrupts => return cost,
            MachineModel::PapersInline => span.div_ceil(self.smallest + cost),
            MachineModel::Executive => (span + ahead).div_ceil(self.cycle().max(1)) + 1,
        };
        let messages = |task: &Task| (span + task.processor + task.link + task.queue).div_ceil(task.interval);
        let sent = || self.tasks.iter().filter(|task| task.sends);
        // From the link for packets like best effort's, from the senders for shorter ones.
        let others = p.best_effort.message_packets > 0 || !self.papers();
        let least = nanos(p.link.occupancy(p.best_effort.packet_min));
        let (period, under_way) = if self.papers() { (least + cost, 1) } else { (least.max(1), 2) };
        let extra = |task: &Task| messages(task) * (cost * least.saturating_sub(task.smallest)).div_ceil(period);
        // Those of the last poll, if messages are sent early.
        let is_early = self.settings.send_early && !self.papers();
        let least_sent = sent().map(|task| task.smallest).min().filter(|_| is_early);
        let early = least_sent.map_or(0, |least| ahead.div_ceil(least.max(1)) + 1);
        let of_both = cost * ((span + ahead).div_ceil(period) + under_way + early) + sent().map(extra).sum::<u64>();
        let by_link = if others { (cost * by_link).min(of_both) } else { cost * by_link };
        let starts = match p.best_effort.starts {
            Some(starts) => u64::from(starts.burst) + (span + ahead).div_ceil(nanos(starts.spacing)),
            None if self.papers() && p.best_effort.message_packets == 0 => 0,
            None => return by_link,
        };
        let packets = sent().map(|task| task.packets * messages(task)).sum::<u64>();
        by_link.min(cost * (starts + packets + early))
    }

    fn processor_holds(&self, t: u64) -> bool {
        self.processor_done(t, u64::MAX).is_some()
    }

    fn processor_done(&self, t: u64, begun: u64) -> Option<u64> {
        let (switch, quantum) = (self.switch(), u64::from(self.platform.quantum));
        let (mut work, mut messages, mut inner) = (0, 0, 0);
        for task in &self.tasks {
            let (n, q) = (task.due(task.processor, t).min(task.begun(begun)), (task.packets - 1) / quantum);
            work += n * (task.first + (task.packets - 1) * task.other + switch + (q + 1) * self.frames());
            messages += n;
            inner += n * q;
        }
        work += if self.without == OmittedTerm::SwitchesBack { 0 } else { switch * messages.min(inner) };
        work += if self.without == OmittedTerm::Block { 0 } else { self.longest_block(|task| task.processor > t) };
        finish(work, |span| self.interference(span) + self.tax(span), t)
    }

    /// What a packet with this L_x costs the link.
    fn on_link(&self, occupancy: u64) -> u64 {
        if self.papers() { occupancy + self.link_cost() } else { occupancy.max(self.link_cost()) }
    }

    /// e_k of each packet, with its L_x.
    fn due<'a>(&self, task: &'a Task) -> impl Iterator<Item = (u64, u64)> + 'a {
        let spacing = nanos(self.platform.packet_cost);
        let packets = task.occupancies.iter().zip(1..);
        packets.map(move |(&occupancy, k)| (task.link + (task.packets - k) * spacing, occupancy))
    }

    /// L of the largest packet that is no channel's.
    fn largest_of_others(&self) -> u64 {
        let (link, best_effort) = (&self.platform.link, &self.platform.best_effort);
        match self.papers() {
            true if best_effort.message_packets == 0 => 0,
            true => self.on_link(nanos(link.occupancy(best_effort.packet_max))),
            false => nanos(link.occupancy(best_effort.packet_max.max(MAX_CONTROL_PAYLOAD))),
        }
    }

    fn link_holds(&self, t: u64) -> bool {
        let (mut work, mut block) = (0, self.largest_of_others());
        for task in &self.tasks {
            for (due, occupancy) in self.due(task) {
                work += task.due(due, t) * self.on_link(occupancy);
                if !self.papers() {
                    block = block.max(occupancy);
                } else if due > t {
                    block = block.max(self.on_link(occupancy));
                }
            }
        }
        if !self.papers() {
            block += self.link_cost() + self.look_ahead();
        }
        work += if self.without == OmittedTerm::LinkBlock { 0 } else { block };
        work = work.saturating_sub(self.spare());
        let offload = self.platform.machine == MachineModel::PapersOffload;
        let interference = |span| self.interference_at_link(span);
        finish(work, |span| if offload { 0 } else { interference(span) }, t).is_some()
    }

    /// When all packets are done that are due by t, if they have these deadlines and are enqueued within `jitter`.
    fn link_done(&self, due: &[(u64, u64)], t: u64, begun: u64) -> Option<u64> {
        let mut block = self.largest_of_others();
        let mut work = if self.papers() { 0 } else { self.link_cost() + self.look_ahead() };
        for (task, &(jitter, link)) in self.tasks.iter().zip(due).filter(|(task, _)| task.sends) {
            let moved = Task { link, ..task.clone() };
            let due = self.due(&moved).map(|(due, occupancy)| task.due(due, t) * self.on_link(occupancy)).sum::<u64>();
            let whole = task.occupancies.iter().map(|&occupancy| self.on_link(occupancy)).sum::<u64>();
            work += due.min(task.begun(begun.saturating_add(jitter)) * whole);
            let blocks = |&(due, _): &(u64, u64)| !self.papers() || due > t;
            let largest = self.due(&moved).filter(blocks).map(|(_, occupancy)| occupancy).max().unwrap_or(0);
            block = block.max(if self.papers() && largest > 0 { self.on_link(largest) } else { largest });
        }
        let offload = self.platform.machine == MachineModel::PapersOffload;
        let interference = |span| self.interference_at_link(span);
        let work = (work + block).saturating_sub(self.spare());
        finish(work, |span| if offload { 0 } else { interference(span) }, t)
    }

    /// Who is through last need not wait until the next may start.
    fn spare(&self) -> u64 {
        self.tasks.iter().filter(|task| task.sends).map(|task| task.spare).min().unwrap_or(0)
    }

    /// The worst responses of all channels, as far as instants up to the horizon show, processor and all.
    pub fn responses(&self) -> Vec<(u64, u64)> {
        let together = self.settings.rule == Rule::Composite;
        let latest = |deadline: u64, instants: &[u64], done: &dyn Fn(u64) -> Option<u64>| {
            let late = |t: &u64| i128::from(done(*t).expect("it holds")) - i128::from(*t);
            let worst = instants.iter().filter(|&&t| t >= deadline).map(late).max().expect("its own");
            u64::try_from(i128::from(deadline) + worst).unwrap_or(0)
        };
        let instants = self.instants(|task| vec![task.processor]);
        let on_processor =
            |t: u64| settle(t, |s| if together { self.together_done(t, s) } else { self.processor_done(t, s) });
        let processor: Vec<u64> =
            self.tasks.iter().map(|task| latest(task.processor, &instants, &on_processor)).collect();
        if together {
            return processor.into_iter().map(|worst| (worst, worst)).collect();
        }
        let moved = self.tasks.iter().zip(&processor);
        let moved: Vec<(u64, u64)> =
            moved.map(|(task, &jitter)| (jitter, task.processor + task.link - jitter)).collect();
        let due = |(task, &(_, link)): (&Task, &(u64, u64))| -> Vec<u64> {
            let moved = Task { link, ..task.clone() };
            let dues = self.due(&moved).map(|(due, _)| due).collect::<Vec<_>>();
            dues.into_iter().flat_map(|due| (due..HORIZON).step_by(task_interval(task))).collect()
        };
        let instants: Vec<u64> = self.tasks.iter().zip(&moved).flat_map(due).collect();
        let on_link = |t: u64| settle(t, |s| self.link_done(&moved, t, s));
        let whole = |(task, &(jitter, link)): (&Task, &(u64, u64))| {
            (jitter, jitter + if task.sends { latest(link, &instants, &on_link).min(link) } else { 0 })
        };
        self.tasks.iter().zip(&moved).map(whole).collect()
    }

    fn together_hold(&self, t: u64) -> bool {
        self.together_done(t, u64::MAX).is_some_and(|done| done <= t)
    }

    /// When all is done that is due by t and was released before `begun`, if that is by t at all.
    fn together_done(&self, t: u64, begun: u64) -> Option<u64> {
        let (cost, cycle, ahead) = (self.link_cost(), self.cycle(), self.look_ahead());
        let (numerator, denominator, extra) = match self.platform.machine {
            MachineModel::PapersOffload => (1, 1, 0),
            _ if cost == 0 || self.silent => (1, 1, 0),
            MachineModel::PapersInline => (self.smallest + cost, self.smallest, cost),
            MachineModel::Executive => (cycle, cycle - cost, cost * (ahead.div_ceil(cycle) + 2)),
        };
        if denominator == 0 {
            return None;
        }
        let f = |x: u64| (x * numerator).div_ceil(denominator);
        let quantum = u64::from(self.platform.quantum);
        let inner = |task: &Task| (task.packets - 1) / quantum;
        let switches = if self.tasks.iter().any(|task| inner(task) > 0) { 2 } else { 1 };
        let (mut work, mut largest) = (0, 0);
        let early = self.settings.send_early || self.settings.receive_early;
        let all = early && self.without != OmittedTerm::EarlyBlocks;
        let mut packet = self.largest_of_others();
        for task in &self.tasks {
            let first = task.first + switches * self.switch() + (inner(task) + 1) * self.frames();
            let ways = (0..=task.packets).map(|j| {
                let made = if j > 0 { f(first) + (j - 1) * f(task.other) } else { 0 };
                made + task.occupancies.iter().skip(j as usize).map(|&packet| self.on_link(packet)).sum::<u64>()
            });
            work += task.due(task.processor, t).min(task.begun(begun)) * ways.max().expect("there is one");
            for &occupancy in &task.occupancies {
                largest = largest.max(self.on_link(occupancy));
                if !self.papers() {
                    packet = packet.max(occupancy);
                } else if all || task.processor > t {
                    packet = packet.max(self.on_link(occupancy));
                }
            }
        }
        let block = f(self.longest_block(|task| all || task.processor > t) + extra);
        let ahead = if self.papers() { 0 } else { ahead + cost };
        finish(work + block + packet + largest + ahead, |span| f(self.interference(span)), t)
    }

    fn instants(&self, deadlines: impl Fn(&Task) -> Vec<u64>) -> Vec<u64> {
        let of = |task| {
            let instants = |deadline| (deadline..HORIZON).step_by(task_interval(task));
            deadlines(task).into_iter().flat_map(instants).collect::<Vec<_>>()
        };
        self.tasks.iter().flat_map(of).collect()
    }

    fn processor_fits(&self) -> bool {
        self.instants(|task| vec![task.processor]).into_iter().all(|t| self.processor_holds(t))
    }

    fn link_fits(&self) -> bool {
        self.instants(|task| self.due(task).map(|(due, _)| due).collect()).into_iter().all(|t| self.link_holds(t))
    }

    /// The least stages of the channel with this number under the split rule, the others having what they have, if nothing
    /// depends on how long messages are on their way.
    fn least(&mut self, number: usize) -> Option<SendingStages> {
        self.tasks[number].processor = least(|deadline| {
            self.tasks[number].processor = deadline;
            self.processor_fits()
        })?;
        if self.tasks[number].sends {
            self.tasks[number].link = least(|deadline| {
                self.tasks[number].link = deadline;
                self.link_fits()
            })?;
        }
        let stage = |nanos| Duration::from_nanos(nanos);
        Some(SendingStages { processor: stage(self.tasks[number].processor), link: stage(self.tasks[number].link) })
    }
}

fn task_interval(task: &Task) -> usize {
    usize::try_from(task.interval).expect("an interval that can be")
}

fn task(platform: &Platform, settings: Settings, channel: &SmallChannel) -> Task {
    let contract = &channel.contract;
    let count = packets(contract.max_message(), platform.packet);
    let sends = channel.role == Role::Sends;
    let (first, other) = match sends {
        true => (platform.first_packet, platform.packet_cost),
        false => (platform.receive_first, platform.receive_packet),
    };
    let sizes = (1..=count)
        .map(|k| if k < count { platform.packet } else { contract.max_message() - (count - 1) * platform.packet });
    let link = &platform.link;
    let counts = |bytes| nanos(link.occupancy(bytes)).max(nanos(platform.link_cost));
    let spare = sizes.clone().map(|bytes| counts(bytes) - nanos(link.unspaced().occupancy(bytes)));
    let spare = if platform.machine.is_papers() { 0 } else { spare.min().unwrap_or(0) };
    let occupancies = sizes.map(|bytes| nanos(link.occupancy(bytes))).filter(|_| sends).collect();
    let interval = nanos(contract.interval());
    Task {
        sends,
        interval,
        processor: nanos(channel.stages.processor),
        link: nanos(channel.stages.link),
        first: nanos(first),
        other: nanos(other),
        packets: count.into(),
        occupancies,
        spare,
        queue: if settings.send_early && platform.machine.is_papers() {
            contract.queued_messages() * interval
        } else {
            0
        },
        smallest: 0,
    }
}

/// The least fixed point, if it is at most `t`.
fn finish(work: u64, stolen: impl Fn(u64) -> u64, t: u64) -> Option<u64> {
    let mut span = work;
    while span <= t && work + stolen(span) > span {
        span = work + stolen(span);
    }
    (span <= t).then_some(span)
}

/// The least s at which what began before s is done, if that is by `t`.
fn settle(t: u64, done: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let mut s = 0;
    loop {
        match done(s)? {
            next if next <= s => return Some(s),
            next => s = next,
        }
        if s > t {
            return None;
        }
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

/// The least stages of each channel beside those before it, under the split rule.
pub fn split(platform: &Platform, channels: &[SmallChannel], without: OmittedTerm) -> Option<Vec<SendingStages>> {
    let mut twin = Twin::new(platform, Settings::default(), channels, without);
    let tasks = core::mem::take(&mut twin.tasks);
    let add = |(number, task)| {
        twin.tasks.push(task);
        twin.least(number)
    };
    tasks.into_iter().enumerate().map(add).collect()
}

/// The least stages of the first channel beside the others with the stages that they have, under the split rule.
pub fn first(platform: &Platform, channels: &[SmallChannel], without: OmittedTerm) -> Option<SendingStages> {
    Twin::new(platform, Settings::default(), channels, without).least(0)
}

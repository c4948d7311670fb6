//! The papers' machine [channels §3.1–3.3] in virtual time, for comparison: no host runs it.
//!
//! The adapter interrupts the processor when a transmission is over, and a packet that is enqueued while the link is idle
//! does the same. Link scheduling then runs at interrupt level: it picks a packet, takes C_l, and the transmission starts.
//!
//! - *Inline*: C_l is the processor's time, and a step in progress ends that much later.
//! - *Offload*: the adapter spends C_l, the processor nothing.
//!
//! Either way the link is occupied for C_l + L_x by each packet, and holds one at a time. An input costs C_d at interrupt
//! level. Nothing is polled, and no host wakes up late. The result of a step is there when the step ends. At one instant, the
//! worse order is taken: the interrupt of a transmission that is over comes before the end of a step, and the next handler
//! is chosen before the interrupt for what the step has made. Which packet and which handler that is, the endpoint decides.

use laxity_core::endpoint::{Step, Transmit};
use laxity_core::platform::{LinkModel, MachineModel, Platform};
use laxity_core::receive::TimeLoss;
use laxity_core::units::{Duration, Instant};
use laxity_drive::{Control as _, DeliveryResult};

use crate::{Activity, Gap, Host, HostDriver, SimulatedEnvironment, World};

/// The present work of such a host.
pub(crate) struct PapersState {
    inline: bool,
    /// The handler's step in progress, and when it began; it ends at `busy_until`.
    step: Option<(Step, Instant)>,
    /// Until when the processor is busy with the step, interrupts included.
    busy_until: Instant,
    /// Until when it is busy at interrupt level.
    interrupted_until: Instant,
    link: PapersLink,
}

enum PapersLink {
    Idle,
    /// A packet was picked; its transmission starts at `until`.
    Scheduling {
        until: Instant,
        occupancy: Duration,
        packet: Transmit,
    },
    Transmitting {
        until: Instant,
    },
}

impl PapersState {
    pub(crate) fn new(machine: MachineModel) -> Option<Self> {
        machine.is_papers().then_some(Self {
            inline: machine == MachineModel::PapersInline,
            step: None,
            busy_until: Instant::ZERO,
            interrupted_until: Instant::ZERO,
            link: PapersLink::Idle,
        })
    }

    /// Takes `cost` of the processor at interrupt level from `now` on, or from when the interrupt before it is over; returns
    /// when this one is.
    fn interrupt(&mut self, now: Instant, cost: Duration) -> Instant {
        self.interrupted_until = self.interrupted_until.max(now) + cost;
        self.busy_until = self.busy_until.max(now) + cost;
        self.interrupted_until
    }
}

/// The link's model as the host's endpoint has it: on the papers' machine a packet occupies the link also during C_l.
pub(crate) fn link_model(platform: &Platform) -> LinkModel {
    let setup = if platform.machine.is_papers() { platform.link_cost } else { Duration::ZERO };
    LinkModel { setup: platform.link.setup + setup, ..platform.link }
}

impl Host {
    /// The time at which this host next does something by itself.
    pub(crate) fn next_interrupt_or_step(&self, papers: &PapersState) -> Option<Instant> {
        let processor = match papers.step {
            Some(_) => Some(papers.busy_until),
            None => {
                let timeout = self.endpoint().poll_timeout(self.local());
                timeout.map(|at| self.clock.when(at).max(papers.busy_until))
            }
        };
        let link = match papers.link {
            PapersLink::Idle => self.endpoint().link_timeout(0).map(|at| self.clock.when(at)),
            PapersLink::Scheduling { until, .. } | PapersLink::Transmitting { until } => Some(until),
        };
        let mailbox = self.driver.as_ref().and_then(|driver| driver.mailbox_timeout());
        let mailbox = mailbox.map(|at| self.clock.when(at));
        let gap = self.gaps.front().map(|gap| gap.start);
        let arrival = self.memory.inbox.front().map(|arrived| arrived.at);
        let command = self.agenda.first_key_value().map(|(&(at, _), _)| at);
        let due = [processor, link, mailbox, gap, arrival, command].into_iter().flatten().min()?;
        Some(due.max(self.now))
    }
}

impl World {
    /// All that happens at a host of the papers at `at`.
    pub(crate) fn papers_turn(&mut self, number: usize, at: Instant) {
        let Some(mut papers) = self.hosts[number].papers.take() else { return };
        let Some(mut driver) = self.hosts[number].driver.take() else { return };
        self.hosts[number].now = self.hosts[number].now.max(at);
        self.post(number, at);
        let host = &mut self.hosts[number];
        let orders = !host.is_silent();
        let (now, local) = (host.now, host.local());
        host.take_back();
        let mut worked = orders;
        while let Some(gap) = host.gaps.pop_front_if(|gap| gap.start <= now) {
            let end = papers.interrupt(now, gap.length);
            host.note_suffered(Gap { start: end.before(gap.length), ..gap });
            if let PapersLink::Scheduling { until, .. } = &mut papers.link
                && papers.inline
            {
                *until += gap.length;
            }
            driver.endpoint.note_gap(host.clock.reading(gap.start + gap.length), TimeLoss::by_platform(gap.excess));
            worked = true;
        }
        worked |= self.serve_link(number, &mut papers, now, &mut driver);
        let mut around = SimulatedEnvironment { world: self, number };
        around.obey(&mut driver, local);
        driver.take_messages(local, &mut around);
        while !around.host().memory.rung.is_empty() {
            driver.take_messages(local, &mut around);
        }

        while let Some(arrived) = self.hosts[number].memory.inbox.pop_front_if(|arrived| arrived.at <= now) {
            let cost = self.hosts[number].config.platform.demultiplex;
            let end = papers.interrupt(now, cost);
            self.tell_interrupt(number, end.before(cost), end, Activity::Look);
            self.handle_frame(number, 0, local, arrived, &mut driver.frames, &mut driver.endpoint);
            worked = true;
        }
        if papers.busy_until <= now
            && let Some((Step { channel, kind, switched, spent, .. }, start)) = papers.step.take()
        {
            driver.endpoint.end_step(local);
            self.tell_step(number, start, channel, kind, switched);
            if let Some(spent) = spent {
                self.message_made(number, channel, spent, now);
            }
            worked = true;
        }
        let signals = driver.endpoint.poll_timeout(local).is_some_and(|due| due <= local);
        driver.endpoint.handle_timeout(local);
        let mut around = SimulatedEnvironment { world: self, number };
        worked |= papers.step.is_none() && driver.deliver(local, &mut around) != DeliveryResult::Nothing;
        driver.tell(local, &mut around);

        if papers.step.is_none()
            && papers.busy_until <= now
            && let Some(step) = driver.endpoint.begin_step(local, &mut driver.frames)
        {
            let host = &mut self.hosts[number];
            let cost = host.step_cost(step.kind, step.switched);
            host.counters.busy += cost;
            papers.busy_until = now + cost;
            papers.step = Some((step, now));
            worked = true;
        }
        worked |= self.serve_link(number, &mut papers, now, &mut driver);
        let again = signals && driver.endpoint.poll_timeout(local).is_some_and(|due| due <= local);
        let host = &mut self.hosts[number];
        (host.papers, host.driver) = (Some(papers), Some(driver));
        self.tell_gaps(number);
        self.check_progress(number, worked, again);
    }

    /// The work of the adapter at `now`: the end of a transmission, the pick of the next packet, its start.
    fn serve_link(&mut self, number: usize, papers: &mut PapersState, now: Instant, driver: &mut HostDriver) -> bool {
        let mut worked = false;
        loop {
            let host = &mut self.hosts[number];
            match core::mem::replace(&mut papers.link, PapersLink::Idle) {
                PapersLink::Transmitting { until } if until <= now => {}
                PapersLink::Scheduling { until, occupancy, packet } if until <= now => {
                    papers.link = PapersLink::Transmitting { until: now + occupancy };
                    self.hand_over(number, packet, now + occupancy, &mut driver.frames);
                }
                PapersLink::Idle => {
                    let local = host.clock.reading(now);
                    driver.endpoint.handle_link_ready(local, 0, 1);
                    let Some(packet) = driver.endpoint.poll_transmit(local, 0, &mut driver.frames) else {
                        return worked;
                    };
                    let cost = host.config.platform.link_cost;
                    let until = if papers.inline { papers.interrupt(now, cost) } else { now + cost };
                    host.counters.busy += if papers.inline { cost } else { Duration::ZERO };
                    let occupancy = packet.completes.since(local) - cost;
                    if papers.inline {
                        let channel = self.channel_of(number, &packet);
                        self.tell_interrupt(number, until.before(cost), until, Activity::HandOver { channel });
                    }
                    papers.link = PapersLink::Scheduling { until, occupancy, packet };
                }
                busy => {
                    papers.link = busy;
                    return worked;
                }
            }
            worked = true;
        }
    }
}

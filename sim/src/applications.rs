//! The applications of a host: open, close, submit. They run beside the executive, which takes what they left.

use laxity_core::contract::Overload;
use laxity_core::endpoint::{Destination, SendSetup};
use laxity_core::event::{ChannelId, End, SenderPace};
use laxity_core::platform::LinkModel;
use laxity_core::send::SendConfig;
use laxity_core::units::Instant;

use crate::channel::MAILBOX;
use crate::{
    ChannelHandle, ChannelRecord, HostDriver, PlannedCommand, PostedMessage, Side, SimulatedEnvironment, Source, World,
};

impl World {
    /// Whatever applications want by `at`: messages lie in their mailboxes then, and what is the control thread's waits for it.
    pub(crate) fn post(&mut self, number: usize, at: Instant) {
        while let Some(entry) = self.hosts[number].agenda.first_entry().filter(|entry| entry.key().0 <= at) {
            let ((due, _), command) = entry.remove_entry();
            match command {
                PlannedCommand::Submit { channel, bytes } => {
                    if !self.submit(number, due, channel, bytes) {
                        self.channels[channel].ledger.blocked = Some(command);
                    }
                }
                PlannedCommand::Emit { source, messages } => self.emit(number, due, source, messages),
                PlannedCommand::Order { order, .. } => self.hosts[number].memory.orders.push_back(order),
            }
        }
    }

    /// The application puts a message into the channel's mailbox; false if that is full, and it waits.
    fn submit(&mut self, number: usize, arrival: Instant, channel: usize, bytes: u32) -> bool {
        let ChannelRecord { plan, ledger, .. } = &mut self.channels[channel];
        let Some(key) = ledger.sender.key.filter(|_| ledger.open) else { return true };
        if plan.overload == Overload::Block && ledger.posted.len() >= MAILBOX {
            return false;
        }
        ledger.posted.push_back(PostedMessage { arrival, bytes });
        self.hosts[number].memory.rung.insert(key.index());
        true
    }

    fn emit(&mut self, number: usize, due: Instant, source: usize, messages: u32) {
        let Source { channel: ChannelHandle(channel), until, .. } = self.sources[source].source;
        let ledger = &self.channels[channel].ledger;
        let over = ledger.sender.end.is_some() || ledger.sender.crashed;
        if due >= until || (over && !ledger.reopens) {
            return;
        }
        for done in 0..messages {
            let bytes = self.sources[source].size();
            if !self.submit(number, due, channel, bytes) {
                self.channels[channel].ledger.blocked =
                    Some(PlannedCommand::Emit { source, messages: messages - done });
                return;
            }
        }
        let (pause, messages) = self.sources[source].next(messages);
        self.schedule(number, due + pause, PlannedCommand::Emit { source, messages });
    }
}

impl SimulatedEnvironment<'_> {
    /// A side of a channel that has been over for a while is taken out.
    pub(crate) fn release(&mut self, driver: &mut HostDriver, key: ChannelId) {
        let (channel, side) = self.host().memory.keys[&key];
        let record = &mut self.world.channels[channel];
        let (endpoint, peaks) = (&driver.endpoint, driver.endpoint.queue_peaks(key));
        match side {
            Side::Sender => record.ledger.send = endpoint.send_counters(key).unwrap_or_default(),
            Side::Receiver => record.ledger.receive = endpoint.receive_counters(key).unwrap_or_default(),
            Side::Inward(place) | Side::Onward(place) => {
                let counters = &mut record.hops[place].counters;
                *counters = endpoint.relay_counters(key).unwrap_or(*counters);
            }
        }
        record.side(side).released = true;
        driver.release(key, drop, self);
        self.host().detach(key);
        let at = self.host().now;
        if let (Some(peaks), Side::Sender | Side::Receiver) = (peaks, side) {
            self.world.check_queues(channel, at, side == Side::Sender, [peaks.messages, peaks.packets]);
        }
    }

    pub(crate) fn open(&mut self, driver: &mut HostDriver, now: Instant, channel: usize) {
        let ChannelRecord { plan, ledger, .. } = &self.world.channels[channel];
        let next = self.world.whole_route(channel).nth(1).expect("a route has two ends");
        let peer = self.world.hosts[next].config.address;
        let host = &self.world.hosts[self.number];
        let packet = host.config.platform.packet;
        let config = SendConfig {
            service: plan.service,
            overload: plan.overload,
            priority: plan.priority,
            packet,
            work_conserving: host.config.send_early,
        };
        let destination = Destination { link: 0, peer, name: plan.name };
        // A queue that is longer than it must be shows how much of it is used; early packets would fill any.
        let packets = match &ledger.promise {
            Some(promise) if config.work_conserving => promise.queues[1],
            _ => plan.packet_queue(plan.send_messages, packet),
        };
        let upstream = plan.stages.processor + plan.stages.link;
        let LinkModel { rate, spacing, .. } = host.config.platform.link;
        let pace = SenderPace { rate, ahead: host.config.look_ahead, spacing };
        let outgoing =
            SendSetup::new(destination, config, upstream, plan.lease, plan.send_messages, packets).paced(pace);
        match driver.open(now, outgoing, self) {
            Ok(key) => {
                self.host().attach(key, channel, Side::Sender);
                self.world.channels[channel].ledger.sender.key = Some(key);
            }
            Err((_, refusal)) => self.world.channels[channel].ledger.sender.end = Some(End::Refused(refusal)),
        }
    }
}

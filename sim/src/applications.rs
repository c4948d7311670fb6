//! What applications do at a host: open, close, submit. They run beside the executive, which takes what they left.

use laxity_core::endpoint::{Destination, Outgoing};
use laxity_core::event::End;
use laxity_core::send::{SendConfig, Submitted, Violation};
use laxity_core::units::{Duration, Instant};

use crate::content;
use crate::host::Command;
use crate::observe::{Seen, due};
use crate::source::Feed;
use crate::world::{ChannelHandle, World};

/// How long an application waits before it tries again, where its channel cannot tell.
const TRY_AGAIN: Duration = Duration::from_micros(100);

impl World {
    /// Whatever applications want by `at`: they run beside the executive, which takes what they left.
    pub(crate) fn commands(&mut self, number: usize, at: Instant) -> bool {
        let mut worked = false;
        while let Some(entry) = self.hosts[number].agenda.first_entry().filter(|entry| entry.key().0 <= at) {
            let ((due, _), command) = entry.remove_entry();
            worked = true;
            match command {
                Command::Open(channel) => self.start(number, channel),
                Command::Submit { channel, bytes } => {
                    if let Some(wait) = self.submit(number, due, channel, bytes) {
                        self.schedule(number, at + wait, command);
                    }
                }
                Command::Emit { source, messages } => self.emit(number, at, due, source, messages),
                Command::Restrict(restricted) => self.hosts[number].endpoint.set_restricted(restricted),
                Command::Close { channel, sender } => {
                    let (ledger, host) = (&self.channels[channel], &mut self.hosts[number]);
                    let side = if sender { &ledger.sender } else { &ledger.receiver };
                    if let Some(key) = side.key {
                        host.endpoint.close(host.local(), key);
                    }
                }
                Command::Release { key, channel, sender } => {
                    let (ledger, host) = (&mut self.channels[channel], &mut self.hosts[number]);
                    let peaks = host.endpoint.queue_peaks(key);
                    if sender {
                        ledger.send = host.endpoint.send_counters(key).unwrap_or_default();
                        ledger.sender.released = true;
                    } else {
                        ledger.receive = host.endpoint.receive_counters(key).unwrap_or_default();
                        ledger.receiver.released = true;
                    }
                    host.endpoint.release(key, &mut host.frames, drop);
                    host.keys.remove(&key);
                    if let Some(peaks) = peaks {
                        self.check_queues(channel, at, sender, [peaks.messages, peaks.packets]);
                    }
                }
            }
        }
        worked
    }

    fn start(&mut self, number: usize, channel: usize) {
        let (ledger, plan) = (&self.channels[channel], &self.channels[channel].plan);
        let peer = self.hosts[ledger.to.0].config.address;
        let host = &mut self.hosts[number];
        let packet = host.config.platform.packet;
        let config = SendConfig {
            service: plan.service,
            overload: plan.overload,
            priority: plan.priority,
            packet,
            work_conserving: host.config.send_early,
        };
        let destination = Destination { link: 0, peer, name: plan.name };
        let packets = plan.packet_queue(plan.send_messages, packet);
        let upstream = plan.stages.processor + plan.stages.link;
        let outgoing = Outgoing::new(destination, config, upstream, plan.lease, plan.send_messages, packets);
        match host.endpoint.open(host.local(), outgoing) {
            Ok(key) => {
                host.keys.insert(key, channel);
                self.channels[channel].sender.key = Some(key);
            }
            Err((_, refusal)) => self.channels[channel].sender.end = Some(End::Refused(refusal)),
        }
    }

    /// Submits a message; how long to wait if the channel would block.
    fn submit(&mut self, number: usize, arrival: Instant, channel: usize, bytes: u32) -> Option<Duration> {
        let (host, ledger) = (&mut self.hosts[number], &mut self.channels[channel]);
        let key = ledger.sender.key.filter(|_| ledger.open)?;
        let sequence = host.endpoint.send_counters(key)?.accepted;
        let mut message = host.take_buffer(bytes as usize);
        content::write(channel, sequence, &mut message);
        match host.endpoint.submit(host.local(), key, host.clock.reading(arrival), message) {
            Ok(submitted) => {
                assert_eq!(submitted.sequence, sequence, "messages are numbered as they are accepted");
                let logical_arrival = host.clock.when(submitted.logical_arrival);
                ledger.accepted(&Submitted { logical_arrival, ..submitted }, bytes as usize);
                let deadline = due(logical_arrival, &ledger.plan.service, bytes, host.config.platform.packet);
                let channel = ChannelHandle(channel);
                self.tell(Seen::Submitted { channel, sequence, arrival, logical_arrival, deadline, bytes });
                None
            }
            Err(rejected) => {
                host.give_buffer(rejected.message);
                let wait = match rejected.violation {
                    Violation::Burst { wait } => wait.max(TRY_AGAIN),
                    _ => TRY_AGAIN,
                };
                if rejected.would_block {
                    return Some(wait);
                }
                let (channel, at, violation) = (ChannelHandle(channel), host.now, rejected.violation);
                self.tell(Seen::Refused { channel, at, violation });
                None
            }
        }
    }

    fn emit(&mut self, number: usize, at: Instant, due: Instant, source: usize, messages: u32) {
        let Feed { channel, until, .. } = self.sources[source];
        let ledger = &self.channels[channel.0];
        let over = ledger.sender.end.is_some() || ledger.sender.crashed;
        if due >= until || (over && !ledger.reopens) {
            return;
        }
        for done in 0..messages {
            let bytes = self.sources[source].size();
            if let Some(wait) = self.submit(number, due, channel.0, bytes) {
                return self.schedule(number, at + wait, Command::Emit { source, messages: messages - done });
            }
        }
        let (pause, messages) = self.sources[source].next(messages);
        self.schedule(number, due + pause, Command::Emit { source, messages });
    }
}

//! Two hosts with two clocks, a millisecond apart, and one channel from the one to the other. Once it is set up it takes no memory of its own.

#[path = "host.rs"]
mod host;

use std::collections::VecDeque;

use host::{Host, PACKET, address, receives, sends};
pub(crate) use host::{config, ms};
use laxity_core::contract::{Contract, SendingStages, Service};
use laxity_core::endpoint::{Config, Destination, Endpoint, ReceiveSetup, SendSetup};
use laxity_core::event::{ChannelId, End, Event, Name};
use laxity_core::frames::{FrameId, Frames, MessageBuf};
use laxity_core::receive::{FinalJudgement, ReceiveCounters};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::Control;

/// How far the sender's clock is ahead.
const AHEAD: Duration = Duration::from_secs(5);
/// How long a frame is in transit.
const WAY: Duration = ms(1);
const BYTES: usize = PACKET as usize;
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// A message of one packet every 5 ms, three at once, within 40 ms.
pub(crate) fn guaranteed() -> Service {
    Service::RealTime(Contract::new(BYTES as u64, 1, ms(5), 3, ms(40)).unwrap())
}

/// A frame of the host that it goes to.
struct InTransit {
    due: Instant,
    to: usize,
    frame: FrameId,
    len: usize,
}

/// The end of the channel at one host, as it was told.
pub(crate) struct EndedChannel {
    pub(crate) at: Instant,
    pub(crate) end: End,
    /// What the receiver had counted.
    pub(crate) counters: Option<ReceiveCounters>,
    /// Messages that had been judged.
    pub(crate) judged: usize,
}

pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) judged: Vec<FinalJudgement>,
    /// Whether the receiver asks for judgements.
    pub(crate) judges: bool,
    /// Of the sender and of the receiver.
    pub(crate) ended: [Option<EndedChannel>; 2],
    hosts: [Host; 2],
    channels: [ChannelId; 2],
    wire: VecDeque<InTransit>,
    buffers: Vec<MessageBuf>,
}

fn host(number: u64) -> Host {
    Host::new(Config { best_effort_frames: 32, ..config(number, number.into(), PACKET) })
}

impl Pair {
    /// The channel is open, and for half a second each host has been told the other's time.
    pub(crate) fn new(service: Service) -> Self {
        let mut hosts = [host(1), host(2)];
        let name = Name::new("a").unwrap();
        assert!(hosts[RECEIVER].endpoint.listen(name));
        let now = Instant::from_nanos(1_000_000_000);
        let to = Destination { link: 0, peer: address(RECEIVER as u8), name };
        let outgoing = SendSetup::new(to, sends(service), ms(2), Duration::from_secs(60), 4, 40);
        let channel = hosts[SENDER].endpoint.open(now + AHEAD, outgoing).unwrap();
        let mut pair = Self {
            now,
            judged: Vec::with_capacity(4096),
            judges: true,
            ended: [None, None],
            hosts,
            channels: [channel; 2],
            wire: VecDeque::with_capacity(64),
            buffers: (0..4).map(|_| MessageBuf::with_capacity(BYTES)).collect(),
        };
        pair.run_for(ms(500), |_| true);
        pair
    }

    fn local(&self, host: usize) -> Instant {
        if host == SENDER { self.now + AHEAD } else { self.now }
    }

    pub(crate) fn sender(&mut self) -> &mut Endpoint {
        &mut self.hosts[SENDER].endpoint
    }
    pub(crate) fn receiver(&mut self) -> &mut Endpoint {
        &mut self.hosts[RECEIVER].endpoint
    }
    /// What the sender's and the receiver's clocks read.
    pub(crate) fn readings(&self) -> [Instant; 2] {
        [SENDER, RECEIVER].map(|host| self.local(host))
    }
    /// What the receiver has counted.
    pub(crate) fn counters(&self) -> ReceiveCounters {
        self.hosts[RECEIVER].endpoint.receive_counters(self.channels[RECEIVER]).unwrap()
    }

    /// A message is sent, which arrives with one of the next steps.
    pub(crate) fn submit(&mut self) {
        let now = self.local(SENDER);
        let mut message = self.buffers.pop().unwrap();
        message.set_len(BYTES);
        self.hosts[SENDER].endpoint.submit(now, self.channels[SENDER], now, Duration::ZERO, message).unwrap();
    }

    pub(crate) fn close(&mut self, host: usize) {
        let now = self.local(host);
        self.hosts[host].endpoint.close(now, self.channels[host]);
    }

    /// Control frames arrive that pass this.
    pub(crate) fn run_for(&mut self, span: Duration, mut passes: impl FnMut(&Control<'_>) -> bool) {
        let until = self.now + span;
        while self.now < until {
            self.now += ms(1);
            while let Some(InTransit { to, frame, len, .. }) = self.wire.pop_front_if(|found| found.due <= self.now) {
                let now = self.local(to);
                let Host { endpoint, frames } = &mut self.hosts[to];
                endpoint.handle_frame(now, 0, address(1 - to as u8), frame, len, frames);
            }
            for host in [SENDER, RECEIVER] {
                self.drive(host, &mut passes);
            }
        }
    }

    fn drive(&mut self, host: usize, passes: &mut impl FnMut(&Control<'_>) -> bool) {
        let now = self.local(host);
        let [sender, receiver] = &mut self.hosts;
        let (here, there) = if host == SENDER { (sender, receiver) } else { (receiver, sender) };
        here.endpoint.handle_timeout(now);
        while let Some(step) = here.endpoint.poll_step(now, &mut here.frames) {
            self.buffers.extend(step.spent);
        }
        while let Some((channel, delivered, _)) = here.endpoint.poll_delivery(now) {
            here.endpoint.recycle(channel, delivered.message);
        }
        while self.judges
            && let Some((_, decision)) = here.endpoint.poll_judged(now)
        {
            self.judged.push(decision);
        }
        while let Some(event) = here.endpoint.poll_event() {
            match event {
                Event::Requested(request) => {
                    let incoming = ReceiveSetup::new(&request, receives());
                    self.channels[host] =
                        here.endpoint.accept(now, &request, incoming).map_err(|(_, why)| why).unwrap();
                }
                Event::Accepted { channel, .. } => {
                    here.endpoint.begin(now, channel, SendingStages { processor: ms(10), link: ms(20) });
                }
                Event::Ended { channel, end } => {
                    let counters = here.endpoint.receive_counters(channel);
                    self.ended[host] = Some(EndedChannel { at: self.now, end, counters, judged: self.judged.len() });
                }
                Event::Spaced { .. } | Event::Overflow { .. } => panic!("{event:?}"),
            }
        }
        here.endpoint.handle_link_ready(now, 0, 16);
        while let Some(out) = here.endpoint.poll_transmit(now, 0, &mut here.frames) {
            let bytes = &here.frames.packet(&out.frame)[..out.len];
            if Control::parse(bytes).map_or(true, |(_, control)| passes(&control)) {
                let frame = there.frames.take().unwrap();
                there.frames.packet_mut(&frame)[..out.len].copy_from_slice(bytes);
                self.wire.push_back(InTransit { due: self.now + WAY, to: 1 - host, frame, len: out.len });
            }
            here.frames.free(out.frame);
        }
    }
}

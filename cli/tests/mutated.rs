//! Peers that mean harm and know the protocol: what they say is right, or nearly, or noise. Neither an endpoint nor `laxity send` nor
//! `laxity recv` panics, and their memory stays what it was.
//!
//! `LAXITY_FRAMES` is how many frames each of the three hears, 100,000 if it is not set.

mod common;
#[path = "../../core/tests/common/config.rs"]
mod config;

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use common::text;
use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::clock::{ClockExchange, StampReport, WallReading};
use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::endpoint::{Config, Destination, Endpoint, ReceiveGrant, ReceiveSetup, SendSetup};
use laxity_core::event::{ChannelId, Event, Name};
use laxity_core::figures::Misses;
use laxity_core::frames::{Frames, HeapFrames, MessageBuf};
use laxity_core::send::SendConfig;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{
    Accept, Close, Control, DATA_HEADER_BYTES, DataHeader, Keepalive, MAX_CONTROL_BYTES, MessageCounts, Open, Refuse,
    Status, Versions,
};
use laxity_link::emulated::SplitMix64;

const PACKET: u32 = 1_000;
const LEASE: Duration = Duration::from_millis(2_000);

fn frames_to_send() -> u64 {
    std::env::var("LAXITY_FRAMES").map_or(100_000, |count| count.parse().expect("LAXITY_FRAMES is a number"))
}

/// What a peer knows of a channel.
#[derive(Clone, Copy, Debug, Default)]
struct PeerChannel {
    token: u64,
    channel: u32,
    key: u64,
}

/// Chooses what a peer says.
struct PeerScript {
    random: SplitMix64,
}

impl PeerScript {
    fn new(seed: u64) -> Self {
        Self { random: SplitMix64(seed) }
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.random.next() % bound
    }
    /// A number that is nothing, everything, near one of them, or anything.
    fn number(&mut self) -> u64 {
        let near = self.below(4);
        match self.below(5) {
            0 => near,
            1 => u64::MAX - near,
            2 => (1 << 63) - near,
            3 => 1 << self.below(64),
            _ => self.random.next(),
        }
    }
    fn service(&mut self) -> Service {
        let (size, small) = (1 + self.below(1 << 14), 1 + self.below(8));
        let contract = || {
            let interval = Duration::from_micros(100 << small);
            Contract::new(size, 1, interval, small, Duration::from_millis(100 * small)).unwrap()
        };
        if small < 4 { Service::best_effort(size, small).unwrap() } else { Service::RealTime(contract()) }
    }
    fn counts(&mut self) -> MessageCounts {
        let (delivered, late, lost, dropped) = (self.number(), self.number(), self.number(), self.number());
        let largest = Duration::from_nanos(self.number());
        let misses = Misses { network: if self.below(2) == 0 { 0 } else { self.number() }, ..Misses::default() };
        let clock_error = (self.below(2) == 0).then(|| Duration::from_nanos(self.number()));
        MessageCounts {
            delivered,
            late,
            lost,
            dropped,
            largest,
            undecided: self.below(2),
            misses,
            over_bound: 0,
            clock_error,
        }
    }

    fn exchange(&mut self) -> Option<ClockExchange> {
        let [said, heard_said, heard_at] = [self.number(), self.number(), self.number()].map(Instant::from_nanos);
        let heard = (self.below(2) == 0).then_some(StampReport { said: heard_said, heard_at });
        let [at, ahead, error] = [self.number(), self.number(), self.number()];
        let wall =
            WallReading { at: Instant::from_nanos(at), ahead: ahead.cast_signed(), error: Duration::from_nanos(error) };
        let wall = (self.below(2) == 0).then_some(wall);
        (self.below(2) == 0).then_some(ClockExchange { said, heard, epoch: self.below(8) as u8, wall })
    }

    /// One control frame, right in its form.
    fn control(&mut self, name: &str, known: PeerChannel, frame: &mut Vec<u8>) {
        let PeerChannel { mut token, channel, key } = known;
        let (sent, clock, span) = (self.number(), self.number(), Duration::from_nanos(self.number()));
        let control = match self.below(9) {
            0 => {
                let (traffic, oversize) = (self.service().into(), 1 + self.below(4) as u8);
                Control::Open(Open {
                    name,
                    traffic,
                    packet: 1_000,
                    upstream: span,
                    lease: LEASE,
                    clock,
                    oversize,
                    pace: laxity_core::event::SenderPace::default(),
                })
            }
            1 => Control::Accept(Accept {
                channel,
                key,
                receive: span,
                packet: 1_000,
                lease: LEASE,
                clock,
                spacing: Duration::ZERO,
            }),
            2 => Control::Refuse(Refuse { refusal: Refusal::new(Code::Declined, Stage::Route), detail: "no" }),
            3 | 4 => {
                let exchange = self.exchange();
                Control::Keepalive(Keepalive { channel, key, sent, exchange, ..Keepalive::default() })
            }
            5 => Control::Status(Status { counts: self.counts(), exchange: self.exchange(), ..Status::default() }),
            6 => {
                // Who closes in earnest has nothing more to say.
                if self.below(1_000) > 0 {
                    token ^= 1 << self.below(64);
                }
                Control::Close(Close {
                    channel,
                    key,
                    sent,
                    unsent: 0,
                    reason: sent as u8,
                    reverse: clock % 2 == 0,
                    exchange: self.exchange(),
                })
            }
            7 => Control::Closed(self.counts()),
            _ => Control::Version(Versions { lowest: 1, highest: 1 + self.below(8) as u8 }),
        };
        frame.resize(MAX_CONTROL_BYTES, 0);
        let len = control.write(token, frame).unwrap_or(16);
        frame.truncate(len);
    }

    /// One packet of a message, right in its form.
    fn data(&mut self, known: PeerChannel, frame: &mut Vec<u8>) {
        let message_bytes = 1 + self.below(1 << 14) as u32;
        let index = self.below(u64::from(message_bytes.div_ceil(PACKET))) as u16;
        let payload = (message_bytes - u32::from(index) * PACKET).min(PACKET) as u16;
        let small = self.below(64);
        let header = DataHeader {
            channel: known.channel,
            key: known.key,
            message_bytes,
            sequence: if small < 60 { small } else { self.number() },
            logical_arrival: Instant::from_nanos(self.number()),
            index,
            payload,
            epoch: self.number() as u8 & 7,
            stolen_units: self.number() as _,
            waited_micros: self.number() as _,
            ahead_micros: self.number() as _,
            ..DataHeader::default()
        };
        frame.clear();
        frame.resize(DATA_HEADER_BYTES + usize::from(payload), 7);
        header.write(frame).unwrap();
    }

    /// Leaves a frame alone, or not.
    fn mutate(&mut self, frame: &mut Vec<u8>) {
        let (len, word) = (frame.len() as u64, self.number().to_be_bytes());
        let at = self.below(len) as usize;
        match self.below(9) {
            0..=2 => {}
            3 => frame[at] ^= 1 << self.below(8),
            4 => frame[at] = self.number() as u8,
            5 => frame.truncate(at + 1),
            6 => frame.extend(word.iter().cycle().take(1 + self.below(400) as usize)),
            7 => word.iter().zip(&mut frame[at..]).for_each(|(byte, found)| *found = *byte),
            _ => frame[4.min(len as usize)..].iter_mut().for_each(|byte| *byte = self.random.next() as u8),
        }
    }

    /// What a peer says next.
    fn frame(&mut self, name: &str, known: PeerChannel, frame: &mut Vec<u8>) {
        match self.below(3) {
            0 => self.data(known, frame),
            _ => self.control(name, known, frame),
        }
        self.mutate(frame);
    }
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7))
}

/// An endpoint with channels of both kinds in both directions, opened again as they end.
struct Target {
    endpoint: Endpoint,
    frames: HeapFrames,
    now: Instant,
    /// Of the channels that are open, as the peer knows them.
    known: Vec<PeerChannel>,
    channels: Vec<ChannelId>,
    ended: u64,
}

const REGION: usize = 700;

impl Target {
    fn new() -> Self {
        let mut endpoint = Endpoint::new(Config {
            channels: 32,
            frames: 512,
            best_effort_frames: 64,
            quantum: 4,
            ..config::config(7, 9, PACKET)
        });
        assert!(endpoint.listen(Name::new("camera").unwrap()));
        let (frames, now) = (HeapFrames::new(REGION, 1_600), Instant::from_nanos(1_000_000_000));
        Self { endpoint, frames, now, known: Vec::new(), channels: Vec::new(), ended: 0 }
    }

    fn hear(&mut self, from: SocketAddr, bytes: &[u8]) {
        let frame = self.frames.take().expect("frames are given back");
        let len = bytes.len().min(self.frames.packet_capacity());
        self.frames.packet_mut(&frame)[..len].copy_from_slice(&bytes[..len]);
        self.endpoint.handle_frame(self.now, 0, from, frame, len, &mut self.frames);
    }

    /// Everything that a driver does.
    fn turn(&mut self, liar: &mut PeerScript) {
        self.endpoint.handle_timeout(self.now);
        if self.channels.len() < 16 && liar.below(4) == 0 {
            let (service, name) = (liar.service(), Name::new("there").unwrap());
            let overload = Overload::Drop;
            let config = SendConfig { service, overload, priority: 0, packet: PACKET, work_conserving: true };
            let destination = Destination { link: 0, peer: address(1 + liar.below(3) as u8), name };
            let outgoing = SendSetup::new(destination, config, Duration::from_micros(500), LEASE, 4, 20);
            self.channels.extend(self.endpoint.open(self.now, outgoing));
        }
        if let Some(&channel) = self.channels.get(liar.below(16) as usize) {
            let mut message = MessageBuf::with_capacity(100);
            message.fill(&[1; 100]);
            let _ = self.endpoint.submit(self.now, channel, self.now, Duration::ZERO, message);
        }
        while self.endpoint.poll_step(self.now, &mut self.frames).is_some() {}
        self.endpoint.handle_link_ready(self.now, 0, 64);
        while let Some(out) = self.endpoint.poll_transmit(self.now, 0, &mut self.frames) {
            // What the peer is told it knows.
            match Control::parse(&self.frames.packet(&out.frame)[..out.len]) {
                Ok((token, Control::Accept(Accept { channel, key, .. }))) => {
                    self.known.push(PeerChannel { token, channel, key });
                }
                Ok((token, Control::Open(_))) => self.known.push(PeerChannel { token, ..PeerChannel::default() }),
                _ => {}
            }
            self.frames.free(out.frame);
        }
        let surplus = self.known.len().saturating_sub(24);
        self.known.drain(..surplus);
        while let Some((channel, delivered, _)) = self.endpoint.poll_delivery(self.now) {
            self.endpoint.recycle(channel, delivered.message);
        }
        while self.endpoint.poll_judged(self.now).is_some() {}
        while let Some(event) = self.endpoint.poll_event() {
            self.handle(event, liar);
        }
    }

    fn handle(&mut self, event: Event, liar: &mut PeerScript) {
        match event {
            Event::Requested(request) if liar.below(8) == 0 || request.terms.service.max_message() > 1 << 20 => {
                self.endpoint.refuse(request.id, &Refusal::new(Code::Declined, Stage::Route));
            }
            Event::Requested(request) => {
                let reception = ReceiveGrant {
                    stage: Duration::from_millis(5),
                    input_delay: Duration::ZERO,
                    upstream: Duration::from_millis(5),
                    transit: Duration::from_millis(5),
                    work_conserving: true,
                    priority: 0,
                    messages: 4,
                    packets: 20,
                };
                self.channels.extend(self.endpoint.accept(self.now, &request, ReceiveSetup::new(&request, reception)));
            }
            Event::Accepted { channel, .. } => {
                let stage = Duration::from_millis(5);
                self.endpoint.begin(self.now, channel, SendingStages { processor: stage, link: stage });
            }
            Event::Ended { channel, .. } => self.release(channel),
            Event::Spaced { .. } | Event::Overflow { .. } => {}
        }
    }

    fn release(&mut self, channel: ChannelId) {
        self.ended += 1;
        self.channels.retain(|open| *open != channel);
        assert!(self.endpoint.release(channel, &mut self.frames, drop).is_some());
    }
}

#[test]
fn an_endpoint_stays_whole_whatever_its_peers_say() {
    let (mut target, mut liar, mut frame) = (Target::new(), PeerScript::new(1), Vec::new());
    target.turn(&mut liar);
    for number in 0..frames_to_send() {
        let known = match target.known.len() as u64 {
            0 => PeerChannel::default(),
            known => target.known[liar.below(known) as usize],
        };
        liar.frame("camera", known, &mut frame);
        target.hear(address(1 + liar.below(3) as u8), &frame);
        if liar.below(8) == 0 {
            target.now += Duration::from_micros(liar.below(5_000));
            target.turn(&mut liar);
        }
        if number % 1_000 == 0 {
            let channel = liar.below(32) as u32;
            if let Some(channel) = target.endpoint.key_at(channel) {
                target.endpoint.close(target.now, channel);
            }
        }
    }
    println!("{} channels ended, {:?}", target.ended, target.endpoint.counters);
    assert!(target.ended > frames_to_send() / 10_000 && target.endpoint.counters.control_invalid > 0);
    while let Some(&channel) = target.channels.first() {
        target.release(channel);
    }
    target.turn(&mut liar);
    assert_eq!(target.frames.available(), REGION, "frames are lost");
}

/// A laxity that runs, and what it says.
struct Running {
    child: Child,
    said: std::thread::JoinHandle<Vec<u8>>,
    least: u64,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_laxity"));
        command.args(arguments).args(["--claims", "off"]).env("LAXITY_CALIBRATION", "none");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        let said = std::thread::spawn(move || {
            let mut said = Vec::new();
            let _ = stderr.read_to_end(&mut said);
            said
        });
        Self { child, said, least: u64::MAX }
    }

    /// Looks how large it is; whether it still runs.
    fn runs(&mut self) -> bool {
        if self.child.try_wait().unwrap().is_some() {
            return false;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let of = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
        };
        if let Some(kilobytes) = of("VmRSS:") {
            let kilobytes: u64 = kilobytes;
            self.least = self.least.min(kilobytes);
            // Channels that are granted have buffers, and nothing else may grow.
            assert!(kilobytes < self.least + 64_000, "{kilobytes} KiB, {} at first", self.least);
        }
        true
    }

    /// It has ended, or ends now; by itself, and with a status that says why.
    fn finish(mut self, mut meanwhile: impl FnMut()) -> i32 {
        if self.child.try_wait().unwrap().is_none() {
            let interrupt = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
            assert!(interrupt.success());
        }
        let start = StdInstant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < StdDuration::from_secs(30), "it does not end");
            meanwhile();
            std::thread::sleep(StdDuration::from_millis(1));
        }
        let (status, said) = (self.child.wait().unwrap(), self.said.join().unwrap());
        let said = text(&said);
        assert!(status.signal().is_none() && !said.contains("panicked"), "{status}: {said}");
        let code = status.code().unwrap();
        assert!((0..=7).contains(&code), "{status}: {said}");
        code
    }
}

/// What a peer of a command has heard: channels that it was asked for, or granted.
fn listen(socket: &UdpSocket, known: &mut Vec<PeerChannel>, peer: &mut Option<SocketAddr>) {
    let mut frame = [0; 2_000];
    while let Ok((len, from)) = socket.recv_from(&mut frame) {
        *peer = Some(from);
        match Control::parse(&frame[..len]) {
            Ok((token, Control::Accept(Accept { channel, key, .. }))) => {
                known.push(PeerChannel { token, channel, key })
            }
            Ok((token, Control::Open(_))) if known.iter().all(|known| known.token != token) => {
                known.push(PeerChannel { token, channel: 1, key: 2 });
                let accept = Accept {
                    channel: 1,
                    key: 2,
                    receive: LEASE,
                    packet: 1_000,
                    lease: LEASE,
                    clock: 0,
                    spacing: Duration::ZERO,
                };
                let accept = Accept { receive: Duration::from_millis(1), ..accept };
                let mut answer = [0; MAX_CONTROL_BYTES];
                let len = Control::Accept(accept).write(token, &mut answer).unwrap();
                let _ = socket.send_to(&answer[..len], from);
            }
            _ => {}
        }
    }
    let surplus = known.len().saturating_sub(8);
    known.drain(..surplus);
}

/// Says `count` frames to a command, and starts another one whenever it has ended; how often it was started, and how it ended.
fn talk(seed: u64, mut start: impl FnMut(&UdpSocket) -> (Running, Option<SocketAddr>)) -> Vec<i32> {
    let (mut liar, mut frame, mut said, mut ends) = (PeerScript::new(seed), Vec::new(), 0, Vec::new());
    while said < frames_to_send() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let (mut running, mut peer) = start(&socket);
        let mut known = Vec::new();
        let mut say = |known: &mut Vec<PeerChannel>, peer: &mut Option<SocketAddr>| {
            listen(&socket, known, peer);
            let Some(peer) = *peer else { return 0 };
            for _ in 0..50 {
                let known = known.get(liar.below(8) as usize).copied().unwrap_or_default();
                liar.frame("camera", known, &mut frame);
                let _ = socket.send_to(&frame, peer);
            }
            50
        };
        let begin = said;
        while running.runs() && said < frames_to_send() && said < begin + 40_000 {
            let now = say(&mut known, &mut peer);
            said += now;
            // As fast as it can be heard, or it is not known yet where to.
            std::thread::sleep(StdDuration::from_micros(if now == 0 { 1_000 } else { 300 }));
        }
        ends.push(running.finish(|| _ = say(&mut known, &mut peer)));
    }
    let lost = ends.iter().filter(|&&end| end == 5).count();
    println!("{said} frames in {} runs, of which {lost} lost their peer", ends.len());
    ends
}

#[test]
fn recv_stays_whole_whatever_its_peer_says() {
    let ends = talk(2, |_| {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let bind = format!("127.0.0.1:{port}");
        let running = Running::start(&["recv", "camera", "--bind", &bind]);
        std::thread::sleep(StdDuration::from_millis(200));
        (running, Some(SocketAddr::from(([127, 0, 0, 1], port))))
    });
    assert!(ends.len() < 1_000, "it hardly ran");
}

#[test]
fn send_stays_whole_whatever_its_peer_says() {
    let ends = talk(3, |socket| {
        let to = format!("{}/camera", socket.local_addr().unwrap());
        let contract = ["--max-message", "3000B", "--interval", "5ms", "--burst", "4", "--deadline", "200ms"];
        let mut running = Running::start(&[&["send", to.as_str()], &contract[..]].concat());
        let mut stdin = running.child.stdin.take().unwrap();
        std::thread::spawn(move || {
            let mut message = 2_900_u32.to_be_bytes().to_vec();
            message.resize(2_904, 5);
            while stdin.write_all(&message).is_ok() {
                std::thread::sleep(StdDuration::from_millis(2));
            }
        });
        (running, None)
    });
    assert!(ends.len() < 1_000, "it hardly ran");
}

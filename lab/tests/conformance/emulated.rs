//! The emulated wire, one in each direction, as a link in virtual time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use laxity_core::frames::{FrameId, Frames, HeapFrames};
use laxity_core::platform::LinkModel;
use laxity_core::units::{Duration, Instant, Rate};
use laxity_link::emulated::{EmulatedConfig, EmulatedLink, WireRefusal};
use laxity_link::{Counters, EVENT_CAPACITY, Link, LinkEvent, LinkOver, Received};

use crate::pair::{End, Pair, Setup};

/// The longest packet that the wires carry.
const LONGEST: usize = 1_500;
const TICK: Duration = Duration::from_millis(1);

/// One end of two wires.
pub(crate) struct Emulated {
    now: Rc<Cell<Instant>>,
    address: SocketAddr,
    out: Rc<RefCell<EmulatedLink>>,
    back: Rc<RefCell<EmulatedLink>>,
    buffered: VecDeque<(FrameId, usize, SocketAddr)>,
    batch: usize,
    is_blocked: bool,
    events: VecDeque<LinkEvent>,
    counters: Counters,
}

impl Link for Emulated {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn room(&self) -> usize {
        self.batch - self.buffered.len()
    }

    fn transmit(&mut self, frame: FrameId, len: usize, peer: SocketAddr) {
        assert!(self.room() > 0, "transmit without room");
        self.buffered.push_back((frame, len, peer));
    }

    fn buffered(&self) -> usize {
        self.buffered.len()
    }

    fn wants_writable(&self) -> bool {
        self.is_blocked
    }

    fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    fn counters(&self) -> Counters {
        Counters { receive_truncated: self.back.borrow().counters.dropped_truncated, ..self.counters }
    }
}

impl LinkOver<HeapFrames> for Emulated {
    fn flush(&mut self, frames: &mut HeapFrames) -> io::Result<usize> {
        let (mut wire, mut sent) = (self.out.borrow_mut(), 0);
        self.is_blocked = false;
        while let Some(&(ref frame, len, peer)) = self.buffered.front() {
            let taken = match wire.room(self.now.get()) {
                0 if len <= LONGEST => {
                    self.is_blocked = true;
                    break;
                }
                _ => wire.transmit(self.now.get(), &frames.packet(frame)[..len], self.address, peer),
            };
            match taken {
                Ok(_) => {
                    sent += 1;
                    self.counters.sent_frames += 1;
                    self.counters.sent_bytes += len as u64;
                }
                Err(WireRefusal::TooLarge) => {
                    self.counters.send_dropped += 1;
                    self.counters.send_too_large += 1;
                    let event = LinkEvent::TooLarge { peer, mtu_bytes: LONGEST as u32 };
                    if self.events.contains(&event) {
                    } else if self.events.len() < EVENT_CAPACITY {
                        self.events.push_back(event);
                    } else {
                        self.counters.events_lost += 1;
                    }
                }
                Err(refused) => unreachable!("there was room: {refused}"),
            }
            if let Some((frame, ..)) = self.buffered.pop_front() {
                frames.free(frame);
            }
        }
        Ok(sent)
    }

    fn rewrite(&mut self, frames: &mut HeapFrames, mut write: impl FnMut(&mut [u8])) {
        for (frame, len, _) in &self.buffered {
            write(&mut frames.packet_mut(frame)[..*len]);
        }
    }

    fn receive(
        &mut self,
        limit: usize,
        frames: &mut HeapFrames,
        mut sink: impl FnMut(Received, &mut HeapFrames),
    ) -> io::Result<usize> {
        let mut given = 0;
        while given < limit {
            let Some(frame) = frames.take() else {
                self.counters.receive_starved += 1;
                break;
            };
            // The path ends here; the packet may be for another host.
            let arrival = self.back.borrow_mut().poll_arrival(self.now.get(), frames.packet_mut(&frame));
            match arrival {
                Some((len, peer, to)) if to == self.address => {
                    given += 1;
                    self.counters.received_frames += 1;
                    self.counters.received_bytes += len as u64;
                    sink(Received { frame, len, peer, tos: 0, arrived: None }, frames);
                }
                Some(_) => frames.free(frame),
                None => {
                    frames.free(frame);
                    break;
                }
            }
        }
        Ok(given)
    }
}

pub(crate) struct OverEmulated {
    now: Rc<Cell<Instant>>,
    ends: [End<Emulated, HeapFrames>; 2],
    absent: SocketAddr,
}

impl Pair for OverEmulated {
    type Frames = HeapFrames;
    type Link = Emulated;

    const DEMULTIPLEXES: bool = false;
    const KEEPS_WITHOUT_FRAMES: bool = true;
    const REPORTS_ABSENCE: bool = false;

    fn new(Setup { v6, frames, batch }: Setup) -> Option<Self> {
        let model = LinkModel { rate: Rate::bytes_per_second(20_000_000), ..LinkModel::UNLIMITED };
        let ideal = EmulatedConfig::ideal(model, Duration::from_micros(50));
        // Fewer than a batch, so that it happens that not all is taken.
        let config = EmulatedConfig { queue_packets: batch - 1, capacity: 2_048, packet_bytes: LONGEST, ..ideal };
        let wire = |seed| Rc::new(RefCell::new(EmulatedLink::new(&config, seed).expect("such a wire can be")));
        let (there, back, now) = (wire(1), wire(2), Rc::new(Cell::new(Instant::ZERO)));
        let address = |number: u16| match v6 {
            true => SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, number], 7_000)),
            false => SocketAddr::from(([192, 0, 2, number as u8], 7_000)),
        };
        let end = |number, out: &Rc<_>, back: &Rc<_>| End {
            link: Emulated {
                now: Rc::clone(&now),
                address: address(number),
                out: Rc::clone(out),
                back: Rc::clone(back),
                buffered: VecDeque::with_capacity(batch),
                batch,
                is_blocked: false,
                events: VecDeque::with_capacity(EVENT_CAPACITY),
                counters: Counters::default(),
            },
            frames: HeapFrames::new(frames, 2_000),
        };
        let ends = [end(1, &there, &back), end(2, &back, &there)];
        Some(Self { now, ends, absent: address(9) })
    }

    fn ends(&mut self) -> &mut [End<Emulated, HeapFrames>; 2] {
        &mut self.ends
    }

    fn idle(&mut self, end: usize) -> usize {
        self.ends[end].frames.available()
    }

    fn longest(&self) -> usize {
        LONGEST
    }

    fn absent(&mut self) -> SocketAddr {
        self.absent
    }

    fn pass_time(&mut self) {
        self.now.set(self.now.get() + TICK);
    }
}

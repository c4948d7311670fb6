//! Messages in datagrams, as an application does it by hand: a small header, and what is not complete when the next message
//! begins is lost.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use laxity_core::frames::{Frames, HeapFrames};
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, PollFd, PollFlags, now, readable};
use laxity_link::udp::{Udp, UdpConfig};
use laxity_link::{Link, LinkError, LinkOver};
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Inlet, Outlet, ReceivedCounts, SentCounts};
use crate::error::Error;
use crate::record::ArrivedMessage;
use crate::timing;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = size_of::<Header>();

/// A header, as it lies in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    channel: U32,
    sequence: U64,
    index: U16,
    count: U16,
    /// [`Instant::MAX`] for a message beyond its contract.
    logical_arrival: U64,
}

impl Header {
    /// Writes a datagram; how long it is.
    pub(crate) fn write_before(&self, payload: &[u8], to: &mut [u8]) -> usize {
        self.write_to_prefix(to).expect("room for a header");
        let len = HEADER_BYTES + payload.len();
        to[HEADER_BYTES..len].copy_from_slice(payload);
        len
    }

    /// `None` for a message beyond its contract.
    pub(crate) fn logical_arrival(&self) -> Option<Instant> {
        Some(Instant::from_nanos(self.logical_arrival.get())).filter(|at| *at != Instant::MAX)
    }
}

/// Cuts messages into datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cutter {
    pub(crate) channel: u32,
    /// Of the longest message.
    pub(crate) message_bytes: usize,
    /// Payload bytes of a datagram.
    pub(crate) payload: usize,
}

impl Cutter {
    /// Header and payload of each datagram of `message`, which is number `sequence`.
    pub(crate) fn cut(
        self,
        sequence: u64,
        logical_arrival: Option<Instant>,
        message: &[u8],
    ) -> impl Iterator<Item = (Header, &[u8])> {
        let count = message.len().div_ceil(self.payload) as u16;
        let logical_arrival = logical_arrival.unwrap_or(Instant::MAX).as_nanos().into();
        let (channel, sequence, count) = (self.channel.into(), sequence.into(), count.into());
        let header = move |index: u16| Header { channel, sequence, index: index.into(), count, logical_arrival };
        message.chunks(self.payload).zip((0..).map(header)).map(|(payload, header)| (header, payload))
    }
}

/// Puts the messages of one channel together.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    cutter: Cutter,
    /// As long as the longest.
    message: Vec<u8>,
    /// Bytes of the current one, as far as its last datagram has told.
    len: usize,
    /// Datagrams of the current one.
    count: usize,
    seen: Vec<bool>,
    missing: usize,
    /// The message that is being put together.
    current: Option<u64>,
    /// One more than the largest number that was seen.
    pub(crate) next: u64,
    /// Messages below `next` that are not complete and will not be; the current one is not counted.
    lost: u64,
    /// Datagrams that are not of this channel, or doubled.
    pub(crate) strange: u64,
}

impl Assembler {
    pub(crate) fn new(cutter: Cutter) -> Self {
        Self {
            cutter,
            message: vec![0; cutter.message_bytes],
            seen: vec![false; cutter.message_bytes.div_ceil(cutter.payload)],
            ..Self::default()
        }
    }

    /// Takes a datagram; if it completes a message, that message's header and contents.
    pub(crate) fn take(&mut self, datagram: &[u8]) -> Option<(Header, &[u8])> {
        let (header, payload) = Header::read_from_prefix(datagram).ok()?;
        let (index, sequence) = (usize::from(header.index.get()), header.sequence.get());
        let at = index * self.cutter.payload;
        let (end, count) = (at + payload.len(), usize::from(header.count.get()));
        let full = payload.len() == self.cutter.payload;
        if header.channel.get() != self.cutter.channel
            || index >= count
            || (index + 1 < count && !full)
            || payload.is_empty()
            || count > self.seen.len()
            || end > self.message.len()
        {
            self.strange += 1;
            return None;
        }
        if sequence >= self.next {
            self.lost += u64::from(self.current.is_some()) + (sequence - self.next);
            self.next = sequence.saturating_add(1);
            self.current = Some(sequence);
            self.seen.fill(false);
            self.missing = count;
            self.count = count;
        }
        if self.current != Some(sequence) || self.count != count || self.seen[index] {
            self.strange += 1;
            return None;
        }
        self.seen[index] = true;
        self.missing -= 1;
        self.message[at..end].copy_from_slice(payload);
        if index + 1 == count {
            self.len = end;
        }
        if self.missing > 0 {
            return None;
        }
        self.current = None;
        Some((header, &self.message[..self.len]))
    }

    /// Messages below `next` that never became complete.
    pub(crate) fn lost(&self) -> u64 {
        self.lost + u64::from(self.current.is_some())
    }
}

/// A socket by which datagrams leave.
pub(crate) trait DatagramSink: Send {
    /// Adds a datagram. One that the kernel refuses is lost, as in transit: the receiver misses it.
    fn push(&mut self, header: Header, payload: &[u8]);
    /// All datagrams of a message were added.
    fn flush(&mut self);
}

/// A socket by which datagrams come.
pub(crate) trait DatagramSource: Send {
    /// Waits for datagrams, at most [`LOOK`], and gives each to `sink`.
    fn receive(&mut self, sink: impl FnMut(&[u8])) -> Result<(), Error>;
}

/// The longest time between two looks of a receiver at its stop flag.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// Sends messages in datagrams, paced or at once.
pub(crate) struct Sender<S> {
    pub(crate) outgoing: S,
    pub(crate) cutter: Cutter,
    pub(crate) paced: bool,
    /// Messages so far.
    pub(crate) sent: u64,
}

impl<S: DatagramSink> Outlet for Sender<S> {
    fn send(&mut self, message: &[u8], logical_arrival: Option<Instant>, stop: &AtomicBool) {
        if let Some(at) = logical_arrival.filter(|_| self.paced)
            && !timing::sleep_until(at, stop)
        {
            return;
        }
        for (header, payload) in self.cutter.cut(self.sent, logical_arrival, message) {
            self.outgoing.push(header, payload);
        }
        self.outgoing.flush();
        self.sent += 1;
    }

    fn finish(self: Box<Self>) -> Result<SentCounts, Error> {
        Ok(SentCounts { messages: self.sent, ..SentCounts::default() })
    }
}

/// Puts messages together.
pub(crate) struct Receiver<S> {
    pub(crate) incoming: S,
    pub(crate) assembler: Assembler,
}

impl<S: DatagramSource> Inlet for Receiver<S> {
    fn run(
        self: Box<Self>,
        take: &mut dyn FnMut(ArrivedMessage, &[u8]),
        stop: &AtomicBool,
    ) -> Result<ReceivedCounts, Error> {
        let Self { mut incoming, mut assembler } = *self;
        while !stop.load(Ordering::Relaxed) {
            incoming.receive(|datagram| {
                if let Some((header, message)) = assembler.take(datagram) {
                    take(ArrivedMessage::complete(header.logical_arrival(), now(), message), message);
                }
            })?;
        }
        Ok(ReceivedCounts::Numbers { lost: assembler.lost(), next: assembler.next })
    }
}

/// A sending socket with large buffers that sends many datagrams in one call.
pub(crate) struct SendingSocket {
    pub(crate) link: Udp,
    frames: HeapFrames,
    to: SocketAddr,
}

/// Datagrams in one call: a message of Table 3 and a few.
const BATCH: usize = 64;

impl SendingSocket {
    /// From any port of `from` to `to`, for datagrams of at most `most` bytes.
    pub(crate) fn bind(from: IpAddr, to: SocketAddr, most: usize) -> Result<Self, Error> {
        Ok(Self { link: bind(from)?, frames: HeapFrames::new(BATCH, most), to })
    }

    /// Marks datagrams from here on with the code point `dscp`.
    pub(crate) fn mark(&self, dscp: u8) -> Result<(), Error> {
        sys::mark(self.link.as_fd(), dscp).map_err(Error::system("marking a socket's packets"))
    }
}

impl DatagramSink for SendingSocket {
    fn push(&mut self, header: Header, payload: &[u8]) {
        if self.link.room() == 0 {
            self.flush();
        }
        // As many frames as there is room; without room the socket takes nothing, and the datagram is gone as in a full queue.
        let Some(frame) = self.frames.take() else { return };
        let len = header.write_before(payload, self.frames.packet_mut(&frame));
        self.link.transmit(frame, len, self.to);
    }

    /// Hands everything to the kernel; waits for it for 100 ms at most.
    fn flush(&mut self) {
        // What the kernel refuses for good is counted by the receiver alone, which misses it.
        let _ = self.link.flush(&mut self.frames);
        if self.link.wants_writable() {
            let _ = sys::wait(&mut [PollFd::new(&self.link, PollFlags::OUT)], Some(Duration::from_millis(100)));
            let _ = self.link.flush(&mut self.frames);
        }
        while self.link.poll_event().is_some() {}
    }
}

/// A receiving socket with large buffers that receives many datagrams in one call.
pub(crate) struct ReceivingSocket {
    pub(crate) link: Udp,
    frames: HeapFrames,
}

impl ReceivingSocket {
    /// At any port of `at`, for datagrams of at most `most` bytes.
    pub(crate) fn bind(at: IpAddr, most: usize) -> Result<Self, Error> {
        Ok(Self { link: bind(at)?, frames: HeapFrames::new(BATCH, most) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.link.local_address()
    }
}

impl DatagramSource for ReceivingSocket {
    fn receive(&mut self, mut sink: impl FnMut(&[u8])) -> Result<(), Error> {
        sys::wait(&mut [readable(self.link.as_fd())], Some(LOOK)).map_err(Error::system("waiting"))?;
        let received = self.link.receive(BATCH, &mut self.frames, |received, frames| {
            sink(&frames.packet(&received.frame)[..received.len]);
            frames.free(received.frame);
        });
        while self.link.poll_event().is_some() {}
        received.map(drop).map_err(Error::system("receiving"))
    }
}

fn bind(at: IpAddr) -> Result<Udp, LinkError> {
    Udp::bind(&UdpConfig { batch: BATCH, ..UdpConfig::new((at, 0).into()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagrams(cutter: Cutter, sequence: u64) -> Vec<Vec<u8>> {
        let message: Vec<u8> = (0..cutter.message_bytes).map(|at| (at + sequence as usize) as u8).collect();
        let cut = cutter.cut(sequence, Some(Instant::from_nanos(sequence)), &message);
        cut.map(|(header, payload)| {
            let mut datagram = vec![7; HEADER_BYTES + payload.len()];
            assert_eq!(header.write_before(payload, &mut datagram), datagram.len());
            datagram
        })
        .collect()
    }

    #[test]
    fn what_is_not_complete_when_the_next_begins_is_lost_and_everything_adds_up() {
        let cutter = Cutter { channel: 3, message_bytes: 2500, payload: 1000 };
        let mut assembler = Assembler::new(cutter);
        let mut complete = Vec::new();
        for sequence in [0, 1, 2, 5, 6] {
            let mut each = datagrams(cutter, sequence);
            assert_eq!(each.iter().map(Vec::len).collect::<Vec<_>>(), [1024, 1024, 524]);
            match sequence {
                1 => drop(each.remove(1)),
                2 => each.reverse(),
                6 => each.truncate(2),
                _ => {}
            }
            for datagram in &each {
                complete.extend(assembler.take(datagram).map(|(header, message)| {
                    assert_eq!(message.len(), 2500);
                    assert!(
                        message.iter().zip(header.sequence.get()..).all(|(&byte, expected)| byte == expected as u8)
                    );
                    header.sequence.get()
                }));
            }
        }
        assert_eq!(complete, [0, 2, 5]);
        assert_eq!((assembler.next, assembler.lost()), (7, 4), "1, 3, 4 and 6");
        // A late one, a doubled one, one of another sender, and rubbish.
        let late = datagrams(cutter, 1).remove(1);
        let doubled = datagrams(cutter, 6).remove(0);
        let strange = datagrams(Cutter { channel: 4, ..cutter }, 9).remove(0);
        for datagram in [late, doubled, strange, vec![0; 1024]] {
            assert_eq!(assembler.take(&datagram), None);
        }
        assert_eq!(assembler.take(&[1, 2, 3]), None);
        assert_eq!((assembler.strange, assembler.next, assembler.lost()), (4, 7, 4));
    }

    #[test]
    fn headers_are_read_as_they_were_written() {
        for logical_arrival in [None, Some(Instant::from_nanos(0x0102_0304_0506_0708))] {
            let cutter = Cutter { channel: 1, message_bytes: 2, payload: 1 };
            let (header, _) = cutter.cut(u64::MAX - 1, logical_arrival, &[0; 2]).last().unwrap();
            let mut bytes = [9; HEADER_BYTES + 1];
            header.write_before(&[], &mut bytes);
            assert_eq!(bytes[..16], [0, 0, 0, 1, 255, 255, 255, 255, 255, 255, 255, 254, 0, 1, 0, 2]);
            assert_eq!(Header::read_from_prefix(&bytes), Ok((header, &[9][..])));
            assert_eq!(header.logical_arrival(), logical_arrival);
        }
    }
}

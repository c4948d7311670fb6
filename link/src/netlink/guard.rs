//! The guard of an interface: queueing disciplines that let what other programs send have no more of it than Laxity leaves.
//!
//! ```text
//! root  htb, its default class is "others"
//!  └─ the link: rate = ceil = R
//!      ├─ Laxity   priority 0: rate R − floor − streams, ceil R          ◄── sockets with that class as their SO_PRIORITY
//!      ├─ stream n priority 1: rate and ceil its own, one packet at once ── tbf, as below; what the streams of an interface have together is reserved
//!      └─ others   priority 2: rate floor, ceil R, one packet at once    ── tbf, which cuts packets that the device would have to cut
//! ```
//!
//! htb serves what is within its rate first, by priority, so Laxity, which never sends faster than R − floor, never waits for a packet of
//! others that has not been handed to the device yet; others have the floor in any case, and beyond it only what the link's bucket has left.
//! Their bytes in the device and on the wire are at most [`GuardClasses::foreign_bytes`] at any time, as long as the wire is no slower than R, which
//! is to be less than it is said to be ([`GuardClasses::shaped`]): `docs/guard.md` has the argument. A packet counts as on an Ethernet wire, with a VLAN's tag,
//! and with what the kernel's rounding to nanoseconds may lose.
//!
//! A packet of TCP may be 64 KiB until the device cuts it. htb would let it pass as a whole; tbf (`tbf_segment`) cuts it before it is queued. It is
//! there for that alone, and so fast that it never holds a packet back for longer than 1 µs.
//!
//! Relies on: `sch_htb` and `sch_tbf`; CAP_NET_ADMIN. The kernel lets only processes with CAP_NET_ADMIN or CAP_NET_RAW name a class by SO_PRIORITY.

use std::io;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};

use super::{Netlink, is};

/// The bytes that an Ethernet frame takes of a wire beside those that the kernel counts: a VLAN's tag, checksum, preamble, gap.
const WIRE: u32 = 28;
/// An Ethernet header. A tag may be in the packet, too.
const HEADER: u32 = 18;
/// The same without.
const ETHERNET_HEADER: u32 = 14;
/// The shortest Ethernet frame, without [`WIRE`].
const SHORTEST: u16 = 60;
/// The major number of the discipline at the root, by which it is known: "LX".
const MAJOR: u16 = 0x4c58;
const LINK: u16 = 1;
const LAXITY: u16 = 0x10;
const OTHERS: u16 = 0x20;
const FIRST_STREAM: u16 = 0x100;
/// Of psched: its unit of time.
const TICK_NANOS: u64 = 64;
const NANOS: u64 = 1_000_000_000;
/// Laxity's class holds as much time of its rate, so that it never runs dry.
const AHEAD_NANOS: u64 = NANOS / 10;
/// The most of others' packets that may wait: so much time of the link, within these bytes.
const QUEUE_NANOS: u64 = NANOS / 10;
const QUEUE: std::ops::RangeInclusive<u64> = 64 << 10..=4 << 20;
/// Packets of Laxity that may wait, whatever the interface's own queue is: its link scheduler never lets so many.
const OWN_QUEUE: u32 = 10_000;
/// Of the tbf: as fast as anything.
const UNHURRIED: u64 = 12_500_000_000;

/// The discipline at the root of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootDiscipline {
    /// `htb`, `fq_codel`, `noqueue` and so on.
    pub kind: String,
    /// Its handle; zero if the kernel made it by itself.
    pub handle: u32,
}

/// The rates of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardClasses {
    /// R: the link's rate, bytes a second.
    pub rate: u64,
    /// The rate that others have in any case, bytes a second: more than zero, less than R.
    pub floor: u64,
    /// The largest rate of others, to begin with: R where Laxity's packets pass the discipline, too, and take what they need first; the floor where they pass by it
    /// ([`Netlink::set_ceiling`]).
    pub ceiling: u64,
    /// Bytes of the largest IP packet of the interface.
    pub mtu: u32,
    /// The rates that are reserved for streams.
    pub streams: StreamClasses,
}

/// The rates that the streams of a guarded interface have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamClasses {
    /// Bytes a second. Laxity has as much less.
    pub rate: u64,
    /// Most of them.
    pub most: u32,
}

impl GuardClasses {
    /// The handle of the discipline at the root.
    pub const HANDLE: u32 = (MAJOR as u32) << 16;
    /// The class of Laxity: the SO_PRIORITY of its socket.
    pub const OWN_CLASS: u32 = Self::HANDLE | LAXITY as u32;

    /// The rate to which a link of `nominal` bytes a second is shaped: 0.4 % less. If the wire is slower than its nominal rate, because two
    /// clocks differ, a queue would otherwise grow for as long as others send.
    pub fn shaped(nominal: u64) -> u64 {
        nominal - nominal / 256
    }

    /// Bytes that count for a packet beside its own: [`WIRE`], and those of a nanosecond, as the kernel rounds down to whole ones.
    fn overhead(&self) -> u16 {
        let fastest = self.rate.max(self.ceiling);
        u16::try_from(u64::from(WIRE) + fastest / NANOS + 1).unwrap_or(u16::MAX)
    }

    /// Bytes that count for the largest packet of others.
    fn largest(&self) -> u32 {
        self.mtu.saturating_add(HEADER).saturating_add(self.overhead().into())
    }

    fn others(&self, ceiling: u64) -> HtbClass {
        HtbClass { rate: self.floor, ceiling, burst: self.largest().into(), priority: 2 }
    }

    /// The most bytes of others that may be in the device and on the wire before a packet of Laxity: the bucket of the link, that of their
    /// class and of each stream's, each up to a tick larger than it was asked for, and a packet beyond each.
    pub fn foreign_bytes(&self) -> u64 {
        let buckets = 2 + u64::from(self.streams.most);
        2 * buckets * u64::from(self.largest()) + nanos_of(buckets * TICK_NANOS, self.rate) + 1
    }

    /// The bytes that an Ethernet frame of so many bytes takes of a wire.
    pub(crate) fn on_the_wire(frame: usize) -> u64 {
        (frame as u64).max(SHORTEST.into()) + u64::from(WIRE)
    }

    /// The bytes that count for an IP packet of `packet` bytes.
    pub fn counted_bytes(&self, packet: u32) -> u32 {
        packet.saturating_add(ETHERNET_HEADER).max(SHORTEST.into()).saturating_add(self.overhead().into())
    }

    /// The class of stream `number`: the priority of its packets.
    pub fn stream_class(number: u8) -> u32 {
        Self::HANDLE | u32::from(FIRST_STREAM + u16::from(number))
    }
}

impl Netlink {
    /// The discipline at the root of an interface; `None` if it has none, or one that cannot be read.
    ///
    /// # Errors
    /// As [`interfaces`](Self::interfaces).
    pub fn root_discipline(&mut self, interface: u32) -> io::Result<Option<RootDiscipline>> {
        let found = self.root_disciplines(about(interface)?)?;
        Ok(found.into_iter().find(|(found, _)| *found == interface).map(|(_, found)| found))
    }

    /// The interfaces that have a guard.
    ///
    /// # Errors
    /// As [`interfaces`](Self::interfaces).
    pub fn guarded_interfaces(&mut self) -> io::Result<Vec<u32>> {
        let all = self.root_disciplines(TcMessage::default())?;
        let guarded = all.into_iter().filter(|(_, found)| found.handle == GuardClasses::HANDLE);
        Ok(guarded.map(|(interface, _)| interface).collect())
    }

    fn root_disciplines(&mut self, question: TcMessage) -> io::Result<Vec<(u32, RootDiscipline)>> {
        let answers = self.ask(Message::GetQueueDiscipline(question), NLM_F_DUMP)?;
        let found = answers.into_iter().filter_map(|answer| {
            let Message::NewQueueDiscipline(TcMessage { header, attributes, .. }) = answer else { return None };
            let kind_of = |attribute| if let TcAttribute::Kind(kind) = attribute { Some(kind) } else { None };
            let kind = attributes.into_iter().find_map(kind_of);
            let root = RootDiscipline { kind: kind?, handle: header.handle.into() };
            (header.parent == TcHandle::ROOT).then_some((u32::try_from(header.index).ok()?, root))
        });
        Ok(found.collect())
    }

    /// Guards an interface whose discipline at the root is the kernel's own.
    ///
    /// # Errors
    /// `AlreadyExists` if the interface has a discipline that was set up by any program; `PermissionDenied`; `NotFound` or `Unsupported` where the kernel has no htb
    /// or tbf; no such interface. A guard that was made in part is removed again.
    pub fn guard(&mut self, interface: u32, classes: &GuardClasses) -> io::Result<()> {
        let GuardClasses { rate, floor, ceiling, .. } = *classes;
        let packet = classes.largest();
        // `struct tc_htb_glob`: version, rate2quantum, default class, debug, direct packets.
        let htb = [3, 10, u32::from(OTHERS), 0, 0].map(u32::to_ne_bytes).concat();
        let root = message(interface, (MAJOR, 0), TcHandle::ROOT, "htb", vec![option(HTB_INIT, &htb)])?;
        self.change(Message::NewQueueDiscipline(root), NLM_F_CREATE | NLM_F_EXCL)?;
        let ours = rate - floor - classes.streams.rate;
        let own = HtbClass { rate: ours, ceiling: rate, burst: nanos_of(AHEAD_NANOS, rate), priority: 0 };
        let others = classes.others(ceiling);
        let link = HtbClass { rate, ceiling: rate, burst: packet.into(), priority: 0 };
        let mut made = || -> io::Result<()> {
            // Laxity's packets are paced by its link model, whatever that counts: its own class is not to hold them back.
            let overhead = classes.overhead();
            for (minor, parent, class, overhead) in
                [(LINK, 0, link, overhead), (LAXITY, LINK, own, 0), (OTHERS, LINK, others, overhead)]
            {
                let parent = TcHandle { major: MAJOR, minor: parent };
                let options = class.options(packet, overhead);
                let class = message(interface, (MAJOR, minor), parent, "htb", options)?;
                self.change(Message::NewTrafficClass(class), NLM_F_CREATE | NLM_F_EXCL)?;
            }
            let parent = TcHandle { major: MAJOR, minor: LAXITY };
            let mut leaf = message(interface, (MAJOR + 2, 0), parent, "pfifo", Vec::new())?;
            leaf.attributes.push(TcAttribute::Other(DefaultNla::new(OPTIONS, OWN_QUEUE.to_ne_bytes().to_vec())));
            self.change(Message::NewQueueDiscipline(leaf), NLM_F_CREATE | NLM_F_EXCL)?;
            let leaf = cutting_leaf(interface, OTHERS, MAJOR + 1, classes)?;
            self.change(Message::NewQueueDiscipline(leaf), NLM_F_CREATE | NLM_F_EXCL)
        };
        made().inspect_err(|_| {
            let _ = self.unguard(interface);
        })
    }

    /// Sets the largest rate of others at a guarded interface, bytes a second. A rate below their floor counts as the floor.
    ///
    /// # Errors
    /// `NotFound` or `InvalidInput` where the interface has no guard; `PermissionDenied`.
    pub fn set_ceiling(&mut self, interface: u32, ceiling: u64, classes: &GuardClasses) -> io::Result<()> {
        let parent = TcHandle { major: MAJOR, minor: LINK };
        let others = classes.others(ceiling.max(classes.floor));
        let options = others.options(classes.largest(), classes.overhead());
        let class = message(interface, (MAJOR, OTHERS), parent, "htb", options)?;
        // Without leave to make one: it is changed, or there is none.
        self.change(Message::NewTrafficClass(class), 0)
    }

    /// Gives stream `number` of a guarded interface a class of so many bytes a second, and no more: packets beyond that wait.
    ///
    /// # Errors
    /// `AlreadyExists` if it has one; `NotFound` or `InvalidInput` where the interface has no guard; as [`guard`](Self::guard).
    pub fn add_stream(&mut self, interface: u32, number: u8, rate: u64, classes: &GuardClasses) -> io::Result<()> {
        let (minor, packet) = (FIRST_STREAM + u16::from(number), classes.largest());
        let class = HtbClass { rate, ceiling: rate, burst: packet.into(), priority: 1 };
        let (parent, options) = (TcHandle { major: MAJOR, minor: LINK }, class.options(packet, classes.overhead()));
        let class = message(interface, (MAJOR, minor), parent, "htb", options)?;
        self.change(Message::NewTrafficClass(class), NLM_F_CREATE | NLM_F_EXCL)?;
        let leaf = cutting_leaf(interface, minor, MAJOR + minor, classes);
        leaf.and_then(|leaf| self.change(Message::NewQueueDiscipline(leaf), NLM_F_CREATE | NLM_F_EXCL)).inspect_err(
            |_| {
                let _ = self.remove_stream(interface, number);
            },
        )
    }

    /// Removes the class of stream `number`; packets that wait in it are lost. False if there is none.
    ///
    /// # Errors
    /// As [`unguard`](Self::unguard).
    pub fn remove_stream(&mut self, interface: u32, number: u8) -> io::Result<bool> {
        let (minor, parent) = (FIRST_STREAM + u16::from(number), TcHandle { major: MAJOR, minor: LINK });
        let class = message(interface, (MAJOR, minor), parent, "htb", Vec::new())?;
        self.change_if_there(Message::DelTrafficClass(class))
    }

    /// Removes the guard of an interface: the kernel's own discipline is back. False if there is none: no other discipline is ever removed.
    ///
    /// # Errors
    /// `PermissionDenied`, and the kernel's other refusals.
    pub fn unguard(&mut self, interface: u32) -> io::Result<bool> {
        let root = message(interface, (MAJOR, 0), TcHandle::ROOT, "htb", Vec::new())?;
        self.change_if_there(Message::DelQueueDiscipline(root))
    }

    fn change_if_there(&mut self, change: Message) -> io::Result<bool> {
        match self.change(change, 0) {
            Ok(()) => Ok(true),
            // It has another handle, or none; the interface is gone.
            Err(error) if [libc::EINVAL, libc::ENOENT, libc::ENODEV].iter().any(|code| is(&error, *code)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn about(interface: u32) -> io::Result<TcMessage> {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(interface)
        .ok()
        .filter(|index| *index != 0)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    Ok(message)
}

fn message(
    interface: u32,
    (major, minor): (u16, u16),
    parent: TcHandle,
    kind: &str,
    options: Vec<TcOption>,
) -> io::Result<TcMessage> {
    let mut message = about(interface)?;
    message.header.handle = TcHandle { major, minor };
    message.header.parent = parent;
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    if !options.is_empty() {
        message.attributes.push(TcAttribute::Options(options));
    }
    Ok(message)
}

// Attributes and structures of the kernel's uapi/linux/pkt_sched.h.
/// A `struct tc_fifo_qopt` stands in it as it is.
const OPTIONS: u16 = 2;
const HTB_PARAMETERS: u16 = 1;
const HTB_INIT: u16 = 2;
const HTB_RATE64: u16 = 6;
const HTB_CEIL64: u16 = 7;
const TBF_PARAMETERS: u16 = 1;
const TBF_RATE64: u16 = 4;
const TBF_BURST: u16 = 6;
const ETHERNET: u8 = 1;

fn option(kind: u16, value: &[u8]) -> TcOption {
    TcOption::Other(DefaultNla::new(kind, value.to_vec()))
}

/// The discipline of a class, which cuts what the device would have to cut.
fn cutting_leaf(interface: u32, class: u16, major: u16, classes: &GuardClasses) -> io::Result<TcMessage> {
    let parent = TcHandle { major: MAJOR, minor: class };
    message(interface, (major, 0), parent, "tbf", tbf(classes.rate, classes.mtu + HEADER))
}

/// `struct tc_ratespec`. A rate that does not fit is given beside it in 64 bits.
fn rate_spec(rate: u64, overhead: u16) -> [u8; 12] {
    let mut bytes = [0; 12];
    let shortest = if overhead == 0 { 0 } else { overhead.saturating_add(SHORTEST) };
    bytes[1] = ETHERNET;
    bytes[2..4].copy_from_slice(&overhead.to_ne_bytes());
    bytes[6..8].copy_from_slice(&shortest.to_ne_bytes());
    bytes[8..].copy_from_slice(&u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
    bytes
}

/// Bytes in so many nanoseconds.
fn nanos_of(nanos: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(nanos) / u128::from(NANOS)).unwrap_or(u64::MAX)
}

/// The time that so many bytes take, in psched's unit, rounded up.
fn ticks(bytes: u64, rate: u64) -> u32 {
    let nanos = (u128::from(bytes) * u128::from(NANOS)).div_ceil(u128::from(rate.max(1)));
    u32::try_from(nanos.div_ceil(u128::from(TICK_NANOS))).unwrap_or(u32::MAX)
}

#[derive(Clone, Copy)]
struct HtbClass {
    rate: u64,
    ceiling: u64,
    burst: u64,
    priority: u32,
}

impl HtbClass {
    /// `struct tc_htb_opt`: rate, ceil, buffer, cbuffer, quantum, level, prio.
    fn options(&self, packet: u32, overhead: u16) -> Vec<TcOption> {
        let ceil = self.ceiling;
        let words = [ticks(self.burst, self.rate), ticks(self.burst, ceil), packet, 0, self.priority];
        let mut parameters = [rate_spec(self.rate, overhead), rate_spec(ceil, overhead)].concat();
        parameters.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        let wide = [(HTB_RATE64, self.rate), (HTB_CEIL64, ceil)].into_iter().filter(|(_, rate)| *rate >= 1 << 32);
        let wide = wide.map(|(kind, rate)| option(kind, &rate.to_ne_bytes()));
        [option(HTB_PARAMETERS, &parameters)].into_iter().chain(wide).collect()
    }
}

/// `struct tc_tbf_qopt`: rate, peakrate, limit, buffer, mtu. `largest` is what it does not cut.
fn tbf(link: u64, largest: u32) -> Vec<TcOption> {
    let limit = u32::try_from(nanos_of(QUEUE_NANOS, link).clamp(*QUEUE.start(), *QUEUE.end())).unwrap_or(u32::MAX);
    let mut parameters = [rate_spec(UNHURRIED, 0), [0; 12]].concat();
    let words = [limit, ticks(largest.into(), UNHURRIED), 0];
    parameters.extend(words.iter().flat_map(|word: &u32| word.to_ne_bytes()));
    vec![
        option(TBF_PARAMETERS, &parameters),
        option(TBF_RATE64, &UNHURRIED.to_ne_bytes()),
        option(TBF_BURST, &largest.to_ne_bytes()),
    ]
}

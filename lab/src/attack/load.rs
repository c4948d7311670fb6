//! Load: its rate, its duration, and the addresses to which it may go.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::AtomicBool;

use laxity_core::units::{Duration, NANOS_PER_SECOND};
use laxity_link::netlink::Netlink;
use laxity_link::sys::now;

use crate::error::Error;
use crate::timing;

/// Datagrams that are handed over at once.
pub(crate) const BATCH: usize = 64;
/// No load lasts longer.
pub const LONGEST: Duration = Duration::from_secs(3_600);
/// The time for which a load that is ahead of its pace waits.
const TICK: Duration = Duration::from_micros(500);

/// Rate and duration of load. It ends with the first of the two limits, or when it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Datagrams a second; `None` for as many as go.
    pub per_second: Option<u64>,
    /// Datagrams in all, at most.
    pub packets: u64,
    /// At most [`LONGEST`].
    pub span: Duration,
}

/// The load that was offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfferedLoad {
    /// Datagrams that the kernel took.
    pub packets: u64,
    /// Bytes in them, without the headers of UDP and IP.
    pub bytes: u64,
    /// Datagrams that it refused.
    pub refused: u64,
    /// The time that it took.
    pub elapsed: Duration,
}

/// Calls `send` with how many datagrams it may send, again and again, as `load` says. A load that was held up makes up for a second
/// at most. The time that `send` reports is not looked at.
pub fn offer(
    load: &Load,
    stop: &AtomicBool,
    mut send: impl FnMut(usize) -> Result<OfferedLoad, Error>,
) -> Result<OfferedLoad, Error> {
    if load.span > LONGEST || load.span.is_zero() {
        return Err(Error::setup("how long a load lasts", load.span, "more than nothing, and an hour at most"));
    }
    let (start, mut offered, mut skipped) = (now(), OfferedLoad::default(), 0);
    loop {
        let at = now();
        offered.elapsed = at.since(start);
        let tried = offered.packets + offered.refused;
        if offered.elapsed >= load.span || tried >= load.packets || !timing::sleep_until(at, stop) {
            return Ok(offered);
        }
        let due = load.per_second.map_or(u64::MAX, |rate| {
            let wanted = due_by(rate, offered.elapsed);
            skipped = wanted.saturating_sub(tried).saturating_sub(rate).max(skipped);
            wanted - skipped
        });
        let count = due.saturating_sub(tried).min(load.packets - tried).min(BATCH as u64);
        if count == 0 {
            timing::sleep_until((at + TICK).min(start + load.span), stop);
            continue;
        }
        let burst = send(count as usize)?;
        offered.packets += burst.packets;
        offered.bytes += burst.bytes;
        offered.refused += burst.refused;
    }
}

/// The number that are due after `elapsed` at `rate` a second; the first one at once.
fn due_by(rate: u64, elapsed: Duration) -> u64 {
    let due = u128::from(rate) * u128::from(elapsed.as_nanos()) / u128::from(NANOS_PER_SECOND);
    u64::try_from(due).unwrap_or(u64::MAX).saturating_add(1)
}

/// The addresses to which load may go: loopback, and addresses of a lab that the caller names.
#[derive(Clone, Debug, Default)]
pub struct LoadTargets(Vec<(IpAddr, u8)>);

impl LoadTargets {
    /// Loopback alone.
    pub fn loopback() -> Self {
        Self::default()
    }

    /// Loopback, and these prefixes of a lab. A lab has network namespaces of its own, which nothing leaves: so load goes only from
    /// a thread that is in one, to its neighbours.
    ///
    /// # Errors
    /// A prefix is not one of those that are not routed on the Internet (private, link-local, for documentation or benchmarks), or is
    /// shorter than 16 bits (IPv4) or 48 bits (IPv6).
    pub fn lab(prefixes: &[(IpAddr, u8)]) -> Result<Self, Error> {
        for &(address, bits) in prefixes {
            let (least, most) = if address.is_ipv4() { (16, 32) } else { (48, 128) };
            if !(least..=most).contains(&bits) || !is_nobodys(address) {
                let expected = "private or for documentation, and of 16 bits (IPv6: 48) at least";
                return Err(Error::setup("a lab's prefix", format!("{address}/{bits}"), expected));
            }
        }
        Ok(Self(prefixes.to_vec()))
    }

    /// Tells whether load may go to `to` from this thread.
    ///
    /// # Errors
    /// It may not.
    pub fn check(&self, to: SocketAddr) -> Result<(), Error> {
        let address = to.ip().to_canonical();
        if address.is_loopback() {
            return Ok(());
        }
        let is_named = self.0.iter().any(|&(prefix, bits)| is_within(address, prefix.to_canonical(), bits));
        if is_named && is_next_door(address) {
            return Ok(());
        }
        let problem = "is neither a loopback address nor in a lab that this thread is in: load stays there";
        Err(Error::usage(format!("{to} {problem}")))
    }
}

/// Addresses outside of every lab.
const OUTSIDE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)), IpAddr::V6(Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 1))];

/// True if `to` is next to this thread, in a network that nothing leaves: no route leads outside, and as far as can be told it is not
/// the network that this system began with. Only the kernel's tables are asked.
fn is_next_door(to: IpAddr) -> bool {
    let own = fs::read_link("/proc/thread-self/ns/net").ok();
    let first = fs::read_link("/proc/1/ns/net").ok();
    if own.is_some() && own == first {
        return false;
    }
    let Ok(mut tables) = Netlink::open() else { return false };
    let leads_out = OUTSIDE.into_iter().any(|outside| tables.route(outside, None).is_ok_and(|route| route.is_unicast));
    !leads_out && tables.route(to, None).is_ok_and(|route| route.next_hop.to_canonical() == to)
}

/// Private, link-local, for documentation, for benchmarks.
fn is_nobodys(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_private() || v4.is_link_local() || v4.is_documentation() || matches!(v4.octets(), [198, 18 | 19, ..])
        }
        IpAddr::V6(v6) => {
            v6.is_unique_local() || v6.is_unicast_link_local() || matches!(v6.segments(), [0x2001, 0xdb8, ..])
        }
    }
}

fn is_within(address: IpAddr, prefix: IpAddr, bits: u8) -> bool {
    let same =
        |one: u128, other: u128, width: u32| (one ^ other).checked_shr(width - u32::from(bits)).unwrap_or(0) == 0;
    match (address, prefix) {
        (IpAddr::V4(address), IpAddr::V4(prefix)) => same(address.to_bits().into(), prefix.to_bits().into(), 32),
        (IpAddr::V6(address), IpAddr::V6(prefix)) => same(address.to_bits(), prefix.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 9)
    }

    #[test]
    fn load_goes_nowhere_else() {
        let ground = LoadTargets::loopback();
        for here in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            ground.check(to(here)).unwrap();
        }
        let lab = LoadTargets::lab(&[("10.99.1.0".parse().unwrap(), 24), ("fd00:9::".parse().unwrap(), 64)]).unwrap();
        for outside in ["10.99.2.1", "192.0.2.1", "8.8.8.8", "fd00:a::1", "2001:4860::1", "0.0.0.0", "::"] {
            assert!(lab.check(to(outside)).unwrap_err().to_string().contains("nor in a lab"), "{outside}");
        }
        // There is no lab here, so that not even its own addresses are next to us.
        for inside in ["10.99.1.1", "fd00:9::1", "::ffff:10.99.1.1"] {
            assert!(lab.check(to(inside)).unwrap_err().to_string().contains("nor in a lab"), "{inside}");
        }
        for (prefix, bits) in
            [("10.0.0.0", 8), ("8.8.8.0", 24), ("0.0.0.0", 0), ("fd00::", 8), ("2000::", 64), ("10.1.0.0", 33)]
        {
            assert!(LoadTargets::lab(&[(prefix.parse().unwrap(), bits)]).is_err(), "{prefix}/{bits}");
        }
    }

    #[test]
    fn prefixes_are_compared_by_their_bits() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(is_within(ip("10.99.1.255"), ip("10.99.1.0"), 24) && !is_within(ip("10.99.2.0"), ip("10.99.1.0"), 24));
        assert!(is_within(ip("10.99.1.7"), ip("10.99.1.7"), 32) && !is_within(ip("10.99.1.6"), ip("10.99.1.7"), 32));
        assert!(is_within(ip("fd00::1"), ip("fd00::"), 64) && !is_within(ip("fd00:0:0:1::"), ip("fd00::"), 64));
        assert!(!is_within(ip("fd00::"), ip("10.0.0.0"), 16));
    }

    #[test]
    fn a_load_keeps_its_pace_and_its_limits() {
        let stop = AtomicBool::new(false);
        let all = |count: usize| {
            Ok(OfferedLoad { packets: count as u64, bytes: 10 * count as u64, ..OfferedLoad::default() })
        };
        let span = Duration::from_millis(50);
        let few = offer(&Load { per_second: None, packets: 1_000, span: LONGEST }, &stop, all).unwrap();
        assert_eq!((few.packets, few.bytes), (1_000, 10_000));
        let paced = offer(&Load { per_second: Some(10_000), packets: u64::MAX, span }, &stop, all).unwrap();
        assert!(paced.packets <= due_by(10_000, paced.elapsed), "{paced:?}");
        assert!(paced.elapsed >= span && paced.packets > 0, "{paced:?}");
        let refused = |count: usize| Ok(OfferedLoad { refused: count as u64, ..OfferedLoad::default() });
        let none = offer(&Load { per_second: None, packets: 100, span }, &stop, refused).unwrap();
        assert_eq!((none.packets, none.refused), (0, 100));
        assert!(offer(&Load { per_second: None, packets: 1, span: LONGEST + span }, &stop, all).is_err());
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(offer(&Load { per_second: None, packets: 1_000, span }, &stop, all).unwrap().packets, 0);
    }
}

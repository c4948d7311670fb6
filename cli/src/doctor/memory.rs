//! Memory that stays where it is, and room for packets that wait.

use std::net::{Ipv4Addr, SocketAddr};

use laxity::ledger::value::{HUGE_PAGES, RECEIVE_MOST, SEND_MOST};
use laxity_core::units::Duration;
use laxity_link::udp::{Udp, UdpConfig};
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::{Resource, getrlimit};

use super::{Doctor, Finding, Root, State};

/// What a link asks for, bytes.
pub(super) const WANTED: usize = UdpConfig::DEFAULT_BUFFER_BYTES;

pub(super) fn probe(doctor: &Doctor<'_>) -> Vec<Finding> {
    vec![locked(), huge_pages(&doctor.root), swap(&doctor.root), buffers(&doctor.root, got())]
}

/// Whether an executive may lock its memory, by the same rule as the library: without a limit, or not at all.
fn locked() -> Finding {
    let name = "locked memory";
    let limit = getrlimit(Resource::Memlock).current;
    let told = limit.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{bytes} bytes"));
    let may = limit.is_none() || rustix::process::geteuid().is_root();
    let tried = if may { mlockall(MlockAllFlags::CURRENT) } else { Ok(()) };
    if may && tried.is_ok() {
        let _ = munlockall();
        return Finding::new(name, State::Good, format!("memory can be locked (RLIMIT_MEMLOCK {told})"));
    }
    let why = tried.err().map_or_else(|| "too small".to_owned(), |error| error.to_string());
    Finding::new(name, State::Bad, format!("memory cannot be locked (RLIMIT_MEMLOCK {told}: {why})"))
        .says("not measured: a page that must be fetched from disk takes milliseconds")
        .mended_by(format!(
            "`ulimit -l unlimited`, where the hard limit allows it; else the line `{} - memlock unlimited` in \
             /etc/security/limits.d/laxity.conf, or `LimitMEMLOCK=infinity` for a service",
            super::rights::user()
        ))
}

/// A kernel that joins pages on its own initiative stops their owner meanwhile.
fn huge_pages(root: &Root) -> Finding {
    let name = "transparent huge pages";
    match root.choice(HUGE_PAGES).as_deref() {
        Some("always") => {
            Finding::new(name, State::Poor, "always: the kernel joins any program's pages, also later on")
                .says("not measured: it comes rarely, and stops a thread for up to milliseconds")
                .mended_by("`echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled`")
                .fixable()
        }
        Some(choice) => Finding::new(name, State::Good, format!("{choice}: only for programs that ask")),
        None => Finding::new(name, State::Good, "this kernel has none"),
    }
}

fn swap(root: &Root) -> Finding {
    let name = "swap";
    let areas = root.line("proc/swaps").map_or(0, |text| text.lines().skip(1).filter(|line| !line.is_empty()).count());
    match areas {
        0 => Finding::new(name, State::Good, "none"),
        areas => Finding::new(name, State::Good, format!("{areas} areas: memory that is not locked may end up there"))
            .says("Laxity locks its memory where it may"),
    }
}

/// The buffers that a link gets, receive and send, bytes.
fn got() -> Option<(usize, usize)> {
    let link = Udp::bind(&UdpConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))).ok()?;
    Some((link.receive_buffer_bytes(), link.send_buffer_bytes()))
}

fn buffers(root: &Root, got: Option<(usize, usize)>) -> Finding {
    let name = "socket buffers";
    let limit = |file| root.line(file).unwrap_or_else(|| "unknown".to_owned());
    let found = format!(
        "a link wants {WANTED} bytes each way; net.core.rmem_max is {}, wmem_max {}",
        limit(RECEIVE_MOST),
        limit(SEND_MOST)
    );
    let Some((receive, send)) = got else {
        return Finding::new(name, State::Unknown, found).says("a link could not be opened");
    };
    let found = format!("{found}; it gets {receive} and {send}");
    if receive >= WANTED && send >= WANTED {
        return Finding::new(name, State::Good, found);
    }
    // At 1 Gbit/s in packets of 1400 bytes, for each of which the kernel charges about 2304.
    let span = Duration::from_nanos(receive as u64 / 2304 * 1400 * 8);
    Finding::new(name, State::Poor, found)
        .says(format!("reckoned, not measured: at 1Gbit/s packets are lost after the receiver was away for {span}"))
        .mended_by(format!("`sudo sysctl -w net.core.rmem_max={WANTED} net.core.wmem_max={WANTED}`"))
        .fixable()
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Fake;
    use super::*;

    #[test]
    fn huge_pages_and_swap_are_read() {
        let fake = Fake::new("memory");
        assert_eq!(huge_pages(&fake.root()).state, State::Good);
        fake.file(HUGE_PAGES, "[always] madvise never\n");
        let always = huge_pages(&fake.root());
        assert_eq!((always.state, always.fixable), (State::Poor, true));
        fake.file(HUGE_PAGES, "always [madvise] never\n");
        assert_eq!(huge_pages(&fake.root()).state, State::Good);
        fake.file("proc/swaps", "Filename Type Size\n");
        assert_eq!(swap(&fake.root()).found, "none");
        fake.file("proc/swaps", "Filename Type Size\n/dev/vdb partition 1\n");
        assert!(swap(&fake.root()).found.starts_with("1 areas"));
    }

    #[test]
    fn buffers_are_judged_by_what_a_link_gets() {
        let fake = Fake::new("buffers");
        fake.file(RECEIVE_MOST, "212992\n").file(SEND_MOST, "212992\n");
        let small = buffers(&fake.root(), Some((212_992, WANTED)));
        assert_eq!((small.state, small.cost), (State::Poor, None));
        assert!(small.remedy.unwrap().contains("rmem_max=4194304") && small.fixable);
        assert_eq!(buffers(&fake.root(), Some((WANTED, WANTED))).state, State::Good);
        assert_eq!(buffers(&fake.root(), None).state, State::Unknown);
    }
}

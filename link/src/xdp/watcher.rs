//! The thread beside the data path: it asks the kernel for the routes to the peers, listens to what changes, and reads the kernel's
//! counters. The link never waits for it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use laxity_core::units::{Duration, Instant};
use rustix::net::sockopt::xdp_statistics;

use super::config::OpenedXdp;
use super::headers::{Mac, Template, ip_and_udp};
use super::peers::{DirectPeer, PeerDirectory};
use super::probe::ProbeRequest;
use super::program::{CounterReader, EarlyFigures};
use super::queue::CLASSES;
use crate::netlink::{Interface, NeighbourState, Netlink, NetlinkWatch};
use crate::sys::features::queues;
use crate::sys::{Wake, now, readable, wait};

/// The interval at which counters are read.
const READ_EVERY: Duration = Duration::from_millis(100);
/// The interval at which the tables are looked at though nothing changed: a neighbour that was not confirmed is asked again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The status of the link, for any thread.
pub struct XdpStatus {
    /// The properties of the link as it was opened.
    pub opened: OpenedXdp,
    early: Mutex<EarlyFigures>,
    /// Frames that were lost for want of room, whatever their class.
    pub(super) overflow: AtomicU64,
    /// Those of them that may have been a real-time channel's: other classes have rings of their own.
    pub(super) real_time_overflow: AtomicU64,
    is_gone: AtomicBool,
    /// Receive queues of the interface, as far as they can be counted.
    queues: AtomicU32,
}

impl XdpStatus {
    /// The counters of frames before they came here.
    pub fn early(&self) -> EarlyFigures {
        *self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The receive queues that the interface has now. Packets that arrive on those beyond
    /// [`OpenedXdp::queues`](super::OpenedXdp::queues) go to the kernel, whichever channel they are for.
    pub fn queues(&self) -> u32 {
        self.queues.load(Ordering::Relaxed)
    }

    /// True once the interface has disappeared, or the program was taken from it: the socket remains.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

/// The thread's handle; dropping it ends the thread.
pub(super) struct Watcher {
    pub(super) shared: Arc<WatcherShared>,
    pub(super) status: Arc<XdpStatus>,
    thread: Option<JoinHandle<()>>,
}

pub(super) struct WatcherShared {
    pub(super) directory: PeerDirectory,
    /// Has the thread look for peers that are new, and for questions.
    pub(super) wake: Wake,
    stop: AtomicBool,
    /// The probes that are to be tried.
    questions: Mutex<Vec<ProbeRequest>>,
}

impl WatcherShared {
    /// Has a question pursued in the thread's network namespace.
    pub(super) fn ask(&self, question: ProbeRequest) {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).push(question);
        self.wake.wake();
    }
}

/// The things that it watches.
pub(super) struct WatchTarget {
    /// The interface that has the addresses.
    pub(super) interface: u32,
    pub(super) bind: SocketAddr,
    /// The program, as far as it is read.
    pub(super) observer: CounterReader,
    /// Of each queue, the sockets in the order of the classes.
    pub(super) sockets: Vec<Vec<OwnedFd>>,
    /// Bytes of the longest frame of the region, without the headroom.
    pub(super) largest_frame: usize,
    pub(super) peers: usize,
}

impl Watcher {
    /// Starts the thread. Its view of the kernel is that of the calling thread's network namespace.
    pub(super) fn start(watched: WatchTarget, opened: OpenedXdp) -> io::Result<Self> {
        let (netlink, watch) = (Netlink::open()?, NetlinkWatch::open()?);
        let early = Mutex::new(EarlyFigures::default());
        let queues = AtomicU32::new(opened.queues);
        let (overflow, is_gone) = (AtomicU64::new(0), AtomicBool::new(false));
        let real_time_overflow = AtomicU64::new(0);
        let status = Arc::new(XdpStatus { opened, early, overflow, real_time_overflow, is_gone, queues });
        let directory = PeerDirectory::new(watched.peers);
        let shared = Arc::new(WatcherShared {
            directory,
            wake: Wake::new()?,
            stop: AtomicBool::new(false),
            questions: Mutex::default(),
        });
        let mut work = WatcherThread {
            netlink,
            watch,
            watched,
            shared: Arc::clone(&shared),
            status: Arc::clone(&status),
            rate_from: now(),
            dropped_then: 0,
            failed: false,
        };
        let thread = std::thread::Builder::new().name("laxity-watch".to_owned()).spawn(move || work.run())?;
        Ok(Self { shared, status, thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct WatcherThread {
    netlink: Netlink,
    watch: NetlinkWatch,
    watched: WatchTarget,
    shared: Arc<WatcherShared>,
    status: Arc<XdpStatus>,
    /// Since when frames that are dropped count for the rate, and how many had been then.
    rate_from: Instant,
    dropped_then: u64,
    /// The last question was not answered.
    failed: bool,
}

impl WatcherThread {
    fn run(&mut self) {
        let mut look_at = Instant::ZERO;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let mut fds = [readable(self.shared.wake.as_fd()), readable(self.watch.as_fd())];
            let woken = wait(&mut fds, Some(READ_EVERY)).is_ok() && !fds[0].revents().is_empty();
            if woken {
                self.shared.wake.drain();
            }
            let questions = std::mem::take(&mut *self.shared.questions.lock().unwrap_or_else(PoisonError::into_inner));
            for question in questions {
                question.pursue(Arc::clone(&self.shared), self.status.opened.index);
            }
            // An error of the watch: everything may have changed.
            let changed = self.watch.drain().unwrap_or(true);
            self.read_counters();
            if woken || changed || self.failed || look_at <= now() {
                look_at = now() + LOOK_EVERY;
                // What cannot be asked now is asked again.
                self.failed = self.look().is_err();
            }
        }
    }

    fn read_counters(&mut self) {
        let Ok(mut figures) = self.watched.observer.reasons() else { return };
        for queue in &self.watched.sockets {
            for (class, socket) in queue.iter().enumerate().take(CLASSES.len()) {
                let Ok(counted) = xdp_statistics(socket) else { return };
                figures.full[class] += counted.rx_ring_full.unwrap_or(0);
                // All sockets of a queue tell that of the ring that they share.
                if class == 0 {
                    figures.no_frame += counted.rx_fill_ring_empty_descs.unwrap_or(0);
                }
            }
        }
        self.status.overflow.store(figures.full.iter().sum::<u64>() + figures.no_frame, Ordering::Relaxed);
        self.status.real_time_overflow.store(figures.full[0] + figures.no_frame, Ordering::Relaxed);
        let time = now();
        let mut published = self.status.early.lock().unwrap_or_else(PoisonError::into_inner);
        figures.most_dropped_per_second = published.most_dropped_per_second;
        let since = time.since(self.rate_from);
        // A netlink message may have woken us a moment after the last look: that is no span to compute a rate from.
        if since >= READ_EVERY {
            let all = figures.dropped.all();
            let dropped = all - std::mem::replace(&mut self.dropped_then, all);
            self.rate_from = time;
            let rate = u128::from(dropped) * 1_000_000_000 / u128::from(since.as_nanos());
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            figures.most_dropped_per_second = figures.most_dropped_per_second.max(rate);
        }
        *published = figures;
    }

    /// Looks up every peer anew.
    fn look(&mut self) -> io::Result<()> {
        let below = self.netlink.interface_by_index(self.status.opened.index)?;
        if below.as_ref().is_none_or(|below| below.program.is_none()) {
            self.status.is_gone.store(true, Ordering::Relaxed);
        }
        if let Some(Ok((queues, _))) = below.map(|below| queues(&below.name)) {
            self.status.queues.store(queues, Ordering::Relaxed);
        }
        let own = self.netlink.interface_by_index(self.watched.interface)?.filter(|own| own.runs);
        let mut found = Vec::new();
        for peer in self.shared.directory.peers() {
            let direct = own.as_ref().map(|own| self.direct(own, peer)).transpose()?.flatten();
            found.push((peer, direct));
        }
        self.shared.directory.publish(&found);
        Ok(())
    }

    /// The direct path to `peer`; `None` if its route leads elsewhere, or its neighbour is not known yet: the kernel looks for
    /// the neighbour once a packet is sent through it.
    fn direct(&mut self, own: &Interface, peer: SocketAddr) -> io::Result<Option<DirectPeer>> {
        let from = Some(self.watched.bind.ip()).filter(|ip| !ip.is_unspecified());
        if from.is_some_and(|from| !own.addresses.iter().any(|(ip, _)| *ip == from)) {
            return Ok(None);
        }
        if from.is_some_and(|from| from.is_ipv4() != peer.is_ipv4()) {
            return Ok(None);
        }
        // No route is an answer, too.
        let Ok(route) = self.netlink.route(peer.ip(), from) else { return Ok(None) };
        if route.interface != own.index || route.is_local || !route.is_unicast {
            return Ok(None);
        }
        let Some(source) = from.or(route.source) else { return Ok(None) };
        let Some(neighbour) = self.netlink.neighbour(own.index, route.next_hop)? else { return Ok(None) };
        if neighbour.state == NeighbourState::Stale {
            // Packets that the kernel does not see confirm nothing.
            self.netlink.refresh_neighbour(own.index, route.next_hop)?;
        }
        let Some(mac) = neighbour.usable_mac() else { return Ok(None) };
        let mtu = route.mtu.map_or(own.mtu, |mtu| mtu.min(own.mtu)) as usize;
        Ok(self.to(own.mac, source, (mac, peer), mtu))
    }

    fn to(&self, own: Mac, source: IpAddr, to: (Mac, SocketAddr), mtu: usize) -> Option<DirectPeer> {
        let source = SocketAddr::new(source, self.watched.bind.port());
        let template = Template::new((own, source), to, self.status.opened.vlan, 0)?;
        let most =
            mtu.checked_sub(ip_and_udp(source.ip()))?.min(self.watched.largest_frame.checked_sub(template.len())?);
        Some(DirectPeer { template, most })
    }
}

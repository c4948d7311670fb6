//! Tests whether packets arrive that the program sends back to where they came from: a device may take such frames and drop them. A virtual pair does
//! so as long as its other end has no program.
//!
//! It is tested by an attempt: the peer is asked for an echo, and the program turns its answer into another such request and sends that back
//! (`probe.bpf.h`). Only the answer to that one, which the kernel here gets, is evidence.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as StdDuration;

use laxity_core::units::Duration;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use super::handler::{HandlerError, Handlers};
use super::headers::Echo;
use super::watcher::WatcherShared;
use crate::sys::{done, now, readable, wait};

/// The number of times that the peer is asked, and the longest time for each answer.
const ATTEMPTS: u32 = 5;
const ANSWER_WITHIN: Duration = Duration::from_millis(200);
/// The longest time for which a path to the peer is looked for, and for all of the test.
const PATIENCE: StdDuration = StdDuration::from_secs(5);

/// Tests for a link, from any thread, whether frames that its program sends back arrive.
#[derive(Clone)]
pub struct Prober {
    pub(super) shared: Arc<WatcherShared>,
    pub(super) handlers: Arc<Handlers>,
}

/// The test that the watching thread is asked to make: it is in the network namespace of the interface.
pub(super) struct ProbeRequest {
    peer: SocketAddr,
    handlers: Arc<Handlers>,
    answer: SyncSender<Result<(), HandlerError>>,
}

impl Prober {
    /// Tests whether they arrive at `peer`. Takes some milliseconds; up to seconds if they do not.
    ///
    /// # Errors
    /// [`HandlerError::NoWayBack`]: no way to the peer is known, or nothing came back.
    pub fn probe(&self, peer: SocketAddr) -> Result<(), HandlerError> {
        let (answer, answered) = sync_channel(1);
        self.shared.ask(ProbeRequest { peer, handlers: Arc::clone(&self.handlers), answer });
        let answer = answered.recv_timeout(PATIENCE + StdDuration::from_secs(2));
        answer.unwrap_or_else(|_| Err(HandlerError::NoWayBack { peer, why: "nothing could be tried".to_owned() }))
    }
}

impl ProbeRequest {
    /// Tries it, in a thread of its own.
    pub(super) fn pursue(self, shared: Arc<WatcherShared>, interface: u32) {
        let Self { peer, handlers, answer } = self;
        let tried = move || {
            let result = try_out(&shared, &handlers, interface, peer);
            let _ = answer.send(result);
        };
        // If there is no thread, the one that asked hears that nothing could be tried.
        let _ = std::thread::Builder::new().name("laxity-probe".to_owned()).spawn(tried);
    }
}

/// One at a time: there is one place for what is to be turned.
static TRYING: Mutex<()> = Mutex::new(());

fn try_out(shared: &WatcherShared, handlers: &Handlers, interface: u32, peer: SocketAddr) -> Result<(), HandlerError> {
    let failed = |why: &str| HandlerError::NoWayBack { peer, why: why.to_owned() };
    let _one = TRYING.lock().unwrap_or_else(PoisonError::into_inner);
    let begin = std::time::Instant::now();
    let template = loop {
        if let Some(direct) = shared.directory.direct(peer) {
            break direct.template;
        }
        if begin.elapsed() > PATIENCE / 2 {
            return Err(failed("no way to it is known on the interface"));
        }
        shared.wake.wake();
        wait(&mut [], Some(Duration::from_millis(20))).map_err(|source| failed(&source.to_string()))?;
    };
    let kernel = |source: io::Error| failed(&format!("it could not be tried: {source}"));
    let socket = listen(interface).map_err(kernel)?;
    // Numbers that no other program is likely to have at this moment.
    let first = (now().as_nanos() >> 10) as u16 | 1;
    let mut is_turned = false;
    for attempt in 0..ATTEMPTS {
        let number = first.wrapping_add(2 * attempt as u16);
        let echo = Echo::new(&template, number);
        handlers.turn_back(Some(number));
        let heard =
            send(&socket, &echo.frame, SendFlags::empty()).map_err(io::Error::from).and_then(|_| hears(&socket, &echo));
        let turned = handlers.has_turned();
        is_turned |= turned;
        handlers.turn_back(None);
        if heard.map_err(kernel)? && turned {
            return Ok(());
        }
    }
    Err(failed(match is_turned {
        true => {
            "frames that a program sends back do not arrive there; of a virtual pair, the other end takes them only with a program attached: let \
             that host be on the fast path, too"
        }
        false => {
            "it does not answer echo requests, so that it cannot be tried whether frames that are sent back arrive"
        }
    }))
}

/// The frames that arrive on the interface, as the kernel's protocols get it.
fn listen(interface: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // No protocol: nothing arrives before it is bound.
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the address of a packet socket, of its full length, which is only read.
    let bound = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    };
    done(bound).map(|()| socket)
}

/// True if the answer comes in time.
fn hears(socket: &OwnedFd, echo: &Echo) -> io::Result<bool> {
    let until = now() + ANSWER_WITHIN;
    let mut frame = [0; 256];
    loop {
        let left = until.since(now());
        if left.is_zero() || wait(&mut [readable(socket.as_fd())], Some(left))? == 0 {
            return Ok(false);
        }
        match recv(socket, &mut frame, RecvFlags::DONTWAIT) {
            Ok((bytes, _)) if echo.is_answered_by(&frame[..bytes.min(256)]) => return Ok(true),
            Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

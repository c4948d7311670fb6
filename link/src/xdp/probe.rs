//! Whether what the program sends back where it came from arrives: a device may take such frames and drop them. A virtual pair does
//! so as long as nothing at its other end makes it look at frames one by one: a program, or `generic receive offload`.
//!
//! It is tried: the kernel is asked who has the peer's address, by a frame that a program has sent (XDP_TX), and the peer's kernel answers as
//! it answers any neighbour. No evidence but that answer counts.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration as StdDuration;

use laxity_core::units::Duration;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with};

use super::handler::HandlerError;
use super::headers::Asking;
use super::program::send_back;
use super::watcher::Shared;
use crate::sys::{Interest, now, wait};

/// How often the peer is asked, and how long each answer may take.
const ATTEMPTS: u32 = 5;
const ANSWER_WITHIN: Duration = Duration::from_millis(200);
/// How long a way to the peer may be looked for, and all of it takes at the most.
const PATIENCE: StdDuration = StdDuration::from_secs(5);

/// Asks a link whether frames that its program sends back arrive, from any thread.
#[derive(Clone, Debug)]
pub struct Prober {
    pub(super) shared: Arc<Shared>,
}

/// What the watching thread is asked to have tried: it is in the network namespace of the interface.
#[derive(Debug)]
pub(super) struct Question {
    peer: SocketAddr,
    answer: SyncSender<Result<(), HandlerError>>,
}

impl Prober {
    /// Whether they arrive at `peer`. Takes some milliseconds; up to seconds if they do not.
    ///
    /// # Errors
    /// [`HandlerError::NoWayBack`]: no way to the peer is known, or nothing came back.
    pub fn probe(&self, peer: SocketAddr) -> Result<(), HandlerError> {
        let (answer, answered) = sync_channel(1);
        self.shared.ask(Question { peer, answer });
        match answered.recv_timeout(PATIENCE + StdDuration::from_secs(2)) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(HandlerError::NoWayBack { peer, why: "nothing could be tried".to_owned() })
            }
        }
    }
}

impl Question {
    /// Tries it, in a thread of its own.
    pub(super) fn pursue(self, shared: Arc<Shared>, interface: u32) {
        let Self { peer, answer } = self;
        let tried = move || {
            let result = try_out(&shared, interface, peer);
            let _ = answer.send(result);
        };
        // If there is no thread, whoever asked hears that nothing could be tried.
        let _ = std::thread::Builder::new().name("laxity-probe".to_owned()).spawn(tried);
    }
}

fn try_out(shared: &Shared, interface: u32, peer: SocketAddr) -> Result<(), HandlerError> {
    let failed = |why: &str| HandlerError::NoWayBack { peer, why: why.to_owned() };
    let begin = std::time::Instant::now();
    let template = loop {
        if let Some(template) = shared.template(peer) {
            break template;
        }
        if begin.elapsed() > PATIENCE / 2 {
            return Err(failed("no way to it is known on the interface"));
        }
        shared.look();
        wait(&[], Some(Duration::from_millis(20))).map_err(|source| failed(&source.to_string()))?;
    };
    let kernel = |source: io::Error| failed(&format!("it could not be tried: {source}"));
    let listening = listen(interface).map_err(kernel)?;
    let asking = Asking::new(&template);
    for _ in 0..ATTEMPTS {
        send_back(interface, &asking.frame).map_err(kernel)?;
        if hears(&listening, &asking).map_err(kernel)? {
            return Ok(());
        }
    }
    Err(failed(
        "frames that a program sends back do not arrive there: of a virtual pair, the other end takes them if it has a program attached, or \
         generic receive offload (`ethtool -K DEV gro on`)",
    ))
}

/// What arrives on the interface, as the kernel's protocols get it.
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
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

/// Whether the answer comes in time.
fn hears(socket: &OwnedFd, asking: &Asking) -> io::Result<bool> {
    let until = now() + ANSWER_WITHIN;
    let mut frame = [0; 256];
    loop {
        let left = until.since(now());
        if left.is_zero() || !wait(&[(socket.as_fd(), Interest::Readable)], Some(left))?.readable(0) {
            return Ok(false);
        }
        match recv(socket, &mut frame, RecvFlags::DONTWAIT) {
            Ok((bytes, _)) if asking.is_answered_by(&frame[..bytes.min(256)]) => return Ok(true),
            Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

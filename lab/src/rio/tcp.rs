//! Connections over TCP between both hosts: listened for at the server, opened by the client; and a bulk transfer over one `[rio §3.2.1]`.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use laxity_core::units::Instant;
use laxity_link::sys::now;

use crate::hosts::{Hosts, InterfaceEnd};
use crate::sys::{is_nothing, or_nothing};

/// Bytes that a bulk transfer writes, or reads, at a time `[rio §3.2.1]`.
pub const BLOCK_BYTES: usize = 8 * 1024;
/// The longest time between two looks of a waiting end at the stop flag.
const LOOK: StdDuration = StdDuration::from_millis(20);

/// The server's port of one stream.
pub(super) struct ServicePort {
    listener: TcpListener,
    address: SocketAddr,
}

impl ServicePort {
    pub(super) fn open(lab: &Hosts, places: [InterfaceEnd; 2], port: u16) -> io::Result<Self> {
        let address = SocketAddr::new(places[1].address.ip(), port);
        Ok(Self { listener: lab.on(1, || TcpListener::bind(address))?, address })
    }

    /// A connection, the client's end first. Neither waits to join small messages, and no call on it waits for longer than [`LOOK`].
    pub(super) fn connect(&self, lab: &Hosts) -> io::Result<[TcpStream; 2]> {
        // The kernel completes it before it is accepted.
        let client = lab.on(0, || TcpStream::connect_timeout(&self.address, StdDuration::from_secs(5)))?;
        let (server, _) = self.listener.accept()?;
        for end in [&client, &server] {
            end.set_nodelay(true)?;
            end.set_read_timeout(Some(LOOK))?;
            end.set_write_timeout(Some(LOOK))?;
        }
        Ok([client, server])
    }
}

/// Writes all of `bytes`, unless it is `over` before; true if it did.
pub(super) fn write(mut to: &TcpStream, mut bytes: &[u8], over: &AtomicBool) -> io::Result<bool> {
    while !bytes.is_empty() {
        if over.load(Ordering::Relaxed) {
            return Ok(false);
        }
        bytes = &bytes[or_nothing(to.write(bytes))?..];
    }
    Ok(true)
}

/// Fills `bytes`, unless it is `over` or the other end is gone before; true if it did.
pub(super) fn read(mut from: &TcpStream, bytes: &mut [u8], over: &AtomicBool) -> io::Result<bool> {
    let mut filled = 0;
    while filled < bytes.len() {
        if over.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match from.read(&mut bytes[filled..]) {
            Ok(0) => return Ok(false),
            Ok(more) => filled += more,
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Sends as fast as it can until it is `over`.
pub(super) fn send_bulk(to: &TcpStream, over: &AtomicBool) -> io::Result<()> {
    let block = [0x5a; BLOCK_BYTES];
    while write(to, &block, over)? {}
    Ok(())
}

/// Receives until it is `over`; `took` is told when which bytes came.
pub(super) fn receive_bulk(
    mut from: &TcpStream,
    over: &AtomicBool,
    mut took: impl FnMut(Instant, u64),
) -> io::Result<()> {
    let mut block = [0; BLOCK_BYTES];
    while !over.load(Ordering::Relaxed) {
        match from.read(&mut block) {
            Ok(0) => break,
            Ok(bytes) => took(now(), bytes as u64),
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

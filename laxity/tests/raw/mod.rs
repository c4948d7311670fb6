//! An application that speaks to an executive without the library.
#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use laxity_shm::Region;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde_json::{Value, json};

/// Of what is spoken.
pub const VERSION: u32 = 7;
pub const PATIENCE: StdDuration = StdDuration::from_secs(10);

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
    /// What counts and lengths like to be, or anything.
    pub fn word(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(8),
            1 => self.below(200),
            2 => u64::MAX - self.below(3),
            _ => self.next(),
        }
    }
    /// A size that may be, up to `most`; one in eight is any number.
    pub fn size(&mut self, most: u64) -> u64 {
        if self.below(8) == 0 { self.word() } else { 1 + self.below(most) }
    }
}

/// A connection without the library.
pub struct RawConnection(pub OwnedFd);

impl RawConnection {
    pub fn connect(path: &Path) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self(socket)
    }

    /// False if the other side has gone.
    pub fn say(&self, bytes: &[u8]) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut Default::default(), flags).is_ok()
    }

    pub fn ask(&self, ask: &Value) -> bool {
        self.say(ask.to_string().as_bytes())
    }

    /// What is told next, with its descriptors; `None` if the other side has gone.
    pub fn hear(&self) -> Option<(Value, Vec<OwnedFd>)> {
        rustix::net::sockopt::set_socket_timeout(&self.0, rustix::net::sockopt::Timeout::Recv, Some(PATIENCE)).unwrap();
        let (mut bytes, mut space) = (vec![0; 1 << 16], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))]);
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut bytes)];
        let got = rustix::net::recvmsg(&self.0, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?.bytes;
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if got == 0 { None } else { Some((serde_json::from_slice(&bytes[..got]).unwrap(), descriptors)) }
    }

    /// As [`RawConnection::say`], with descriptors that it was not asked for.
    pub fn say_with(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, flags).is_ok()
    }

    /// Attaches: the memory, and the bell; `None` if it is not let in.
    pub fn try_attach(&self) -> Option<(Arc<Region>, OwnedFd)> {
        self.try_attach_whole().map(|(_, region, bell)| (region, bell))
    }

    /// Likewise, with the memory's descriptor.
    pub fn try_attach_whole(&self) -> Option<(OwnedFd, Arc<Region>, OwnedFd)> {
        self.ask(&json!({ "Attach": { "version": VERSION, "command": "hostile" } }));
        let (told, descriptors) = self.hear()?;
        let bytes = told["Region"]["bytes"].as_u64()? as usize;
        let [memory, bell] = <[_; 2]>::try_from(descriptors).ok()?;
        let region = Arc::new(Region::map(memory.as_fd(), bytes).unwrap());
        self.ask(&json!("Mapped"));
        let (told, _) = self.hear()?;
        told["Attached"].is_object().then_some((memory, region, bell))
    }

    /// Attaches, as it must be let in.
    pub fn attach(&self) -> (Arc<Region>, OwnedFd) {
        self.try_attach().unwrap()
    }
}

//! An application that is attached, in the executive's process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use laxity_core::admission::{Code, Refusal, Stage, Utilisation};
use laxity_core::event::{End, Name, PeerRequest};
use laxity_shm::Region;
use laxity_shm::ring::{RingReader, RingShape, RingWriter};

use super::quotas::{QuotaHold, UserAccount};
use crate::attach::flags::ClientFlags;
use crate::attach::free::FreeList;
use crate::attach::layout::{BELL_BYTES, CHANNELS, ChannelMemory};
use crate::attach::protocol::{AttachReply, AttachRequest, EncodedChannel, EncodedError};
use crate::attach::socket::{Socket, is_too_long};
use crate::channel_executive::{ChannelExecutive, of_port};
use crate::control::{Application, HostShared};
use crate::error::Error;
use crate::grant::Grant;
use crate::held_place::HeldPlace;
use crate::holdings::{ChannelHold, Holdings};
use crate::port::{ChannelCounters, MailboxEnd, Port, ReceiveSlot, RingTimes, SendSlot};
use crate::remote_mailbox::{OtherEnd, RemoteReceiveMailbox, RemoteSendMailbox};
use crate::sync::locked;

/// An application that is attached.
pub(super) struct AttachedClient {
    pub(super) number: u32,
    pub(super) socket: ClientSocket,
    pub(super) flag: Arc<ClientFlags>,
    region: Arc<Region>,
    /// What its channels may have of that in all.
    whole: Holdings,
    /// The quota of its user, and what is used of it.
    pub(super) account: Arc<UserAccount>,
    /// The number of channels that it waits for.
    pub(super) openings: Arc<AtomicUsize>,
    pub(super) held: Mutex<ClientState>,
}

/// The socket of an application, which only the application's own thread closes, when it ends. Before Linux 6.16 that may take long: what was sent
/// and not received may have descriptors, whose sender decides how long it takes to close them.
pub(super) struct ClientSocket(RwLock<Option<Socket>>);

impl ClientSocket {
    /// As [`Socket::send`]; fails if it is closed.
    fn send(&self, tell: &AttachReply) -> io::Result<()> {
        let socket = self.0.read().unwrap_or_else(PoisonError::into_inner);
        socket.as_ref().map_or_else(|| Err(io::ErrorKind::NotConnected.into()), |socket| socket.send(tell, &[]))
    }

    /// The next request, or why there is none; waits no longer than `other` has nothing, and `timeout` at most. For the thread that closes it.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub(super) fn receive(
        &self,
        other: BorrowedFd<'_>,
        timeout: Duration,
    ) -> io::Result<Option<(AttachRequest, Vec<OwnedFd>)>> {
        let socket = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let socket = socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        socket.receive(Some(other), timeout)
    }

    /// Closes it.
    pub(super) fn close(&self) {
        let socket = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(socket);
    }
}

/// The channels and names of an application.
#[derive(Default)]
pub(super) struct ClientState {
    free: FreeList,
    /// The places in its bell that are taken, and the memory of each.
    places: BTreeMap<u32, ChannelHold>,
    pub(super) channels: BTreeMap<u32, ClientChannel>,
    /// Each as it is counted for its user.
    pub(super) names: Vec<(Name, HeldPlace)>,
    /// True if it has gone: nothing is made for it any more.
    is_over: bool,
}

/// One channel of an application.
pub(super) struct ClientChannel {
    pub(super) port: Arc<Port>,
    block: Arc<MemoryBlock>,
    /// The grant, once the application was told.
    grant: Option<Grant>,
    /// The end, if it came before the grant.
    ended: Option<End>,
}

impl ClientState {
    /// The channel with that port, and its place in the bell.
    fn channel_of(&mut self, port: &Arc<Port>) -> Option<(u32, &mut ClientChannel)> {
        let mut channels = self.channels.iter_mut();
        channels.find(|(_, channel)| Arc::ptr_eq(&channel.port, port)).map(|(place, channel)| (*place, channel))
    }
}

impl ClientChannel {
    pub(super) fn counted(&self) -> Option<ChannelCounters> {
        let grant = self.grant.as_ref()?;
        Some(ChannelCounters { sent: self.port.statistics.send_counters(), figures: of_port(&self.port, grant) })
    }

    pub(super) fn end(&self, place: u32, end: &End) -> AttachReply {
        let figures = Box::new(self.counted().unwrap_or_default());
        AttachReply::Ended { place, end: *end, figures }
    }
}

/// Memory of one channel, and its place in the application's bell. Both are free again when neither the executive nor the
/// application uses the channel any more.
pub(super) struct MemoryBlock {
    client: Weak<AttachedClient>,
    memory: ChannelMemory,
    bytes: usize,
    place: u32,
    /// The channel's part of its user's quota.
    _share: QuotaHold,
}

impl Drop for MemoryBlock {
    fn drop(&mut self) {
        let Some(client) = self.client.upgrade() else { return };
        let mut held = locked(&client.held);
        held.places.remove(&self.place);
        held.free.give_back((self.memory.at, self.bytes));
    }
}

/// A channel that has its memory: where that is, the application at its other end, its place in that one's bell, and its port.
type AllottedChannel = (ChannelMemory, OtherEnd, (u32, u32), Arc<Port>);

/// A refusal: the application has no memory left for a channel.
pub(super) fn no_memory(is_sent: bool) -> Refusal {
    Refusal::new(Code::Memory, if is_sent { Stage::SendingProcessor } else { Stage::ReceivingProcessor })
}

impl AttachedClient {
    /// An application that has mapped `region`, of `bytes` bytes.
    pub(super) fn new(
        number: u32,
        (socket, flag): (Socket, Arc<ClientFlags>),
        (region, bytes): (Arc<Region>, usize),
        account: Arc<UserAccount>,
    ) -> Self {
        let bytes = bytes - BELL_BYTES;
        let held = ClientState { free: FreeList::new(BELL_BYTES, bytes), ..ClientState::default() };
        let whole = Holdings { channels: CHANNELS.into(), frames: 0, bytes: bytes as u64 };
        let socket = ClientSocket(RwLock::new(Some(socket)));
        Self { number, socket, flag, region, whole, account, openings: Arc::default(), held: Mutex::new(held) }
    }

    /// Sends it a message. An application that does not listen counts as gone. An answer that is longer than a message may be is
    /// refused: what others do may have made it that long.
    pub(super) fn tell(&self, tell: &AttachReply) {
        let refuse = |ticket| {
            let text = "the answer is longer than a message of the executive may be".to_owned();
            let error = EncodedError::of(&Error::Served { status: 5, text });
            self.socket.send(&AttachReply::Refused { ticket, error })
        };
        let sent = self.socket.send(tell).or_else(|error| match tell.ticket() {
            Some(ticket) if is_too_long(&error) => refuse(ticket),
            _ => Err(error),
        });
        if sent.is_err() {
            self.flag.lose();
        }
    }

    /// Tells it that nothing comes of what it asked for.
    pub(super) fn refuse(&self, ticket: u64, error: &Error) {
        self.tell(&AttachReply::Refused { ticket, error: EncodedError::of(error) });
    }

    /// True if a channel is open on which it sends.
    pub(super) fn has_to_send(&self) -> bool {
        // A channel that is still being opened does not count.
        let is_open = |channel: &ClientChannel| {
            channel.block.memory.is_sent && channel.grant.is_some() && channel.port.end().is_none()
        };
        !self.flag.is_broken() && locked(&self.held).channels.values().any(is_open)
    }

    /// Allocates memory for a channel, and a place in the bell. What a peer asks for by `request`, and the application receives, is no
    /// more than the peer's host leaves for others, and for what the application sends.
    fn allot(
        self: &Arc<Self>,
        messages: usize,
        bytes: usize,
        request: Option<&PeerRequest>,
        takes: Utilisation,
    ) -> Result<AllottedChannel, Refusal> {
        let is_sent = request.is_none();
        let share = self.account.take(takes, is_sent)?;
        let none = || no_memory(is_sent);
        let shape = RingShape { slots: messages, bytes };
        let needed = ChannelMemory { at: 0, shape, is_sent }.bytes().ok_or_else(none)?;
        let mut held = locked(&self.held);
        let holds = Holdings { channels: 1, frames: 0, bytes: needed as u64 };
        let hold = request.map_or(ChannelHold { holds, received: None }, |request| ChannelHold::asked(request, holds));
        // One that the application has let go of is free as soon as the executive has released it.
        let others = held.places.iter().filter(|(place, _)| held.channels.contains_key(place)).map(|(_, hold)| *hold);
        hold.has_room(self.whole, others)?;
        let place = (0..CHANNELS).find(|place| !held.places.contains_key(place));
        let place = place.filter(|_| !held.is_over).ok_or_else(none)?;
        let at = held.free.take(needed).ok_or_else(none)?;
        held.places.insert(place, hold);
        drop(held);
        let memory = ChannelMemory { at, shape, is_sent };
        let block = Arc::new(MemoryBlock { client: Arc::downgrade(self), memory, bytes: needed, place, _share: share });
        memory.clear(&self.region).ok_or_else(none)?;
        let signal = memory.signal(&self.region).ok_or_else(none)?;
        let port = Port::new(signal);
        let mut held = locked(&self.held);
        if held.is_over {
            return Err(none());
        }
        let owned = ClientChannel { port: Arc::clone(&port), block: Arc::clone(&block), grant: None, ended: None };
        held.channels.insert(place, owned);
        drop(held);
        Ok((memory, OtherEnd { flags: Arc::clone(&self.flag), _block: block }, (self.number, place), port))
    }

    /// Tells the application of its channel, and of the channel's end if this has come already. False if the application has
    /// gone, or has given the channel up. `held` is locked meanwhile, so that messages have the order of the events.
    pub(super) fn opened(
        &self,
        port: &Arc<Port>,
        grant: &Grant,
        tell: impl FnOnce(EncodedChannel) -> AttachReply,
    ) -> bool {
        let mut held = locked(&self.held);
        let Some((place, channel)) = held.channel_of(port) else { return false };
        channel.grant = Some(grant.clone());
        let ChannelMemory { at, shape: RingShape { slots, bytes }, .. } = channel.block.memory;
        self.tell(&tell(EncodedChannel { place, at, slots, bytes, grant: grant.clone() }));
        if let Some(end) = channel.ended.take() {
            self.tell(&channel.end(place, &end));
        }
        true
    }

    /// Closes all that a departed application had.
    pub(super) fn end(&self, shared: &HostShared) {
        self.flag.is_gone.store(true, Ordering::Relaxed);
        let mut held = locked(&self.held);
        held.is_over = true;
        let names = std::mem::take(&mut held.names);
        drop(held);
        // Counted until it is free.
        names.into_iter().for_each(|(name, _counted)| shared.unlisten(name));
        let channels = std::mem::take(&mut locked(&self.held).channels);
        channels.values().for_each(|channel| shared.close(&channel.port));
    }
}

impl Application for AttachedClient {
    fn sending(self: Arc<Self>, messages: usize, bytes: usize, takes: Utilisation) -> Result<SendSlot, Refusal> {
        let (memory, of, bell, port) = self.allot(messages, bytes, None, takes)?;
        let reader = memory.ring(&self.region).and_then(|ring| RingReader::new(ring, memory.shape));
        let (reader, rung) = reader.zip(memory.rung(&self.region)).ok_or_else(|| no_memory(true))?;
        let mailbox = Box::new(RemoteSendMailbox::new(reader, messages, bytes, of));
        let rung = Arc::new(RingTimes(rung));
        Ok(SendSlot { mailbox: MailboxEnd::Other(mailbox), rung, taken: 0, bell: Some(bell), port })
    }

    fn receiving(
        self: Arc<Self>,
        messages: usize,
        bytes: usize,
        request: &PeerRequest,
        takes: Utilisation,
    ) -> Result<ReceiveSlot, Refusal> {
        let (memory, of, bell, port) = self.allot(messages, bytes, Some(request), takes)?;
        let writer = memory.ring(&self.region).and_then(|ring| RingWriter::new(ring, memory.shape));
        let writer = writer.ok_or_else(|| no_memory(false))?;
        let mailbox = Box::new(RemoteReceiveMailbox::new(writer, of));
        Ok(ReceiveSlot { mailbox: MailboxEnd::Other(mailbox), bell: Some(bell), port, handling: None })
    }

    fn accepted(&self, port: &Arc<Port>, grant: &Grant) -> bool {
        self.opened(port, grant, |channel| AttachReply::Accepted { channel })
    }

    fn not_opened(&self, port: &Arc<Port>) {
        let mut held = locked(&self.held);
        let place = held.channel_of(port).map(|(place, _)| place);
        let channel = place.and_then(|place| held.channels.remove(&place));
        drop(held);
        drop(channel);
    }

    fn ended(&self, port: &Arc<Port>, end: End) {
        let mut held = locked(&self.held);
        let Some((place, channel)) = held.channel_of(port) else { return };
        // Its sender did not close it, but has gone with the executive.
        let leaves = !channel.block.memory.is_sent && self.flag.leaves.load(Ordering::SeqCst);
        let end = if leaves { End::PeerLost } else { end };
        if leaves {
            // The executive's end may not have been told yet, and explains this one.
            self.tell(&AttachReply::Leaving);
        }
        match channel.grant {
            Some(_) => self.tell(&channel.end(place, &end)),
            None => channel.ended = Some(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::super::quotas::UserAccounts;
    use super::*;

    const WAIT: Duration = Duration::from_secs(10);

    /// A message that is too long says nothing of the application that it is for.
    #[test]
    fn an_answer_that_is_too_long_is_refused() {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let (here, there) = (Socket::of(pair.0, false), Socket::of(pair.1, true));
        let (region, _memory) = Region::make(c"test", BELL_BYTES + 4096).unwrap();
        let region = (Arc::new(region), BELL_BYTES + 4096);
        let flag = Arc::new(ClientFlags::new().unwrap());
        let client = AttachedClient::new(1, (here, flag), region, UserAccounts::default().of(0, None));
        let error = Error::Served { status: 2, text: "\"".repeat(40_000) };
        client.refuse(7, &error);
        client.tell(&AttachReply::Leaving);
        let next = || match there.receive::<AttachReply>(None, WAIT) {
            Ok(Some((told, _))) => told,
            _ => panic!("nothing was told"),
        };
        let AttachReply::Refused { ticket: 7, error } = next() else { panic!("no answer") };
        assert!(matches!(error.error(), Error::Served { status: 5, .. }));
        assert!(matches!(next(), AttachReply::Leaving));
        assert!(!client.flag.is_gone.load(Ordering::SeqCst));
        // However long others hold it.
        client.socket.close();
        assert!(there.receive::<AttachReply>(None, WAIT).is_err());
        client.tell(&AttachReply::Leaving);
        assert!(client.flag.is_gone.load(Ordering::SeqCst), "as if it had gone");
    }
}

//! An application that is attached, as the executive's process sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use laxity_core::admission::{Code, Refusal, Stage, Utilisation};
use laxity_core::event::{End, Name};
use laxity_link::sys::Wake;
use laxity_shm::Region;
use laxity_shm::ring::{Lie, Reader, Shape, Writer};

use super::quotas::{Account, Share};
use crate::application::Application;
use crate::attach::free::Free;
use crate::attach::layout::{BELL_BYTES, CHANNELS, Place};
use crate::attach::mailbox::{Blames, EmptiedByOther, FilledByOther};
use crate::attach::protocol::{Channel, Ended, Tell};
use crate::attach::socket::Socket;
use crate::control::Shared;
use crate::executive::Culprit;
use crate::grant::Grant;
use crate::home::of_port;
use crate::port::{self, Counted, Port, ReceiveSlot, SendSlot};
use crate::receiver::Accepted;

/// That an application did what cannot be, or does not listen, and what ends its thread then.
#[derive(Debug)]
pub(super) struct Flag {
    is_broken: AtomicBool,
    /// It has gone, or was thrown out.
    is_gone: AtomicBool,
    /// The executive is about to end.
    pub(super) leaves: AtomicBool,
    pub(super) kill: Wake,
}

impl Flag {
    pub(super) fn new() -> std::io::Result<Self> {
        let no = || AtomicBool::new(false);
        Ok(Self { is_broken: no(), is_gone: no(), leaves: no(), kill: Wake::new()? })
    }

    pub(super) fn blame(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        self.kill.wake();
    }
}

impl Flag {
    /// It has gone, or does not listen: that is no lie.
    fn lose(&self) {
        self.is_gone.store(true, Ordering::SeqCst);
        self.kill.wake();
    }
}

impl Culprit for Flag {
    fn blame(&self) {
        self.blame();
    }
}

/// An application that is attached.
pub(super) struct Client {
    pub(super) number: u32,
    pid: u32,
    command: String,
    pub(super) socket: Socket,
    pub(super) flag: Arc<Flag>,
    region: Arc<Region>,
    /// What its user has and may have.
    pub(super) account: Arc<Account>,
    /// Channels that it waits for.
    openings: AtomicUsize,
    held: Mutex<Held>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("pid", &self.pid).field("command", &self.command).finish_non_exhaustive()
    }
}

/// What an application has.
#[derive(Default)]
pub(super) struct Held {
    free: Free,
    /// Places in its bell that are taken, one bit each.
    places: u64,
    pub(super) channels: BTreeMap<u32, Owned>,
    pub(super) names: Vec<Name>,
    /// It has gone: nothing is made for it any more.
    is_over: bool,
}

/// One channel of an application.
pub(super) struct Owned {
    pub(super) port: Arc<Port>,
    block: Arc<Block>,
    /// What was granted, once the application was told.
    grant: Option<Grant>,
    /// That it has ended, if that was before.
    ended: Option<End>,
}

impl Owned {
    pub(super) fn counted(&self) -> Option<Counted> {
        let grant = self.grant.as_ref()?;
        Some(Counted { sent: self.port.statistics.send_counters(), figures: of_port(&self.port, grant) })
    }

    pub(super) fn end(&self, place: u32, end: &End) -> Tell {
        let figures = Box::new(self.counted().unwrap_or_default().into());
        Tell::Ended { place, end: Ended::of(end), figures }
    }
}

/// Memory of one channel, and its place in the application's bell; both are free again when neither the executive nor the application has it any more.
pub(super) struct Block {
    client: Weak<Client>,
    flag: Arc<Flag>,
    number: u32,
    memory: Place,
    bytes: usize,
    place: u32,
    /// What the channel takes of its user's quota.
    _share: Share,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("memory", &self.memory).field("place", &self.place).finish_non_exhaustive()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(client) = self.client.upgrade() else { return };
        let mut held = client.held();
        held.places &= !(1 << self.place);
        held.free.give_back((self.memory.at, self.bytes));
    }
}

impl Blames for Arc<Block> {
    fn blame(&self, _: Lie) {
        self.flag.blame();
    }
    fn is_blamed(&self) -> bool {
        self.flag.is_broken.load(Ordering::Relaxed)
    }
    fn is_gone(&self) -> bool {
        self.flag.is_gone.load(Ordering::Relaxed)
    }
    fn bell(&self) -> (u32, u32) {
        (self.number, self.place)
    }
}

/// The application has no memory left for a channel.
pub(super) fn no_memory(is_sent: bool) -> Refusal {
    Refusal::new(Code::Memory, if is_sent { Stage::SendingProcessor } else { Stage::ReceivingProcessor })
}

impl Client {
    /// An application that has mapped `region`, of so many bytes.
    pub(super) fn new(
        (number, pid, command): (u32, u32, &str),
        (socket, flag): (Socket, Arc<Flag>),
        (region, bytes): (Arc<Region>, usize),
        account: Arc<Account>,
    ) -> Self {
        let held = Held { free: Free::new(BELL_BYTES, bytes - BELL_BYTES), ..Held::default() };
        let command = command.chars().filter(|c| !c.is_control()).take(64).collect();
        Self {
            number,
            pid,
            command,
            socket,
            flag,
            region,
            account,
            openings: AtomicUsize::new(0),
            held: Mutex::new(held),
        }
    }

    /// It asks for a channel, for which it will have to wait; false if it waits for as many as it may have.
    pub(super) fn begin_opening(&self) -> bool {
        let most = CHANNELS as usize;
        let begun =
            self.openings.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| (now < most).then_some(now + 1));
        begun.is_ok()
    }

    /// It has an answer.
    pub(super) fn end_opening(&self) {
        self.openings.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_broken(&self) -> bool {
        self.flag.is_broken.load(Ordering::SeqCst)
    }

    /// Tells it something. One that does not listen is taken for gone.
    pub(super) fn tell(&self, tell: &Tell) {
        if self.socket.send(tell, &[]).is_err() {
            self.flag.lose();
        }
    }

    /// Whether a channel is open on which it sends.
    pub(super) fn has_to_send(&self) -> bool {
        // One that is still being opened has nothing.
        let is_open =
            |channel: &Owned| channel.block.memory.is_sent && channel.grant.is_some() && channel.port.end().is_none();
        !self.is_broken() && self.held().channels.values().any(is_open)
    }

    pub(super) fn port(&self, place: u32) -> Option<Arc<Port>> {
        self.held().channels.get(&place).map(|channel| Arc::clone(&channel.port))
    }

    /// Memory for a channel, and a place in the bell.
    fn block(
        self: &Arc<Self>,
        messages: usize,
        bytes: usize,
        is_sent: bool,
        share: Share,
    ) -> Result<(Arc<Block>, Arc<Port>), Refusal> {
        let none = || no_memory(is_sent);
        let shape = Shape { slots: messages, bytes };
        let needed = Place { at: 0, shape, is_sent }.bytes().ok_or_else(none)?;
        let mut held = self.held();
        let place = held.places.trailing_ones();
        if place >= CHANNELS || held.is_over {
            return Err(none());
        }
        let at = held.free.take(needed).ok_or_else(none)?;
        held.places |= 1 << place;
        drop(held);
        let memory = Place { at, shape, is_sent };
        let block = Arc::new(Block {
            client: Arc::downgrade(self),
            flag: Arc::clone(&self.flag),
            number: self.number,
            memory,
            bytes: needed,
            place,
            _share: share,
        });
        memory.clear(&self.region).ok_or_else(none)?;
        let signal = memory.signal(&self.region).ok_or_else(none)?;
        let port = Port::new(signal);
        let mut held = self.held();
        if held.is_over {
            return Err(none());
        }
        let owned = Owned { port: Arc::clone(&port), block: Arc::clone(&block), grant: None, ended: None };
        held.channels.insert(place, owned);
        drop(held);
        Ok((block, port))
    }

    /// The application is told of its channel, and of its end, if that has come already; false if it has gone, or has let go of it. The order of what is told is that of
    /// what happens: `held` is locked meanwhile.
    pub(super) fn opened(&self, port: &Arc<Port>, grant: &Grant, tell: impl FnOnce(Channel) -> Tell) -> bool {
        let mut held = self.held();
        let channel = held.channels.iter_mut().find(|(_, channel)| Arc::ptr_eq(&channel.port, port));
        let Some((place, channel)) = channel else { return false };
        channel.grant = Some(grant.clone());
        let Place { at, shape: Shape { slots, bytes }, .. } = channel.block.memory;
        self.tell(&tell(Channel::new(*place, (at, slots, bytes), grant)));
        if let Some(end) = channel.ended.take() {
            self.tell(&channel.end(*place, &end));
        }
        true
    }

    /// It has gone: what it has is closed.
    pub(super) fn end(&self, shared: &Shared) {
        self.flag.is_gone.store(true, Ordering::Relaxed);
        let mut held = self.held();
        held.is_over = true;
        let names = std::mem::take(&mut held.names);
        drop(held);
        names.into_iter().for_each(|name| shared.unlisten(name));
        let channels = std::mem::take(&mut self.held().channels);
        channels.values().for_each(|channel| shared.close_port(&channel.port));
    }
}

impl Application for Client {
    fn sending(self: Arc<Self>, messages: usize, bytes: usize, takes: Utilisation) -> Result<SendSlot, Refusal> {
        let share = self.account.take(takes, true)?;
        let (block, port) = self.block(messages, bytes, true, share)?;
        let memory = block.memory;
        let none = || no_memory(true);
        let reader = memory.ring(&self.region).and_then(|ring| Reader::new(ring, memory.shape)).ok_or_else(none)?;
        let rung = memory.rung(&self.region).ok_or_else(none)?;
        Ok(port::slot_of_other(Box::new(FilledByOther::new(reader, rung, messages, bytes, block)), port))
    }

    fn receiving(self: Arc<Self>, messages: usize, bytes: usize, takes: Utilisation) -> Result<ReceiveSlot, Refusal> {
        let share = self.account.take(takes, false)?;
        let (block, port) = self.block(messages, bytes, false, share)?;
        let memory = block.memory;
        let writer = memory.ring(&self.region).and_then(|ring| Writer::new(ring, memory.shape));
        let writer = writer.ok_or_else(|| no_memory(false))?;
        Ok(port::receive_slot_of_other(Box::new(EmptiedByOther::new(writer, block)), port))
    }

    fn accepted(&self, accepted: Accepted) {
        let Accepted { port, grant, unclaimed } = accepted;
        // If it has gone, what is not taken is closed.
        if self.opened(port.port(), &grant, |channel| Tell::Accepted { channel })
            && let Some(unclaimed) = unclaimed
        {
            unclaimed.taken();
        }
    }

    fn not_opened(&self, port: &Arc<Port>) {
        let mut held = self.held();
        let place = held.channels.iter().find(|(_, channel)| Arc::ptr_eq(&channel.port, port)).map(|(place, _)| *place);
        let channel = place.and_then(|place| held.channels.remove(&place));
        drop(held);
        drop(channel);
    }

    fn ended(&self, port: &Arc<Port>, end: End) {
        let mut held = self.held();
        let channel = held.channels.iter_mut().find(|(_, channel)| Arc::ptr_eq(&channel.port, port));
        let Some((place, channel)) = channel else { return };
        // Its sender has not closed it, but gone with the executive.
        let leaves = !channel.block.memory.is_sent && self.flag.leaves.load(Ordering::SeqCst);
        let end = if leaves { End::PeerLost } else { end };
        if leaves {
            // That may not have been told yet, and says what this end means.
            self.tell(&Tell::Leaving);
        }
        match channel.grant {
            Some(_) => self.tell(&channel.end(*place, &end)),
            None => channel.ended = Some(end),
        }
    }
}

//! The bells of all applications that an executive serves: of its own process, and of others that are attached to it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use laxity_link::sys::WakeSet;

use crate::doorbell::Doorbell;

/// Channels of an application in another process: its bell has one word.
const CHANNELS: usize = u64::BITS as usize;
/// Most applications in other processes.
pub(crate) const MAX_APPLICATIONS: usize = 64;

/// The bell of an application in another process.
#[derive(Debug)]
pub(crate) struct Bell {
    application: u32,
    doorbell: Doorbell,
    /// The executive's places of its channels.
    places: [Option<u32>; CHANNELS],
}

impl Bell {
    pub(crate) fn new(application: u32, doorbell: Doorbell) -> Self {
        Self { application, doorbell, places: [None; CHANNELS] }
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Bells {
    own: Arc<Doorbell>,
    others: Vec<Box<Bell>>,
    /// The one that is heard first: each gets a turn.
    next: usize,
    /// What is waited for, if there are others.
    set: Option<Arc<WakeSet>>,
}

impl Bells {
    pub(crate) fn new(own: Arc<Doorbell>) -> Self {
        Self { own, others: Vec::with_capacity(MAX_APPLICATIONS), next: 0, set: None }
    }

    /// That of its own process.
    pub(crate) fn own(&self) -> Arc<Doorbell> {
        Arc::clone(&self.own)
    }

    /// From now on others may be there, whose bells are in the set.
    pub(crate) fn wait_for(&mut self, set: Arc<WakeSet>) {
        self.set = Some(set);
    }

    /// Hears another one. Gives it back if there are too many.
    pub(crate) fn add(&mut self, bell: Box<Bell>) -> Option<Box<Bell>> {
        if self.others.len() == MAX_APPLICATIONS {
            return Some(bell);
        }
        self.others.push(bell);
        None
    }

    pub(crate) fn remove(&mut self, application: u32) -> Option<Box<Bell>> {
        let at = self.others.iter().position(|bell| bell.application == application)?;
        Some(self.others.swap_remove(at))
    }

    /// The executive's place of an application's channel; `None` once it has none.
    pub(crate) fn set_place(&mut self, (application, channel): (u32, u32), place: Option<u32>) {
        let bell = self.others.iter_mut().find(|bell| bell.application == application);
        if let Some(known) = bell.and_then(|bell| bell.places.get_mut(channel as usize)) {
            *known = place;
        }
    }

    /// The next channel that rang. Of each application in another process one is looked at: it may ring for what it does not have.
    pub(crate) fn next(&mut self) -> Option<u32> {
        if let Some(place) = self.own.next() {
            return Some(place);
        }
        for _ in 0..self.others.len() {
            self.next = (self.next + 1) % self.others.len();
            let Bell { doorbell, places, .. } = &*self.others[self.next];
            if let Some(place) = doorbell.next().and_then(|channel| *places.get(channel as usize)?) {
                return Some(place);
            }
        }
        None
    }

    fn all(&self) -> impl Iterator<Item = &Doorbell> {
        std::iter::once(&*self.own).chain(self.others.iter().map(|bell| &bell.doorbell))
    }

    pub(crate) fn going_to_sleep(&self) {
        self.all().for_each(Doorbell::going_to_sleep);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.all().all(Doorbell::is_silent)
    }

    pub(crate) fn hold(&self) {
        self.all().for_each(Doorbell::hold);
    }

    pub(crate) fn awake(&self) {
        self.all().for_each(Doorbell::awake);
    }

    /// What is waited for.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_ref().map_or_else(|| self.own.wake.as_fd(), |set| set.as_fd())
    }

    /// Ends the ringing.
    pub(crate) fn drain(&self) {
        self.own.wake.drain();
        if let Some(set) = &self.set {
            set.drain();
        }
    }
}

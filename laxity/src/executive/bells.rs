//! The bells of all applications that an executive serves: of its own process, and of others that are attached to it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use laxity_link::sys::WakeSet;

use crate::attach::flags::ClientFlags;
use crate::attach::layout::CHANNELS;
use crate::doorbell::Doorbell;

/// Most applications in other processes.
pub(crate) const MAX_APPLICATIONS: usize = 64;

/// How often an application may ring more than three times for each message that it brings, or gives back. One that keeps to the library rings once for each, and
/// wakes the executive once at most (and rings once more where that meets the end of an upcall); what it has in its mailboxes meanwhile is not counted yet, and those have less.
const CREDIT: u32 = 1 << 16;

/// The bell of an application in another process, which may ring for what it does not have.
pub(crate) struct ApplicationBell {
    application: u32,
    doorbell: Doorbell,
    /// What hears that it rings for nothing. It is not heard any more.
    culprit: Arc<ClientFlags>,
    /// How often it may ring yet.
    credit: u32,
    /// The executive's places of its channels.
    places: [Option<u32>; CHANNELS as usize],
    /// The channels that it has, one bit each.
    known: u64,
    /// Those that have rung and were not looked at yet.
    heard: u64,
}

impl ApplicationBell {
    pub(crate) fn new(application: u32, doorbell: Doorbell, culprit: Arc<ClientFlags>) -> Self {
        Self { application, doorbell, culprit, credit: CREDIT, places: [None; CHANNELS as usize], known: 0, heard: 0 }
    }

    /// It has rung. Once it has no credit left it is heard no more.
    fn spend(&mut self, set: Option<&WakeSet>) {
        if self.credit == 0 {
            return;
        }
        self.credit -= 1;
        if self.credit == 0 {
            (self.known, self.heard) = (0, 0);
            if let Some(set) = set {
                set.remove(&self.doorbell.wake);
            }
            self.culprit.blame();
        }
    }

    /// The next of those that were heard.
    fn next(&mut self) -> Option<u32> {
        while self.heard != 0 {
            let channel = self.heard.trailing_zeros();
            self.heard &= self.heard - 1;
            if let Some(place) = self.places[channel as usize] {
                return Some(place);
            }
        }
        None
    }
}

/// All of them.
pub(crate) struct ApplicationBells {
    own: Arc<Doorbell>,
    #[allow(clippy::vec_box, reason = "they come boxed and leave so: the executive frees nothing")]
    others: Vec<Box<ApplicationBell>>,
    /// The one that is heard first: each gets a turn.
    next: usize,
    /// Whether the others' bells were heard in this look.
    is_heard: bool,
    /// What is waited for, if there may be others, whose bells are in it; and what is in it beside bells.
    pub(super) set: Option<Arc<WakeSet>>,
}

impl ApplicationBells {
    pub(crate) fn new(own: Arc<Doorbell>) -> Self {
        Self { own, others: Vec::with_capacity(MAX_APPLICATIONS), next: 0, is_heard: false, set: None }
    }

    /// Hears another one. Gives it back if there are too many, or it cannot be waited for.
    pub(crate) fn add(&mut self, bell: Box<ApplicationBell>) -> Option<Box<ApplicationBell>> {
        let hears = |set: &Arc<WakeSet>| set.add(&bell.doorbell.wake, bell.application).is_ok();
        if self.others.len() == MAX_APPLICATIONS || !self.set.as_ref().is_none_or(hears) {
            bell.culprit.blame();
            return Some(bell);
        }
        self.others.push(bell);
        None
    }

    pub(crate) fn remove(&mut self, application: u32) -> Option<Box<ApplicationBell>> {
        let at = self.others.iter().position(|bell| bell.application == application)?;
        let bell = self.others.swap_remove(at);
        if let Some(set) = &self.set {
            set.remove(&bell.doorbell.wake);
        }
        Some(bell)
    }

    /// An application has brought messages, or given some back: it may ring three times for each.
    pub(crate) fn earn(&mut self, application: u32, messages: u32) {
        if let Some(bell) = self.others.iter_mut().find(|bell| bell.application == application && bell.credit > 0) {
            bell.credit = bell.credit.saturating_add(messages.saturating_mul(3)).min(CREDIT);
        }
    }

    /// The executive's place of an application's channel; `None` once it has none.
    pub(crate) fn set_place(&mut self, (application, channel): (u32, u32), place: Option<u32>) {
        let bell = self.others.iter_mut().find(|bell| bell.application == application);
        if let Some(bell) = bell.filter(|bell| channel < CHANNELS && bell.credit > 0) {
            let bit = 1 << channel;
            bell.known = if place.is_some() { bell.known | bit } else { bell.known & !bit };
            bell.places[channel as usize] = place;
        }
    }

    /// Others may be heard again.
    pub(crate) fn look_begins(&mut self) {
        self.is_heard = false;
    }

    /// The next channel that rang. Bells of other processes are heard once for each `None` that is returned: however fast they ring, a look ends.
    pub(crate) fn next(&mut self) -> Option<u32> {
        if let Some(place) = self.own.next() {
            return Some(place);
        }
        loop {
            for _ in 0..self.others.len() {
                self.next = (self.next + 1) % self.others.len();
                if let Some(place) = self.others[self.next].next() {
                    return Some(place);
                }
            }
            if std::mem::replace(&mut self.is_heard, true) || self.others.is_empty() {
                self.is_heard = false;
                return None;
            }
            for bell in &mut self.others {
                let heard = bell.doorbell.take_known(bell.known);
                if heard != 0 {
                    bell.heard |= heard;
                    bell.spend(self.set.as_deref());
                }
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Doorbell> {
        std::iter::once(&*self.own).chain(self.others.iter().map(|bell| &bell.doorbell))
    }

    pub(crate) fn going_to_sleep(&self) {
        self.all().for_each(Doorbell::going_to_sleep);
    }

    pub(crate) fn is_silent(&self) -> bool {
        let rings = |bell: &ApplicationBell| bell.heard != 0 || bell.doorbell.rings(bell.known);
        self.own.is_silent() && !self.others.iter().any(|bell| rings(bell))
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

    /// Ends the ringing; false if none of them rang.
    pub(crate) fn drain(&mut self) -> bool {
        let mut has_rung = self.own.wake.drain();
        let (set, others) = (self.set.as_deref(), &mut self.others);
        if let Some(set) = set {
            set.take(|application| {
                has_rung = true;
                if let Some(bell) = others.iter_mut().find(|bell| bell.application == application) {
                    bell.spend(Some(set));
                }
            });
        }
        has_rung
    }
}

#[cfg(test)]
mod tests {
    use laxity_link::sys::Wake;

    use super::*;
    use crate::sync::RingWord;

    fn flags() -> Arc<ClientFlags> {
        Arc::new(ClientFlags::new().unwrap())
    }

    /// Bells of the own process, and of an application with two channels.
    fn bells() -> ApplicationBells {
        let mut bells = ApplicationBells::new(Arc::new(Doorbell::new(8).unwrap()));
        let doorbell = Doorbell::over([(); 4].map(|()| RingWord::zeros(2)), Wake::new().unwrap());
        assert!(bells.add(Box::new(ApplicationBell::new(7, doorbell, flags()))).is_none());
        bells.set_place((7, 0), Some(5));
        bells.set_place((7, 63), Some(6));
        bells
    }

    #[test]
    fn an_application_is_heard_for_what_it_has_and_no_longer_than_a_look() {
        let mut bells = bells();
        let ring = |bells: &ApplicationBells, bits| bells.others[0].doorbell.set_bits(bits);
        // For channels that it does not have: nothing is heard, and the executive may sleep.
        ring(&bells, !(1 | 1 << 63));
        assert!(bells.is_silent());
        assert_eq!(bells.next(), None);
        ring(&bells, u64::MAX);
        assert!(!bells.is_silent());
        assert_eq!(bells.next(), Some(5));
        // It rings again at once: that is for the next look.
        ring(&bells, u64::MAX);
        assert_eq!((bells.next(), bells.next()), (Some(6), None));
        assert!(!bells.is_silent());
        assert_eq!((bells.next(), bells.next(), bells.next()), (Some(5), Some(6), None));
        bells.set_place((7, 0), None);
        ring(&bells, 1);
        assert!(bells.is_silent());
        assert_eq!(bells.next(), None);
        bells.set_place((9, 0), Some(1));
        assert!(bells.remove(9).is_none() && bells.remove(7).is_some() && bells.next().is_none());
    }

    #[test]
    fn as_many_applications_as_there_is_room_for() {
        let mut bells = bells();
        let bell = |number| {
            let doorbell = Doorbell::over([(); 4].map(|()| RingWord::zeros(2)), Wake::new().unwrap());
            Box::new(ApplicationBell::new(number, doorbell, flags()))
        };
        assert!((1..MAX_APPLICATIONS as u32).all(|number| bells.add(bell(100 + number)).is_none()));
        assert_eq!(bells.add(bell(500)).unwrap().application, 500);
    }

    /// Rings, and wakes, are paid with messages; what rings for nothing is heard no more, while others are.
    #[test]
    fn an_application_that_rings_for_nothing_is_silenced() {
        let own = Arc::new(Doorbell::new(8).unwrap());
        let set = Arc::new(WakeSet::new().unwrap());
        assert!(set.include(&own.wake).unwrap());
        let mut bells = ApplicationBells::new(own);
        bells.set = Some(set);
        let culprits = [(); 2].map(|()| flags());
        let wakes: Vec<Wake> = culprits
            .iter()
            .enumerate()
            .map(|(number, culprit)| {
                let wake = Wake::new().unwrap();
                let heard = Wake(wake.as_fd().try_clone_to_owned().unwrap());
                let doorbell = Doorbell::over([(); 4].map(|()| RingWord::zeros(2)), heard);
                let culprit = Arc::clone(culprit);
                assert!(bells.add(Box::new(ApplicationBell::new(number as u32, doorbell, culprit))).is_none());
                bells.set_place((number as u32, 0), Some(number as u32));
                wake
            })
            .collect();
        let is_blamed = |number: usize| culprits[number].is_broken();
        // Paid: two for each message.
        for _ in 0..CREDIT {
            bells.others[0].doorbell.set_bits(1);
            wakes[0].wake();
            bells.drain();
            assert_eq!((bells.next(), bells.next()), (Some(0), None));
            bells.earn(0, 1);
        }
        assert!(!is_blamed(0));
        // By waking alone, by ringing alone, and by both: never paid.
        let mut heard = 0;
        for ring in 0..2 * CREDIT {
            if ring % 2 == 0 {
                wakes[0].wake();
                bells.drain();
            } else {
                bells.others[0].doorbell.set_bits(1);
            }
            while bells.next().is_some() {
                heard += 1;
            }
            bells.look_begins();
        }
        assert!(is_blamed(0) && !is_blamed(1) && heard <= CREDIT / 2, "{heard}");
        bells.earn(0, 10);
        bells.set_place((0, 1), Some(3));
        bells.others[0].doorbell.set_bits(u64::MAX);
        assert!(bells.is_silent() && bells.next().is_none());
        bells.others[1].doorbell.set_bits(1);
        assert_eq!(bells.next(), Some(1));
    }
}

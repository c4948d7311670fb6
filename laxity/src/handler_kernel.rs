//! Handlers in the kernel (as [`laxity::handler::kernel`](crate::handler::kernel)): one C function, which has each message as its packet arrives, before
//! any scheduler is asked [events §3.2].
//!
//! It is written against [`HEADER`], compiled with `clang -O2 -g -target bpf -c`, and replies, if it does, without any process of this host
//! being woken. What it may do stands in docs/events.md; all else is refused when it is installed, with the reason. The host has to
//! be on the fast path, and to have been started with time for it ([`XdpOptions::handlers`](crate::XdpOptions::handlers)); the channel's messages have to fit one
//! packet, and [`LONGEST_MESSAGE`].

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as StdDuration;

use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, Interest, wait};
use laxity_link::xdp::handler::{self as link, HandlerError, Handlers, Install, Installed, Prober};
pub use laxity_link::xdp::handler::{HEADER, LONGEST_MESSAGE, ModuleMap, Notice};
use laxity_link::xdp::{Mode, Status, Xdp};

use crate::error::Error;
use crate::handler::{Handler, HandlerFigures, HandlerSpec, HandlerState, Record, STATE_WORDS};
use crate::home::Home;
use crate::link::DROPPING_PERIOD;
use crate::port::Port;

/// What the kernel takes for a message beside the handler: to find it, to copy it, and to make a packet of the reply. Assumed; the
/// benchmark `event-dispatch` measures the whole.
const AROUND: Duration = Duration::from_micros(3);
/// Messages that may have been delayed on their way, and come together with those that are in time. Further ones go to the application's queue.
const DELAYED: u64 = 16;

/// A function for the kernel.
#[derive(Debug)]
pub struct Module(link::Module);

impl Module {
    /// Reads an object file of `clang -target bpf`, and makes its maps. The second value is told of messages, for the application.
    ///
    /// # Errors
    /// [`Error::Module`]: what it has that a handler may not have; [`Error::InKernel`] if the user may make no maps.
    pub fn new(object: &[u8]) -> Result<(Self, Notices), Error> {
        let (module, notices) = link::Module::new(object)?;
        Ok((Self(module), Notices(notices)))
    }

    /// A map of its own, by its name in the source.
    pub fn map(&self, name: &str) -> Option<Arc<ModuleMap>> {
        self.0.map(name)
    }

    /// The handler. The kernel's verifier sees it when it is installed.
    pub fn handler(self) -> Handler {
        Handler::in_kernel(self.0)
    }
}

/// What a handler tells its application (`LAXITY_TELL`): messages that it was done with, in the order in which they came. What is not read in time is
/// lost, and counted ([`HandlerFigures::untold`]).
#[derive(Debug)]
pub struct Notices(link::Notices);

impl Notices {
    /// The next one; waits for it at most `timeout`.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] after the timeout; what the kernel says of the wait.
    pub fn wait(&mut self, timeout: StdDuration) -> Result<Notice, Error> {
        if let Some(notice) = self.0.poll() {
            return Ok(notice);
        }
        let timeout = Duration::from_nanos(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        wait(&[(self.0.as_fd(), Interest::Readable)], Some(timeout))
            .map_err(|source| Error::System { what: "waiting for a handler", source })?;
        self.0.poll().ok_or(Error::WouldBlock)
    }
}

impl From<HandlerError> for Error {
    fn from(error: HandlerError) -> Self {
        let (problem, status) = (error.to_string(), 4);
        match error {
            HandlerError::Refused(_) | HandlerError::Rejected { .. } => Self::Module { problem },
            HandlerError::NoWayBack { .. } => Self::InKernel { problem, status: 5 },
            HandlerError::Full => Self::InKernel { problem, status: 3 },
            HandlerError::NoChannel => Self::InKernel { problem, status: 2 },
            HandlerError::Kernel(_) => Self::InKernel { problem, status },
        }
    }
}

fn refused(problem: impl Into<String>) -> Error {
    Error::InKernel { problem: problem.into(), status: 2 }
}

/// What a host has for handlers in the kernel.
#[derive(Debug)]
pub(crate) struct Reserve {
    handlers: Arc<Handlers>,
    /// Whether the interface is still there, with the program that calls them.
    link: Arc<Status>,
    /// Where the driver takes frames back itself.
    prober: Option<Prober>,
    /// Frames between its hosts are authenticated, which nothing in the kernel can check.
    is_keyed: bool,
    /// What others may send follows what the executive has sent.
    has_ceiling: bool,
    platform: Platform,
    left: Mutex<Left>,
}

/// What they may take in each period, all of them, what is left of it, and what others than the channel that gave it back can have only a period later.
#[derive(Debug)]
struct Left {
    whole: Duration,
    now: Duration,
    later: Vec<(Instant, Duration, Arc<Port>)>,
}

impl Reserve {
    pub(crate) fn new(link: &Xdp, whole: Duration, (is_keyed, has_ceiling): (bool, bool), platform: Platform) -> Self {
        // Otherwise they leave as the kernel's own do.
        let prober = (link.status().opened().mode == Mode::Native).then(|| link.prober());
        let left = Mutex::new(Left { whole, now: whole, later: Vec::new() });
        Self { handlers: link.handlers(), link: link.status(), prober, is_keyed, has_ceiling, platform, left }
    }

    fn take(&self, share: Duration, port: &Arc<Port>) -> Result<(), Error> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = left.whole;
        left.take(sys::now(), share, port).map_err(|left| {
            let problem = format!(
                "it may take {share} in {DROPPING_PERIOD}, and {left} is left of {whole} that the host was started with (XdpOptions::handlers)"
            );
            Error::InKernel { problem, status: 3 }
        })
    }

    fn give_back(&self, share: Duration, port: &Arc<Port>) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).give_back(sys::now(), share, port);
    }
}

impl Left {
    /// Takes as much for the channel of `port`.
    ///
    /// # Errors
    /// What is left is less.
    fn take(&mut self, now: Instant, share: Duration, port: &Arc<Port>) -> Result<(), Duration> {
        let come = self.later.extract_if(.., |(at, ..)| *at <= now).map(|(_, share, _)| share.as_nanos()).sum();
        self.now = (self.now + Duration::from_nanos(come)).min(self.whole);
        // The channel that gave some of it back goes on at its rate, and may have that at once.
        let mut missing = share.saturating_sub(self.now);
        let own: Duration =
            self.later.iter().filter(|(.., of)| Arc::ptr_eq(of, port)).map(|(_, share, _)| *share).sum();
        if missing <= own {
            let mut moved = Duration::ZERO;
            for (_, share, _) in self.later.iter_mut().filter(|(.., of)| Arc::ptr_eq(of, port)) {
                let part = missing.min(*share);
                (*share, missing) = (share.saturating_sub(part), missing.saturating_sub(part));
                moved += part;
            }
            self.now += moved;
        }
        let rest = self.now.as_nanos().checked_sub(share.as_nanos()).ok_or(self.now)?;
        self.now = Duration::from_nanos(rest);
        Ok(())
    }

    fn give_back(&mut self, now: Instant, share: Duration, port: &Arc<Port>) {
        self.later.push((now + DROPPING_PERIOD, share, Arc::clone(port)));
    }
}

/// A channel whose messages are to be handled.
pub(crate) struct Channel<'a> {
    pub(crate) home: &'a Arc<dyn Home>,
    pub(crate) port: &'a Arc<Port>,
    pub(crate) contract: Contract,
    pub(crate) peer: std::net::SocketAddr,
    pub(crate) same_clock: bool,
    /// Bytes of the largest message that may come.
    pub(crate) largest: usize,
}

/// A handler that is installed, with what is kept of it here.
#[derive(Debug)]
pub(crate) struct InKernel {
    installed: Installed,
    link: Arc<Status>,
    handler: Box<Handler>,
    share: Duration,
    is_told: bool,
}

impl InKernel {
    /// Whether the kernel would take it, and its replies would arrive. May take seconds.
    pub(crate) fn check(handler: &Handler, channel: &Channel<'_>) -> Result<(), Error> {
        let (reserve, _) = Self::reserve_of(handler, channel)?;
        let module = handler.module().ok_or(HandlerError::NoChannel)?;
        reserve.handlers.check(module)?;
        let Some(sender) = handler.reply() else { return Ok(()) };
        let peer = sender.grant().peer;
        if peer != channel.peer {
            let problem = format!("it is to reply to {peer}, and the messages come from {}", channel.peer);
            return Err(refused(problem));
        }
        reserve.prober.as_ref().map_or(Ok(()), |prober| prober.probe(peer)).map_err(Error::from)
    }

    /// What the host has for it, and bytes of the longest message that it can have.
    fn reserve_of<'a>(handler: &Handler, channel: &Channel<'a>) -> Result<(&'a Reserve, usize), Error> {
        let reserve = channel.home.kernel().ok_or_else(|| refused("it takes a host on the fast path (link xdp)"))?;
        if reserve.link.is_gone() {
            return Err(refused("the interface of the host is gone, or the program was taken off it"));
        }
        if reserve.is_keyed {
            return Err(refused("frames of this host are authenticated, which no handler in the kernel can check"));
        }
        if reserve.has_ceiling && handler.reply().is_some() {
            return Err(refused(
                "it is to reply, and the guard's ceiling follows what the executive sends (GuardConfig::lag)",
            ));
        }
        let (largest, most) = (channel.largest, (reserve.platform.packet as usize).min(LONGEST_MESSAGE));
        if largest > most {
            return Err(refused(format!("its messages have up to {largest} bytes, expected at most {most}")));
        }
        Ok((reserve, most))
    }

    /// Installs it, in the place of the one that is there; it was checked.
    pub(crate) fn install(
        mut handler: Box<Handler>,
        channel: &Channel<'_>,
        (spec, record): (&HandlerSpec, &Record),
        before: Option<&mut Self>,
    ) -> Result<Self, Error> {
        let Channel { port, contract, same_clock, .. } = channel;
        let (reserve, most) = Self::reserve_of(&handler, channel)?;
        let place = port.index().ok_or(HandlerError::NoChannel)?;
        let (reply, wire) = match handler.reply_mut() {
            None => (None, Duration::ZERO),
            Some(sender) => {
                let grant = sender.grant();
                let wire = reserve.platform.link.occupancy(grant.service.max_message());
                (Some(sender.lend_to_kernel(most)?), wire)
            }
        };
        // A thousandth less, so that a clock that is faster than ours uses nothing up.
        let interval = contract.interval();
        let every = interval.saturating_sub(interval.mul_ratio(1, 1024));
        let tolerance = contract.most_ahead() + interval * DELAYED;
        let deadline = same_clock.then(|| contract.deadline());
        let (cost, budget, least) = (spec.cost(), spec.budget(), contract.min_message());
        let words = std::array::from_fn(|word| record.word(word).load(SeqCst));
        let one_before = before.as_ref().map(|before| &before.installed);
        // What was delivered before must not be handled as a copy.
        let next = port.statistics.next();
        let what =
            Install { place, before: one_before, words, next, least, every, tolerance, cost, budget, deadline, reply };
        // Nothing orders what it sends: that takes from the link what it takes, and from the bounds as much.
        let share = (cost + AROUND + wire) * what.most_messages(DROPPING_PERIOD);
        let module = handler.module().ok_or(HandlerError::NoChannel)?;
        // Both go on at one rate: what the one before had is this one's.
        let carried = before.as_ref().map_or(Duration::ZERO, |before| before.share.min(share));
        reserve.take(share.saturating_sub(carried), port)?;
        let installed = reserve.handlers.install(module, &what, || port.index() == Some(place));
        let installed = installed.inspect_err(|_| reserve.give_back(share.saturating_sub(carried), port))?;
        // Nor what was delivered meanwhile.
        installed.begin_at(port.statistics.next());
        if let Some(before) = before {
            before.share = before.share.saturating_sub(carried);
        }
        Ok(Self { installed, link: Arc::clone(&reserve.link), handler, share, is_told: false })
    }

    /// How it ended by itself, once.
    pub(crate) fn has_ended(&mut self) -> Option<HandlerState> {
        let state = self.state();
        if self.is_told || state == HandlerState::Installed {
            return None;
        }
        self.is_told = true;
        // Whatever becomes of the interface: who was told that it has ended counts on that.
        self.installed.stop();
        Some(state)
    }

    fn state(&self) -> HandlerState {
        match () {
            () if self.installed.has_ended() => HandlerState::OverBudget,
            () if self.link.is_gone() => HandlerState::LinkGone,
            () => HandlerState::Installed,
        }
    }

    /// Takes it out. What it did is counted with `record`, and told to the executive.
    pub(crate) fn take_out(self, home: &Arc<dyn Home>, port: &Arc<Port>, record: &Record) -> Handler {
        self.stop(home, port);
        self.words_to(record);
        self.finish(home, port, record)
    }

    /// It was stopped, and what has its words now may have changed them.
    pub(crate) fn finish(mut self, home: &Arc<dyn Home>, port: &Arc<Port>, record: &Record) -> Handler {
        record.count_in_kernel(&self.installed.counts());
        if let Some(reply) = self.handler.reply_mut() {
            reply.come_back(self.installed.next_reply());
        }
        if let Some(reserve) = home.kernel() {
            reserve.give_back(self.share, port);
        }
        *self.handler
    }

    /// Has it have no more messages, and waits until it is at none, and the executive has heard of all.
    pub(crate) fn stop(&self, home: &Arc<dyn Home>, port: &Arc<Port>) {
        self.installed.stop();
        // One that was called just before it was stopped has begun then.
        std::thread::sleep(StdDuration::from_millis(1));
        self.have_told(home, port, 500);
    }

    /// It was stopped, and has messages again, unless it had ended.
    pub(crate) fn resume(&self) {
        if !self.is_told {
            self.installed.resume();
        }
    }

    /// Waits until it is at no message, and the executive has heard of all that it did; at most so many ms.
    pub(crate) fn have_told(&self, home: &Arc<dyn Home>, port: &Arc<Port>, most: u32) {
        for _ in 0..most {
            if self.installed.is_through() || home.check_running().is_err() {
                break;
            }
            home.doorbell().ring(port);
            std::thread::sleep(StdDuration::from_millis(1));
        }
    }

    /// What it did, with what handlers before it did.
    pub(crate) fn figures(&self, record: &Record) -> HandlerFigures {
        let all = Record::new(record.spec);
        all.count_in(record);
        all.count_in_kernel(&self.installed.counts());
        self.words_to(&all);
        all.set_state(self.state());
        all.figures()
    }

    /// What follows it goes on with its words.
    pub(crate) fn words_to(&self, record: &Record) {
        for word in 0..STATE_WORDS {
            record.word(word).store(self.installed.word(word).load(SeqCst), SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Signal;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + MS(1_000 + millis)
    }

    #[test]
    fn what_is_given_back_is_the_channels_at_once_and_others_a_period_later() {
        let [one, other] = [(); 2].map(|()| Port::new(Signal::default()));
        let mut left = Left { whole: MS(10), now: MS(10), later: Vec::new() };
        assert_eq!(left.take(at(0), MS(7), &one), Ok(()));
        assert_eq!(left.take(at(0), MS(4), &other), Err(MS(3)));
        left.give_back(at(1), MS(7), &one);
        // What was left all the time is everybody's.
        assert_eq!(left.take(at(2), MS(3), &other), Ok(()));
        assert_eq!(left.take(at(2), MS(1), &other), Err(MS(0)));
        // A part of its own; it cannot have more than that.
        assert_eq!(left.take(at(2), MS(8), &one), Err(MS(0)));
        assert_eq!(left.take(at(2), MS(5), &one), Ok(()));
        assert_eq!(left.take(at(2), MS(3), &one), Err(MS(0)));
        // The rest a period after it was given back.
        let period = DROPPING_PERIOD.as_nanos() / 1_000_000;
        assert_eq!(left.take(at(period), MS(1), &other), Err(MS(0)));
        assert_eq!(left.take(at(1 + period), MS(3), &other), Err(MS(2)));
        assert_eq!(left.take(at(1 + period), MS(2), &other), Ok(()));
        // All of it in the end, and no more.
        for (share, port) in [(5, &one), (3, &other), (2, &other)] {
            left.give_back(at(200), MS(share), port);
        }
        assert_eq!(left.take(at(200 + period), MS(11), &one), Err(MS(10)));
        assert_eq!(left.take(at(200 + period), MS(10), &one), Ok(()));
        assert!(left.later.is_empty());
    }
}

//! Handlers in the kernel (`laxity::handler::kernel`): one C function, called for each message as its packet arrives, before any
//! process is scheduled `[events §3.2]`.
//!
//! The function is written against [`HEADER`] and compiled with `clang -O2 -g -target bpf -c`. Its reply leaves without waking
//! any process of this host. The rules are in docs/events.md; a function that breaks one is refused when it is installed, with
//! the reason.
//!
//! The host must use AF_XDP, and must be started with time for such handlers
//! ([`XdpOptions::handlers`](crate::XdpOptions::handlers)). The channel's messages must fit one packet, and [`LONGEST_MESSAGE`].

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;

use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, readable, wait};
use laxity_link::xdp::handler::{self as link, HandlerError, Handlers, InstallRequest, InstalledHandler, Prober};
pub use laxity_link::xdp::handler::{HEADER, LONGEST_MESSAGE, ModuleMap, Notice};
use laxity_link::xdp::{Mode, Xdp, XdpStatus};

use crate::channel_executive::ChannelExecutive;
use crate::error::Error;
use crate::handler::{Handler, HandlerFigures, HandlerRecord, HandlerState};
use crate::link::DROPPING_PERIOD;
use crate::port::Port;
use crate::sync::locked;

/// The kernel's time for a message beside the handler: finding it, copying it, and making a packet of the reply. Assumed; the
/// benchmark `event-dispatch` measures the sum.
const AROUND: Duration = Duration::from_micros(3);
/// The number of messages that may be delayed in transit and arrive together with messages that are in time. Further ones go to
/// the application's queue.
const DELAYED: u64 = 16;

/// A compiled C function for the kernel.
pub struct Module(link::Module);

impl Module {
    /// Loads an object file of `clang -target bpf`, given by its bytes, and makes its maps. The second value receives the handler's
    /// notices for the application.
    ///
    /// # Errors
    /// [`Error::Module`] if the file contains something that a handler may not have; [`Error::InKernel`] if the user may make no
    /// maps.
    pub fn new(object: &[u8]) -> Result<(Self, Notices), Error> {
        let (module, notices) = link::Module::new(object)?;
        Ok((Self(module), Notices(notices)))
    }

    /// Returns a map of the module by its name in the C source; `None` if there is no such map.
    pub fn map(&self, name: &str) -> Option<Arc<ModuleMap>> {
        self.0.map(name)
    }

    /// Makes the handler. The kernel's verifier checks it when it is installed.
    pub fn handler(self) -> Handler {
        Handler::in_kernel(self.0)
    }
}

/// The queue of notices from a handler to its application (the result `LAXITY_TELL`): messages that the handler has handled, in their
/// order.
///
/// A notice that is not read in time is lost, and counted ([`HandlerFigures::untold`]).
pub struct Notices(link::Notices);

impl Notices {
    /// Returns the next notice; waits for `timeout` at most.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] after the timeout; the kernel's error if waiting fails.
    pub fn wait(&mut self, timeout: StdDuration) -> Result<Notice, Error> {
        if let Some(notice) = self.0.poll() {
            return Ok(notice);
        }
        wait(&mut [readable(self.0.as_fd())], Some(timeout.into())).map_err(Error::system("waiting for a handler"))?;
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

/// The resources of a host for handlers in the kernel.
pub(crate) struct HandlerReserve {
    handlers: Arc<Handlers>,
    /// The state of the interface, and of the program that calls the handlers.
    link: Arc<XdpStatus>,
    /// Set where the driver takes frames back itself.
    prober: Option<Prober>,
    /// True if frames are authenticated, which nothing in the kernel can check.
    is_keyed: bool,
    /// True if the ceiling of other programs follows what the executive has sent.
    has_ceiling: bool,
    platform: Platform,
    left: Mutex<PeriodBudget>,
}

/// The time that all handlers may take in each period: in all, what is left, and the part that only the channel that returned it
/// may have before a period is over.
struct PeriodBudget {
    whole: Duration,
    now: Duration,
    later: Vec<(Instant, Duration, Arc<Port>)>,
}

impl HandlerReserve {
    pub(crate) fn new(link: &Xdp, whole: Duration, (is_keyed, has_ceiling): (bool, bool), platform: Platform) -> Self {
        // Otherwise replies leave as the kernel's own packets do.
        let prober = (link.status().opened.mode == Mode::Native).then(|| link.prober());
        let left = Mutex::new(PeriodBudget { whole, now: whole, later: Vec::new() });
        Self { handlers: link.handlers(), link: link.status(), prober, is_keyed, has_ceiling, platform, left }
    }

    fn take(&self, share: Duration, port: &Arc<Port>) -> Result<(), Error> {
        let mut left = locked(&self.left);
        let whole = left.whole;
        left.take(sys::now(), share, port).map_err(|left| {
            let problem = format!(
                "it may take {share} in {DROPPING_PERIOD}, and {left} is left of {whole} that the host was started with (XdpOptions::handlers)"
            );
            Error::InKernel { problem, status: 3 }
        })
    }
}

impl PeriodBudget {
    /// Takes so much time for the channel of `port`.
    ///
    /// # Errors
    /// Less than that is left; how much.
    fn take(&mut self, now: Instant, share: Duration, port: &Arc<Port>) -> Result<(), Duration> {
        let come = self.later.extract_if(.., |(at, ..)| *at <= now).map(|(_, share, _)| share.as_nanos()).sum();
        self.now = (self.now + Duration::from_nanos(come)).min(self.whole);
        // The channel that returned some of the time goes on at its rate, and may have that part at once.
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

/// A channel whose messages a handler is to handle.
pub(crate) struct HandledChannel<'a> {
    pub(crate) home: &'a Arc<dyn ChannelExecutive>,
    pub(crate) port: &'a Arc<Port>,
    pub(crate) contract: Contract,
    pub(crate) peer: std::net::SocketAddr,
    pub(crate) same_clock: bool,
    /// The largest message that may come, in bytes.
    pub(crate) largest: usize,
}

/// An installed handler, and its state in this process.
pub(crate) struct KernelHandler {
    installed: InstalledHandler,
    link: Arc<XdpStatus>,
    handler: Box<Handler>,
    share: Duration,
    is_told: bool,
    pub(crate) home: Arc<dyn ChannelExecutive>,
    port: Arc<Port>,
    record: Arc<HandlerRecord>,
}

impl KernelHandler {
    /// The handler stays in the kernel, and with it what the kernel uses of this process.
    pub(crate) fn leave(self) {
        let Self { installed, handler, .. } = self;
        std::mem::forget((installed, handler));
    }

    /// Checks that the kernel would accept the handler, and that its replies would arrive. May take seconds.
    pub(crate) fn check(handler: &Handler, channel: &HandledChannel<'_>) -> Result<(), Error> {
        let (reserve, _) = Self::reserve_of(handler, channel)?;
        let module = handler.module().ok_or(HandlerError::NoChannel)?;
        reserve.handlers.check(module)?;
        let Some(sender) = &handler.reply else { return Ok(()) };
        let peer = sender.grant().peer;
        if peer != channel.peer {
            let problem = format!("it is to reply to {peer}, and the messages come from {}", channel.peer);
            return Err(refused(problem));
        }
        reserve.prober.as_ref().map_or(Ok(()), |prober| prober.probe(peer)).map_err(Error::from)
    }

    /// The host's resources for the handler, and the largest message that it can handle, in bytes.
    fn reserve_of<'a>(handler: &Handler, channel: &HandledChannel<'a>) -> Result<(&'a HandlerReserve, usize), Error> {
        let reserve = channel.home.kernel().ok_or_else(|| refused("it takes a host on the fast path (link xdp)"))?;
        if reserve.link.is_gone() {
            return Err(refused("the interface of the host is gone, or the program was taken off it"));
        }
        if reserve.is_keyed {
            return Err(refused("frames of this host are authenticated, which no handler in the kernel can check"));
        }
        if reserve.has_ceiling && handler.reply.is_some() {
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

    /// Installs the checked handler, in place of the present one.
    pub(crate) fn install(
        mut handler: Box<Handler>,
        channel: &HandledChannel<'_>,
        record: &Arc<HandlerRecord>,
        before: Option<&mut Self>,
    ) -> Result<Self, Error> {
        let HandledChannel { home, port, contract, same_clock, .. } = channel;
        let (reserve, most) = Self::reserve_of(&handler, channel)?;
        let place = port.index().ok_or(HandlerError::NoChannel)?;
        let (reply, wire) = match &mut handler.reply {
            None => (None, Duration::ZERO),
            Some(sender) => {
                let grant = sender.grant();
                let wire = reserve.platform.link.occupancy(grant.service.max_message());
                (Some(sender.lend_to_kernel(most)?), wire)
            }
        };
        // A thousandth less, so that a clock that is faster than ours does not use anything up.
        let interval = contract.interval();
        let every = interval.saturating_sub(interval.mul_ratio(1, 1024));
        let tolerance = contract.most_ahead() + interval * DELAYED;
        let deadline = same_clock.then(|| contract.deadline());
        let (cost, budget, least) = (record.cost, record.budget, contract.min_message());
        let words = std::array::from_fn(|word| record.words[word].load(SeqCst));
        let one_before = before.as_ref().map(|before| &before.installed);
        // A message that was delivered before must not be handled as a copy.
        let next = port.statistics.next();
        let what = InstallRequest {
            place,
            before: one_before,
            words,
            next,
            least,
            every,
            tolerance,
            cost,
            budget,
            deadline,
            reply,
        };
        // Replies are not scheduled: they take from the link, and from the bounds, what they take.
        let share = (cost + AROUND + wire) * what.most_messages(DROPPING_PERIOD);
        let module = handler.module().ok_or(HandlerError::NoChannel)?;
        // Both use one allowance: what the former handler had left is the new one's.
        let carried = before.as_ref().map_or(Duration::ZERO, |before| before.share.min(share));
        reserve.take(share.saturating_sub(carried), port)?;
        let installed = reserve.handlers.install(module, &what, || port.index() == Some(place));
        let installed = installed
            .inspect_err(|_| locked(&reserve.left).give_back(sys::now(), share.saturating_sub(carried), port))?;
        // Nor a message that was delivered meanwhile.
        installed.begin_at(port.statistics.next());
        if let Some(before) = before {
            before.share = before.share.saturating_sub(carried);
        }
        let (link, home, port) = (Arc::clone(&reserve.link), Arc::clone(home), Arc::clone(port));
        Ok(Self { installed, link, handler, share, is_told: false, home, port, record: Arc::clone(record) })
    }

    /// The way in which it ended by itself, once.
    pub(crate) fn has_ended(&mut self) -> Option<HandlerState> {
        let state = self.state();
        if self.is_told || state == HandlerState::Installed {
            return None;
        }
        self.is_told = true;
        // This holds whatever becomes of the interface: the application that was told of the end relies on it.
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

    /// Removes the handler. Its figures are added to the channel's record, and told to the executive.
    pub(crate) fn take_out(self) -> Handler {
        self.stop();
        self.words_to(&self.record);
        self.finish()
    }

    /// Removes a stopped handler. The words are not copied: their new owner may have changed them.
    pub(crate) fn finish(mut self) -> Handler {
        self.record.count_in_kernel(&self.installed.counts());
        if let Some(reply) = &mut self.handler.reply {
            reply.come_back(self.installed.next_reply());
        }
        if let Some(reserve) = self.home.kernel() {
            locked(&reserve.left).give_back(sys::now(), self.share, &self.port);
        }
        *self.handler
    }

    /// Stops the handler, and waits until it is at no message and the executive knows of all that it did.
    pub(crate) fn stop(&self) {
        self.installed.stop();
        // A call just before the stop has begun by then.
        std::thread::sleep(StdDuration::from_millis(1));
        self.have_told(500);
    }

    /// Lets a stopped handler have messages again, unless it has ended.
    pub(crate) fn resume(&self) {
        if !self.is_told {
            self.installed.resume();
        }
    }

    /// Waits until the handler is at no message and the executive knows of all that it did; for `most` ms at most.
    pub(crate) fn have_told(&self, most: u32) {
        for _ in 0..most {
            if self.installed.is_through() || self.home.check_running().is_err() {
                break;
            }
            self.home.doorbell().ring(&self.port);
            std::thread::sleep(StdDuration::from_millis(1));
        }
    }

    /// Its figures, with those of the handlers before it.
    pub(crate) fn figures(&self) -> HandlerFigures {
        let HandlerRecord { cost, budget, .. } = *self.record;
        let all = HandlerRecord { cost, budget, ..HandlerRecord::default() };
        all.count_in(&self.record);
        all.count_in_kernel(&self.installed.counts());
        self.words_to(&all);
        all.set_state(self.state());
        all.figures()
    }

    /// Copies its words to the next handler.
    pub(crate) fn words_to(&self, record: &HandlerRecord) {
        for (word, to) in record.words.iter().enumerate() {
            to.store(self.installed.word(word).load(SeqCst), SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Notifier;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + MS(1_000 + millis)
    }

    #[test]
    fn what_is_given_back_is_the_channels_at_once_and_others_a_period_later() {
        let [one, other] = [(); 2].map(|()| Port::new(Notifier::default()));
        let mut left = PeriodBudget { whole: MS(10), now: MS(10), later: Vec::new() };
        assert_eq!(left.take(at(0), MS(7), &one), Ok(()));
        assert_eq!(left.take(at(0), MS(4), &other), Err(MS(3)));
        left.give_back(at(1), MS(7), &one);
        // The part that was left all the time is for all channels.
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

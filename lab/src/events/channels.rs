//! Two hosts of Laxity and the channels of a row: messages to the server's host, and answers back. The client has the port of its host for each turn ([`client`](super::client)). The handler that
//! answers is in this program, which the executive calls, or in the kernel, behind its early demultiplexer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use laxity::handler::kernel::{Module, Notices};
use laxity::handler::{Disposition, Handler, HandlerSpec, HandlerState};
use laxity::{Host, HostConfig, LinkChoice, ListenConfig, Placement, Receiver, Sender, XdpOptions};
use laxity_core::figures::Figures;
use laxity_core::platform::{LinkModel, Platform};
use laxity_core::units::Duration;
use laxity_link::sys::now;
use laxity_link::xdp::Mode;

use super::client::{Client, share};
use super::{BATCH, MESSAGE_BYTES, Server};
use crate::conditions::{HostConditions, ThreadSetup};
use crate::error::Error;
use crate::hosts::{Hosts, InterfaceEnd};
use crate::roundtrip::{connect, start, with_shortest_interval};
use crate::workload::{open, real_time};

/// The declared time of a handler.
const COST: Duration = Duration::from_micros(10);
/// The same in the kernel, and what such handlers may take in a tenth of a second.
const COST_IN_KERNEL: Duration = Duration::from_micros(1);
const IN_KERNEL: Duration = Duration::from_millis(30);
/// A virtual pair has no driver that could look at a packet before the kernel has a buffer for it: in its driver the packet is copied for the program, and what a program sends back
/// arrives only where the other end has one, for which it is copied once more.
const MODE_OF_KERNEL: Mode = Mode::Generic;
/// It is trusted: only what the machine takes could make it that long.
const BUDGET: Duration = Duration::from_secs(1);
/// The cost of handing a packet to a virtual pair, which no device delays. By default packets leave some four times as far apart, which is less than a round trip takes here: answers
/// are held back by the contract, and not by the pace of a slower link that is assumed.
const LINK_COST: Duration = Duration::from_micros(2);
/// Frames that one look at the link finds at most: the client has one message under way.
const LOOK: u32 = 8;
const DEADLINE: Duration = Duration::from_millis(100);
/// The deadline where a part of the processor is set aside for handlers in the kernel.
const DEADLINE_OF_KERNEL: Duration = Duration::from_millis(250);
/// Longer than a turn, in which the client has what the server's host says to the client's, and so short that of four of its words, a quarter of this apart, turns that come at
/// regular intervals have no more than two.
const LEASE: Duration = Duration::from_secs(20);
/// Messages that may come at once: a batch, and what warms up before it.
const BURST: u64 = 1_024;

const _: () = assert!(BATCH < BURST as usize);

/// The hosts and channels of a row.
pub(super) struct RowChannels {
    /// As notes and figures have it.
    name: String,
    /// Of messages, at the server.
    pub(super) receiver: Receiver,
    /// The ends that keep both channels open.
    _client: (Sender, Receiver),
    _hosts: [Host; 2],
}

impl RowChannels {
    /// Opens them between hosts at these places: with the channel on which a handler is to answer, and the client. The client's host is over UDP, on the processor that is not the server's.
    pub(super) fn open(
        lab: &Hosts,
        conditions: &mut HostConditions,
        places: [InterfaceEnd; 2],
        name: String,
        server: Server,
        manner: ThreadSetup,
    ) -> Result<(Self, Sender, Client), Error> {
        let mut platform = Platform { link_cost: LINK_COST, receive_batch: LOOK, ..Platform::assumed_host() };
        platform.link.spacing = LinkModel::usual_spacing(LINK_COST);
        let longest_iteration = COST + platform.receive_first;
        let host = |end: usize, manner: ThreadSetup, link, longest_iteration: Duration| {
            let config = HostConfig {
                bind: places[end].address,
                link,
                placement: Placement::Thread,
                ..HostConfig::emulated(platform.clone())
            }
            .advanced(|advanced| {
                advanced.fifo_priority = manner.priority;
                advanced.lease = LEASE.into();
                advanced.longest_iteration = longest_iteration.into();
            });
            start(lab, end, config, manner)
        };
        let aside = ThreadSetup { processor: conditions.processors[0], priority: None };
        let (mode, handlers, cost, deadline) = match server == Server::LaxityKernel {
            true => (MODE_OF_KERNEL, IN_KERNEL, COST_IN_KERNEL, DEADLINE_OF_KERNEL),
            false => (Mode::Any, Duration::ZERO, COST, DEADLINE),
        };
        let link = match server.is_over_xdp() {
            true => LinkChoice::Xdp(XdpOptions { mode, handlers, ..XdpOptions::default() }),
            false => LinkChoice::Udp,
        };
        let hosts = [host(0, aside, LinkChoice::Udp, Duration::ZERO)?, host(1, manner, link, longest_iteration)?];
        let [client, server] = &hosts;
        conditions.notes.extend(server.status().notes.iter().map(|note| format!("{name}: {note}")));
        let spec = |interval| real_time(MESSAGE_BYTES as u64, MESSAGE_BYTES as u64, interval, BURST, deadline);
        let handled =
            ListenConfig { handler: Some(HandlerSpec::taking(cost).within(BUDGET)), ..ListenConfig::default() };
        let messages = |interval| Ok(open(client, server, server.address(), "messages", spec(interval)?, handled)?);
        let answers = |interval| connect(server, client, "answers", spec(interval)?);
        let ([(to_server, at_server), (to_client, at_client)], interval) =
            with_shortest_interval(&name, &mut conditions.notes, messages, answers)?;
        share(places[0].address).map_err(Error::system("the port of the client's host"))?;
        let asks = Client::of_channel(&to_server, interval);
        let opened = Self { name, receiver: at_server, _client: (to_server, at_client), _hosts: hosts };
        Ok((opened, to_client, asks))
    }

    /// Has each message answered with itself on `reply`. If that is watched, the handler tells when it begins; one in the program leaves the message to the application then.
    pub(super) fn install(
        &mut self,
        reply: Sender,
        server: Server,
        is_watched: bool,
    ) -> Result<Option<HandlerWatchPoint>, Error> {
        if server == Server::LaxityKernel {
            let (module, notices) = Module::new(if is_watched { WATCHED } else { ECHO })?;
            self.receiver.on_message(module.handler().replying_on(reply))?;
            return Ok(is_watched.then(|| HandlerWatchPoint::InKernel(Box::new(notices))));
        }
        let entries = is_watched.then(|| Arc::new(HandlerEntries((0..BURST).map(|_| AtomicU64::new(0)).collect())));
        let handler = match entries.clone() {
            None => Handler::new(|event| {
                // What is not sent is counted.
                let _ = event.reply(event.message());
                Disposition::Done
            }),
            Some(written) => Handler::new(move |event| {
                let began = now().as_nanos();
                written.at(event.sequence()).store(began, Ordering::Release);
                let _ = event.reply(event.message());
                Disposition::Deliver
            }),
        };
        self.receiver.on_message(handler.replying_on(reply))?;
        Ok(entries.map(HandlerWatchPoint::InProcess))
    }

    /// The figures of the messages. `notes` are told what the handler did not do.
    pub(super) fn close(self, notes: &mut Vec<String>) -> Figures {
        if let Some(handler) = self.receiver.handler() {
            if handler.unsent > 0 {
                notes.push(format!("{}: {} answers were not sent", self.name, handler.unsent));
            }
            if handler.state != HandlerState::Installed {
                let state: &str = handler.state.into();
                notes.push(format!("{}: the handler is {state}", self.name));
            }
        }
        let figures = self.receiver.figures();
        // What the kernel handles passes by the executive, which knows how many there were.
        let response = self.receiver.handler().map(|handler| handler.response).filter(|found| found.max.is_some());
        Figures { name: self.name, latencies: response.unwrap_or(figures.latencies), ..figures }
    }
}

/// Handlers in the kernel: one that answers, and one that tells of each message beside that.
static ECHO: &[u8] = include_bytes!("echo.bpf.o");
static WATCHED: &[u8] = include_bytes!("watched.bpf.o");

/// The times at which a handler began with each of the last so many messages, by their numbers.
pub(super) struct HandlerEntries(Box<[AtomicU64]>);

impl HandlerEntries {
    /// ns at which it began with that message.
    pub(super) fn at(&self, sequence: u64) -> &AtomicU64 {
        &self.0[(sequence % BURST) as usize]
    }
}

/// The source of the times at which a handler begins with a message.
pub(super) enum HandlerWatchPoint {
    /// It writes it down, and the message goes to the application.
    InProcess(Arc<HandlerEntries>),
    /// It says so beside the message.
    InKernel(Box<Notices>),
}

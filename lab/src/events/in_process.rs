//! A handler of Laxity in the executive of its host, and the channels that its messages and answers come on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use laxity::handler::{Disposition, Handler, HandlerSpec, HandlerState};
use laxity::{ChannelSpec, Host, HostConfig, LinkChoice, ListenConfig, Placement, Receiver, Sender, XdpOptions};
use laxity_core::contract::Contract;
use laxity_core::figures::Figures;
use laxity_core::limits::MIN_INTERVAL;
use laxity_core::platform::{LinkModel, Platform};
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::now;

use super::client::{Client, share};
use super::{BATCH, MESSAGE_BYTES};
use crate::conditions::{Conditions, Manner};
use crate::error::Error;
use crate::hosts::{Hosts, Place};
use crate::roundtrip::{connect, connect_to, start, with_shortest_interval};

/// What a handler is declared to take.
const COST: Duration = Duration::from_micros(10);
/// What it takes to hand a packet to a virtual pair, which no device delays. Packets leave some ten µs apart then, as a host has it by default, which is less than a round trip takes: the
/// contract holds answers back, and not the pace of a slower link that is assumed.
const LINK_COST: Duration = Duration::from_nanos(2_500);
/// Frames that one look at the link finds at most: the client has one message under way.
const LOOK: u32 = 8;
/// It is trusted: only what the machine takes could make it that long.
const BUDGET: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_millis(100);
/// Longer than a turn, in which the client has what the server's host says to the client's.
const LEASE: Duration = Duration::from_secs(60);
/// Messages that may come at once: a batch, and what warms up before it.
const BURST: u64 = 1_024;

const _: () = assert!(BATCH < BURST as usize);

/// When the handler began with each of the last so many messages, by their numbers.
#[derive(Debug)]
pub(super) struct Entries(Box<[AtomicU64]>);

impl Entries {
    fn new() -> Self {
        Self((0..BURST).map(|_| AtomicU64::new(0)).collect())
    }
    fn of(&self, sequence: u64) -> &AtomicU64 {
        &self.0[(sequence % BURST) as usize]
    }
    /// When it began with that message.
    pub(super) fn at(&self, sequence: u64) -> Instant {
        Instant::from_nanos(self.of(sequence).load(Ordering::Acquire))
    }
}

/// Both hosts, and what stands between them.
pub(super) struct InProcess {
    name: String,
    /// Of the channel that the handler has.
    pub(super) receiver: Receiver,
    /// When it begins with messages, which then go to the channel's queue, if that is looked at.
    pub(super) entries: Arc<Entries>,
    /// What keeps the channels open.
    _client: (Sender, Receiver),
    _hosts: [Host; 2],
}

impl InProcess {
    /// Opens it as `name`: the client's host over UDP at the first place, on the processor that is not the server's; the server's as `manner` says. `is_watched` if it is looked at when the
    /// handler begins.
    pub(super) fn open(
        lab: &Hosts,
        conditions: &mut Conditions,
        places: [Place; 2],
        (name, over_xdp, manner): (String, bool, Manner),
        is_watched: bool,
    ) -> Result<(Self, Client), Error> {
        let aside = Manner { processor: conditions.processors[0], priority: None };
        let link = if over_xdp { LinkChoice::Xdp(XdpOptions::default()) } else { LinkChoice::Udp };
        let mut platform = Platform { link_cost: LINK_COST, receive_batch: LOOK, ..Platform::assumed_host() };
        platform.link.spacing = LinkModel::usual_spacing(LINK_COST);
        let longest_iteration = COST + platform.receive_first;
        let host = |end: usize, manner: Manner, link, longest_iteration| {
            let config = HostConfig {
                bind: places[end].address,
                link,
                placement: Placement::Thread,
                fifo_priority: manner.priority,
                lease: LEASE,
                longest_iteration,
                claims: None,
                ..HostConfig::with_costs(platform.clone())
            };
            start(lab, end, config, manner)
        };
        let hosts = [host(0, aside, LinkChoice::Udp, Duration::ZERO)?, host(1, manner, link, longest_iteration)?];
        let [client, server] = &hosts;
        conditions.notes.extend(server.standing().notes.iter().map(|note| format!("{name}: {note}")));
        let spec = |interval| -> Result<ChannelSpec, Error> {
            let bytes = MESSAGE_BYTES as u64;
            let contract = Contract::new(bytes, bytes, interval, BURST, DEADLINE).map_err(laxity::Error::from)?;
            Ok(ChannelSpec::real_time(contract))
        };
        let handled =
            ListenConfig { handler: Some(HandlerSpec::taking(COST).within(BUDGET)), ..ListenConfig::default() };
        let (([to_server, to_client], [mut at_server, at_client]), interval) = with_shortest_interval(|interval| {
            let (to_server, at_server) = connect_to(client, server, "messages", spec(interval)?, handled)?;
            match connect(server, client, "answers", spec(interval)?) {
                Ok((to_client, at_client)) => Ok(([to_server, to_client], [at_server, at_client])),
                Err(refused) => {
                    // What it was granted is free again then.
                    to_server.close()?;
                    Err(refused)
                }
            }
        })?;
        if interval > MIN_INTERVAL {
            conditions.notes.push(format!("{name}: the shortest interval that is granted is {interval}"));
        }
        let entries = Arc::new(Entries::new());
        let handler = if is_watched { watched(Arc::clone(&entries)) } else { answering() };
        at_server.on_message(handler.replying_on(to_client))?;
        share(places[0].address).map_err(Error::system("the port of the client's host"))?;
        let asks = Client::of_channel(&to_server, interval);
        let opened = Self { name, receiver: at_server, entries, _client: (to_server, at_client), _hosts: hosts };
        Ok((opened, asks))
    }

    /// The figures of the channel that the handler has. `notes` are told what it did not do.
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
        Figures { name: self.name, ..self.receiver.figures() }
    }
}

/// Answers each message with itself.
fn answering() -> Handler {
    Handler::new(|event| {
        // What is not sent is counted.
        let _ = event.reply(event.message());
        Disposition::Done
    })
}

/// The same, and writes down when it began with each.
fn watched(entries: Arc<Entries>) -> Handler {
    Handler::new(move |event| {
        let began = now().as_nanos();
        entries.of(event.sequence()).store(began, Ordering::Release);
        let _ = event.reply(event.message());
        Disposition::Deliver
    })
}

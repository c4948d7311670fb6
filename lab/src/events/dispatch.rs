//! From the client's call until the server's first instruction that has the message, in parts: what the paper's Figs. 1 and 2 have of its kernel, of what can be seen
//! of this one.
//!
//! The paper counts from the interrupt: until its service routine has ended (ID + IE), and from there until the code that handles the event begins (BHD). A virtual pair
//! interrupts nothing: the call that sends a packet hands it to the other end, whose driver, or the program in it, stamps it in the same softirq.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::Duration as StdDuration;

use laxity::handler::kernel::Notices;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::now;

use super::channels::{HandlerEntries, HandlerWatchPoint, RowChannels};
use super::client::called_at;
use super::pair::{Pair, ServingEnd, TurnClient};
use super::servers::{Server, Wait};
use super::{MESSAGE_BYTES, Plan, Priority, TRIALS, conditions, open};
use crate::conditions::Report;
use crate::error::{Error, or_none};
use crate::figures::sorted;
use crate::hosts::Hosts;
use crate::sys::{is_nothing, or_nothing, stamped};
use crate::timing;
use crate::turns::Turns;

/// The parts, one behind the other.
pub const PARTS: [&str; 3] = ["until it has arrived", "until the server has noticed", "until the handler has it"];
/// Those of which the parts can be told, in the order of the rows.
const SERVERS: [Server; 6] =
    [Server::Blocking, Server::Epoll, Server::Sigio, Server::LaxityUdp, Server::LaxityXdp, Server::LaxityKernel];
/// Between messages: each finds a server that sleeps.
const INTERVAL: Duration = Duration::from_millis(1);

/// ns of each of [`PARTS`] of a message.
pub type Parts = [u64; PARTS.len()];

/// One server, at real-time priority if that is permitted.
pub struct DispatchRow {
    /// The server.
    pub server: Server,
    /// Of each message that was answered, turn by turn.
    pub messages: Vec<Parts>,
    /// Messages without an answer.
    pub lost: u64,
}

impl DispatchRow {
    /// Of each message the time of these parts together, in order of size, ns.
    pub fn together(&self, parts: std::ops::RangeInclusive<usize>) -> Vec<u64> {
        sorted(self.messages.iter().map(|of| of[parts.clone()].iter().sum()))
    }
}

/// The result. A server that this host does not have is missing, and among the notes.
pub type Dispatch = Report<DispatchRow>;

/// Runs it: nothing competes. `progress` is told how many of how many turns are done.
///
/// # Errors
/// As [`run`](super::run).
pub fn dispatch(plan: &Plan, progress: impl FnMut(u64, u64)) -> Result<Dispatch, Error> {
    let mut conditions = conditions()?;
    let priority = if conditions.priority.is_some() { Priority::RealTime } else { Priority::Normal };
    let lab = Hosts::new().map_err(Error::system("two network namespaces"))?;
    let mut pairs = open(&lab, &mut conditions, &SERVERS, &[priority], true)?;
    let mut turns = Turns::new(pairs.len() as u64 * plan.rounds(), progress);
    let found = turns.rounds(plan.rounds(), pairs.len(), |_, at| turn(&mut pairs[at], &lab, plan.span))?;
    let of_turns = |(pair, turns): (&Pair, Vec<(Vec<Parts>, u64)>)| {
        let (messages, lost): (Vec<_>, Vec<u64>) = turns.into_iter().unzip();
        DispatchRow { server: pair.server, messages: messages.concat(), lost: lost.iter().sum() }
    };
    let rows = pairs.iter().zip(found).map(of_turns).collect();
    for pair in pairs {
        pair.close(&mut conditions.notes);
    }
    Ok(conditions.report(rows, Vec::new(), ()))
}

fn turn(pair: &mut Pair, lab: &Hosts, span: Duration) -> Result<(Vec<Parts>, u64), Error> {
    let server = pair.server;
    let serve = |socket: &UdpSocket| match server.wait(socket)? {
        Some(wait) => watch(socket, wait),
        None => Ok(Vec::new()),
    };
    let (lost, served) = pair.with_ends(lab, serve, |asking| ask(asking, span), || Ok(()))?;
    let messages = match (served, &mut pair.serving) {
        (_, ServingEnd::Handler { channels, entries: Some(HandlerWatchPoint::InProcess(entries)) }) => {
            handled(channels, entries)?
        }
        (_, ServingEnd::Handler { entries: Some(HandlerWatchPoint::InKernel(notices)), .. }) => told(notices)?,
        (_, ServingEnd::Handler { entries: None, .. }) => Vec::new(),
        (served, ServingEnd::Socket(_)) => served.unwrap_or_default(),
    };
    Ok((messages, lost))
}

/// Asks in a rhythm, for so long or [`TRIALS`] times; how many were not answered.
fn ask(asking: &mut TurnClient<'_>, span: Duration) -> io::Result<u64> {
    let (begin, mut lost) = (now(), 0);
    for number in 0..TRIALS as u64 {
        let due = begin + INTERVAL * number;
        if due.since(begin) >= span || now().since(begin) >= span || !timing::sleep_until(due, asking.over) {
            break;
        }
        lost += u64::from(asking.ask()?.is_none());
    }
    Ok(lost)
}

/// Answers as [`Server::serve`] does, and tells the parts of each message.
fn watch(socket: &UdpSocket, mut wait: Wait<'_>) -> io::Result<Vec<Parts>> {
    stamped::stamp(socket)?;
    let (mut messages, mut message) = (Vec::with_capacity(TRIALS), [0; MESSAGE_BYTES + 1]);
    loop {
        wait()?;
        let noticed = now();
        match stamped::receive(socket, &mut message) {
            Ok((MESSAGE_BYTES, arrived)) => {
                let began = now();
                or_nothing(socket.send(&message[..MESSAGE_BYTES]))?;
                messages.extend(
                    called_at(&message).zip(arrived).map(|(called, arrived)| parts(called, arrived, noticed, began)),
                );
            }
            Ok(_) => return Ok(messages),
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A server that receives without having waited before notices a message as it has it.
fn parts(called: Instant, arrived: Instant, noticed: Instant, began: Instant) -> Parts {
    let noticed = if noticed < arrived { began } else { noticed };
    [arrived.since(called), noticed.since(arrived), began.since(noticed)].map(Duration::as_nanos)
}

/// Those of the messages that a handler had in a turn; it has left them to the application.
fn handled(channels: &mut RowChannels, entries: &HandlerEntries) -> Result<Vec<Parts>, Error> {
    let mut messages = Vec::new();
    while let Some(message) = or_none(channels.receiver.recv_timeout(StdDuration::ZERO))? {
        let Some(found) = message.segments() else { continue };
        let began = Instant::from_nanos(entries.at(message.sequence()).load(Ordering::Acquire));
        let waited = began.since(message.completion());
        let parts = [found.sending + found.transit, found.waiting, found.receiving + waited];
        messages.push(parts.map(Duration::as_nanos));
    }
    Ok(messages)
}

/// Those of the messages that a handler in the kernel told of, as many as there was room for: nothing wakes it, and it has noticed a message when
/// that has arrived.
fn told(notices: &mut Notices) -> Result<Vec<Parts>, Error> {
    let mut messages = Vec::new();
    while let Some(notice) = or_none(notices.wait(StdDuration::ZERO))? {
        let called = called_at(&notice.message);
        messages.extend(called.map(|called| parts(called, notice.arrived, notice.arrived, notice.sent)));
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_what_passed() {
        let at = Instant::from_nanos;
        assert_eq!(parts(at(10), at(13), at(20), at(22)), [3, 7, 2]);
        // It was in the call that receives when the message came.
        assert_eq!(parts(at(10), at(13), at(5), at(22)), [3, 9, 0]);
        let row = DispatchRow { server: Server::Epoll, messages: vec![[3, 9, 1], [1, 2, 4]], lost: 0 };
        assert_eq!(
            (row.together(0..=2), row.together(1..=2), row.together(0..=0)),
            (vec![7, 13], vec![6, 10], vec![1, 3])
        );
    }
}

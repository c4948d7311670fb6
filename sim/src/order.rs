//! The order of events: each host's next turn and each wire's next delivery.
//!
//! It relies on being told which hosts were touched; those alone are looked at again. So a world with a thousand hosts that
//! sleep costs as much as one with a few.

use std::collections::BTreeSet;

use laxity_core::units::Instant;

/// Something that happens. At one instant, what is less happens first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NextEvent {
    /// Something happens from outside: a fault begins or ends, or a frame arrives that no host sent.
    Outside,
    /// A frame arrives that was sent by this host.
    Arrival(usize),
    /// A frame has passed the last switch port before this host.
    Passed(usize),
    /// The upcalls of this host may be done.
    Upcalls(usize),
    /// This host does something.
    Turn(usize),
}

/// The order of what is to come.
#[derive(Debug, Default)]
pub(crate) struct EventOrder {
    entries: BTreeSet<(Instant, NextEvent)>,
    /// By host: what stands in `entries`, for its wire, the port before it, its upcalls, and for itself.
    hosts: Vec<[Option<Instant>; 4]>,
    touched: Vec<usize>,
}

impl EventOrder {
    /// Something happened at this host: what it does next may have changed.
    pub(crate) fn touch(&mut self, host: usize) {
        if self.touched.last() != Some(&host) {
            self.touched.push(host);
        }
    }

    /// Looks at every host that was touched: `times` says when its wire delivers next, when the port before it does, when its upcalls may be
    /// done, and when its turn is.
    pub(crate) fn refresh(&mut self, mut times: impl FnMut(usize) -> [Option<Instant>; 4]) {
        while let Some(host) = self.touched.pop() {
            if self.hosts.len() <= host {
                self.hosts.resize(host + 1, [None; 4]);
            }
            let after = times(host);
            let before = core::mem::replace(&mut self.hosts[host], after);
            let kinds =
                [NextEvent::Arrival(host), NextEvent::Passed(host), NextEvent::Upcalls(host), NextEvent::Turn(host)];
            for (kind, (before, after)) in kinds.into_iter().zip(before.into_iter().zip(after)) {
                if before == after {
                    continue;
                }
                if let Some(before) = before {
                    self.entries.remove(&(before, kind));
                }
                if let Some(after) = after {
                    self.entries.insert((after, kind));
                }
            }
        }
    }

    /// The first of all.
    pub(crate) fn first(&self) -> Option<(Instant, NextEvent)> {
        self.entries.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wires_come_before_hosts_and_lower_numbers_before_higher_ones() {
        let at = |nanos| Some(Instant::from_nanos(nanos));
        let mut times = [[at(7), None, None, at(5)], [at(5), at(5), at(5), at(5)], [None, None, None, at(5)]];
        let mut order = EventOrder::default();
        (0..3).for_each(|host| order.touch(host));
        let mut seen = Vec::new();
        loop {
            order.refresh(|host| times[host]);
            let Some((_, next)) = order.first() else { break };
            seen.push(next);
            let (host, kind) = match next {
                NextEvent::Arrival(host) => (host, 0),
                NextEvent::Passed(host) => (host, 1),
                NextEvent::Upcalls(host) => (host, 2),
                NextEvent::Turn(host) => (host, 3),
                NextEvent::Outside => unreachable!("that is not here"),
            };
            times[host][kind] = None;
            order.touch(host);
        }
        let turns = [NextEvent::Turn(0), NextEvent::Turn(1), NextEvent::Turn(2)];
        assert_eq!(
            seen,
            [
                &[NextEvent::Arrival(1), NextEvent::Passed(1), NextEvent::Upcalls(1)],
                &turns[..],
                &[NextEvent::Arrival(0)]
            ]
            .concat()
        );
    }
}

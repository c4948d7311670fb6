//! Channels that are opened together: all of them, or none.
//!
//! Who asks first is granted first, so a set of channels may be granted in one order and not in another. A set is tried in its own order, then with
//! the shortest deadline first, then with the longest ([`orders`]); what was opened is closed again when a later one is refused. That a set is refused
//! does not say that no order would do: there are too many to try.

use std::net::SocketAddr;

use laxity_core::admission::Code;
use laxity_core::contract::Contract;
use laxity_core::units::Duration;

use crate::error::Error;
use crate::grant::ChannelSpec;
use crate::host::Host;
use crate::sender::Sender;

/// One channel of a set.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// To whom.
    pub peer: SocketAddr,
    /// What its receiver is called there.
    pub name: &'a str,
    /// What is asked for.
    pub spec: ChannelSpec,
}

/// In which orders a set is tried, each as places in it: with these deadlines, `None` for best effort, which always comes last but in the set's own
/// order. None of them twice.
pub fn orders(deadlines: &[Option<Duration>]) -> Vec<Vec<usize>> {
    let own: Vec<usize> = (0..deadlines.len()).collect();
    let mut shortest_first = own.clone();
    shortest_first.sort_by_key(|&place| (deadlines[place].is_none(), deadlines[place]));
    let mut longest_first = own.clone();
    longest_first.sort_by_key(|&place| (deadlines[place].is_none(), std::cmp::Reverse(deadlines[place])));
    let mut orders = vec![own];
    for order in [shortest_first, longest_first] {
        if !orders.contains(&order) {
            orders.push(order);
        }
    }
    orders
}

impl Host {
    /// Opens all channels of a set, or none; the senders are in the order of the set. Receivers may see channels that are opened and closed again
    /// without a message, if the set is refused in one order and granted in another, or not at all. A receiver's memory is free again half a second after
    /// that, so a set that needs more than a quarter of it may be refused for want of memory in its second order. Takes as long as its calls of [`Host::open`].
    ///
    /// # Errors
    /// [`Error::OneOfSet`]: the first refusal in the order of the set, or what else went wrong; no channel of the set is open then.
    pub fn open_all(&self, set: &[Wanted<'_>]) -> Result<Vec<Sender>, Error> {
        let deadlines: Vec<Option<Duration>> =
            set.iter().map(|wanted| wanted.spec.service.contract().map(Contract::deadline)).collect();
        let mut first = None;
        for order in orders(&deadlines) {
            match self.open_in(set, &order) {
                Ok(senders) => return Ok(senders),
                Err(error) if !depends_on_order(&error) => return Err(first.unwrap_or(error)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or_else(|| Ok(Vec::new()), Err)
    }

    /// In this order; what was opened before a refusal is closed.
    fn open_in(&self, set: &[Wanted<'_>], order: &[usize]) -> Result<Vec<Sender>, Error> {
        let mut opened: Vec<(usize, Sender)> = Vec::with_capacity(set.len());
        for &place in order {
            let Wanted { peer, name, spec } = set[place];
            match self.open(peer, name, spec) {
                Ok(sender) => opened.push((place, sender)),
                Err(error) => {
                    // One that cannot say goodbye is dropped, which closes it, too.
                    opened.into_iter().rev().for_each(|(_, sender)| drop(sender.close()));
                    return Err(Error::OneOfSet { name: name.to_owned(), error: Box::new(error) });
                }
            }
        }
        opened.sort_by_key(|(place, _)| *place);
        Ok(opened.into_iter().map(|(_, sender)| sender).collect())
    }
}

/// Whether another order may help: against anything but a test of admission it does not.
fn depends_on_order(error: &Error) -> bool {
    match error {
        Error::OneOfSet { error, .. } => depends_on_order(error),
        Error::Refused { refusal, .. } => {
            error.exit_status() == 3 && !matches!(refusal.code, Code::Memory | Code::PeerShare | Code::BadParameters)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_tried_once_each_with_best_effort_last() {
        let ms = |millis| Some(Duration::from_millis(millis));
        assert_eq!(orders(&[]), [Vec::<usize>::new()]);
        assert_eq!(orders(&[ms(5), ms(5)]), [[0, 1]]);
        assert_eq!(orders(&[ms(5), ms(9)]), [[0, 1], [1, 0]]);
        assert_eq!(orders(&[None, ms(9), ms(5)]), [[0, 1, 2], [2, 1, 0], [1, 2, 0]]);
    }
}

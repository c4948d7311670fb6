//! Opening a set of channels: all of them, or none.
//!
//! Channels are granted in the order in which they are asked for, so a set may be granted in one order and refused in another. A
//! set is tried in its own order, then with the shortest deadline first, then with the longest first ([`orders`]). When a channel
//! is refused, those that were opened before it are closed. A refusal does not mean that no order would do: there are too many to
//! try.

use std::net::SocketAddr;

use laxity_core::admission::Code;
use laxity_core::contract::Contract;
use laxity_core::units::Duration;

use crate::error::Error;
use crate::grant::ChannelSpec;
use crate::host::Host;
use crate::sender::Sender;

/// One channel of a set that [`Host::open_all`] opens.
#[derive(Clone, Copy, Debug)]
pub struct ChannelRequest<'a> {
    /// The host of the receiver.
    pub peer: SocketAddr,
    /// The name of the receiver at that host.
    pub name: &'a str,
    /// The requested channel.
    pub spec: ChannelSpec,
}

/// Lists the orders in which [`Host::open_all`] tries a set with these deadlines, each as indices into the set, without duplicates:
/// the set's own, the shortest deadline first, the longest first.
///
/// A deadline of `None` is best effort, which comes last in all orders except the set's own.
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
    /// Opens all channels of a set, or none. The senders are in the order of the set.
    ///
    /// Whether a set fits can depend on the order in which its channels are admitted. So the call tries up to three ([`orders`]).
    /// After a refusal it closes the channels that it opened, and receivers may see channels that end without a message. The memory
    /// of such a receiver is free again half a second later: a set that needs more than a quarter of the receiving host's memory may
    /// be refused in its second order for lack of memory. The call takes as long as its calls of [`Host::open`].
    ///
    /// # Errors
    /// [`Error::OneOfSet`] with the first refusal in the order of the set, or another error. Then no channel of the set is open.
    pub fn open_all(&self, set: &[ChannelRequest<'_>]) -> Result<Vec<Sender>, Error> {
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

    /// Opens the set in this order; closes the channels that were opened before a refusal.
    fn open_in(&self, set: &[ChannelRequest<'_>], order: &[usize]) -> Result<Vec<Sender>, Error> {
        let mut opened: Vec<(usize, Sender)> = Vec::with_capacity(set.len());
        for &place in order {
            let ChannelRequest { peer, name, spec } = set[place];
            match self.open(peer, name, spec) {
                Ok(sender) => opened.push((place, sender)),
                Err(error) => {
                    // A sender that cannot close in order is dropped, which closes the channel, too.
                    opened.into_iter().rev().for_each(|(_, sender)| drop(sender.close()));
                    return Err(Error::OneOfSet { name: name.to_owned(), error: Box::new(error) });
                }
            }
        }
        opened.sort_by_key(|(place, _)| *place);
        Ok(opened.into_iter().map(|(_, sender)| sender).collect())
    }
}

/// True if another order may help: it does so only against a test of admission.
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

//! The numbers of messages and packets that a granted channel must be able to hold.
//!
//! If a buffer were smaller, a handler would wait for it inside its deadline, and the analysis would not hold. Sizes are
//! messages or packets, never bytes; a packet takes one frame. All counts saturate at `u32::MAX`.

use crate::contract::{self, Contract};
use crate::platform::Platform;
use crate::units::Duration;

/// Messages that can wait or be in progress at the sender: [`Contract::queued_messages`].
pub fn send_messages(contract: &Contract) -> u32 {
    narrow(contract.queued_messages().into())
}

/// Packets that can be between a sending handler and the end of their transmission.
///
/// Current messages leave by their deadline: `⌈D/I⌉ · N`. More is not needed where messages are sent early either: packets leave in order,
/// so as many in front of a current one would be of messages that arrived logically D or more before it, and these have left.
pub fn send_packets(contract: &Contract, platform: &Platform) -> u32 {
    let messages = contract.deadline().div_ceil(contract.interval()).max(1);
    narrow(u128::from(messages) * packets(contract, platform))
}

/// Messages that can be under reassembly, waiting, or with the application at the receiver:
/// `⌈(d_up + d)/I⌉ + 1`, the last one being the message in the application's hands.
///
/// `upstream` is how long before its logical arrival here a message's first packet can come: the deadline of the sending
/// host's stages, and [`Contract::most_ahead`] unless it holds messages. `own` is the receiving stage's deadline.
pub fn receive_messages(contract: &Contract, upstream: Duration, own: Duration) -> u32 {
    let span = u128::from(upstream.as_nanos()) + u128::from(own.as_nanos());
    narrow(span.div_ceil(contract.interval().as_nanos().into()) + 1)
}

/// Packets of [`receive_messages`]: that times N.
pub fn receive_packets(contract: &Contract, platform: &Platform, upstream: Duration, own: Duration) -> u32 {
    narrow(u128::from(receive_messages(contract, upstream, own)) * packets(contract, platform))
}

/// N.
fn packets(contract: &Contract, platform: &Platform) -> u128 {
    contract::packets(contract.max_message(), platform.packet).into()
}

fn narrow(count: u128) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract(interval: u64, burst: u64, deadline: u64) -> Contract {
        let millis = Duration::from_millis;
        Contract::new(61_440, 61_440, millis(interval), burst, millis(deadline)).unwrap()
    }

    #[test]
    fn counts_follow_the_formulas() {
        let platform = Platform::channels_table_2b();
        let short = contract(50, 12, 40);
        assert_eq!(send_messages(&short), 12);
        assert_eq!(send_packets(&short, &platform), 15);
        // A deadline of two and a half intervals: three messages are in progress at once.
        let long = contract(20, 2, 50);
        assert_eq!(send_messages(&long), 4);
        assert_eq!(send_packets(&long, &platform), 45);
        // 30 + 20 ms at an interval of 20 ms are three messages, and one more with the application.
        let (upstream, own) = (Duration::from_millis(30), Duration::from_millis(20));
        assert_eq!(receive_messages(&long, upstream, own), 4);
        assert_eq!(receive_packets(&long, &platform, upstream, own), 60);
    }

    #[test]
    fn absurd_spans_saturate() {
        let contract = contract(20, 2, 50);
        let platform = Platform::channels_table_2b();
        assert_eq!(receive_messages(&contract, Duration::MAX, Duration::MAX), u32::MAX);
        assert_eq!(receive_packets(&contract, &platform, Duration::MAX, Duration::MAX), u32::MAX);
    }
}

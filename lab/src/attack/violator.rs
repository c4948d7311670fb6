//! What an attack in the name of a channel has to know: the marks in its frames.

use laxity::{Sender, experiments};
use laxity_core::wire::DataHeader;

/// The header of the first packet of message `first` in the name of `sender`, without its times and its payload; and the payload of a whole packet, bytes.
pub fn frames_of(sender: &Sender, first: u64) -> (DataHeader, u32) {
    let marks = experiments::marks(sender);
    let header = DataHeader {
        channel: marks.place,
        key: marks.key,
        message_bytes: sender.grant().service.max_message(),
        sequence: first,
        ..DataHeader::default()
    };
    (header, marks.packet)
}

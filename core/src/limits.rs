//! The limits of contracts, messages, packets and tables, each with its reason. A value that exceeds one is refused, never truncated.

use crate::probability::Probability;
use crate::units::Duration;

/// Most channels of one endpoint. One executive serves one link; 2¹⁷ leaves room above the 100,000 that we test.
pub const MAX_CHANNELS: usize = 1 << 17;
/// Largest message in bytes (16 MiB): a raw 4K video frame in 4:2:0 fits; larger data is a file, not a message.
pub const MAX_MESSAGE_BYTES: u32 = 16 << 20;
/// Largest packet payload in bytes: what a jumbo frame (9,000 bytes) carries beside IPv6, UDP and our header.
pub const MAX_PACKET_BYTES: u32 = 8_900;
/// Smallest packet payload in bytes that may be configured. Below it headers outweigh the data.
pub const MIN_PACKET_BYTES: u32 = 64;
/// Most packets of a message: the fragment index is 16 bits on the wire.
pub const MAX_PACKETS_PER_MESSAGE: u32 = u16::MAX as u32;
/// Largest burst in messages: it multiplies into the buffers of a channel.
pub const MAX_BURST: u32 = 1024;
/// Most messages that a channel may have queued: `burst − 1 + ⌈(deadline + catch-up)/interval⌉` (response-time buffers) must fit.
pub const MAX_QUEUED_MESSAGES: u32 = 4096;
/// Shortest interval: 100 µs. At one microsecond per step, ten thousand messages a second and channel is what one
/// processor can be asked to schedule; a faster stream belongs into larger messages.
pub const MIN_INTERVAL: Duration = Duration::from_micros(100);
/// Longest interval: one hour. Longer spans are not real-time, and the limit bounds the analysis.
pub const MAX_INTERVAL: Duration = Duration::from_secs(3600);
/// Shortest deadline: 10 µs.
pub const MIN_DEADLINE: Duration = Duration::from_micros(10);
/// Longest deadline: one hour.
pub const MAX_DEADLINE: Duration = Duration::from_secs(3600);
/// The longest time that a sender may make up for after it was held up: one second.
pub const MAX_CATCH_UP: Duration = Duration::from_secs(1);
/// The least fraction of messages that a contract may tolerate to miss: 10⁻⁹. A claim of less takes months of measuring.
pub const MIN_TOLERANCE: Probability = Probability::from_parts(1_000);
/// The greatest fraction of messages that a contract may tolerate to miss: one half.
pub const MAX_TOLERANCE: Probability = Probability::HALF;
/// The stall that a sender makes up for by default: 10 ms. A thread of ordinary priority that shares its processor with three others waits
/// so long (their time slices are 3 ms).
pub const STALL: Duration = Duration::from_millis(10);
/// The longest time that an executive spins with nothing to do before it sleeps: 1 ms. A later arrival costs a wake-up, which is a small part
/// of such a span.
pub const MAX_SPIN: Duration = Duration::from_millis(1);
/// Most packets between preemption points.
pub const MAX_QUANTUM: u32 = 256;
/// The least time between outgoing best-effort packets and control frames, and between timers of signalling that wake the executive, while an
/// upcall is ready: 1 ms. This keeps leases of the least length, and costs the upcalls some percent.
pub const HELD_SPACING: Duration = Duration::from_millis(1);
/// Most timers of signalling that are handled in one round, and most events that are told at the end of one: 8. Peers choose when leases end, and
/// no bound has a term for that work: 8 take less than a look at the inputs, and ten thousand rounds a second are enough for the keep-alives of
/// [`MAX_CHANNELS`] that have leases of ten seconds.
pub const TIMERS_AT_ONCE: usize = 8;
/// The interval at which a watching thread looks for an upcall that does not return: 10 ms.
pub const UPCALL_WATCH: Duration = Duration::from_millis(10);
/// Most upcalls on an executive's own thread.
pub const MAX_TRUSTED_UPCALLS: usize = 64;
/// Most upcalls of one thread: as many as channels; ten thousand are tested.
pub const MAX_UPCALLS: usize = 1 << 17;
/// Levels of the fixed-priority policy [channels §4.2]; 0 is the most urgent.
pub const PRIORITY_LEVELS: usize = 32;
/// Longest name of a channel in bytes: it travels in one control frame.
pub const MAX_NAME_BYTES: usize = 64;
/// Names that an endpoint listens on at once.
pub const MAX_LISTENERS: usize = 1024;
/// Requests of peers that wait for admission at once; more are ignored, and the peer tries again.
pub const MAX_PENDING_REQUESTS: usize = 64;
/// The most of the requests of [`MAX_PENDING_REQUESTS`] that come from one host, and the most answers to unknown peers that go to one host.
/// So there is room for other hosts.
pub const MAX_WAITING_OF_HOST: usize = 16;
/// Last control frames of channels that have ended, queued for a link, and as many answers to unknown peers. The peer asks again, so an
/// overflow only delays.
pub const MAX_CONTROL_FRAMES: usize = 64;
/// Most bytes by which a control frame is longer than the header of a data packet. The link's model counts them as payload, because its
/// overhead counts that header already. A test of [`wire`](crate::wire) compares it with the largest control frame.
pub const MAX_CONTROL_PAYLOAD: u32 = 186;
/// Bytes of the tag behind the payload of an authenticated packet.
pub const TAG_BYTES: usize = 8;
/// The largest size of a message that the `decay` policy still accepts, as a multiple of `max_message`.
pub const DECAY_FACTOR: u32 = 4;
/// Messages of one channel that may be under reassembly at once: reordering across more than that many is loss.
pub const MAX_REASSEMBLIES: u32 = 64;
/// Requests of peers that are kept as events until the host fetches them, beside the events of channels. More are dropped, and an overflow
/// event says so.
pub const MAX_EVENTS: usize = 1024;

const _: () = {
    assert!(MAX_MESSAGE_BYTES as u64 <= MAX_PACKETS_PER_MESSAGE as u64 * MAX_PACKET_BYTES as u64);
    assert!(MAX_CHANNELS <= u32::MAX as usize);
    assert!(PRIORITY_LEVELS <= u32::BITS as usize);
    assert!(MAX_NAME_BYTES <= u8::MAX as usize);
    assert!(MIN_PACKET_BYTES < MAX_PACKET_BYTES);
};

/// A parameter that is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}, expected {least} to {most}")]
pub struct OutOfRange {
    /// Its name.
    pub field: &'static str,
    /// The given value; spans are in nanoseconds.
    pub found: u64,
    /// The least that is possible.
    pub least: u64,
    /// The most that is possible.
    pub most: u64,
}

impl OutOfRange {
    /// Checks a value.
    ///
    /// # Errors
    /// It is below `least` or above `most`.
    pub fn check(field: &'static str, found: u64, least: u64, most: u64) -> Result<(), Self> {
        if (least..=most).contains(&found) { Ok(()) } else { Err(Self { field, found, least, most }) }
    }
}

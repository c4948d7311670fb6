//! The content of messages: a pattern of channel, number and place, so that every byte that is delivered can be checked; and
//! the one random source of the simulator.

use laxity_core::wire::DATA_HEADER_BYTES;
pub(crate) use laxity_link::emulated::SplitMix64 as Random;

fn start(channel: usize, sequence: u64) -> u64 {
    Random::mix(sequence ^ ((channel as u64) << 40))
}

fn byte(start: u64, place: usize) -> u8 {
    ((start ^ place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u8
}

/// Writes message `sequence` of `channel`.
pub(crate) fn write(channel: usize, sequence: u64, message: &mut [u8]) {
    let start = start(channel, sequence);
    message.iter_mut().enumerate().for_each(|(place, found)| *found = byte(start, place));
}

/// The first place where `message` is not message `sequence` of `channel`.
pub(crate) fn first_difference(channel: usize, sequence: u64, message: &[u8]) -> Option<usize> {
    let start = start(channel, sequence);
    message.iter().enumerate().position(|(place, &found)| found != byte(start, place))
}

/// The check sequence that each frame carries on a wire, as Ethernet's and UDP's do: damaged frames end there (FNV-1a).
pub(crate) fn check_sequence(frame: &[u8]) -> [u8; CHECK_BYTES] {
    let sum = frame.iter().fold(0x811c_9dc5_u32, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    sum.to_be_bytes()
}

/// Bytes of the check sequence.
pub(crate) const CHECK_BYTES: usize = 4;
/// The bytes that a data packet has on a wire beside its payload.
pub(crate) const HEADERS: u32 = (DATA_HEADER_BYTES + CHECK_BYTES) as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_in_the_wrong_place_or_message_shows() {
        let mut message = vec![0; 10_000];
        write(3, 7, &mut message);
        assert_eq!(first_difference(3, 7, &message), None);
        assert!(first_difference(3, 8, &message).is_some() && first_difference(2, 7, &message).is_some());
        let (a, b) = message.split_at_mut(4096);
        a[..4096].swap_with_slice(&mut b[..4096]);
        assert!(first_difference(3, 7, &message).is_some());
    }
}

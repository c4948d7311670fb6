//! What messages contain: a pattern of channel, number and place, so that every byte that is delivered can be checked; and
//! the one random source of the simulator.

/// Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014); ours, because a seed must mean the same for
/// ever.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
    /// Uniform in 0 to `most`, both included.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        ((u128::from(self.next()) * (u128::from(most) + 1)) >> 64) as u64
    }
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn start(channel: usize, sequence: u64) -> u64 {
    mix(sequence ^ ((channel as u64) << 40))
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

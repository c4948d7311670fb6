//! Across hosts: stages add up [channels §2.2, Kandlur, Shin, Ferrari].
//!
//! Every host regulates anew, to the logical arrival there: `l_n = l_{n−1} + d_{n−1}` and the time in transit. So a burst
//! does not grow from host to host, each sees the interval I, and the destination has a message by `l_1 + Σ d`. Clocks of two
//! hosts differ by an error at most, which counts once for each step from host to host.
//!
//! Between two hosts lies one more delay that is neither's stage: a frame that has arrived waits until the executive looks at
//! its inputs again ([`Admission::input_delay`]). A receiving host asks its sender for that time, too, so the logical arrival
//! there is when the frames of a message have been found at the latest.

use alloc::vec::Vec;

use super::reserve::Admission;
use crate::units::Duration;

/// One host of a route, the next one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The least deadline that the host grants for its stages.
    pub least: Duration,
    /// The time that a packet takes to the next host, and how far that one's clock may differ; zero for the last one.
    pub propagation: Duration,
}

/// The deadlines by host, or by how much the end-to-end deadline is too short. The rest of the deadline is divided in proportion to what each
/// host needs at least [channels §2.2], equally if they need nothing.
///
/// The deadlines and the propagation add up to `deadline`; what does not divide goes to the last host.
///
/// # Errors
/// The shortfall, if the hosts need more than `deadline`; all of it if there is no host.
pub fn compose(hops: &[Hop], deadline: Duration) -> Result<Vec<Duration>, Duration> {
    let needed: Duration = hops.iter().map(|hop| hop.least).sum();
    let outside: Duration = hops.iter().map(|hop| hop.propagation).sum();
    let Some(left) = deadline.checked_sub(needed + outside) else { return Err(needed + outside - deadline) };
    let count = u64::try_from(hops.len()).unwrap_or(u64::MAX);
    let share = |hop: &Hop| match needed {
        Duration::ZERO => Duration::from_nanos(left.as_nanos() / count.max(1)),
        _ => left.mul_ratio(hop.least.as_nanos(), needed.as_nanos()),
    };
    let mut deadlines: Vec<Duration> = hops.iter().map(|hop| hop.least + share(hop)).collect();
    let given: Duration = deadlines.iter().copied().sum();
    match deadlines.last_mut() {
        Some(last) => *last = *last + needed + left - given,
        None => return Err(deadline),
    }
    Ok(deadlines)
}

impl Admission {
    /// The longest wait of a frame from its arrival until the executive finds it. From the platform alone, the same for as long
    /// as the executive lives.
    ///
    /// *Awake.* The frame comes just after a look. The frames of that look cost `R = K C_d`; then at most P steps are made until
    /// the next one, each the dearest that there is and after a change of handler. Meanwhile packets are handed over to the link,
    /// C_l each: those that are made, as soon as they are, and those that waited because the link held its look-ahead, one each
    /// time that a packet is through, which is every `m = max(L_min, C_l)` at most. L_min is that of one byte on the whole link.
    /// So the wait w is the least with
    ///
    /// ```text
    /// w ≥ R + P (C_step + C_csp + C_l) + C_l (⌈w/m⌉ + 1)
    /// ```
    ///
    /// which is at most `(R + P (C_step + C_csp + C_l) + 2 C_l) m/(m − C_l)`. Where C_l = m nothing is admitted that receives.
    /// *Asleep.* The frame wakes the executive: W.
    ///
    /// It assumes that no more frames arrive between two looks than one look takes (`receive_batch`): those beyond that are found
    /// at a later one. The time that the platform takes meanwhile is not in it: a bound has it in its term of interference, for which the
    /// wait counts as part of the message's time. Strictly that is so for a burst of interference; of a periodic one, as much more
    /// can fall into the wait as it takes within that.
    pub fn input_delay(&self) -> Duration {
        self.between_looks().max(self.platform().wake_up)
    }

    /// The longest round trip to a peer that is like this host. It counts both directions, and for each the propagation, what its sender's
    /// link has been given ahead, the frame behind a full packet, and the wait until it is found. It follows from the platform alone. Where
    /// frames carry the time of their arrival, that wait is not part of a round trip.
    pub fn round_trip(&self) -> Duration {
        let platform = self.platform();
        let at_hosts = self.ahead() + platform.link.occupancy(platform.packet) + self.input_delay();
        (platform.propagation + at_hosts) * 2
    }

    /// The longest time from one look at the inputs to the next while the executive is awake: the first of the two waits of
    /// [`Admission::input_delay`].
    pub fn between_looks(&self) -> Duration {
        let platform = self.platform();
        let busy = platform.round();
        let between = platform.link.occupancy(1).max(platform.link_cost);
        let free = between - platform.link_cost;
        let stretched = if free.is_zero() { busy } else { busy.mul_ratio(between.as_nanos(), free.as_nanos()) };
        // `mul_ratio` rounds down.
        stretched + Duration::from_nanos(1)
    }

    /// True if looks find full packets as fast as a link like this host's can bring them: two thirds of what one look takes suffice
    /// from one look to the next; the rest is for control frames, and for what a port passes on faster than it came. Otherwise what
    /// comes in a burst waits for its looks ([`super::incoming`]), for long. The fewer packets lie between preemption points (P),
    /// the sooner the next look comes.
    pub fn looks_keep_up(&self) -> bool {
        let platform = self.platform();
        let one_look = platform.link.occupancy(platform.packet) * u64::from(platform.receive_batch);
        self.between_looks() <= one_look.mul_ratio(2, 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hop() -> impl Strategy<Value = Hop> {
        (0u64..1000, 0u64..100).prop_map(|(least, propagation)| Hop {
            least: Duration::from_nanos(least),
            propagation: Duration::from_nanos(propagation),
        })
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_host_gets_less_than_it_needs(
            hops in prop::collection::vec(hop(), 1..6), deadline in 0u64..8000,
        ) {
            let outside: u64 = hops.iter().map(|hop| hop.propagation.as_nanos()).sum();
            let needed: u64 = hops.iter().map(|hop| hop.least.as_nanos()).sum();
            match compose(&hops, Duration::from_nanos(deadline)) {
                Ok(deadlines) => {
                    prop_assert_eq!(deadlines.iter().map(|d| d.as_nanos()).sum::<u64>() + outside, deadline);
                    prop_assert!(deadlines.iter().zip(&hops).all(|(given, hop)| *given >= hop.least));
                }
                Err(short) => prop_assert_eq!(short.as_nanos() + deadline, needed + outside),
            }
        }
    }

    #[test]
    fn two_hosts_by_hand() {
        let millis = Duration::from_millis;
        let hop = |least, propagation| Hop { least: millis(least), propagation: millis(propagation) };
        let hops = [hop(10, 1), hop(30, 0)];
        assert_eq!(compose(&hops, millis(61)), Ok([millis(15), millis(45)].to_vec()));
        assert_eq!(compose(&[hop(0, 1), hop(0, 0)], millis(61)), Ok([millis(30), millis(30)].to_vec()));
        assert_eq!(compose(&hops, millis(40)), Err(millis(1)));
        assert_eq!(compose(&[], millis(40)), Err(millis(40)));
    }

    #[test]
    fn a_frame_waits_for_a_look_of_its_own_after_a_quantum_of_steps() {
        // R = 32 · 2 = 64 µs; 16 (8 + 5 + 10) + 2 · 10 = 388 µs; a byte takes the link (400 + 138) B/12.5 MB/s = 43.04 µs, so all
        // that is 43.04/33.04 as long: 588.804 µs.
        let host = Admission::new(crate::platform::Platform::assumed_host()).unwrap();
        let delay = host.input_delay();
        assert_eq!(delay.as_nanos(), 588_804);
        // It solves the inequality, and is no more than a hand-over too long.
        let right = |wait: u64| 64_000 + 16 * 23_000 + 10_000 * (wait.div_ceil(43_040) + 1);
        assert!(right(delay.as_nanos()) <= delay.as_nanos() && delay.as_nanos() < right(0) * 2);
        // 2 · (50 µs + A + (1400 + 138) B/12.5 MB/s + w), A being 274.001 µs.
        assert_eq!(host.round_trip().as_nanos(), 2 * (50_000 + 274_001 + 123_040 + 588_804));
        // An executive that is asleep is awake after W.
        let wake_up = Duration::from_millis(7);
        let drowsy = crate::platform::Platform { wake_up, ..crate::platform::Platform::assumed_host() };
        assert_eq!(Admission::new(drowsy).unwrap().input_delay(), wake_up);
    }
}

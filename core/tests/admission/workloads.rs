//! Three published workloads: random channels on the platform of Table 2b, the same on every machine and in every version.
//!
//! | workload | seed | requests |
//! |---|---|---|
//! | 1 | 1 | 60 |
//! | 2 | 2 | 60 |
//! | 3 | 3 | 110 |
//!
//! *Neighbours of Table 3* are what is published: the experiment's own channels have 15 packets every 30 to 50 ms, deadlines of
//! .8 to 1 interval and bursts of 1 to 12. Each request takes four numbers from SplitMix64, in this order (a % b is the
//! remainder, / the integer quotient):
//!
//! ```text
//! message   4096 (1 + r % 15)  bytes                                              1 to 15 packets of S, uniform
//! interval  30,000 + r % 270,001  µs                                              30 to 300 ms, uniform
//! deadline  (500 + r % 501) thousandths of the interval                           uniform from 0.5 to 1 interval
//! burst     1 + r % 12  messages                                                  uniform
//! ```
//!
//! *All magnitudes* are looked at beside them, six numbers for each request:
//!
//! ```text
//! message   octave o = r % 6, then  1000·2^o + r' % (1000·2^o)  bytes              1 KB to 64 KB, about log-uniform
//! interval  thirds of octaves k = r % 17:  20 ms · STEP[k % 3] · 2^(k / 3) / 1000,
//!           then a part of the way to the next one, r' % 1000 thousandths         20 ms to 1.02 s, about log-uniform
//! deadline  (300 + r % 1201) thousandths of the interval                          uniform from 0.3 to 1.5 intervals
//! burst     1 + r % 8  messages                                                   uniform
//! ```
//!
//! Sizes and intervals are log-uniform because channels of all magnitudes shall be there alike, as is usual for random task
//! sets. `min_message` is `max_message`, and the platform's best effort sends messages of 15 packets of S: no test is helped
//! or hurt by what a channel might send but does not.

use laxity_core::contract::Contract;
use laxity_core::units::Duration;

/// One of the workloads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) seed: u64,
    pub(crate) requests: usize,
}

pub(crate) const WORKLOADS: [Workload; 3] =
    [Workload { seed: 1, requests: 60 }, Workload { seed: 2, requests: 60 }, Workload { seed: 3, requests: 110 }];

/// 2^(k/3), in thousandths.
#[allow(dead_code, reason = "the bench asks for the published ones only")]
const STEP: [u64; 4] = [1000, 1260, 1587, 2000];

/// SplitMix64.
struct SeededNumbers(u64);

impl SeededNumbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

impl Workload {
    /// Its requests, in order.
    pub(crate) fn contracts(self) -> Vec<Contract> {
        let mut numbers = SeededNumbers(self.seed);
        (0..self.requests).map(|_| neighbour(&mut numbers)).collect()
    }
    /// As many, of all magnitudes.
    #[allow(dead_code, reason = "the bench asks for the published ones only")]
    pub(crate) fn of_all_magnitudes(self) -> Vec<Contract> {
        let mut numbers = SeededNumbers(self.seed);
        (0..self.requests).map(|_| contract(&mut numbers)).collect()
    }
}

fn neighbour(numbers: &mut SeededNumbers) -> Contract {
    let message = 4096 * (1 + numbers.next() % 15);
    let interval = 30_000 + numbers.next() % 270_001;
    let deadline = interval * (500 + numbers.next() % 501) / 1000;
    let burst = 1 + numbers.next() % 12;
    let micros = Duration::from_micros;
    Contract::new(message, message, micros(interval), burst, micros(deadline)).expect("a contract within all limits")
}

#[allow(dead_code, reason = "the bench asks for the published ones only")]
fn contract(numbers: &mut SeededNumbers) -> Contract {
    let least = 1000 << (numbers.next() % 6);
    let message = least + numbers.next() % least;
    let third = numbers.next() % 17;
    // Microseconds: 20 · STEP is 20 ms in its unit.
    let at = |third: usize| (20 * STEP[third % 3]) << (third / 3);
    let (from, to) = (at(third as usize), at(third as usize + 1));
    let interval = from + (to - from) * (numbers.next() % 1000) / 1000;
    let deadline = interval * (300 + numbers.next() % 1201) / 1000;
    let burst = 1 + numbers.next() % 8;
    let micros = Duration::from_micros;
    Contract::new(message, message, micros(interval), burst, micros(deadline)).expect("a contract within all limits")
}

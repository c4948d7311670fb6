//! D_order as printed in [channels §3.2]: for comparison. It never decides.
//!
//! The letters are the paper's; `L_x` is the platform's link model.
//!
//! ```text
//! N = ⌈M/S⌉   L_m = (N − 1) L_x(S) + L_x(S_last)   C_lm = N C_l   C_pm = C_p1st + (N − 1) C_p
//! C_pr = ((N − 1)/P) C_csp                          printed without rounding
//! T_s = C_p1st + L_m + C_lm + C_pr                  if C_p < L_x(S)
//!     = C_pm + C_lm + L_x(S_last) + C_pr            otherwise
//! C_b1st = C_p1st + (max(N_b, P) − 1) C_p           printed with max
//! T_w = C_b1st + ⌈C_b1st/L_x(S)⌉ C_l + C_cm + C_sw + L_x(S)
//! ```
//!
//! `N_b` is the length of the message that blocks. The paper writes N_p and does not say whose it is; here it is the
//! largest over all channels, the asking one included, and best effort (`best_effort.message_packets`), so that one T_w holds
//! for all channels. Only the part `1/P` of C_pr is not an integer, so all sums are kept in units of 1/P ns and
//! rounded up when they are shown.
//!
//! **Order.** D_order ranks channels by fixed priority, although the run time serves them by deadline:
//!
//! 1. The existing channels are sorted by `min(d, I)`, the older one first among equals. The paper has d ≤ I and sorts by
//!    d; beyond that, the formula of step 3 holds only for a message that ends before the next one comes.
//! 2. The newcomer stands above all.
//! 3. For each existing j, `r_j` is the least r with `r = T_w + T_s,j + Σ_{h above j} ⌈r/I_h⌉ T_s,h`, if at most min(d_j, I_j).
//! 4. The newcomer takes the highest place below which all channels have such an r.
//!
//! It may be on a host if its own `r ≤ min(D, I)` there and all others still hold: T_w may have grown. On a route the
//! responses of the hops must add up to no more than the deadline; each hop's d is then its r and a part of the slack
//! ([`compose`](super::super::route::compose)).
//!
//! **What is wrong with it** (each with its counter-example in the tests, or a figure of the paper that it misses):
//!
//! - `max` in C_b1st is a misprint for `min`: a block is "up to P packets" ([`BlockTerm::Min`]).
//! - C_l of other channels' packets is counted while the blocker runs, not while the message itself is switched to and
//!   starts: unsound.
//! - One C_csp is counted in all, though every message above costs its own: unsound.
//! - The wait for the link leaves out C_l: unsound.
//! - A response is one under fixed priorities; under earliest deadline first only d bounds it.

use alloc::vec::Vec;

use super::super::walk::{self, ONE};
use crate::contract::{self, Contract};
use crate::limits;
use crate::platform::{Platform, PlatformError};
use crate::units::Duration;

/// Most terms of the response-time sum that one insertion looks at, some tenth of a second; then it is refused.
const MOST_VISITS: u64 = 1 << 24;

/// The reading of the lowest preemption terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockTerm {
    /// As printed: `max(N_b, P)` in C_b1st, `(N − 1)/P` in C_pr.
    Printed,
    /// As evidently meant: `min(N_b, P)` and `⌊(N − 1)/P⌋`.
    Min,
}

/// A channel that D_order takes; times in nanoseconds, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DOrderChannel {
    /// The contract that was asked for.
    pub contract: Contract,
    /// N: packets of its largest message.
    pub packets: u32,
    /// T_s: the time for which processor and link are needed for a message.
    pub service: Duration,
    /// T_w: the longest wait for a message that has begun; the same for all channels.
    pub wait: Duration,
    /// r: the response time, by the formula.
    pub response: Duration,
    /// Its place in the order of priorities; 0 is the highest.
    pub position: usize,
    /// T_s in units of 1/P ns.
    exact_service: u128,
}

/// The reason why D_order does not take a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DOrderRefusal {
    /// The message has too many packets, or packets take no time on the link, so that T_w has no bound.
    #[error("bad_parameters: too many packets, or a link without a transmission time")]
    BadParameters,
    /// Σ T_s/I is more than one (rounded up at the 40th binary place).
    #[error("utilisation: the service times ask for more than there is")]
    Utilisation,
    /// The channel's own response would be more than this.
    #[error("deadline: the response would be longer than {within}")]
    Deadline {
        /// The lesser of deadline and interval.
        within: Duration,
    },
    /// An existing channel would not hold any more, wherever the new one stands.
    #[error("breaks_existing: channel {channel} would not hold its deadline")]
    BreaksExisting {
        /// Its number in the order of insertion.
        channel: usize,
    },
}

/// The channels of one sending host, in D_order.
///
/// ```
/// use laxity_core::{admission::published::d_order::{BlockTerm, DOrder}, contract::Contract, platform::Platform, units::Duration};
///
/// let millis = Duration::from_millis;
/// let mut hop = DOrder::new(&Platform::papers_table_2b(), BlockTerm::Printed)?;
/// let channel = hop.insert(&Contract::new(61_440, 61_440, millis(50), 1, millis(40))?)?;
/// assert_eq!(hop.channels()[channel].service, Duration::from_nanos(7_002_500));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DOrder {
    platform: Platform,
    block: BlockTerm,
    channels: Vec<DOrderChannel>,
}

/// The values of a channel that the response-time sum needs: T_s and I in units of 1/P ns.
#[derive(Clone, Copy)]
struct HigherChannel {
    service: u128,
    interval: u128,
}

impl DOrder {
    /// A host without channels.
    ///
    /// # Errors
    /// The first parameter of the platform that is out of range.
    pub fn new(platform: &Platform, block: BlockTerm) -> Result<Self, PlatformError> {
        platform.validate()?;
        Ok(Self { platform: platform.clone(), block, channels: Vec::new() })
    }

    /// The channels, in the order of their insertion.
    pub fn channels(&self) -> &[DOrderChannel] {
        &self.channels
    }

    /// Takes a channel of one hop, whose deadline is d. Its number is its index in [`DOrder::channels`].
    /// Time grows with the square of the number of channels, up to a bound.
    ///
    /// # Errors
    /// [`DOrderRefusal`], in its order; nothing has changed then.
    pub fn insert(&mut self, contract: &Contract) -> Result<usize, DOrderRefusal> {
        let packets = contract::packets(contract.max_message(), self.platform.packet);
        let full = self.link(self.platform.packet);
        if packets > limits::MAX_PACKETS_PER_MESSAGE || full == 0 {
            return Err(DOrderRefusal::BadParameters);
        }
        let service = self.service(contract.max_message(), packets);
        let wait = self.wait(packets, full);
        let above = |channel: &DOrderChannel| self.above(&channel.contract, channel.exact_service);
        let newcomer = self.above(contract, service);
        let mut entries: Vec<(usize, u128, HigherChannel)> = (self.channels.iter().enumerate())
            .map(|(index, channel)| (index, self.scaled(within(&channel.contract)), above(channel)))
            .collect();
        // A stable sort keeps the older one first.
        entries.sort_by_key(|&(_, within, _)| within);

        let used = entries.iter().map(|(_, _, above)| above).chain([&newcomer]).fold(0u128, |sum, above| {
            let interval = u64::try_from(above.interval).unwrap_or(0);
            sum.saturating_add(walk::share(above.service, interval))
        });
        if used > ONE {
            return Err(DOrderRefusal::Utilisation);
        }

        let mut visits = 0;
        // Below the newcomer, from the bottom up, as long as all channels hold.
        let mut position = entries.len();
        let mut below = Vec::new();
        while let Some((&(_, within, own), higher)) = entries[..position].split_last() {
            let higher = higher.iter().map(|entry| entry.2).chain([newcomer]);
            let Some(response) = response(wait + own.service, higher, within, &mut visits) else { break };
            position -= 1;
            below.push(response);
        }
        let within = within(contract);
        let higher = entries[..position].iter().map(|entry| entry.2);
        let own = response(wait + service, higher, self.scaled(within), &mut visits)
            .ok_or(DOrderRefusal::Deadline { within })?;

        let mut others = alloc::vec![(Duration::ZERO, 0); entries.len()];
        for (place, &(index, within, above)) in entries.iter().enumerate() {
            let response = if place < position {
                let higher = entries[..place].iter().map(|entry| entry.2);
                response(wait + above.service, higher, within, &mut visits)
                    .ok_or(DOrderRefusal::BreaksExisting { channel: index })?
            } else {
                below[entries.len() - 1 - place]
            };
            others[index] = (self.shown(response), place + usize::from(place >= position));
        }
        let wait = self.shown(wait);
        let newcomer = DOrderChannel {
            contract: *contract,
            packets,
            service: self.shown(service),
            wait,
            response: self.shown(own),
            position,
            exact_service: service,
        };
        for (channel, (response, position)) in self.channels.iter_mut().zip(others) {
            *channel = DOrderChannel { wait, response, position, ..*channel };
        }
        self.channels.push(newcomer);
        Ok(self.channels.len() - 1)
    }

    /// Nanoseconds of a duration, in units of 1/P.
    fn scaled(&self, span: Duration) -> u128 {
        u128::from(span.as_nanos()) * u128::from(self.platform.quantum)
    }
    /// Units of 1/P as a duration, rounded up.
    fn shown(&self, scaled: u128) -> Duration {
        Duration::from_nanos(u64::try_from(scaled.div_ceil(self.platform.quantum.into())).unwrap_or(u64::MAX))
    }
    fn above(&self, contract: &Contract, service: u128) -> HigherChannel {
        HigherChannel { service, interval: self.scaled(contract.interval()) }
    }
    /// L_x, scaled.
    fn link(&self, bytes: u32) -> u128 {
        self.scaled(self.platform.link.occupancy(bytes))
    }

    /// T_s, scaled. A cost is at most a second (and L_x at most 2⁶⁴ ns), so that no sum here comes near 2¹²⁸.
    fn service(&self, bytes: u32, packets: u32) -> u128 {
        let costs = &self.platform;
        let inner = u128::from(packets - 1);
        // S_last: what is left for the last packet, or a full one.
        let last = self.link((bytes - 1) % costs.packet + 1);
        let scheduling = self.scaled(costs.link_cost) * u128::from(packets);
        let switch = u128::from(costs.change_of_handler().as_nanos());
        let preemption = match self.block {
            BlockTerm::Printed => inner * switch,
            BlockTerm::Min => inner / u128::from(costs.quantum) * u128::from(costs.quantum) * switch,
        };
        let (first, other, full) =
            (self.scaled(costs.first_packet), self.scaled(costs.packet_cost), self.link(costs.packet));
        // The dearer of the two hides the other, but for the first packet's processing or the last one's transmission.
        let dearer = if other < full { full } else { other };
        first + inner * dearer + last + scheduling + preemption
    }

    /// T_w, scaled, if a message of `packets` joins. `full` is L_x(S), not zero.
    fn wait(&self, packets: u32, full: u128) -> u128 {
        let costs = &self.platform;
        let most = self.channels.iter().map(|channel| channel.packets).fold(packets, u32::max);
        let most = most.max(costs.best_effort.message_packets);
        let blocking = match self.block {
            BlockTerm::Printed => most.max(costs.quantum),
            BlockTerm::Min => most.min(costs.quantum),
        };
        let block = self.scaled(costs.first_packet) + u128::from(blocking - 1) * self.scaled(costs.packet_cost);
        let link = block.div_ceil(full) * self.scaled(costs.link_cost);
        block + link + self.scaled(costs.change_of_handler()) + full
    }
}

/// The least r with `r = once + Σ ⌈r/I⌉ T_s` over those above, if it is at most `within`.
fn response(
    once: u128,
    above: impl Iterator<Item = HigherChannel> + Clone,
    within: u128,
    visits: &mut u64,
) -> Option<u128> {
    let mut r = once;
    loop {
        let mut needed = once;
        for HigherChannel { service, interval } in above.clone() {
            needed = needed.saturating_add(r.div_ceil(interval).saturating_mul(service));
            *visits += 1;
        }
        if needed > within || *visits > MOST_VISITS {
            return None;
        }
        if needed == r {
            return Some(r);
        }
        r = needed;
    }
}

/// The lesser of deadline and interval.
fn within(contract: &Contract) -> Duration {
    contract.deadline().min(contract.interval())
}

#[cfg(test)]
mod tests;

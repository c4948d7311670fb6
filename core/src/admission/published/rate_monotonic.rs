//! The utilisation tests for upcalls [rtu §5.3]: Liu and Layland, Sha, and rate-monotonic with delayed preemption (RMDP).
//!
//! A real-time upcall runs once in every period T, for C at most, and its deadline is the end of the period. It handles a
//! batch of B_p PDUs and may be preempted after every b_p of them, so its *quantum* is `c = C b_p/B_p`. Priorities go by
//! period, the shortest first; the higher the subscript, the lower the priority.
//!
//! ```text
//! Liu, Layland   Σ C_i/T_i                              ≤ n (2^{1/n} − 1)      no blocking
//! Sha            Σ C_i/T_i + max_{i<n} B_i/T_i          ≤ n (2^{1/n} − 1)      B_i = max_{j>i} c_j
//! RMDP           Σ C_i/T_i + c_max (1/T_1 − 1/T_n)      ≤ n (2^{1/n} − 1)      c_max over all upcalls
//! ```
//!
//! Each is sufficient for what it models, and none counts the cost of a switch; [`crate::admission::response_time`] does. Liu and
//! Layland's test is no test for upcalls that are not preempted at once: it passes sets that miss. That RMDP holds can be seen
//! from `U + c_j (1/T_1 − 1/T_n) ≥ Σ_{h≤i} C_h/T_h + c_j/T_i` for i < j. It does not always admit more than Sha's test, because
//! c_max may belong to the highest priority, which blocks no other upcall.
//!
//! **Integers.** Shares have 62 binary places and are rounded up, c is rounded up to a nanosecond. `u ≤ n (2^{1/n} − 1)` is
//! asked as `(1 + u/n)^n ≤ 2`, with `u/n` and every product rounded up. All factors are positive, so what is computed is
//! never less than the true power of the true u: a yes is true, and only a set within about n·2⁻⁶¹ of the bound may
//! be told no for yes.

use crate::units::Duration;
use crate::upcall::Upcall;

/// One, as a share.
const ONE: u128 = 1 << 62;

/// `cost/period`, rounded up. The cost is below 2⁶⁴, so the product is below 2¹²⁶.
fn share(cost: Duration, period: Duration) -> u128 {
    (u128::from(cost.as_nanos()) * ONE).div_ceil(period.as_nanos().into())
}

fn utilisation(upcalls: &[Upcall]) -> u128 {
    upcalls.iter().fold(0, |sum: u128, upcall| sum.saturating_add(share(upcall.cost(), upcall.period())))
}

/// `share ≤ n (2^{1/n} − 1)`, as the module's head describes.
fn within_bound(share: u128, n: usize) -> bool {
    let Some(each) = (n != 0).then(|| share.div_ceil(n as u128)) else { return true };
    // Both factors of every product are at most 2 (2⁶³), so that it fits.
    if each > ONE {
        return false;
    }
    let mut power = ONE;
    for _ in 0..n {
        power = (power * (ONE + each)).div_ceil(ONE);
        // Factors are at least one: it never falls again.
        if power > 2 * ONE {
            return false;
        }
    }
    true
}

/// Liu and Layland's test: sufficient if every upcall may be preempted at any time. No upcalls pass.
pub fn liu_layland(upcalls: &[Upcall]) -> bool {
    within_bound(utilisation(upcalls), upcalls.len())
}

/// Sha's test, with the longest iteration of any lower priority as the blocking time. Equal periods rank as they are given.
pub fn sha(upcalls: &[Upcall]) -> bool {
    // From the lowest priority up: the longest quantum below, and the largest B_i/T_i.
    let mut order: alloc::vec::Vec<&Upcall> = upcalls.iter().collect();
    order.sort_by_key(|upcall| upcall.period());
    let (mut blocking, mut most) = (Duration::ZERO, 0);
    for upcall in order.into_iter().rev() {
        most = most.max(share(blocking, upcall.period()));
        blocking = blocking.max(upcall.quantum());
    }
    within_bound(utilisation(upcalls).saturating_add(most), upcalls.len())
}

/// The RMDP test as printed.
pub fn rmdp(upcalls: &[Upcall]) -> bool {
    let quantum = upcalls.iter().map(Upcall::quantum).max().unwrap_or_default();
    let periods = || upcalls.iter().map(Upcall::period);
    let (Some(shortest), Some(longest)) = (periods().min(), periods().max()) else { return true };
    // c/T_1 rounded up, c/T_n rounded down.
    let down = u128::from(quantum.as_nanos()) * ONE / u128::from(longest.as_nanos());
    let delay = share(quantum, shortest) - down;
    within_bound(utilisation(upcalls).saturating_add(delay), upcalls.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn upcall(period: u64, cost: u64, batch: u32, block: u32) -> Upcall {
        Upcall::new(Duration::from_millis(period), Duration::from_millis(cost), batch, block).unwrap()
    }

    fn verdicts(upcalls: &[Upcall]) -> [bool; 3] {
        [liu_layland(upcalls), sha(upcalls), rmdp(upcalls)]
    }

    #[test]
    fn delayed_preemption_admits_what_sha_does_not() {
        let upcalls = [upcall(40, 10, 10, 1), upcall(90, 30, 10, 5)];
        assert_eq!(upcalls.map(|upcall| upcall.quantum()), [1, 15].map(Duration::from_millis));
        // U = .583; Sha .958, RMDP .792, bound .828.
        assert_eq!(verdicts(&upcalls), [true, false, true]);
        // The largest quantum belongs to the highest priority: Sha .583 + 1/40, RMDP .583 + 10 (1/40 − 1/90) = .722; and with
        // more load below, only Sha's holds.
        assert_eq!(verdicts(&[upcall(40, 10, 1, 1), upcall(90, 46, 46, 1)]), [true, true, false]);
    }

    #[test]
    fn liu_layland_is_blind_to_blocking() {
        assert_eq!(verdicts(&[upcall(10, 2, 1, 1), upcall(100, 9, 9, 9)]), [true, false, false]);
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let upcalls = [upcall(90, 30, 10, 5), upcall(40, 10, 10, 1)];
        assert_eq!(verdicts(&upcalls), [true, false, true]);
    }

    #[test]
    fn the_edges() {
        assert_eq!(verdicts(&[]), [true; 3]);
        // One upcall alone may use all; no other one blocks it.
        assert_eq!(verdicts(&[upcall(10, 10, 1, 1)]), [true; 3]);
        // 2 (√2 − 1) = .828427124…
        let pair = |nanos| {
            let half = Upcall::new(Duration::from_nanos(1_000_000_000), Duration::from_nanos(nanos), 1, 1).unwrap();
            liu_layland(&[half, half])
        };
        assert!(pair(414_213_562) && !pair(414_213_563));
        // ln 2 is below the bound of any n.
        let many = |nanos| {
            let one = Upcall::new(Duration::from_secs(1), Duration::from_nanos(nanos), 1, 1).unwrap();
            liu_layland(&(0..10_000).map(|_| one).collect::<Vec<_>>())
        };
        assert!(many(69_314) && !many(69_319));
    }
}

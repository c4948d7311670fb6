//! Peers' requests: the order of decisions on them, and the share of a processor that decisions may take.
//!
//! A host that asks and is refused has lost nothing, so a host that asks without end would keep the control thread busy, and others
//! waiting. Each decision is therefore charged with the processor time that it took, to the host that asked and to all together, and
//! neither has more of a processor than a share beyond a credit. Of the requests that wait, that of the host which has been charged
//! least comes first (start-time fair queueing: Goyal, Vin and Cheng 1996). A host's account is one of [`ACCOUNTS`], by a keyed hash of
//! its address: a table of hosts would need a rule for who leaves it, and forged addresses would make all hosts leave.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use laxity_core::endpoint::DECISION;
use laxity_core::event::PeerRequest;
use laxity_core::limits::MAX_PENDING_REQUESTS;
use laxity_core::units::{Duration, Instant};

const ACCOUNTS: usize = 256;
/// Decisions may take one part in so many of a processor: those on the requests of one host,
const OF_A_HOST: u64 = 10;
/// and all.
const OF_ALL: u64 = 2;
/// Who is over the share rests so long at least: to wake up for each decision would cost more than the decision.
const LEAST_REST: Duration = Duration::from_millis(2);
/// Processor time that decisions may take beyond that, after as much less: enough for all channels of a host that starts.
const CREDIT: Duration = Duration::from_millis(500);

/// The time at which what was taken will have been the share since the beginning.
#[derive(Clone, Copy, Debug)]
struct RateAccount(Instant);

impl RateAccount {
    fn charge(&mut self, now: Instant, took: Duration, share: u64) {
        self.0 = self.0.max(now) + took * share;
    }

    /// The time until the credit is no longer used up.
    fn rest(self, now: Instant, share: u64) -> Duration {
        self.0.since(now).saturating_sub(CREDIT * share)
    }
}

/// A request that waits for its decision, and whether this host's channels may be served in another way for it: once.
pub(crate) struct WaitingRequest {
    pub(crate) request: PeerRequest,
    pub(crate) may_rearrange: bool,
}

/// Requests that wait, and the accounts of those who ask.
pub(crate) struct RequestQueue<R> {
    /// The time and the sender of each, the oldest first.
    waiting: VecDeque<(Instant, IpAddr, R)>,
    hosts: Box<[RateAccount]>,
    all: RateAccount,
    hasher: RandomState,
}

impl<R> RequestQueue<R> {
    pub(crate) fn new(now: Instant) -> Self {
        let all = RateAccount(now);
        let waiting = VecDeque::with_capacity(MAX_PENDING_REQUESTS);
        Self { waiting, hosts: vec![all; ACCOUNTS].into(), all, hasher: RandomState::new() }
    }

    /// A request has come. It is forgotten if there are too many: its host asks again.
    pub(crate) fn push(&mut self, now: Instant, host: IpAddr, request: R) {
        self.forget_old(now);
        if self.waiting.len() < MAX_PENDING_REQUESTS {
            self.waiting.push_back((now, host, request));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes out the request to decide on now, and says who asks.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(IpAddr, R)> {
        self.forget_old(now);
        let (place, _) = self.first(now).filter(|(_, rest)| rest.is_zero())?;
        self.waiting.remove(place).map(|(_, host, request)| (host, request))
    }

    /// The time until there is one to decide on; `None` if none waits.
    pub(crate) fn rest(&self, now: Instant) -> Option<Duration> {
        let (_, rest) = self.first(now)?;
        Some(if rest.is_zero() { rest } else { rest.max(LEAST_REST) })
    }

    /// A decision on what this host asked for, or what goes with it, took so much of a processor.
    pub(crate) fn charge(&mut self, now: Instant, host: IpAddr, took: Duration) {
        let account = self.account(host);
        self.hosts[account].charge(now, took, OF_A_HOST);
        self.all.charge(now, took, OF_ALL);
    }

    /// The endpoint has forgotten them by itself.
    fn forget_old(&mut self, now: Instant) {
        self.waiting.retain(|(came, ..)| now.since(*came) < DECISION);
    }

    /// The place of the request that is the next one, and how long until then.
    fn first(&self, now: Instant) -> Option<(usize, Duration)> {
        let account = |host: IpAddr| self.hosts[self.account(host)];
        let hosts = self.waiting.iter().map(|(_, host, _)| *host).enumerate();
        let (place, host) = hosts.min_by_key(|(_, host)| account(*host).0.max(now))?;
        Some((place, account(host).rest(now, OF_A_HOST).max(self.all.rest(now, OF_ALL))))
    }

    fn account(&self, host: IpAddr) -> usize {
        let hash = self.hasher.hash_one(host.to_canonical());
        (hash % ACCOUNTS as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn host(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn differs(one: Duration, other: Duration) -> Duration {
        one.max(other) - one.min(other)
    }

    /// Hosts that always ask, and whose requests take this long each: what each one's have taken after `span`, of which
    /// `begin` is left out.
    fn taken(asking: &[(IpAddr, Duration)], begin: Duration, span: Duration) -> Vec<Duration> {
        let start = Instant::from_nanos(1 << 40);
        let (mut now, mut requests) = (start, RequestQueue::new(start));
        let mut taken = vec![Duration::ZERO; asking.len()];
        while now < start + span {
            for (at, (host, _)) in asking.iter().enumerate() {
                if requests.waiting.iter().all(|(.., asks)| *asks != at) {
                    requests.push(now, *host, at);
                }
            }
            match requests.pop(now) {
                Some((host, at)) => {
                    assert_eq!(host, asking[at].0);
                    let took = asking[at].1;
                    now += took;
                    requests.charge(now, host, took);
                    taken[at] += if now > start + begin { took } else { Duration::ZERO };
                }
                None => now += requests.rest(now).unwrap().max(Duration::from_micros(100)),
            }
        }
        taken
    }

    #[test]
    fn a_host_that_asks_without_end_has_its_credit_and_then_its_share() {
        let all = taken(&[(host(1), MS)], Duration::ZERO, CREDIT * 11)[0];
        assert!(differs(all, CREDIT * 2 + Duration::from_millis(50)) <= MS * 10, "{all:?}");
        let later = taken(&[(host(1), MS)], CREDIT * 11, CREDIT * 31)[0];
        assert!(differs(later, CREDIT * 2) <= MS * 10, "{later:?}");
    }

    #[test]
    fn many_hosts_have_theirs_of_what_all_have_whatever_each_decision_takes() {
        let asking: Vec<_> = (1..=20).map(|number| (host(number), MS * u64::from(number % 4 + 1))).collect();
        let (begin, span) = (CREDIT * 10, CREDIT * 30);
        let each = taken(&asking, begin, span);
        let all = each.iter().fold(Duration::ZERO, |all, its| all + *its);
        assert!(differs(all, CREDIT * 10) <= MS * 100, "{all:?}");
        // Two may have one account.
        let most = (all + MS * 200) * 2;
        assert!(each.iter().all(|its| *its * 20 <= most), "{each:?}");
    }

    #[test]
    fn who_has_not_asked_before_comes_first_and_waits_for_no_other_hosts_share() {
        let now = Instant::from_nanos(1 << 40);
        let mut requests = RequestQueue::new(now);
        requests.charge(now, host(1), CREDIT * 2);
        let now = now + CREDIT * 2;
        for number in [1, 1, 1, 2] {
            requests.push(now, host(number), number);
        }
        // All but one of 256 pairs of hosts have two accounts.
        let apart = requests.account(host(1)) != requests.account(host(2));
        assert_eq!(requests.pop(now), apart.then_some((host(2), 2)));
        assert_eq!(requests.pop(now), None);
        assert_eq!(requests.rest(now), Some(CREDIT * 8));
    }

    #[test]
    fn the_oldest_are_forgotten_with_the_endpoint_and_more_than_it_keeps_are_not_taken() {
        let now = Instant::from_nanos(1 << 40);
        let mut requests = RequestQueue::new(now);
        for number in 0..2 * MAX_PENDING_REQUESTS {
            requests.push(now, host(1), number);
        }
        assert_eq!(requests.waiting.len(), MAX_PENDING_REQUESTS);
        let later = now + DECISION;
        requests.push(later, host(2), 1_000);
        assert_eq!(requests.pop(later), Some((host(2), 1_000)));
        assert_eq!((requests.pop(later), requests.rest(later)), (None, None));
    }
}

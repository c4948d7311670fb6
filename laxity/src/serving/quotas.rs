//! The use of an executive by its users, against their quotas.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use laxity_core::admission::{Code, Refusal, Stage, Utilisation};

use super::access::Quota;
use crate::held_place::HeldPlace;
use crate::sync::locked;

/// The account of one user. Without a quota (root and the executive's own user) it has what admission grants.
#[derive(Debug)]
pub(super) struct UserAccount {
    pub(super) quota: Option<Quota>,
    /// The number of its processes.
    processes: Arc<AtomicUsize>,
    /// The number of names by which they receive.
    names: Arc<AtomicUsize>,
    used: Mutex<UserUsage>,
}

#[derive(Debug, Default)]
struct UserUsage {
    channels: usize,
    processor_ppm: u64,
    link_ppm: u64,
    /// The time until which none of its processes may attach.
    barred: Option<Instant>,
}

/// The time for which none of a user's processes may attach after one was thrown out, so that the cost until it is found out is
/// not paid again at once.
const BARRED: Duration = Duration::from_secs(1);

/// The accounts of all users.
#[derive(Debug, Default)]
pub(super) struct UserAccounts(Mutex<BTreeMap<u32, Arc<UserAccount>>>);

impl UserAccounts {
    /// The account of a user, who has `quota`.
    pub(super) fn of(&self, user: u32, quota: Option<&Quota>) -> Arc<UserAccount> {
        let mut accounts = locked(&self.0);
        // Users without processes are forgotten, so there are as many accounts as processes at most.
        accounts.retain(|_, account| Arc::strong_count(account) > 1 || account.is_barred());
        let (processes, names, used) = (Arc::default(), Arc::default(), Mutex::default());
        let new = || Arc::new(UserAccount { quota: quota.cloned(), processes, names, used });
        Arc::clone(accounts.entry(user).or_insert_with(new))
    }
}

impl UserAccount {
    /// Notes that one of its processes was thrown out. The executive's own user, and root, are taken for mistaken, not hostile.
    pub(super) fn bar(&self) {
        if self.quota.is_some() {
            locked(&self.used).barred = Some(Instant::now() + BARRED);
        }
    }

    pub(super) fn is_barred(&self) -> bool {
        locked(&self.used).barred.is_some_and(|until| Instant::now() < until)
    }

    /// Counts a process.
    ///
    /// # Errors
    /// The user has as many processes as allowed; how many.
    pub(super) fn join(&self) -> Result<HeldPlace, usize> {
        let most = self.quota.as_ref().map_or(usize::MAX, |quota| quota.processes);
        HeldPlace::take(&self.processes, most).ok_or(most)
    }

    /// Counts a name by which one of its processes receives, where `left` are left for all others then. A user with a quota has no more than
    /// that (as a peer has of what channels hold, [`crate::holdings`]): each user that comes finds some, however many there are.
    ///
    /// # Errors
    /// [`Code::Quota`].
    pub(super) fn name(&self, left: usize) -> Result<HeldPlace, Refusal> {
        let most = self.quota.as_ref().map_or(usize::MAX, |_| left);
        HeldPlace::take(&self.names, most).ok_or_else(|| Refusal::new(Code::Quota, Stage::ReceivingProcessor))
    }

    /// Counts a channel that takes so much in the long run.
    ///
    /// # Errors
    /// [`Code::Quota`].
    pub(super) fn take(self: &Arc<Self>, takes: Utilisation, is_sent: bool) -> Result<QuotaHold, Refusal> {
        let processor = if is_sent { Stage::SendingProcessor } else { Stage::ReceivingProcessor };
        let refused = |stage| Err(Refusal::new(Code::Quota, stage));
        let mut used = locked(&self.used);
        let (processor_ppm, link_ppm) = (used.processor_ppm + takes.processor, used.link_ppm + takes.link);
        if let Some(quota) = &self.quota {
            if used.channels >= quota.channels {
                return refused(Stage::Route);
            }
            if processor_ppm > quota.processor_ppm {
                return refused(processor);
            }
            if link_ppm > quota.link_ppm {
                return refused(Stage::Link);
            }
        }
        *used = UserUsage { channels: used.channels + 1, processor_ppm, link_ppm, ..*used };
        drop(used);
        Ok(QuotaHold { account: Arc::clone(self), takes })
    }
}

/// The share of a channel, as long as it is held.
#[derive(Debug)]
pub(super) struct QuotaHold {
    account: Arc<UserAccount>,
    takes: Utilisation,
}

impl Drop for QuotaHold {
    fn drop(&mut self) {
        let mut used = locked(&self.account.used);
        used.channels -= 1;
        used.processor_ppm -= self.takes.processor;
        used.link_ppm -= self.takes.link;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_no_more_names_than_it_leaves() {
        let quota =
            Quota { names: Vec::new(), processes: 1, channels: 2, memory: None, processor_ppm: 100, link_ppm: 50 };
        let accounts = UserAccounts::default();
        let mut all: Vec<HeldPlace> = Vec::new();
        for expected in [512, 256, 128, 64, 32, 16, 8, 4, 2, 1, 0] {
            let (account, before) = (accounts.of(expected, Some(&quota)), all.len());
            while let Ok(name) = account.name(1024 - all.len() - 1) {
                all.push(name);
            }
            assert_eq!(all.len() - before, expected as usize);
            assert_eq!(account.name(0).unwrap_err().code, Code::Quota);
        }
        assert!(accounts.of(0, None).name(0).is_ok(), "without a quota");
        let account = accounts.of(512, Some(&quota));
        all.clear();
        assert!(account.name(1).is_ok(), "they come back");
    }

    #[test]
    fn what_is_taken_comes_back() {
        let quota =
            Quota { names: Vec::new(), processes: 1, channels: 2, memory: None, processor_ppm: 100, link_ppm: 50 };
        let accounts = UserAccounts::default();
        let account = accounts.of(1, Some(&quota));
        let joined = account.join().unwrap();
        assert_eq!(accounts.of(1, Some(&quota)).join().unwrap_err(), 1);
        let takes = |processor, link| Utilisation { processor, link };
        let refused = |account: &Arc<UserAccount>, takes| {
            let refusal = account.take(takes, true).unwrap_err();
            assert_eq!(refusal.code, Code::Quota);
            refusal.stage
        };
        let one = account.take(takes(60, 50), true).unwrap();
        assert_eq!(refused(&account, takes(41, 0)), Stage::SendingProcessor);
        assert_eq!(account.take(takes(41, 0), false).unwrap_err().stage, Stage::ReceivingProcessor);
        assert_eq!(refused(&account, takes(40, 1)), Stage::Link);
        let other = account.take(takes(40, 0), false).unwrap();
        assert_eq!(refused(&account, takes(0, 0)), Stage::Route);
        drop((one, other));
        let _all = account.take(takes(100, 50), true).unwrap();
        drop(joined);
        drop(account.join().unwrap());
        // Another user has its own; one without a quota is not limited.
        assert!(accounts.of(2, Some(&quota)).join().is_ok());
        let root = accounts.of(0, None);
        let _much: Vec<QuotaHold> = (0..100).map(|_| root.take(takes(1_000_000, 0), true).unwrap()).collect();
    }
}

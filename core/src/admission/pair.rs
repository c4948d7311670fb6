//! Both ends of channels in one computation: what two hosts answer each other when one opens channels to the other.
//!
//! 1. The sender reserves the least stages with which all of its channels keep their deadlines, and says what they need.
//! 2. The receiver reserves its least stage, finds room for what comes in ([`super::incoming`]), and takes of what is left of the deadline as
//!    much as is in proportion to its own need.
//! 3. The sender lengthens its stages by the rest.
//!
//! Live hosts do these steps at both ends of a wire, each with its own costs; here both have the same, and nothing else is received.

use super::answer::{Role, Rule};
use super::incoming::{Flow, FlowId, FlowSource, IncomingTraffic};
use super::reserve::{Admission, ReservationId, Reserved, Settings};
use super::{Code, Refusal, Stage};
use crate::contract::{Contract, SendingStages};
use crate::limits;
use crate::platform::{Platform, PlatformError};
use crate::units::Duration;

/// Most deadlines that are tried, each the least by the answer before.
pub const MOST_TRIED: usize = 8;

/// Two hosts, of which one sends to the other.
#[derive(Clone, Debug)]
pub struct HostPair {
    pub(super) sender: Admission,
    receiver: Admission,
    incoming: IncomingTraffic,
    rearranges: bool,
}

/// A channel that both have granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedChannel {
    /// Its reservation at the sender.
    pub sent: ReservationId,
    /// And at the receiver.
    pub received: ReservationId,
    /// Its incoming flow.
    pub flow: FlowId,
    /// The sender's stages, without the handover.
    pub stages: SendingStages,
    /// The receiver's.
    pub receive: Duration,
    /// The longest wait of its frames at the last port, beside the wait for a look.
    pub arrival: Duration,
}

impl HostPair {
    /// Two hosts with these costs, without channels, which keep to their rule and serve each channel as it was granted.
    ///
    /// # Errors
    /// The first parameter of the platform that is out of range.
    pub fn new(platform: &Platform, settings: Settings) -> Result<Self, PlatformError> {
        let sender = Admission::with_settings(platform.clone(), settings)?;
        let (receiver, incoming) = (sender.clone(), IncomingTraffic::new(&sender));
        Ok(Self { sender, receiver, incoming, rearranges: false })
    }

    /// Two hosts as they are unless they are told otherwise: they begin with the split rule, hold no message until its logical arrival, and serve their channels in another way where a
    /// newcomer does not fit ([`super::rearrange`]).
    ///
    /// # Errors
    /// The first parameter of the platform that is out of range.
    pub fn live(platform: &Platform) -> Result<Self, PlatformError> {
        Ok(Self { rearranges: true, ..Self::new(platform, Settings::work_conserving(Rule::Split))? })
    }

    /// True if channels may be served in another way for a newcomer.
    pub(super) fn may_rearrange(&self) -> bool {
        self.rearranges && (self.sender.may_rearrange() || self.receiver.may_rearrange())
    }

    /// The least stages of a channel at one of the hosts.
    fn reserve(rearranges: bool, host: &mut Admission, contract: &Contract, role: Role, budget: Duration) -> Reserved {
        if !rearranges {
            return host.reserve(contract, role, budget);
        }
        host.reserve_rearranged(contract, role, 0, budget)
    }

    /// The least stages of a channel at this host alone.
    pub(super) fn reserve_here(&mut self, contract: &Contract, role: Role, budget: Duration) -> Reserved {
        Self::reserve(self.rearranges, &mut self.sender, contract, role, budget)
    }

    /// The host that sends.
    pub fn sender(&self) -> &Admission {
        &self.sender
    }

    /// The host that receives.
    pub fn receiver(&self) -> &Admission {
        &self.receiver
    }

    /// The part of a deadline that is neither host's.
    pub(super) fn way(&self) -> Duration {
        let platform = self.sender.platform();
        platform.propagation + platform.clock_error
    }

    /// Opens a channel with this contract.
    ///
    /// # Errors
    /// The answer of the first host that refuses ([`Admission::reserve`], [`IncomingTraffic::room`]), with the least deadline for all of the way by what
    /// that host knows. Nothing is held then, but channels may be served in another way, as those of live hosts that made room in vain.
    pub fn open(&mut self, contract: &Contract) -> Result<GrantedChannel, Refusal> {
        let (deadline, way) = (contract.deadline(), self.way());
        let sending = self.reserve_here(contract, Role::Sends, deadline.saturating_sub(way));
        let (sent, least) = sending.map_err(|refusal| Refusal {
            least_deadline: refusal.least_deadline.map(|least| least + way),
            ..refusal
        })?;
        let upstream = self.sender.handover(sent) + least.total();
        let opened = self.receive(contract, upstream).and_then(|(received, receive, flow, arrival)| {
            let outside = receive + self.receiver.input_delay() + arrival + way;
            let stages = self.sender.relax(sent, deadline.saturating_sub(outside));
            let stages = stages.inspect_err(|_| {
                self.receiver.release(received);
                self.incoming.remove(flow);
            })?;
            Ok(GrantedChannel { sent, received, flow, stages, receive, arrival })
        });
        opened.inspect_err(|_| {
            self.sender.release(sent);
        })
    }

    /// Closes a channel at both ends.
    pub fn close(&mut self, channel: &GrantedChannel) {
        self.sender.release(channel.sent);
        self.receiver.release(channel.received);
        self.incoming.remove(channel.flow);
    }

    /// The second step, for a sender whose stages need `upstream`.
    fn receive(
        &mut self,
        contract: &Contract,
        upstream: Duration,
    ) -> Result<(ReservationId, Duration, FlowId, Duration), Refusal> {
        let elsewhere = upstream + self.way() + self.receiver.input_delay();
        let budget = contract.deadline().saturating_sub(elsewhere);
        let (link, ahead) = (self.sender.platform().link, self.sender.ahead());
        let packet = self.sender.platform().packet;
        let source = FlowSource { host: 0, rate: link.rate, ahead, spacing: link.spacing };
        let flow = |transit| Flow::real_time(source, contract, packet, transit);
        let deadline = contract.deadline();
        let longer = |least: Duration| self.incoming.least_deadline(deadline, elsewhere, least, flow);
        let received = Self::reserve(self.rearranges, &mut self.receiver, contract, Role::Receives, budget);
        let (received, SendingStages { processor: least, .. }) = received
            .map_err(|refusal| Refusal { least_deadline: refusal.least_deadline.and_then(longer), ..refusal })?;
        let (flow, kept) = self.incoming.fitted(deadline, elsewhere, least, flow);
        let room = self.incoming.room(&flow, budget.saturating_sub(kept)).map_err(|refusal| {
            self.receiver.release(received);
            Refusal { least_deadline: longer(least), ..refusal }
        })?;
        let stage = take_share(&mut self.receiver, received, budget - room.allowance, kept, upstream)?;
        Ok((received, stage, self.incoming.insert(flow, room.allowance), room.allowance))
    }

    /// The least deadline from that of the contract on with which it would be opened, rounded up to what people are told; `None` if none is
    /// found.
    pub fn least_deadline(&self, contract: &Contract) -> Option<Duration> {
        let mut deadline = contract.deadline();
        for _ in 0..MOST_TRIED {
            match self.clone().open(&contract.with_deadline(deadline).ok()?) {
                Ok(_) => return Some(deadline),
                Err(refusal) => {
                    let longer = refusal.least_deadline?.rounded_up();
                    deadline = Some(longer).filter(|longer| *longer > deadline && *longer <= limits::MAX_DEADLINE)?;
                }
            }
        }
        None
    }
}

/// Lengthens the stage of a channel at its receiver, which has to keep `kept` of `budget`, by what it takes of the rest if the sender needs `upstream`: in
/// proportion to what each needs.
///
/// # Errors
/// Those of [`Admission::relax`]; [`Code::ArrivalDeadline`] if its stage cannot become what it has to keep. The channel is released then.
pub fn take_share(
    receiver: &mut Admission,
    id: ReservationId,
    budget: Duration,
    kept: Duration,
    upstream: Duration,
) -> Result<Duration, Refusal> {
    let slack = budget.saturating_sub(kept);
    let share = slack.mul_ratio(kept.as_nanos(), (kept + upstream).as_nanos().max(1));
    let mut relaxed = receiver.relax(id, kept + share);
    if relaxed.as_ref().is_ok_and(|stages| stages.processor < kept) {
        // Under the composite rule a stage that would harm others stays as it is.
        relaxed = receiver.relax(id, kept);
    }
    let stage = relaxed.and_then(|SendingStages { processor, .. }| {
        let told = || Refusal::new(Code::ArrivalDeadline, Stage::Arrival);
        (processor >= kept).then_some(processor).ok_or_else(told)
    });
    stage.inspect_err(|_| {
        receiver.release(id);
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contract() -> impl Strategy<Value = Contract> {
        (1u64..100_000, 1_000u64..50_000, 1u64..4, 500u64..60_000).prop_map(|(max, interval, burst, deadline)| {
            Contract::new(max, 1, Duration::from_micros(interval), burst, Duration::from_micros(deadline)).unwrap()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// All parts of the way fit into the deadline, what is refused changes nothing, and the least deadline is granted.
        #[test]
        fn the_deadline_is_divided_and_advice_is_granted(contracts in prop::collection::vec(contract(), 1..8), fast: bool) {
            let mut platform = Platform::assumed_host();
            if fast {
                platform.link.rate = crate::units::Rate::bytes_per_second(125_000_000);
            }
            let mut pair = HostPair::live(&platform).unwrap();
            for contract in contracts {
                let contract = contract.catching_up();
                let held = |pair: &HostPair| (pair.sender.utilisation_ppm(), pair.receiver.utilisation_ppm(), pair.incoming.len());
                let before = held(&pair);
                match pair.open(&contract) {
                    Ok(opened) => {
                        let here = platform.handover + opened.stages.total() + pair.way();
                        let there = pair.receiver.input_delay() + opened.arrival + opened.receive;
                        prop_assert!(here + there <= contract.deadline());
                    }
                    Err(_) => {
                        prop_assert_eq!(before, held(&pair));
                        if let Some(deadline) = pair.least_deadline(&contract) {
                            prop_assert!(deadline > contract.deadline());
                            prop_assert!(pair.clone().open(&contract.with_deadline(deadline).unwrap()).is_ok());
                        }
                    }
                }
            }
        }
    }
}

//! Longer stages for a channel that was granted: what is left of its deadline, shared between them.

use super::answer::{Role, Rule};
use super::reserve::{Admission, Reservation, ReservationId, nanos, on_processor_stage, shortfall, unknown};
use super::{Code, Refusal, Stage};
use crate::contract::SendingStages;
use crate::limits;
use crate::units::Duration;

impl Admission {
    /// Lengthens the stages of a channel to `budget`; of one that is sent, so that `handover + processor + link = budget`. There
    /// the slack is shared in proportion to the two stages as they are: of three ways that were compared, the one by which most
    /// channels fit afterwards. A longer deadline never breaks another channel's, so nothing is tested; a stage is never made
    /// shorter, as others may have been admitted since. Meant for a channel without messages in flight.
    ///
    /// Under the composite rule, and where the link's tax depends on how long messages are on their way, a longer deadline may
    /// break another's: there it is tested, and the stages stay as they are if it does.
    ///
    /// # Errors
    /// [`Code::DeadlineSum`], [`Code::ProcessorDeadline`] or [`Code::LinkDeadline`] if the budget is less than the stages are now;
    /// [`Code::BadParameters`] if it is more than [`limits::MAX_DEADLINE`] or if `id` is of no reservation. Nothing changes then.
    pub fn relax(&mut self, id: ReservationId, budget: Duration) -> Result<SendingStages, Refusal> {
        let rule = self.settings().rule;
        let Some(before) = self.reservation(id).copied() else { return Err(unknown()) };
        let used = before.handover + before.stages(rule).total();
        let (code, stage) = match before.role {
            Some(Role::Sends) => (Code::DeadlineSum, Stage::Route),
            Some(Role::Receives) => (Code::ProcessorDeadline, Stage::ReceivingProcessor),
            Some(Role::Relays) => (Code::LinkDeadline, Stage::Link),
            None => (Code::ProcessorDeadline, on_processor_stage(None)),
        };
        if budget > limits::MAX_DEADLINE {
            return Err(unknown());
        }
        let slack = budget.checked_sub(used).ok_or_else(|| shortfall(code, stage, used, budget))?;
        let (processor, link) = before.deadlines();
        // Under the composite rule both have the message's deadline.
        let shares = rule != Rule::Composite && before.job.is_some() && before.stream.is_some();
        let of_processor = match processor.saturating_add(link) {
            _ if !shares => slack,
            0 => nanos(slack.as_nanos() / 2),
            both => slack.mul_ratio(processor.min(both), both),
        };
        let of_link = if shares { slack - of_processor } else { slack };
        let after = before.with(processor + of_processor.as_nanos(), link + of_link.as_nanos());
        Ok(self.lengthened(id, &after, used + slack))
    }

    /// Lengthens the stages of a channel, each to at least what it has in `least`; to the same total under the composite rule.
    /// Otherwise like [`Admission::relax`].
    ///
    /// # Errors
    /// [`Code::BadParameters`] if the stages would be more than [`limits::MAX_DEADLINE`] or if `id` is of no reservation. Nothing
    /// changes then.
    pub fn lengthen(&mut self, id: ReservationId, least: SendingStages) -> Result<SendingStages, Refusal> {
        let rule = self.settings().rule;
        let Some(before) = self.reservation(id).copied() else { return Err(unknown()) };
        let ((processor, link), total) = (before.deadlines(), least.total().as_nanos());
        let after = match rule {
            Rule::Composite => before.with(processor.max(total), link.max(total)),
            _ => before.with(processor.max(least.processor.as_nanos()), link.max(least.link.as_nanos())),
        };
        let used = before.handover + after.stages(rule).total();
        if used > limits::MAX_DEADLINE {
            return Err(unknown());
        }
        Ok(self.lengthened(id, &after, used))
    }

    /// Puts longer stages in, with which a message takes up to `used` here, if no other channel's are broken. The stages that there are then.
    fn lengthened(&mut self, id: ReservationId, after: &Reservation, used: Duration) -> SendingStages {
        let tested = self.settings.rule == Rule::Composite || self.machine.tax_reaches() && after.stream.is_some();
        let reach = self.machine.reach(&after.contract, used.as_nanos());
        let after = after.within_reach(after.stream.map_or(0, |stream| stream.reach.max(reach)));
        let before = self.exchange(id, after);
        // Only if all channels keep their deadlines with them.
        if tested && self.test().is_err() {
            before.map(|before| self.exchange(id, before));
        }
        self.stages(id).unwrap_or_default()
    }
}

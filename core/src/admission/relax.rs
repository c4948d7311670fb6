//! Longer stages for a channel that was granted: what is left of its deadline, shared between them.

use super::answer::{Role, Rule};
use super::reserve::{Admission, Reservation, ReservationId, nanos, shortfall, unknown};
use super::{Code, Refusal, Stage};
use crate::contract::SendingStages;
use crate::limits;
use crate::units::Duration;

impl Admission {
    /// Lengthens the stages so that `handover + processor + link = budget`. The slack is shared in proportion to the
    /// two stages as they are: of three ways that were compared, the one by which most channels fit afterwards. A longer deadline
    /// never breaks another channel's, so nothing is tested; a stage is never made shorter, as others may have been admitted
    /// since. Meant for a channel without messages in flight.
    ///
    /// Under the composite rule, and where the link's tax depends on how long messages are on their way, a longer deadline may
    /// break another's: there it is tested, and the stages stay as they are if it does.
    ///
    /// # Errors
    /// [`Code::DeadlineSum`] if the budget is less than the stages are now; [`Code::BadParameters`] if it is more than
    /// [`limits::MAX_DEADLINE`] or if `id` is not that of a sending reservation. Nothing changes then.
    pub fn relax_sending(&mut self, id: ReservationId, budget: Duration) -> Result<SendingStages, Refusal> {
        let handover = self.machine.platform.handover;
        let (rule, tested) = (self.settings().rule, self.machine.tax_reaches());
        let before = self.reservation(id).copied().filter(|held| held.job.is_some() && held.stream.is_some());
        let Some(before) = before else { return Err(unknown()) };
        let used = handover + before.stages(rule).total();
        let slack = slack(budget, used, Code::DeadlineSum, Stage::Route)?;
        let (Some(job), Some(stream)) = (before.job, before.stream) else { return Err(unknown()) };
        let after = if rule == Rule::Composite {
            let deadline = job.deadline + slack.as_nanos();
            before.with(deadline, deadline)
        } else {
            let both = job.deadline.saturating_add(stream.deadline);
            let part =
                if both == 0 { nanos(slack.as_nanos() / 2) } else { slack.mul_ratio(job.deadline.min(both), both) };
            before.with(job.deadline + part.as_nanos(), stream.deadline + (slack - part).as_nanos())
        };
        let after = after.within_reach(self.machine.reach(&before.contract, (used + slack).as_nanos()));
        self.replace(id, after, rule == Rule::Composite || tested);
        Ok(self.reservation(id).map_or(SendingStages::default(), |held| held.stages(rule)))
    }

    /// Lengthens the stage of a receiving channel to `budget`; as [`Admission::relax_sending`].
    ///
    /// # Errors
    /// [`Code::ProcessorDeadline`] if the budget is less than the stage is now; else as [`Admission::relax_sending`].
    pub fn relax_receiving(&mut self, id: ReservationId, budget: Duration) -> Result<Duration, Refusal> {
        let before = self.reservation(id).copied().filter(|held| held.stream.is_none());
        let Some(before @ Reservation { job: Some(job), .. }) = before else { return Err(unknown()) };
        let slack = slack(budget, nanos(job.deadline), Code::ProcessorDeadline, Stage::ReceivingProcessor)?;
        let after = before.with(job.deadline + slack.as_nanos(), 0);
        self.replace(id, after, self.settings().rule == Rule::Composite);
        Ok(self.reservation(id).map_or(Duration::ZERO, |held| held.stages(Rule::Split).processor))
    }

    /// Lengthens whatever stages the channel has to `budget`, as [`Admission::relax_sending`] does.
    ///
    /// # Errors
    /// As [`Admission::relax_sending`].
    pub fn relax(&mut self, id: ReservationId, budget: Duration) -> Result<SendingStages, Refusal> {
        let Some(before) = self.reservation(id).copied() else { return Err(unknown()) };
        match before.role {
            Role::Sends => self.relax_sending(id, budget),
            Role::Receives => {
                self.relax_receiving(id, budget).map(|processor| SendingStages { processor, link: Duration::ZERO })
            }
            Role::Relays => {
                let used = before.stages(self.settings().rule).link;
                slack(budget, used, Code::LinkDeadline, Stage::Link)?;
                let reach = self.machine.reach(&before.contract, budget.as_nanos());
                let after = before.with(0, budget.as_nanos()).within_reach(reach);
                self.replace(id, after, self.settings().rule == Rule::Composite || self.machine.tax_reaches());
                Ok(self.reservation(id).map_or(SendingStages::default(), |held| held.stages(self.settings().rule)))
            }
        }
    }
}

/// What `budget` leaves beyond `used`.
fn slack(budget: Duration, used: Duration, code: Code, stage: Stage) -> Result<Duration, Refusal> {
    if budget > limits::MAX_DEADLINE {
        return Err(unknown());
    }
    budget.checked_sub(used).ok_or_else(|| shortfall(code, stage, used, budget, Some(used)))
}

//! D_order: systems at the edge of what it accepts, and what it promises.
//!
//! *D_order* accepts channels for their deadlines, and the run time serves them by those, on processor and link alike. A
//! channel asks for the response that the formula gives it, and some slack.

use laxity_core::admission::published::d_order::{BlockTerm, DOrder};
use laxity_core::platform::{Interference, MachineModel};
use laxity_core::units::Duration;

use super::{Analysis, NumberSource, Promise, SearchCase, small, us};
use crate::tiny::{Role, SmallSystem};

/// A system as D_order knows it: it sends, nothing is taken away, best effort is not policed.
pub fn d_order_case(draw: &mut impl NumberSource, block: BlockTerm) -> SearchCase {
    let mut system = small::unbounded(draw, MachineModel::PapersInline);
    system.platform.interference = Interference::default();
    system.platform.demultiplex = Duration::ZERO;
    system.platform.best_effort.starts = None;
    system.platform.wake_up = Duration::ZERO;
    (system.send_early, system.receive_early) = (false, false);
    system.channels.iter_mut().for_each(|channel| channel.role = Role::Sends);
    let most = draw(1) * 60;
    system.channels.iter_mut().for_each(|channel| channel.slack = us(draw(most)));
    SearchCase { test: Analysis::DOrder(block), system }
}

/// The channels with their deadlines: each asks for what the formula gives it when it comes, and its slack. `None` if one is
/// refused.
pub fn d_order(system: &mut SmallSystem, block: BlockTerm) -> Option<Vec<Promise>> {
    let mut host = DOrder::new(&system.platform, block).ok()?;
    let mut promises = Vec::new();
    for channel in &mut system.channels {
        let interval = channel.contract.interval();
        let longest = channel.contract.with_deadline(interval).ok()?;
        let mut trial = host.clone();
        let place = trial.insert(&longest).ok()?;
        let least = trial.channels()[place].response;
        let asked = (least + channel.slack).min(interval);
        let contract = channel.contract.with_deadline(asked).ok()?;
        host.insert(&contract).ok()?;
        channel.contract = contract;
        let promise = Promise::by(asked);
        channel.stages = promise.stages;
        promises.push(promise);
    }
    Some(promises)
}

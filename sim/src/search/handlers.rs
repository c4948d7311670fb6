//! Applications' handlers, which run in the steps that complete messages: at the edge of what admission accepts.

use laxity_core::admission::answer::{Role, Rule};
use laxity_core::units::Duration;

use super::{Analysis, NumberSource, SearchCase, small, us};

/// Channels of which some are received, one at least, and those have handlers; every other step with one is as long as a step may be.
pub(super) fn case(draw: &mut impl NumberSource, rule: Rule) -> SearchCase {
    let mut case = small::on_executive(draw, rule, Analysis::Handlers(rule));
    let channels = &mut case.system.channels;
    if !channels.iter().any(|channel| channel.role == Role::Receives) {
        channels[0].role = Role::Receives;
    }
    let mut longest = Duration::ZERO;
    for channel in channels.iter_mut().filter(|channel| channel.role == Role::Receives) {
        let cost = us(1 + draw(40));
        longest = longest.max(cost);
        channel.contract = channel.contract.with_handler(cost);
    }
    let platform = &mut case.system.platform;
    platform.upcall_step = platform.receive_first + longest + us(draw(1) * draw(20));
    // As in systems with upcalls on the executive's thread.
    case.system.ahead = small::AHEAD + platform.upcall_step * 40;
    case
}

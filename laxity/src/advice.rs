//! What to do about a refusal: what would fit at this host, and which of its channels stand in the way.
//!
//! Only for a channel that this host's application asks for, in that application's thread and on a copy of what is admitted: a peer
//! cannot cause the work, and nobody waits for it. Above [`MOST`] channels it is not done.

use laxity_core::admission::answer::Role;
use laxity_core::admission::{Admission, Code, Refusal, ReservationId};
use laxity_core::contract::Contract;
use laxity_core::event::Name;
use laxity_core::units::Duration;

use crate::control::State;
use crate::error::Advice;

/// Most channels among which those that stand in the way are looked for.
const MOST: usize = 256;

/// Everything that advice is made from, so that nothing is locked meanwhile.
pub(crate) struct Question {
    admission: Admission,
    names: Vec<(ReservationId, Name)>,
}

impl State {
    /// What is admitted, to ask about; `None` if there are too many channels.
    pub(crate) fn question(&self, admission: Admission) -> Option<Question> {
        let names = self.channels().filter_map(|known| Some((known.reservation?, known.name)));
        let names: Vec<(ReservationId, Name)> = names.take(MOST + 1).collect();
        (names.len() <= MOST).then_some(Question { admission, names })
    }
}

impl Question {
    /// Advice for a sending channel of whose deadline so much is `outside` this host.
    pub(crate) fn ask(&self, contract: &Contract, outside: Duration) -> Box<Advice> {
        let fits = self.admission.what_fits(contract, Role::Sends, outside);
        let budget = contract.deadline().saturating_sub(outside);
        let blocking = self.admission.in_the_way(contract, Role::Sends, budget);
        let name = |id| self.names.iter().find(|(other, _)| *other == id).map(|(_, name)| name.as_str().to_owned());
        Box::new(Advice { fits, in_the_way: blocking.into_iter().filter_map(name).collect() })
    }
}

/// True if a decision of admission stands behind it, so that there is something to say.
pub(crate) fn helps(refusal: &Refusal) -> bool {
    !matches!(
        refusal.code,
        Code::Memory
            | Code::PeerShare
            | Code::ArrivalUtilisation
            | Code::ArrivalDeadline
            | Code::NoSuchName
            | Code::NameInUse
            | Code::Version
            | Code::Protocol
            | Code::Declined
    )
}

//! What to do about a refusal: what would fit at this host, and which of its channels stand in the way.
//!
//! Only for a channel that this host's application asks for, in that application's thread and on a copy of what is admitted: a peer
//! cannot cause the work, and nobody waits for it. Above [`MOST`] channels it is not done.

use std::fmt;

use laxity_core::admission::answer::{Fits, Role};
use laxity_core::admission::{Admission, Code, Refusal, ReservationId};
use laxity_core::contract::Contract;
use laxity_core::event::Name;
use laxity_core::units::Duration;

use crate::control::State;
use crate::text::DisplaySize;

/// Most channels among which those that stand in the way are looked for.
const MOST: usize = 256;
/// Most names that a text has.
const MOST_NAMES: usize = 8;

/// What would be granted by this host instead, as things are, and who stands in the way. The peer may still say no.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// What would fit, each value alone, the others as requested.
    pub fits: Fits,
    /// This host's channels without which it would be granted, the greatest first. Empty if none of them is the reason.
    pub in_the_way: Vec<String>,
}

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
        Code::Memory | Code::NoSuchName | Code::NameInUse | Code::Version | Code::Protocol | Code::Declined
    )
}

impl fmt::Display for Advice {
    /// Begins with what separates it from the reason; nothing if there is nothing to say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.in_the_way.is_empty() {
            let more = self.in_the_way.len().saturating_sub(MOST_NAMES);
            write!(f, "; channels in the way: {}", self.in_the_way[..self.in_the_way.len() - more].join(", "))?;
            if more > 0 {
                write!(f, " and {more} more")?;
            }
        }
        let Fits { deadline, interval, max_message } = self.fits;
        let ways = [
            deadline.map(|deadline| format!("a deadline of {}", deadline.rounded_up())),
            interval.map(|interval| format!("one message every {}", interval.rounded_up())),
            max_message.map(|bytes| format!("messages up to {}", DisplaySize(bytes.into()))),
        ];
        let ways: Vec<String> = ways.into_iter().flatten().collect();
        if ways.is_empty() { Ok(()) } else { write!(f, "; {} would fit", ways.join(", or ")) }
    }
}

/// A refusal with its advice: the advice says better what would fit.
pub(crate) fn explained(refusal: &Refusal, advice: Option<&Advice>) -> String {
    match advice {
        Some(advice) => format!("{}{advice}", Refusal { least_deadline: None, ..*refusal }),
        None => refusal.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use laxity_core::admission::Stage;

    use super::*;

    #[test]
    fn advice_reads_like_advice() {
        let ms = Duration::from_millis;
        let refusal = Refusal { least_deadline: Some(ms(30)), ..Refusal::new(Code::LinkUtilisation, Stage::Link) };
        assert_eq!(explained(&refusal, None), "the link is used up in the long run; a deadline of 30ms would fit");
        let fits = Fits { deadline: None, interval: Some(ms(25)), max_message: Some(4_200) };
        let mut advice = Advice { fits, in_the_way: vec!["camera".to_owned(), "lidar".to_owned()] };
        assert_eq!(
            explained(&refusal, Some(&advice)),
            "the link is used up in the long run; channels in the way: camera, lidar; one message every 25ms, or messages up to 4.2KB \
             would fit"
        );
        advice = Advice { fits: Fits::default(), in_the_way: (0..10).map(|n| n.to_string()).collect() };
        assert_eq!(advice.to_string(), "; channels in the way: 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
        assert_eq!(Advice::default().to_string(), "");
    }
}

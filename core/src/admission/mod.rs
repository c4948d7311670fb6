//! May this channel exist?
//!
//! The answer is the *split test*: each channel holds a deadline on the processor and, if it sends, one on the link; each
//! resource is tested on its own for earliest deadline first, and the two deadlines add up to what the channel asked for.
//! One analysis stands in one file, with its numbered assumptions and its paper's letters:
//!
//! | file | what it decides |
//! |---|---|
//! | `machine` | the executive as the analysis sees it: A1–A8, the look-ahead A, the cost of a message |
//! | `processor` | the processor's half of the split test |
//! | `link` | the link's half |
//! | `walk` | which instants have to be looked at, and when demand and stolen time fit before one |
//! | [`published`] | the papers' own tests, for comparison |
//! | [`confidence`] | what measured interference lets us claim, and how surely |
//! | [`buffers`] | how many messages and packets a granted channel must be able to hold |
//!
//! [`Admission`] keeps what was granted. It holds no clock and decides in integers only; what does not fit a number is a
//! refusal. Left out: composite deadlines over both resources, fixed priorities, and a ledger for tens of thousands of
//! channels; a decision here costs time in proportion to the channels that exist.

pub mod answer;
pub mod bounds;
pub mod buffers;
mod composite;
pub mod confidence;
mod ledger;
mod link;
mod machine;
pub mod plan;
mod processor;
pub mod published;
mod refusal;
mod reserve;
pub mod route;
pub mod share;
mod split;
mod walk;

pub use refusal::{Code, Refusal, Stage};
pub use reserve::{Admission, ReservationId, Settings, Utilisation};

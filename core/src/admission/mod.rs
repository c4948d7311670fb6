//! May this channel exist?
//!
//! One analysis stands in one file, with its numbered assumptions and its paper's letters:
//!
//! | file | what it decides |
//! |---|---|
//! | `machine` | the executive, and the papers' machine, as the analysis sees them: A1–A8, the look-ahead A, the cost of a message |
//! | `split` | a deadline on the processor and one on the link, each resource tested on its own |
//! | `processor` | the processor's half of it |
//! | `link` | the link's half |
//! | `composite` | one deadline for both resources, tested together |
//! | `walk` | which instants have to be looked at, and when demand and stolen time fit before one |
//! | `levels` | the processor under fixed priorities |
//! | `ledger` | yes without looking at each of many channels; the exact test stands behind its no |
//! | [`bounds`] | the worst case of each channel with those that are admitted now, and what it is made of |
//! | `explain` | a refusal as advice: what would fit, and who stands in the way |
//! | [`plan`] | channels asked for one after the other: numbers for a yes; whose fault, and what would fit, for a no |
//! | [`route`] | deadlines of several hosts; what one host must tell another |
//! | [`pair`] | both ends of channels in one computation: what two hosts answer each other |
//! | [`incoming`] | incoming traffic: what all peers may have in transit at once, best effort included |
//! | [`buffers`] | how many messages and packets a granted channel must be able to hold |
//! | [`rearrange`] | all channels served in another way together, where a newcomer does not fit as they are |
//! | `span` | how long a stall can be felt, and so with what probability a message misses |
//! | `tolerance` | which claims of the platform a host counts on, for what its channels tolerate |
//! | [`confidence`] | which interference was measured, and how sure that is |
//! | [`response_time`] | exact response times under fixed priorities: of upcalls, and of channels |
//! | [`upcalls`] | may these upcalls exist, on one thread below the executive? |
//! | `trusted` | may this upcall exist, on the executive's own thread? |
//! | [`published`] | what the papers print: D_order, the utilisation tests of upcalls; none of them decides |
//!
//! [`Admission`] keeps what was granted, by one of two rules ([`answer::Rule`]). It holds no clock and decides in integers only;
//! what does not fit a number is a refusal.

pub mod answer;
pub mod bounds;
pub mod buffers;
mod composite;
pub mod confidence;
mod explain;
pub mod incoming;
mod ledger;
mod levels;
mod link;
mod machine;
pub mod pair;
pub mod plan;
mod processor;
pub mod published;
pub mod rearrange;
mod refusal;
mod relax;
mod reserve;
pub mod response_time;
pub mod route;
mod span;
mod split;
mod tolerance;
mod trusted;
pub mod upcalls;
mod walk;

pub use refusal::{Code, Refusal, Stage};
pub use reserve::{Admission, ReservationId, Reserved, Settings, Utilisation};

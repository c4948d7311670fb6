//! Laxity under attack, beside what people use today.
//!
//! A scenario sends one workload (Table 3 of `[channels]` or a film, and best effort) through one stack across one emulated link, in real
//! time, while an attack goes on. Every stack crosses the same bottleneck, has the same sources with the same seeds, and is
//! held against the same deadlines.
//!
//! | Module | What it is |
//! |---|---|
//! | [`wire`] | the emulated link: a relay for any UDP traffic on loopback, one queue or two classes |
//! | [`attack`] | floods and hogs, each of which ends by itself; what frames in the name of a channel need |
//! | [`workload`] | the channels, and what their applications send |
//! | [`experiment`] | the workload of the papers' experiments |
//! | [`stack`] | what carries the messages: Laxity, plain UDP, UDP as an expert tunes it |
//! | [`paths`] | the fast path beside what an expert writes by hand, over AF_XDP and UDP |
//! | [`roundtrip`] | requests and answers over Laxity and plain sockets, at rest and under attacks |
//! | [`rio`] | an echo, and guaranteed bandwidth, where the kernel's threads receive by stream `[rio §3.2]` |
//! | [`events`] | a handler of Laxity beside the kernel's asynchronous I/O: what answers a message, and how soon `[events §4]` |
//! | [`shared_link`] | Table 3 beside a flood of the same host, with Laxity's guard and with the kernel's queueing disciplines |
//! | [`monitor`] | what a lock costs that several threads of a host take, under each protocol against priority inversion |
//! | [`livelock`] | what is left of a host's channels under a flood of unknown peers, over UDP and over AF_XDP |
//! | [`upcalls`] | the paper's experiments with upcalls, beside threads and plain processes |
//! | [`scenario`] | all of it together, and the figures |
//! | [`hosts`], [`interfaces`] | two hosts in network namespaces, joined by virtual interfaces |
//! | [`two_hosts`] | what `laxity lab` does with such hosts: a lab that stays, or a story that happens in one |
//! | [`figures`] | what is reckoned of figures everywhere |
//! | [`sys`] | the doorway to the kernel: namespaces, and the plain loops that benchmarks compare Laxity with |
//!
//! Everything is bounded in time and stays on loopback addresses, or in network namespaces of its own or a lab's.
#![deny(unsafe_code)]

pub mod attack;
mod conditions;
mod error;
pub mod events;
pub mod experiment;
pub mod figures;
pub mod headers;
pub mod hosts;
pub mod interfaces;
pub mod livelock;
pub mod monitor;
pub mod paths;
mod record;
pub mod rio;
pub mod roundtrip;
pub mod scenario;
pub mod shared_link;
mod source;
pub mod stack;
#[allow(unsafe_code)]
pub mod sys;
mod timing;
mod turns;
pub mod two_hosts;
pub mod upcalls;
pub mod wire;
pub mod workload;

pub use attack::{Attack, FloodPath};
pub use conditions::Report;
pub use error::Error;
pub use experiment::Experiment;
pub use record::Sample;
pub use scenario::{ChannelOutcome, ScenarioOutcome, host_status, run};
pub use stack::{Setup, Stack};
pub use timing::{Finally, set_at_end};
pub use workload::{Film, Workload};

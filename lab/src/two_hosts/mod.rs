//! `laxity lab`: two hosts on one machine, in network namespaces of their own, joined by a virtual Ethernet pair.
//!
//! | Module | What it is |
//! |---|---|
//! | [`pair`] | the interfaces and their addresses |
//! | [`named_lab`] | a lab with a name, that stays, and commands that run in its hosts |
//! | [`story`] | a lab without a name, that vanishes with its processes, and what happens in it |
//! | [`host`] | what each process of that does: receive, send, flood |
//! | [`clocks`] | a clock of host a that is not that of host b |
//! | [`talk`] | what they say to each other, and what came of it |
//!
//! Nothing of it touches the network of the machine: packets cross the pair only, and a flood goes to addresses of the lab only.

pub mod clocks;
pub mod host;
pub mod named_lab;
pub mod pair;
pub mod story;
pub mod talk;

pub use clocks::Clocks;
pub use host::Command;
pub use story::{ShownProgress, Story};
pub use talk::{HostReport, Outcome, Promise, ReceivedChannel};

/// One of the two hosts, as it is written: `a` or `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, serde::Serialize)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum HostName {
    /// The one that sends.
    A,
    /// The one that receives.
    B,
}

impl HostName {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];
}

//! Which link a command's host has, and what is reported of the fast path.

use clap::{Args, ValueEnum};
use laxity::snapshot::{ByClass, EarlySnapshot};
use laxity::{LinkChoice, XdpOptions};
use laxity_core::units::Duration;
use laxity_link::xdp::Mode;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::failure::Failure;

/// How the host reaches the network.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub(crate) struct LinkArguments {
    /// The link: a socket (udp), AF_XDP with early demultiplexing (xdp, needs root), or AF_XDP where it is available, else a socket (auto)
    #[arg(long, value_enum, default_value_t = LinkName::Udp)]
    pub(crate) link: LinkName,
    /// xdp: the interface to drive; by default the one that has the address
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
    /// xdp: tag packets with this VLAN, where the interface itself is not of a VLAN
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub(crate) vlan: Option<u16>,
    /// xdp: where in the kernel frames are demultiplexed: in the driver (native), as soon as the kernel has a buffer (generic), or in the
    /// driver where that is available (any, the default)
    #[arg(long, value_enum)]
    pub(crate) xdp_mode: Option<ModeName>,
    /// xdp: how many frames a second may be dropped early [default: 50000]. Their cost is a term of every bound
    #[arg(long, value_name = "FRAMES")]
    pub(crate) dropped_per_second: Option<u64>,
    /// xdp: the time of driver and kernel for each of those frames [default: 1us]. The time of the program in the driver is measured and
    /// added. `laxity bench livelock` measures the whole
    #[arg(long, value_name = "SPAN", value_parser = laxity::text::duration)]
    pub(crate) frame_overhead: Option<Duration>,
    /// xdp: how many frames may wait on each receive queue: of real-time channels, control frames, and best effort [default: 512,512,256].
    /// Rounded up to powers of two
    #[arg(long, value_name = "FRAMES,FRAMES,FRAMES", value_parser = waiting)]
    pub(crate) waiting: Option<[u32; 3]>,
}

/// How many frames may wait on a queue: what the link takes.
const MOST_WAITING: u32 = 1 << 15;

/// Reads how many may wait: of real-time channels, control frames, and best effort.
fn waiting(text: &str) -> Result<[u32; 3], String> {
    let number = |text: &str| text.parse().ok().filter(|number| (1..=MOST_WAITING).contains(number));
    let numbers: Option<Vec<u32>> = text.split(',').map(number).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| {
        let default = XdpOptions::default().waiting.map(|frames| frames.to_string()).join(",");
        format!(
            "expected three numbers from 1 to {MOST_WAITING}, of real-time channels, control frames, and best effort: \
             {default}"
        )
    })
}

/// The links by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum LinkName {
    Udp,
    Xdp,
    Auto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum ModeName {
    Any,
    Native,
    Generic,
}

impl LinkName {
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}

impl LinkArguments {
    /// As the command line says, unless it asks of a socket what only AF_XDP can do.
    pub(crate) fn choice(&self) -> Result<LinkChoice, Failure> {
        self.check()?;
        let default = XdpOptions::default();
        let options = XdpOptions {
            interface: self.interface.clone(),
            vlan: self.vlan,
            mode: match self.xdp_mode {
                None | Some(ModeName::Any) => Mode::Any,
                Some(ModeName::Native) => Mode::Native,
                Some(ModeName::Generic) => Mode::Generic,
            },
            dropped_per_second: self.dropped_per_second.unwrap_or(default.dropped_per_second),
            frame_overhead: self.frame_overhead.unwrap_or(default.frame_overhead),
            waiting: self.waiting.unwrap_or(default.waiting),
            ..default
        };
        Ok(match self.link {
            LinkName::Udp => LinkChoice::Udp,
            LinkName::Xdp => LinkChoice::Xdp(options),
            LinkName::Auto => LinkChoice::XdpOrUdp(options),
        })
    }

    /// Whether what is asked for goes together.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let given = [
            ("--interface", self.interface.is_some()),
            ("--vlan", self.vlan.is_some()),
            ("--xdp-mode", self.xdp_mode.is_some()),
            ("--dropped-per-second", self.dropped_per_second.is_some()),
            ("--frame-overhead", self.frame_overhead.is_some()),
            ("--waiting", self.waiting.is_some()),
        ];
        let misplaced = given.into_iter().find(|(_, is_given)| *is_given && self.link == LinkName::Udp);
        misplaced.map_or(Ok(()), |(option, _)| {
            Err(Failure::Usage(format!("{option} is for --link xdp or auto, and the link is udp")))
        })
    }
}

/// How a line begins that says which premise of the bounds was broken.
pub(crate) const PREMISE: &str = "premise: ";

/// The early demultiplexer in words, with all that is not as it should be.
pub(crate) fn early_lines(early: Option<&EarlySnapshot>, elapsed: Duration) -> Vec<String> {
    let Some(early) = early else { return Vec::new() };
    let share = early.dropping.as_nanos() * 1000 / elapsed.as_nanos().max(1);
    let mut lines = vec![format!(
        "early demultiplexing ({}, {}): {} frames taken, {} left to the kernel, {} dropped ({}): {} at {} each, {}.{} % of a processor",
        early.interface,
        early.mode,
        early.taken,
        early.passed,
        early.dropped.all(),
        early.dropped.reasons().map(|(reason, count)| format!("{reason} {count}")).join(", "),
        early.dropping,
        early.cost(),
        share / 10,
        share % 10,
    )];
    let ByClass { real_time, control, best_effort } = early.full;
    if early.full != ByClass::default() || early.no_frame > 0 {
        lines.push(format!(
            "lost because as many waited as may (--waiting): {real_time} of real-time channels, {control} control, {best_effort} best effort; for want \
             of a frame: {}",
            early.no_frame
        ));
    }
    if let Some(allowed) = early.allowed_dropped_per_second.filter(|allowed| early.most_dropped_per_second > *allowed) {
        lines.push(format!(
            "{PREMISE}{} frames a second were dropped early at most, bounds allow for {allowed} (--dropped-per-second)",
            early.most_dropped_per_second
        ));
    }
    if early.queues_now > early.queues {
        lines.push(format!(
            "{} has {} receive queues now, {} when it was opened: packets on the others went to the kernel and were not policed",
            early.interface, early.queues_now, early.queues
        ));
    }
    if early.is_gone {
        lines.push(format!("{} is gone, or its program was taken away: the link ended as a socket", early.interface));
    }
    lines
}

#[cfg(test)]
mod tests {
    use laxity_link::OutOfRange;
    use laxity_link::xdp::{Xdp, XdpConfig, XdpError};

    use super::*;

    #[test]
    fn what_may_wait_is_three_numbers_that_the_link_takes() {
        assert_eq!(waiting("512,512,256"), Ok(XdpOptions::default().waiting));
        assert_eq!(waiting("1,32768,3"), Ok([1, 32_768, 3]));
        for text in ["", "512", "1,2", "1,2,3,4", "0,1,1", "1,1,32769", "1,-1,1", "1,1,1k", "1, 2,3"] {
            let refused = waiting(text).unwrap_err();
            assert!(refused.contains("1 to 32768") && refused.contains("512,512,256"), "{text}: {refused}");
        }
        // The link says so before it asks for any right.
        let bind = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let config = XdpConfig { waiting: [1, 1, MOST_WAITING + 1], ..XdpConfig::new(bind) };
        let refused = Xdp::open(&config).map(drop).unwrap_err();
        let XdpError::Config(OutOfRange { field: "waiting", least: 1, most, .. }) = refused else {
            panic!("{refused}")
        };
        assert_eq!(most, u64::from(MOST_WAITING));
    }
}

//! Which link a command's host has, and what is reported of the fast path.

use clap::{Args, ValueEnum};
use laxity::{Host, LinkChoice, XdpOptions};
use laxity_core::units::Duration;
use laxity_link::xdp::{EarlyFigures, Mode, Status};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use strum::IntoStaticStr;

use crate::failure::Failure;

/// How the host reaches the network.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub(crate) struct LinkArguments {
    /// A socket (udp), AF_XDP with early demultiplexing (xdp: needs root), or that where it can be had (auto)
    #[arg(long, value_enum, default_value_t = LinkName::Udp)]
    pub(crate) link: LinkName,
    /// xdp: the interface to drive; by default the one that has the address
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
    /// xdp: tag packets with this VLAN, though the interface is not one of it
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub(crate) vlan: Option<u16>,
    /// xdp: where in the kernel frames are demultiplexed: in the driver, as soon as the kernel has a buffer, or as it can be had
    /// (any, the default)
    #[arg(long, value_enum)]
    pub(crate) xdp_mode: Option<ModeName>,
    /// xdp: how many frames a second may be dropped early (50000); what that costs is a term of every bound
    #[arg(long, value_name = "FRAMES")]
    pub(crate) dropped_per_second: Option<u64>,
    /// xdp: what driver and kernel take for each of those (1us) beside the program, whose time is measured; `bench livelock` tells the whole
    #[arg(long, value_name = "SPAN", value_parser = laxity::text::duration)]
    pub(crate) frame_overhead: Option<Duration>,
    /// xdp: how many frames may wait on each receive queue: of real-time channels, control frames, and best effort; rounded up to
    /// powers of two (512,512,256)
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
        match given.into_iter().find(|(_, is_given)| *is_given && self.link == LinkName::Udp) {
            Some((option, _)) => {
                Err(Failure::Usage(format!("{option} is for --link xdp or auto, and the link is udp")))
            }
            None => Ok(()),
        }
    }
}

/// How a line begins that says which premise of the bounds was broken.
pub(crate) const PREMISE: &str = "premise: ";

/// What became of frames before they came to a host, in JSON; `null` with a socket.
pub(crate) fn early(host: &Host) -> Value {
    let Some(status) = host.early() else { return Value::Null };
    let (opened, early, allowed) = (status.opened(), status.early(), host.allowed_drops());
    let [real_time, control, best_effort] = early.full;
    json!({
        "interface": opened.interface,
        "mode": opened.mode.to_string(),
        "zero_copy": opened.zero_copy,
        "queues": opened.queues,
        "passed": early.passed,
        "taken": early.taken,
        "dropped": Map::from_iter(reasons(&early).map(|(reason, count)| (reason.to_owned(), count.into()))),
        // Lost because as many waited as may.
        "full": { "real_time": real_time, "control": control, "best_effort": best_effort },
        // Lost because the kernel had no free frame.
        "no_frame": early.no_frame,
        // What it took the program to drop one frame, measured at the start.
        "drop_cost_ns": opened.drop_cost,
        // What bounds reckon with for one: that, and what driver and kernel take.
        "allowed_drop_cost_ns": allowed.map(|allowed| allowed.cost),
        // What dropping took, by that.
        "dropping_ns": cost(host, status) * early.dropped(),
        "most_dropped_per_second": early.most_dropped_per_second,
        "allowed_dropped_per_second": allowed.map(|allowed| allowed.frames_per_second),
    })
}

/// Why frames were dropped, and how many.
fn reasons(early: &EarlyFigures) -> [(&'static str, u64); 5] {
    [
        ("malformed", early.malformed),
        ("unknown", early.unknown),
        ("too_large", early.too_large),
        ("over_rate", early.over_rate),
        ("over_control", early.over_control),
    ]
}

/// Likewise in words, with what is not as it should be.
pub(crate) fn early_lines(host: &Host, elapsed: Duration) -> Vec<String> {
    let Some(status) = host.early() else { return Vec::new() };
    let (opened, early) = (status.opened(), status.early());
    let dropping = cost(host, status) * early.dropped();
    let share = dropping.as_nanos() * 1000 / elapsed.as_nanos().max(1);
    let mut lines = vec![format!(
        "early demultiplexing ({}, {}): {} frames taken, {} left to the kernel, {} dropped ({}): {dropping} at {} each, {}.{} % of a \
         processor",
        opened.interface,
        opened.mode,
        early.taken,
        early.passed,
        early.dropped(),
        reasons(&early).map(|(reason, count)| format!("{} {count}", reason.replace('_', " "))).join(", "),
        cost(host, status),
        share / 10,
        share % 10,
    )];
    if early.full != [0; 3] || early.no_frame > 0 {
        let [real_time, control, best_effort] = early.full;
        lines.push(format!(
            "lost because as many waited as may (--waiting): {real_time} of real-time channels, {control} control, {best_effort} best effort; for want \
             of a frame: {}",
            early.no_frame
        ));
    }
    let allowed = host.allowed_drops().map(|allowed| allowed.frames_per_second);
    if let Some(allowed) = allowed.filter(|allowed| early.most_dropped_per_second > *allowed) {
        lines.push(format!(
            "{PREMISE}{} frames a second were dropped early at most, bounds allow for {allowed} (--dropped-per-second)",
            early.most_dropped_per_second
        ));
    }
    if status.queues() > opened.queues {
        lines.push(format!(
            "{} has {} receive queues now, {} when it was opened: packets on the others were the kernel's, and nobody's were policed \
             there",
            opened.interface,
            status.queues(),
            opened.queues
        ));
    }
    if status.is_gone() {
        lines.push(format!("{} is gone, or its program was taken away: the link ended as a socket", opened.interface));
    }
    lines
}

/// What dropping a frame takes, as bounds have it.
fn cost(host: &Host, status: &Status) -> Duration {
    host.allowed_drops().map_or(status.opened().drop_cost, |allowed| allowed.cost)
}

#[cfg(test)]
mod tests {
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
        let XdpError::Config { field: "waiting", least: 1, most, .. } = refused else { panic!("{refused}") };
        assert_eq!(most, u64::from(MOST_WAITING));
    }
}

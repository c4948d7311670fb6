//! A process of `laxity lab run`: what its host is to be like, and how it reports.

use laxity::{Host, HostConfig, Snapshot};
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_lab::Error;
use laxity_lab::two_hosts::{Command, HostReport, Promise};
use laxity_lab::workload::WorkloadRow;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::RunArguments;
use crate::costs::{self, CostsArguments};
use crate::failure::Failure;
use crate::link::{LinkArguments, PREMISE, early_lines};

/// What the command line says of both hosts, as their processes are told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Settings {
    costs: CostsArguments,
    pub(super) link: LinkArguments,
}

impl Settings {
    /// As the command line says, with a link that tags packets with `vlan`.
    pub(super) fn new(arguments: &RunArguments, vlan: Option<u16>) -> Self {
        let link = LinkArguments {
            link: arguments.link,
            interface: None,
            vlan,
            xdp_mode: arguments.xdp_mode,
            dropped_per_second: arguments.dropped_per_second,
            frame_overhead: None,
            waiting: None,
        };
        Self { costs: arguments.costs.clone(), link }
    }

    fn apply(self, config: HostConfig) -> Result<HostConfig, Failure> {
        let link = self.link.choice()?;
        let costs = costs::named(self.costs.calibration.as_deref(), link.kind())?.at(config.bind.ip());
        Ok(HostConfig { costs: Some(costs), link, ..config }
            .advanced(|advanced| advanced.keep_awake = self.costs.keep_awake))
    }
}

/// One of the hosts, as this command makes it.
pub(super) struct Process;

impl Command for Process {
    fn configure(&self, settings: &Value, config: HostConfig) -> Result<HostConfig, Error> {
        let settings = Settings::deserialize(settings).map_err(|error| Error::usage(error.to_string()))?;
        settings
            .apply(config)
            .map_err(|failure| Error::Other { status: failure.exit_status(), text: failure.to_string() })
    }

    fn promise(&self, host: &Host, platform: &Platform, channels: &[WorkloadRow]) -> Promise {
        let guarantee = costs::of_both_ends(&host.status().backing, platform, channels);
        Promise {
            guarantee: guarantee.level.name().to_owned(),
            miss_probability: guarantee.miss.map(|miss| miss.to_string()),
            in_words: costs::in_words(&guarantee),
        }
    }

    fn report(&self, host: &Host, elapsed: Duration) -> HostReport {
        let Snapshot { link, early, premises, .. } = host.snapshot();
        let (broken, notes): (Vec<String>, Vec<String>) =
            early_lines(early.as_ref(), elapsed).into_iter().partition(|line| line.starts_with(PREMISE));
        let broken = broken.iter().map(|line| line.trim_start_matches(PREMISE).to_owned());
        HostReport {
            link: json!(link),
            early: json!(early),
            premises: json!(premises),
            is_broken_with_peer: premises.are_broken_with_any(),
            violations: premises.violations().into_iter().chain(broken).collect(),
            notes,
        }
    }
}

//! The simulated part: the same channels in virtual time, exact and repeatable.

use std::net::SocketAddr;

use laxity_core::admission::Admission;
use laxity_core::contract::{Contract, Service};
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant, Rate};
use laxity_sim::{HostConfig, Plan, Source, World};

use super::{MESSAGE_BYTES, Part, table_3};
use crate::failure::Failure;

/// Runs for `duration` of virtual time.
pub(super) fn run(platform: &Platform, duration: Duration, seed: u64) -> Result<Part, Failure> {
    let mut notes = Vec::new();
    let refused = |name: &str, refusal| {
        let by = "the simulated host".to_owned();
        Failure::Usage(format!("{name}: {}", laxity::Error::Refused { by, refusal }))
    };
    let mut sending = Admission::new(platform.clone()).map_err(laxity::Error::from)?;
    let mut receiving = Admission::new(platform.clone()).map_err(laxity::Error::from)?;
    let mut world = World::new(seed);
    let host = |address: &str| -> SocketAddr { address.parse().expect("an address") };
    let config = |address: &str| HostConfig {
        look_ahead: sending.look_ahead(),
        frames: 16_384,
        receive_ring: 4096,
        receive_early: true,
        ..HostConfig::new(platform.clone(), host(address))
    };
    let (here, there) = (config("10.0.0.1:1"), config("10.0.0.2:1"));
    let (here, there) = (world.add_host(here), world.add_host(there));
    let end = Instant::ZERO + SET_UP + duration;
    let mut channels = Vec::new();
    for row in table_3() {
        let mut contract = row.contract;
        let outside = platform.propagation;
        // The receiver's stage first, as in the live set-up; what is left is the sender's.
        let (id, least) = receiving
            .reserve_receiving(&contract, contract.deadline())
            .map_err(|refusal| refused(row.name, refusal))?;
        let receive = receiving.relax_receiving(id, least).map_err(|refusal| refused(row.name, refusal))?;
        let budget = contract.deadline() - receive - outside;
        let (id, budget) = match sending.reserve_sending(&contract, budget) {
            Ok((id, _)) => (id, budget),
            Err(refusal) => {
                let least = refusal.least_deadline.ok_or_else(|| refused(row.name, refusal))?;
                contract = with_deadline(&contract, least + receive + outside)?;
                notes.push(format!("{}: {}; going on with {}", row.name, refusal, contract.deadline()));
                let (id, _) = sending.reserve_sending(&contract, least).map_err(|again| refused(row.name, again))?;
                (id, least)
            }
        };
        let stages = sending.relax_sending(id, budget).map_err(|refusal| refused(row.name, refusal))?;
        let stages = stages.with_handover(platform.handover);
        let plan = Plan::new(row.name, Service::RealTime(contract), stages, receive);
        let channel = world.open(here, there, plan);
        let source = Source { until: end, ..Source::full(channel, &contract, Instant::ZERO + SET_UP) };
        world.add_source(source);
        channels.push((channel, row.name, Some(contract)));
    }
    let service = Service::best_effort(MESSAGE_BYTES.into(), 10).map_err(laxity::Error::from)?;
    let plan = Plan::new("best-effort", service, Default::default(), Duration::ZERO);
    let channel = world.open(here, there, plan);
    let rate = platform.link.rate.map_or(1, Rate::as_bytes_per_second);
    world
        .add_source(Source { until: end, ..Source::at_rate(channel, MESSAGE_BYTES, rate, 10, Instant::ZERO + SET_UP) });
    channels.push((channel, "best-effort", None));
    world.run_until(end);
    world.finish();

    let figures = channels.into_iter().map(|(channel, name, contract)| Figures {
        name: name.to_owned(),
        bound: contract.map(|contract| contract.deadline()),
        ..world.report(channel).figures
    });
    Ok(Part { link: "emulated", simulated: true, elapsed: duration, figures: figures.collect(), notes })
}

/// Virtual time for the channels to be opened.
const SET_UP: Duration = Duration::from_millis(100);

fn with_deadline(contract: &Contract, deadline: Duration) -> Result<Contract, Failure> {
    Ok(contract.with_deadline(deadline).map_err(laxity::Error::from)?)
}

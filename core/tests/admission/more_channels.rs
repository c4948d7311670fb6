//! How many channels are admitted, against the published test.

use laxity_core::admission::answer::{Request, Role, Rule, Test};
use laxity_core::admission::plan::decide;
use laxity_core::admission::published::d_order::{Block, DOrder};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;

use crate::workloads::WORKLOADS;

fn by_d_order(platform: &Platform, contracts: &[Contract]) -> usize {
    let mut order = DOrder::new(platform, Block::Printed).unwrap();
    contracts.iter().filter(|contract| order.insert(contract).is_ok()).count()
}

fn by_plan(platform: &Platform, contracts: &[Contract], test: Test) -> usize {
    let requests: Vec<Request> =
        contracts.iter().map(|contract| Request { contract: *contract, role: Role::Sends }).collect();
    let answers = decide(platform, &requests, test).unwrap();
    answers.channels.iter().filter(|answer| answer.outcome.is_ok()).count()
}

#[test]
fn a_fifth_more_channels_than_d_order_as_printed() {
    let platform = Platform::papers_table_2b();
    for workload in WORKLOADS {
        let contracts = workload.contracts();
        let printed = by_d_order(&platform, &contracts);
        let mut min = DOrder::new(&platform, Block::Min).unwrap();
        let min = contracts.iter().filter(|contract| min.insert(contract).is_ok()).count();
        let [auto, split, composite] = [Test::Auto, Test::Only(Rule::Split), Test::Only(Rule::Composite)]
            .map(|test| by_plan(&platform, &contracts, test));
        println!("{workload:?}: {printed} printed, {min} min, {split} split, {composite} composite, {auto} either");
    }
}

//! How many channels of the published workloads are admitted, by the published test and by ours. The figures are in
//! `docs/admission.md`, with what they mean; whoever changes one changes it there too.

use laxity_core::admission::answer::{Request, Role, Rule, Test};
use laxity_core::admission::plan::decide;
use laxity_core::admission::published::d_order::{Block, DOrder};
use laxity_core::admission::{Admission, Settings};
use laxity_core::contract::Contract;
use laxity_core::platform::{MachineModel, Platform};

use crate::workloads::WORKLOADS;

fn by_d_order(platform: &Platform, contracts: &[Contract]) -> usize {
    let mut order = DOrder::new(platform, Block::Printed).unwrap();
    contracts.iter().filter(|contract| order.insert(contract).is_ok()).count()
}

/// As a plan by one rule alone does, without its figures and reasons.
fn by_rule(platform: &Platform, contracts: &[Contract], rule: Rule) -> usize {
    let settings = Settings { rule, ..Settings::default() };
    let mut admission = Admission::with_settings(platform.clone(), settings).unwrap();
    let mut granted = |contract: &&Contract| match admission.reserve_sending(contract, contract.deadline()) {
        Ok((id, _)) => admission.relax_sending(id, contract.deadline()).is_ok(),
        Err(_) => false,
    };
    contracts.iter().filter(|contract| granted(contract)).count()
}

fn by_plan(platform: &Platform, contracts: &[Contract], test: Test) -> usize {
    let request = |contract: &Contract| Request { contract: *contract, role: Role::Sends };
    let requests: Vec<Request> = contracts.iter().map(request).collect();
    let answers = decide(platform, &requests, test).unwrap();
    answers.channels.iter().filter(|answer| answer.outcome.is_ok()).count()
}

/// D_order as printed, either rule, split, composite; one row for each workload.
fn admitted(platform: &Platform, changed: fn(&Contract) -> Contract) -> Vec<[usize; 4]> {
    let row = |contracts: Vec<Contract>| {
        let [split, composite] = [Rule::Split, Rule::Composite].map(|rule| by_rule(platform, &contracts, rule));
        [by_d_order(platform, &contracts), by_plan(platform, &contracts, Test::Auto), split, composite]
    };
    WORKLOADS.iter().map(|workload| row(workload.contracts().iter().map(changed).collect())).collect()
}

/// The same channel with messages of whole packets of S.
fn in_whole_packets(contract: &Contract) -> Contract {
    let bytes = u64::from(contract.max_message().next_multiple_of(4096));
    let (interval, burst) = (contract.interval(), contract.burst().into());
    Contract::new(bytes, bytes, interval, burst, contract.deadline()).unwrap()
}

/// Short last packets may interrupt the processor as often as the link lets them: the printed test does not look at that
/// (its defect A4), ours charges it, and admits fewer.
#[test]
fn inline() {
    let found = admitted(&Platform::papers_table_2b(), |contract| *contract);
    assert_eq!(found, INLINE);
}

#[test]
fn inline_in_whole_packets() {
    let found = admitted(&Platform::papers_table_2b(), in_whole_packets);
    assert_eq!(found, INLINE_WHOLE);
}

#[test]
fn offload() {
    let platform = Platform { machine: MachineModel::PapersOffload, ..Platform::papers_table_2b() };
    assert_eq!(admitted(&platform, |contract| *contract), OFFLOAD);
}

const INLINE: [[usize; 4]; 3] = [[43, 23, 23, 24], [44, 24, 24, 20], [49, 24, 24, 27]];
const INLINE_WHOLE: [[usize; 4]; 3] = [[41, 49, 49, 35], [42, 31, 48, 31], [45, 31, 66, 31]];
const OFFLOAD: [[usize; 4]; 3] = [[43, 47, 47, 41], [44, 43, 43, 26], [49, 67, 67, 40]];

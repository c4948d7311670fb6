//! The numbers of channels of the published workloads that are admitted, by the published test and by ours. The figures are in
//! `docs/admission.md`, with what they mean; a figure that changes here must change there, too.

use laxity_core::admission::answer::{Role, Rule};
use laxity_core::admission::published::d_order::{BlockTerm, DOrder};
use laxity_core::admission::{Admission, Settings};
use laxity_core::contract::Contract;
use laxity_core::platform::{MachineModel, Platform};

use crate::workloads::{WORKLOADS, Workload};

fn by_d_order(platform: &Platform, contracts: &[Contract]) -> usize {
    let mut order = DOrder::new(platform, BlockTerm::Printed).unwrap();
    contracts.iter().filter(|contract| order.insert(contract).is_ok()).count()
}

/// As a plan by one rule alone does, without its figures and reasons.
fn by_rule(platform: &Platform, contracts: &[Contract], rule: Rule) -> usize {
    let settings = Settings { rule, ..Settings::default() };
    let mut admission = Admission::with_settings(platform.clone(), settings).unwrap();
    let mut granted = |contract: &&Contract| match admission.reserve(contract, Role::Sends, contract.deadline()) {
        Ok((id, _)) => admission.relax(id, contract.deadline()).is_ok(),
        Err(_) => false,
    };
    contracts.iter().filter(|contract| granted(contract)).count()
}

/// D_order as printed, either rule, split, composite; one row for each workload.
fn admitted(platform: &Platform, contracts: fn(Workload) -> Vec<Contract>) -> Vec<[usize; 4]> {
    let row = |contracts: Vec<Contract>| {
        let [split, composite] = [Rule::Split, Rule::Composite].map(|rule| by_rule(platform, &contracts, rule));
        [by_d_order(platform, &contracts), split.max(composite), split, composite]
    };
    // Each on a thread of its own: they take long.
    std::thread::scope(|scope| {
        let rows = WORKLOADS.map(|workload| scope.spawn(move || row(contracts(workload))));
        rows.into_iter().map(|row| row.join().unwrap()).collect()
    })
}

fn offload() -> Platform {
    Platform { machine: MachineModel::PapersOffload, ..Platform::papers_table_2b() }
}

/// At least a fifth more channels than the printed test, which is not even safe.
fn a_fifth_more(platform: &Platform, expected: [[usize; 4]; 3]) {
    let found = admitted(platform, Workload::contracts);
    assert_eq!(found, expected, "the figures of docs/admission.md");
    for [printed, either, ..] in found {
        assert!(either * 5 >= printed * 6, "{either} against {printed}");
    }
}

#[test]
fn a_fifth_more_than_d_order_as_printed() {
    a_fifth_more(&Platform::papers_table_2b(), [[27, 34, 34, 26], [25, 34, 34, 31], [19, 30, 30, 22]]);
    a_fifth_more(&offload(), [[27, 36, 36, 32], [25, 39, 39, 39], [19, 40, 40, 31]]);
}

/// Of all magnitudes the printed test lets about as many in: it does not charge short packets (its defect A4).
fn all_magnitudes(platform: &Platform, expected: [[usize; 4]; 3]) {
    assert_eq!(admitted(platform, Workload::of_all_magnitudes), expected);
}

#[test]
fn all_magnitudes_with_scheduling_at_interrupt_level() {
    all_magnitudes(&Platform::papers_table_2b(), [[43, 42, 42, 24], [44, 44, 44, 20], [49, 51, 51, 27]]);
}

#[test]
fn all_magnitudes_with_scheduling_on_the_adapter() {
    all_magnitudes(&offload(), [[43, 49, 49, 41], [44, 49, 49, 26], [49, 78, 78, 40]]);
}

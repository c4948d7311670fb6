//! The ledger beside the exact test.

use alloc::vec::Vec;

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::super::answer::Role;
use super::super::reserve::{Admission, Reservation, ReservationId};
use super::*;
use crate::contract::Contract;
use crate::platform::{MachineModel, Platform};
use crate::units::{Duration, Rate};

fn platform(machine: MachineModel) -> Platform {
    let mut platform = Platform { machine, ..Platform::assumed_host() };
    platform.interference.burst = Duration::from_micros(100);
    if machine.is_papers() {
        platform.link = platform.link.unspaced();
    }
    platform
}

#[derive(Clone, Debug)]
struct TestRequest {
    contract: Contract,
    role: Role,
    budget: Duration,
}

fn ask() -> impl Strategy<Value = TestRequest> {
    let role = prop_oneof![6 => Just(Role::Sends), 3 => Just(Role::Receives), 1 => Just(Role::Relays)];
    (1u64..20_000, 1u64..3000, 5_000_000u64..500_000_000, 1u64..300, role).prop_map(
        |(max, min, interval, percent, role)| {
            let deadline = Duration::from_nanos((interval * percent / 100).max(2_000_000));
            let contract = Contract::new(max, min.min(max), Duration::from_nanos(interval), 1, deadline).unwrap();
            TestRequest { contract, role, budget: deadline }
        },
    )
}

fn by_ledger(admission: &Admission, ask: &TestRequest) -> Option<Reservation> {
    let newcomer = admission.newcomer(&ask.contract, ask.role).unwrap();
    admission.ask_ledger(&newcomer, ask.budget)
}

fn by_exact_test(admission: &Admission, ask: &TestRequest) -> bool {
    let newcomer = admission.newcomer(&ask.contract, ask.role).unwrap();
    admission.decide_exactly(&newcomer, ask.budget).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// If the ledger says yes, the exact test does, too, whichever of them let the other channels in.
    #[test]
    fn yes_is_yes(asks in prop::collection::vec((ask(), any::<bool>()), 1..60), papers: bool, faster in 1u64..12) {
        let machine = if papers { MachineModel::PapersInline } else { MachineModel::Executive };
        let mut platform = platform(machine);
        if !papers {
            // On a fast link packets are spaced, and count longer than they take, by less the longer they are.
            platform.link.rate = Rate::bytes_per_second(12_500_000 * faster);
        }
        let mut admission = Admission::new(platform).unwrap();
        for (ask, by_the_ledger) in asks {
            if by_the_ledger {
                if let Some(reservation) = by_ledger(&admission, &ask) {
                    prop_assert!(by_exact_test(&admission, &ask));
                    admission.insert(reservation).unwrap();
                    prop_assert_eq!(admission.test(), Ok(()));
                }
            } else {
                let _ = admission.reserve(&ask.contract, ask.role, ask.budget);
            }
        }
    }

    /// Taking out undoes entering, to the last bit.
    #[test]
    fn release_restores_the_ledger(asks in prop::collection::vec(ask(), 1..40), kept in 0usize..10) {
        let mut admission = Admission::new(platform(MachineModel::Executive)).unwrap();
        let enter = |admission: &mut Admission, ask: &TestRequest| -> Option<ReservationId> {
            let (id, _) = admission.reserve(&ask.contract, ask.role, ask.budget).ok()?;
            admission.relax(id, ask.budget).unwrap();
            Some(id)
        };
        for ask in asks.iter().take(kept) {
            enter(&mut admission, ask);
        }
        let before = alloc::format!("{:?}", &admission.ledger);
        let gone: Vec<_> = asks.iter().skip(kept).filter_map(|ask| enter(&mut admission, ask)).collect();
        for id in gone {
            admission.release(id);
        }
        prop_assert_eq!(alloc::format!("{:?}", &admission.ledger), before);
    }
}

/// A hundred channels that the ledger alone would refuse, the exact test behind it lets in.
#[test]
fn a_hundred_refusals_of_the_ledger_that_the_exact_test_admits() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut mended, mut asked, mut granted) = (0, 0, 0);
    while mended < 100 {
        let mut admission = Admission::new(platform(MachineModel::Executive)).unwrap();
        let mut refused = 0;
        while refused < 20 {
            let ask = ask().new_tree(&mut runner).unwrap().current();
            asked += 1;
            let alone = by_ledger(&admission, &ask);
            match admission.reserve(&ask.contract, ask.role, ask.budget) {
                Ok((id, _)) => {
                    granted += 1;
                    mended += u32::from(alone.is_none());
                    admission.relax(id, ask.budget).unwrap();
                }
                Err(_) => {
                    assert!(alone.is_none(), "{ask:?}");
                    refused += 1;
                }
            }
        }
        assert_eq!(admission.test(), Ok(()));
        assert!(asked < 20_000, "{mended} of {granted} granted");
    }
    // The ledger is worth having: most of what is granted it grants alone.
    assert!(mended * 3 < granted, "{mended} of {granted}");
}

/// The first channels have the exact test's short deadlines on a link that is hardly used, where by the ledger's account there
/// is no room left. Later channels need none there.
#[test]
fn what_the_exact_test_let_in_does_not_blind_the_ledger() {
    let mut platform = platform(MachineModel::Executive);
    platform.link.rate = crate::units::Rate::bytes_per_second(1_250_000_000);
    platform.link.floor_bytes = 1400;
    platform.link_cost = Duration::from_nanos(500);
    let mut admission = Admission::new(platform).unwrap();
    for place in 0..200 {
        let deadline = Duration::from_micros(3_500_000 + 5 * place);
        let contract = Contract::new(300 + place, 300, Duration::from_secs(10), 1, deadline).unwrap();
        let ask = TestRequest { contract, role: Role::Sends, budget: deadline };
        let alone = by_ledger(&admission, &ask);
        assert!(alone.is_some(), "{place}");
        let reservation = if place < 64 {
            admission.decide_exactly(&admission.newcomer(&contract, ask.role).unwrap(), deadline).unwrap()
        } else {
            alone.unwrap()
        };
        let id = admission.insert(reservation).unwrap();
        admission.relax(id, deadline).unwrap();
    }
    assert_eq!(admission.test(), Ok(()));
}

#[test]
fn cells_ascend_by_less_than_two_percent() {
    for cell in 1..CELLS {
        let (before, this) = (ENDS[cell - 1], ENDS[cell]);
        assert!(before < this && this * 1000 < before * 1016, "{cell}: {before} {this}");
        assert_eq!((cell_of(this), cell_of(this + 1), start(cell)), (cell, cell + 1, before + 1));
    }
    assert_eq!((ENDS[0], cell_of(0), cell_of(1)), (1024, 0, 0));
    assert!((4_300_000_000..6_000_000_000).contains(&ENDS[CELLS - 1]));
}

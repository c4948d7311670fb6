use super::*;
use crate::admission::answer::Role;
use crate::admission::{Admission, Code};
use crate::contract::Contract;
use crate::platform::{Interference, LinkModel};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}
fn upcall(period: u64, cost: u64) -> Upcall {
    Upcall::new(ms(period), ms(cost), 1, 1).unwrap()
}

/// A host on which only what a test says takes time.
fn free() -> Platform {
    let mut platform = Platform::assumed_host();
    platform.interference = Interference::default();
    for span in [
        &mut platform.switch,
        &mut platform.cache,
        &mut platform.first_packet,
        &mut platform.packet_cost,
        &mut platform.receive_first,
        &mut platform.receive_packet,
        &mut platform.demultiplex,
        &mut platform.upcall_switch,
        &mut platform.link_cost,
        &mut platform.wake_up,
        &mut platform.handover,
    ] {
        *span = Duration::ZERO;
    }
    platform.link.spacing = LinkModel::usual_spacing(Duration::ZERO);
    platform
}

/// The demand bound function of the channel says 5 + 5 ms by 9, which fits; but what it releases by 9 is 5 ms, and by 10 another 5.
#[test]
fn what_is_released_counts_and_not_what_is_due() {
    let platform = Platform { receive_first: ms(5), quantum: 1, ..free() };
    let mut admission = Admission::new(platform).unwrap();
    let contract = Contract::new(100, 100, ms(10), 1, ms(10)).unwrap();
    admission.reserve(&contract, Role::Receives, ms(10)).unwrap();
    let refusal = admission.reserve_upcall(upcall(9, 5), UpcallKind::Periodic).unwrap_err();
    assert!(matches!(refusal.why, UpcallDenial::Utilisation | UpcallDenial::Late(_)), "{refusal:?}");
    // 5 ms of the channel that had begun early (U1), 5 ms released with the upcall, and all before 10 ms.
    let (_, bound) = admission.reserve_upcall(upcall(30, 5), UpcallKind::Periodic).unwrap();
    let input_delay = admission.input_delay();
    assert!(bound.unwrap() > ms(15) && bound.unwrap() <= ms(25) + input_delay, "{bound:?}");
}

#[test]
fn what_is_above_goes_on_during_the_last_iteration() {
    // C 2, I 5 above an iteration of 6: three times, not twice.
    let mut stolen = StolenTime::default();
    stolen = stolen.and_least_of([StaircaseLine::term(ms(5).as_nanos(), ms(2).as_nanos(), 0)]);
    let found = beside(&[upcall(20, 6)], &[], Duration::ZERO, Duration::ZERO, stolen);
    assert_eq!(found, [Some(ms(10))]);
}

#[test]
fn a_channel_that_would_make_an_upcall_late_is_refused() {
    let platform = Platform { first_packet: ms(2), ..free() };
    let mut admission = Admission::new(platform).unwrap();
    let (place, alone) = admission.reserve_upcall(upcall(10, 3), UpcallKind::Periodic).unwrap();
    let contract = |millis| Contract::new(100, 100, ms(millis), 1, ms(1000)).unwrap();
    let (id, _) = admission.reserve(&contract(20), Role::Sends, ms(1000)).unwrap();
    let beside = admission.upcall_response(place);
    assert!(beside > alone, "{beside:?} {alone:?}");
    let refusal = admission.reserve(&contract(4), Role::Sends, ms(1000)).unwrap_err();
    assert_eq!(refusal.code, Code::UpcallDeadline);
    assert_eq!(admission.upcall_response(place), beside, "who was refused changes nothing");
    admission.release(id);
    assert_eq!(admission.upcall_response(place), alone);
    admission.release_upcall(place);
    assert!(admission.reserve(&contract(4), Role::Sends, ms(1000)).is_ok());
}

#[test]
fn a_refusal_says_what_would_fit_and_whom_it_would_make_late() {
    let mut admission = Admission::new(free()).unwrap();
    let (first, _) = admission.reserve_upcall(upcall(10, 4), UpcallKind::Periodic).unwrap();
    let late = admission.reserve_upcall(upcall(20, 18), UpcallKind::Periodic).unwrap_err();
    let fits = late.fitting_cost.unwrap();
    let with = |cost| Upcall::new(ms(20), cost, 1, 1).unwrap();
    assert!(admission.clone().reserve_upcall(with(fits), UpcallKind::Periodic).is_ok(), "the advice is granted");
    assert!(admission.clone().reserve_upcall(with(fits + Duration::from_nanos(1)), UpcallKind::Periodic).is_err());
    // An iteration of 7 ms below one that has 6 ms left.
    let blocks = Upcall::new(ms(100), ms(7), 1, 1).unwrap();
    let refusal = admission.reserve_upcall(blocks, UpcallKind::Periodic).unwrap_err();
    assert_eq!(refusal.why, UpcallDenial::BreaksExisting(first));
    let in_parts = Upcall::new(ms(100), ms(7), 7, 1).unwrap();
    assert!(admission.reserve_upcall(in_parts, UpcallKind::Periodic).is_ok());
}

#[test]
fn an_aperiodic_one_blocks_by_an_iteration_and_runs_in_what_is_left() {
    let mut admission = Admission::new(free()).unwrap();
    let (place, alone) = admission.reserve_upcall(upcall(10, 4), UpcallKind::Periodic).unwrap();
    assert_eq!(alone, Some(ms(4)));
    let job = Upcall::new(ms(1000), ms(12), 6, 1).unwrap();
    let (aperiodic, takes) = admission.reserve_upcall(job, UpcallKind::Aperiodic).unwrap();
    assert_eq!(admission.upcall_response(place), Some(ms(6) - Duration::from_nanos(1)));
    // 12 ms of its own beside 4 in every 10: 6 and 6, in the first two periods.
    assert_eq!(takes, Some(ms(20)));
    let long = Upcall::new(ms(1000), ms(7), 1, 1).unwrap();
    assert_eq!(
        admission.reserve_upcall(long, UpcallKind::Aperiodic).unwrap_err().why,
        UpcallDenial::BreaksExisting(place)
    );
    admission.release_upcall(aperiodic);
    assert_eq!([place, aperiodic].map(|place| admission.upcall_response(place)), [Some(ms(4)), None]);
}

#[test]
fn a_flood_and_its_looks_are_a_term_and_a_host_that_cannot_rest_admits_none() {
    let platform = Platform { demultiplex: us(2), upcall_switch: us(5), ..free() };
    let admission = Admission::new(platform.clone()).unwrap();
    // R = 64 µs, w = 74 µs; nothing is left of a round for a rest: steps take nothing.
    assert_eq!(platform.rest(), Duration::ZERO);
    assert!(admission.above_upcalls_ppm() >= 1_000_000);
    let platform = Platform { first_packet: us(50), ..platform };
    let admission = Admission::new(platform.clone()).unwrap();
    // The rest is 16 steps: 74 of 874 µs, and once a millisecond 74 for control frames; 15 in 10 ms for the watch.
    assert_eq!(platform.rest(), us(800));
    let expected = 74_000_000 / 874 + 74_000 + 1_500;
    assert!(admission.above_upcalls_ppm().abs_diff(expected) <= 2, "{}", admission.above_upcalls_ppm());
}

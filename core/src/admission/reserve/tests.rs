//! Admission from outside: contracts in, stages or refusals out.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::platform::{BestEffort, Interference, LinkModel, MachineModel, Starts};
use crate::units::Rate;

const MILLIS: fn(u64) -> Duration = Duration::from_millis;
const LONG: Duration = Duration::from_secs(60);

/// The channels of [channels Table 3]: 60 KiB, (I, D, B) in milliseconds and messages.
fn table_3() -> [Contract; 3] {
    [(50, 40, 12), (30, 25, 8), (30, 30, 1)].map(|(interval, deadline, burst)| {
        Contract::new(61_440, 61_440, MILLIS(interval), burst, MILLIS(deadline)).unwrap()
    })
}

/// Table 2b with a floor of a whole packet: a control frame, too, occupies the link for L_x(S).
fn table_2b() -> Platform {
    let mut platform = Platform::channels_table_2b();
    platform.link.floor_bytes = 4096;
    platform
}

fn small(bytes: u64, interval_us: u64) -> Contract {
    Contract::new(bytes, 1, Duration::from_micros(interval_us), 1, MILLIS(10)).unwrap()
}

#[test]
fn one_channel_by_hand() {
    // N = 15, P = 4, q = 3, all in µs. C_csp = 145, R = 0, L_x(S) = 40.2 + 204.8 = 245, A = 145 + 420 + 160 + .001.
    // Processor: W = 420 + 14·170 + 145 + 145·min(1, 3) = 3090.  B = 145 + max(420 + 3·170, 4·170) = 1075.
    //   s = 4165 + 160 (⌈(s + 725.001)/245⌉ + 1): with 60 starts s = 4165 + 9760 = 13925, and 14650.001/245 = 59.8.
    // Link: the first packet is due last, at b + 14·170 = b + 2380.  W = 15·245 = 3675;  B = 160 + 725.001 + 245.
    //   b = 3675 + 1130.001 − 2380 = 2425.001; the last packet alone needs less: 245 + 1130.001.
    let mut admission = Admission::new(table_2b()).unwrap();
    let (_, stages) = admission.reserve(&table_3()[0], Role::Sends, MILLIS(40)).unwrap();
    assert_eq!(stages.processor.as_nanos(), 13_925_000);
    assert_eq!(stages.link.as_nanos(), 2_425_001);
    // (2800 + 145 + 145)/50000 + 160/245 and 3675/50000; what is rounded up twice is a millionth more.
    let share = admission.utilisation_ppm();
    assert_eq!((share.processor, share.link), (714_862, 73_501));
}

/// The least deadline that all of the first `count` channels can have in common, by stage.
fn least_common(machine: &Machine, count: usize) -> (u64, u64) {
    let sends = |contract| machine.channel(contract, Role::Sends).unwrap().0;
    let parts: Vec<Parts> = table_3()[..count].iter().map(sends).collect();
    let least = |fits: &dyn Fn(u64) -> bool| {
        let (mut no, mut yes) = (0, limits::MAX_DEADLINE.as_nanos());
        while yes - no > 1 {
            let middle = no + (yes - no) / 2;
            if fits(middle) { yes = middle } else { no = middle }
        }
        yes
    };
    let streams: Vec<PacketStream> = parts.iter().filter_map(|part| part.1).collect();
    let processor = least(&|deadline| {
        let jobs = parts.iter().filter_map(|part| part.0).map(|job| Job { deadline, ..job }).collect();
        let stolen = machine.processor_stolen(&streams);
        walk(&ProcessorTest::new(machine, jobs, None, stolen), false) == Verdict::Fits
    });
    let link = least(&|deadline| {
        let streams = streams.iter().map(|stream| PacketStream { deadline, ..*stream }).collect();
        walk(&LinkTest::new(machine, streams, None), false) == Verdict::Fits
    });
    (processor, link)
}

#[test]
fn least_common_deadlines_of_table_3() {
    let papers = Machine::without_control_frames(Platform::channels_table_2b());
    let ours = Machine::new(table_2b(), false).unwrap();
    for machine in [papers, ours] {
        let found = [1, 2, 3].map(|count| least_common(&machine, count));
        // An independent model of the same formulas says 13.9 / 22.8 / 31.8 ms and 2.4 / 6.1 / 9.8 ms, rounded.
        assert_eq!(found, [(13_925_000, 2_425_001), (22_775_000, 6_100_001), (31_785_000, 9_775_001)]);
    }
}

#[test]
fn small_packets_use_up_the_processor_of_table_2b() {
    // L_x(1) = 40.25 µs is less than C_l = 160 µs: a flood of tiny packets would take the whole processor.
    let link = LinkModel { floor_bytes: 0, ..Platform::channels_table_2b().link };
    let best_effort = BestEffort { packet_min: 1, ..Platform::channels_table_2b().best_effort };
    let mut admission = Admission::new(Platform { link, best_effort, ..Platform::channels_table_2b() }).unwrap();
    let refusal = admission.reserve(&table_3()[0], Role::Sends, LONG).unwrap_err();
    assert_eq!((refusal.code, refusal.stage), (Code::ProcessorUtilisation, Stage::SendingProcessor));
}

#[test]
fn smaller_messages_need_a_longer_deadline() {
    // No best effort and no control frames: L_min is the channels' own. From max_message alone it would be L_x(4096).
    let platform = Platform {
        best_effort: BestEffort { message_packets: 0, packet_min: 1, packet_max: 1, starts: None },
        link: LinkModel { setup: Duration::from_micros(200), floor_bytes: 0, ..Platform::channels_table_2b().link },
        ..Platform::channels_table_2b()
    };
    let least = |min_message| {
        let contract = Contract::new(61_440, min_message, MILLIS(50), 1, MILLIS(40)).unwrap();
        let mut admission = Admission::on(Machine::without_control_frames(platform.clone()), Settings::default());
        admission.reserve(&contract, Role::Sends, LONG).unwrap().1.processor
    };
    let by_size = [61_440, 60_000, 57_345, 57_344, 1].map(least);
    assert!(by_size.is_sorted(), "{by_size:?}");
    assert!(by_size[0] < by_size[2]);
    // 57,345 bytes are 14 packets and one byte: no message is worse.
    assert_eq!(by_size[2], by_size[4]);
}

#[test]
fn a_newcomer_with_smaller_packets_is_tested_against_all() {
    let platform = Platform {
        best_effort: BestEffort { message_packets: 0, packet_min: 1, packet_max: 1, starts: None },
        link: LinkModel { floor_bytes: 0, ..Platform::channels_table_2b().link },
        ..Platform::channels_table_2b()
    };
    let mut admission = Admission::on(Machine::without_control_frames(platform), Settings::default());
    let [first, ..] = table_3();
    admission.reserve(&first, Role::Sends, LONG).unwrap();
    let tiny = |min_message| Contract::new(4000, min_message, MILLIS(1000), 1, MILLIS(500)).unwrap();
    // C_l = 160 µs and L_x(1) = 40.25 µs: such packets would leave nothing of the processor.
    assert_eq!(admission.reserve(&tiny(1), Role::Sends, LONG).unwrap_err().code, Code::ProcessorUtilisation);
    // L_x(3900) = 235.2 µs leaves something, but the first channel's deadline does not hold with it.
    let refusal = admission.reserve(&tiny(3900), Role::Sends, LONG).unwrap_err();
    assert_eq!((refusal.code, refusal.least_deadline), (Code::ProcessorDeadline, None));
    assert_eq!(refusal.at.map(Instant::as_nanos), Some(admission.reservations().next().unwrap().job.unwrap().deadline));
}

#[test]
fn refusals_come_in_order_and_say_what_would_do() {
    let mut admission = Admission::new(table_2b()).unwrap();
    let contract = table_3()[0];
    let ask = |admission: &mut Admission, budget| {
        let refusal = admission.reserve(&contract, Role::Sends, Duration::from_nanos(budget)).unwrap_err();
        (refusal.code, refusal.at.unwrap().as_nanos(), refusal.least_deadline.unwrap().as_nanos())
    };
    let least = 13_925_000 + 2_425_001;
    // 145 + 420 + 160 + 15·245 = 4400 µs on an idle host.
    assert_eq!(ask(&mut admission, 4_399_999), (Code::DeadlineBelowServiceTime, 1, least));
    assert_eq!(ask(&mut admission, 4_400_000), (Code::ProcessorDeadline, 4_400_000, least));
    assert_eq!(ask(&mut admission, 13_925_000), (Code::DeadlineSum, 2_425_001, least));
    assert_eq!(ask(&mut admission, least - 1), (Code::DeadlineSum, 1, least));
    assert!(admission.reserve(&contract, Role::Sends, Duration::from_nanos(least)).is_ok());
}

#[test]
fn an_unpaced_link_carries_no_real_time() {
    let platform = Platform { link: LinkModel::UNLIMITED, link_cost: Duration::ZERO, ..Platform::channels_table_2b() };
    let mut admission = Admission::new(platform).unwrap();
    let refusal = admission.reserve(&table_3()[0], Role::Sends, LONG).unwrap_err();
    assert_eq!((refusal.code, refusal.stage), (Code::BadParameters, Stage::Link));
    assert!(admission.reserve(&table_3()[0], Role::Receives, LONG).is_ok());
}

#[test]
fn too_many_packets_are_bad_parameters() {
    let platform = Platform {
        packet: 64,
        link: LinkModel { floor_bytes: 0, ..Platform::assumed_host().link },
        best_effort: BestEffort { message_packets: 1, packet_min: 1, packet_max: 64, starts: None },
        ..Platform::assumed_host()
    };
    let mut admission = Admission::new(platform).unwrap();
    let contract = Contract::new(16 << 20, 1, LONG, 1, LONG).unwrap();
    assert_eq!(admission.reserve(&contract, Role::Sends, LONG).unwrap_err().code, Code::BadParameters);
    assert_eq!(admission.reserve(&contract, Role::Receives, LONG).unwrap_err().code, Code::BadParameters);
}

#[test]
fn release_restores_every_answer() {
    let mut admission = Admission::new(Platform::assumed_host()).unwrap();
    let (kept, _) = admission.reserve(&small(10_000, 5_000), Role::Sends, LONG).unwrap();
    let before = admission.utilisation_ppm();
    let (first, stages) = admission.reserve(&small(20_000, 9_000), Role::Sends, LONG).unwrap();
    let (second, deadline) = admission.reserve(&small(5_000, 7_000), Role::Receives, LONG).unwrap();
    assert_ne!(admission.utilisation_ppm(), before);
    assert!(admission.release(first) && admission.release(second));
    assert!(!admission.release(first) && !admission.release(second));
    assert_eq!(admission.utilisation_ppm(), before);
    let (again, same_stages) = admission.reserve(&small(20_000, 9_000), Role::Sends, LONG).unwrap();
    let (_, same_deadline) = admission.reserve(&small(5_000, 7_000), Role::Receives, LONG).unwrap();
    assert_eq!((stages, deadline), (same_stages, same_deadline));
    assert!(again != first && again != second && again != kept);
    assert!(admission.relax(first, LONG).is_err());
}

#[test]
fn the_order_of_reservations_does_not_matter() {
    // The same stages were granted to both hosts, in another order; the next answer is the same.
    let mut one = Admission::new(Platform::assumed_host()).unwrap();
    for bytes in [1_000, 9_000, 30_000, 9_000] {
        one.reserve(&small(bytes, 20_000), Role::Sends, LONG).unwrap();
        one.reserve(&small(bytes, 25_000), Role::Receives, LONG).unwrap();
    }
    let mut other = Admission::new(Platform::assumed_host()).unwrap();
    for reservation in one.channels.iter().map(|(_, held)| *held).collect::<Vec<_>>().into_iter().rev() {
        other.insert(reservation).unwrap();
    }
    let last = small(7_000, 30_000);
    assert_eq!(one.reserve(&last, Role::Sends, LONG).unwrap().1, other.reserve(&last, Role::Sends, LONG).unwrap().1);
    assert_eq!(
        one.reserve(&last, Role::Receives, LONG).unwrap().1,
        other.reserve(&last, Role::Receives, LONG).unwrap().1
    );
}

#[test]
fn relaxing_spends_the_budget_and_harms_no_channel() {
    let mut admission = Admission::new(Platform::assumed_host()).unwrap();
    let (sender, least) = admission.reserve(&small(10_000, 20_000), Role::Sends, LONG).unwrap();
    let (receiver, own) = admission.reserve(&small(10_000, 20_000), Role::Receives, LONG).unwrap();
    let used = admission.platform().handover + least.processor + least.link;
    let refusal = admission.relax(sender, used - Duration::from_nanos(1)).unwrap_err();
    assert_eq!((refusal.code, refusal.least_deadline), (Code::DeadlineSum, Some(used)));
    assert_eq!(admission.relax(sender, used), Ok(least));
    let stages = admission.relax(sender, MILLIS(18)).unwrap();
    assert!(stages.processor > least.processor && stages.link > least.link);
    assert_eq!(admission.platform().handover + stages.processor + stages.link, MILLIS(18));
    assert!(admission.relax(receiver, own.processor - Duration::from_nanos(1)).is_err());
    assert_eq!(admission.relax(receiver, MILLIS(15)).map(|stages| stages.processor), Ok(MILLIS(15)));
    assert!(admission.relax(receiver, limits::MAX_DEADLINE + MILLIS(1)).is_err());
    assert_eq!(walk(&admission.processor_test(None), true), Verdict::Fits);
    assert_eq!(walk(&admission.link_test(None), true), Verdict::Fits);
}

#[test]
fn stages_are_lengthened_one_by_one() {
    for rule in [Rule::Split, Rule::Composite] {
        let settings = Settings { rule, ..Settings::default() };
        let mut admission = Admission::with_settings(Platform::assumed_host(), settings).unwrap();
        let (id, least) = admission.reserve(&small(10_000, 20_000), Role::Sends, LONG).unwrap();
        let longer = SendingStages { processor: least.processor + MILLIS(1), link: Duration::ZERO };
        let both = admission.lengthen(id, longer).unwrap();
        assert!(both.total() >= longer.total().max(least.total()), "{rule:?}: {both:?}");
        if rule == Rule::Split {
            assert_eq!((both.processor, both.link), (longer.processor, least.link));
        }
        assert_eq!((admission.stages(id), admission.test()), (Some(both), Ok(())));
        assert_eq!(admission.lengthen(id, longer), Ok(both), "what is long enough stays");
        let endless = SendingStages { processor: limits::MAX_DEADLINE, link: limits::MAX_DEADLINE };
        assert_eq!(admission.lengthen(id, endless).unwrap_err().code, Code::BadParameters);
    }
}

#[test]
fn hundreds_of_channels_until_one_is_refused() {
    let mut admission = Admission::new(Platform::assumed_host()).unwrap();
    let mut granted = 0;
    let refusal = loop {
        match admission.reserve(
            &small(1_000 + granted % 7 * 300, 100_000 + granted % 11 * 7_001),
            Role::Sends,
            MILLIS(90),
        ) {
            Ok(_) => granted += 1,
            Err(refusal) => break refusal,
        }
    };
    assert!(granted > 200);
    assert!(refusal.least_deadline.is_none_or(|least| least > MILLIS(90)));
}

/// Who asks last is in the way of the others from then on, whenever due: also at instants after the deadline that it gets. By
/// hand, in µs: C^1st = 10 and L = 15, so K = 15 and B = 10 + 15 + 15; 55 for one alone, in its own way included. With the
/// newcomer left out of B it would be 30, and what was granted would fail the test as a whole.
#[test]
fn what_is_granted_with_early_service_holds_beside_the_newcomer() {
    let micros = Duration::from_micros;
    let platform = Platform {
        switch: Duration::ZERO,
        cache: Duration::ZERO,
        first_packet: micros(10),
        link_cost: Duration::ZERO,
        link: LinkModel { setup: micros(15), rate: Rate::bytes_per_second(u64::MAX), ..LinkModel::UNLIMITED },
        best_effort: BestEffort { message_packets: 0, packet_min: 1, packet_max: 64, starts: None },
        machine: MachineModel::PapersOffload,
        ..Platform::papers_table_2b()
    };
    for (send_early, receive_early) in [(true, false), (false, true)] {
        let settings = Settings { rule: Rule::Composite, send_early, receive_early };
        let mut admission = Admission::with_settings(platform.clone(), settings).unwrap();
        for _ in 0..3 {
            for budget in (1..200).map(micros) {
                if admission.reserve(&small(1, 1_000), Role::Sends, budget).is_ok() {
                    break;
                }
            }
            assert!(admission.test().is_ok());
        }
        assert_eq!(admission.reservations().count(), 3);
    }
}

fn any_nanos(most: u64) -> impl Strategy<Value = Duration> {
    prop_oneof![4 => Just(0), 12 => 0..=most.min(20_000), 1 => Just(most), 1 => 0..=most].prop_map(Duration::from_nanos)
}

fn any_platform() -> impl Strategy<Value = Platform> {
    let cost = || any_nanos(1_000_000_000);
    let counts = (64u32..=8_900, 1u32..=256, 1u32..=1024, 1u32..=1024, 0u32..=65_535);
    let processor = (cost(), cost(), cost(), cost(), cost(), cost(), cost());
    let rate = prop_oneof![Just(1u64), Just(u64::MAX), 1_000_000u64..1_000_000_000, 1_000_000u64..1_000_000_000];
    let link = (any_nanos(1_000), cost(), rate, 0u32..=65_535, 0u32..=64);
    let term = || (1u64..=3_600_000_000_000, 0u64..=1_000_000);
    let terms = (prop::collection::vec(term(), 0..3), prop::collection::vec(term(), 0..3));
    let machine =
        prop_oneof![Just(MachineModel::Executive), Just(MachineModel::PapersInline), Just(MachineModel::PapersOffload)];
    let spacing = prop_oneof![Just(1), Just(3_600_000_000_000), 1u64..1_000_000];
    let starts = prop::option::of((1u32..=65_535, spacing.prop_map(Duration::from_nanos)));
    (counts, processor, link, (machine, starts), (cost(), cost(), cost()), terms).prop_map(
        |(counts, cost, link, (machine, starts), (wake_up, handover, burst), (terms, envelopes))| Platform {
            machine,
            packet: counts.0,
            quantum: counts.1,
            switch: cost.0,
            cache: cost.1,
            first_packet: cost.2,
            packet_cost: cost.3,
            receive_first: cost.4,
            receive_packet: cost.5,
            demultiplex: cost.6,
            receive_batch: counts.2,
            link_cost: link.0,
            transmit_batch: counts.3,
            link: LinkModel {
                setup: link.1,
                rate: Rate::bytes_per_second(link.2),
                overhead_bytes: link.3,
                floor_bytes: link.4,
                spacing: Duration::ZERO,
            },
            wake_up,
            handover,
            best_effort: BestEffort {
                message_packets: counts.4,
                packet_min: 1,
                packet_max: 64,
                starts: starts.map(|(burst, spacing)| Starts { burst, spacing }),
            },
            interference: Interference {
                burst,
                periodic: terms
                    .iter()
                    .map(|&(p, c)| (Duration::from_nanos(p), Duration::from_nanos(c.min(p))))
                    .collect(),
                envelopes: envelopes
                    .iter()
                    .map(|&(w, b)| (Duration::from_nanos(w), Duration::from_nanos(b.min(w))))
                    .collect(),
            },
            ..table_2b()
        },
    )
}

fn any_budget() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(0), Just(u64::MAX), Just(3_600_000_000_000), 0u64..=3_600_000_000_000, 0u64..100_000_000]
        .prop_map(Duration::from_nanos)
}

fn any_contract() -> impl Strategy<Value = Contract> {
    let size = || prop_oneof![Just(1u64), Just(16 << 20), 1u64..100_000];
    let span = prop_oneof![
        Just(100_000u64),
        Just(3_600_000_000_000),
        1_000_000u64..1_000_000_000,
        1_000_000u64..1_000_000_000
    ];
    (size(), size(), span).prop_map(|(one, two, interval)| {
        let interval = Duration::from_nanos(interval);
        Contract::new(one.max(two), one.min(two), interval, 1, interval).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is within its range is answered, and what was granted holds.
    #[test]
    fn no_parameters_panic(
        platform in any_platform(),
        composite: bool,
        early in (any::<bool>(), any::<bool>()),
        requests in prop::collection::vec((any_contract(), 0u8..3, any_budget()), 1..5),
    ) {
        let rule = if composite { Rule::Composite } else { Rule::Split };
        let settings = Settings { rule, send_early: early.0, receive_early: early.1 };
        let mut admission = Admission::with_settings(platform, settings).unwrap();
        for (contract, role, budget) in requests {
            let role = [Role::Sends, Role::Receives, Role::Relays][usize::from(role)];
            if let Ok((id, stages)) = admission.reserve(&contract, role, budget) {
                let handover = if role == Role::Sends { admission.platform().handover } else { Duration::ZERO };
                prop_assert!(handover + stages.processor + stages.link <= budget);
                let _ = admission.relax(id, budget);
            }
        }
        // Relaxed deadlines may leave too little to bound the walk by, but never an instant that fails.
        prop_assert!(admission.test().err().is_none_or(|refusal| refusal.at.is_none()));
        for (id, bound) in admission.bounds() {
            let held = admission.reservation(id).unwrap();
            let handover = if held.role == Some(Role::Sends) { admission.platform().handover } else { Duration::ZERO };
            prop_assert!(bound.worst <= handover + held.stages(rule).total());
            prop_assert_eq!(bound.terms.iter().map(|term| term.amount).sum::<Duration>(), bound.worst);
        }
        let _ = (admission.utilisation_ppm(), admission.stretch_ppm());
    }

    /// What is granted is least: a nanosecond less on either stage fails.
    #[test]
    fn granted_stages_are_least(bytes in prop::collection::vec(1u64..40_000, 1..5)) {
        let mut admission = Admission::new(Platform::assumed_host()).unwrap();
        for bytes in bytes {
            let Ok((_, stages)) = admission.reserve(&small(bytes, 20_000), Role::Sends, LONG) else { break };
            prop_assert_eq!(admission.test(), Ok(()));
            let (id, held) = admission.channels.iter().map(|(id, held)| (id, *held)).last().unwrap();
            let (job, stream) = (held.job.unwrap().deadline, held.stream.unwrap().deadline);
            for shorter in [held.with(job - 1, stream), held.with(job, stream - 1)] {
                let mut tighter = admission.clone();
                tighter.exchange(id, shorter);
                prop_assert!(tighter.test().is_err());
            }
            prop_assert!(stages.link > Duration::ZERO);
        }
    }
}

/// A channel that only passes through asks for C_l, too.
#[test]
fn a_relayed_channel_is_tested_against_everybodys_processor() {
    let best_effort = BestEffort { message_packets: 0, packet_min: 4096, packet_max: 4096, starts: None };
    let platform = Platform { best_effort, ..Platform::papers_table_2b() };
    for rule in [Rule::Split, Rule::Composite] {
        let mut admission =
            Admission::with_settings(platform.clone(), Settings { rule, ..Settings::default() }).unwrap();
        let tiny = Contract::new(1, 1, Duration::from_micros(400), 1, MILLIS(100)).unwrap();
        let receiving = Contract::new(4096, 1, MILLIS(1), 1, MILLIS(1)).unwrap();
        admission.reserve(&receiving, Role::Receives, Duration::from_micros(750)).unwrap();
        let refusal = admission.reserve(&tiny, Role::Relays, MILLIS(100)).unwrap_err();
        let expected =
            [Code::ProcessorUtilisation, Code::ProcessorDeadline, Code::CompositeUtilisation, Code::CompositeDeadline];
        assert!(expected.contains(&refusal.code), "{refusal:?}");
        assert_eq!(admission.test(), Ok(()));
    }
}

#[test]
fn no_budget_at_all_is_an_answer_too() {
    let none = Duration::ZERO;
    let platform = Platform {
        switch: none,
        cache: none,
        first_packet: none,
        packet_cost: none,
        receive_first: none,
        receive_packet: none,
        link_cost: none,
        ..table_2b()
    };
    let mut admission = Admission::new(platform).unwrap();
    assert_eq!(admission.reserve(&table_3()[0], Role::Receives, none).unwrap_err().code, Code::ProcessorDeadline);
    assert_eq!(admission.reserve(&table_3()[0], Role::Sends, none).unwrap_err().code, Code::DeadlineBelowServiceTime);
}

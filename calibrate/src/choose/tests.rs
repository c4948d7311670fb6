use super::*;
use laxity_core::admission::{Code, Stage};
use laxity_core::platform::{BestEffort, Interference, LinkModel};
use laxity_core::units::Rate;

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// `host` with packets of S, whose processing takes `fixed` and a part that grows with S.
fn with_packet(host: &Platform, packet: u32, fixed: (u64, u64), nanos_per_byte: u64) -> (u32, Platform) {
    let bytes = Duration::from_nanos(u64::from(packet) * nanos_per_byte);
    let (first, other) = (micros(fixed.0) + bytes, micros(fixed.1) + bytes);
    let best_effort =
        BestEffort { packet_max: packet, packet_min: host.best_effort.packet_min.min(packet), ..host.best_effort };
    let link = LinkModel { floor_bytes: host.link.floor_bytes.min(packet), ..host.link };
    let (first_packet, packet_cost, receive_first, receive_packet) = (first, other, first, other);
    let host = host.clone();
    (packet, Platform { packet, first_packet, packet_cost, receive_first, receive_packet, best_effort, link, ..host })
}

/// The assumed host, with little interference.
fn quiet(packet: u32) -> (u32, Platform) {
    let interference = Interference { burst: micros(200), ..Interference::default() };
    with_packet(&Platform { interference, ..Platform::assumed_host() }, packet, (8, 3), 1)
}

/// The machine of Table 2b, with a part of its costs by the byte: 420 and 170 µs with 4,096 bytes, and best effort of one
/// message of 60 KiB in full packets.
fn table_2b(packet: u32) -> (u32, Platform) {
    let host = Platform::channels_table_2b();
    let best_effort = BestEffort {
        message_packets: 61_440u32.div_ceil(packet),
        packet_min: packet,
        packet_max: packet,
        starts: None,
    };
    let link = LinkModel { floor_bytes: packet, ..host.link };
    with_packet(&Platform { best_effort, link, ..host }, packet, (379, 129), 10)
}

/// A link of 1 Gbit/s.
fn fast(link_cost: u64) -> Platform {
    let (_, host) = quiet(1400);
    let link = LinkModel { rate: Rate::bytes_per_second(125_000_000), ..host.link.unspaced() };
    Platform { link, link_cost: micros(link_cost), demultiplex: micros(1), receive_batch: 16, ..host }
}

fn counts(cell: &Cell) -> Vec<u32> {
    cell.counts.clone()
}

fn score(choice: &Choice, size: usize, quantum: usize) -> u64 {
    choice.cell(size, quantum).unwrap().score_ppm
}

#[test]
fn neither_end_of_p_and_s_is_good() {
    let choice = choose_among(&[quiet(512), quiet(2048), quiet(8900)], &[1, 8, 64]).unwrap();
    // Long messages mind a small P and small packets: polls, switches, and costs by the packet.
    let [small, chosen, large] = [0, 1, 2].map(|quantum| counts(choice.cell(1, quantum).unwrap()));
    assert!(small[1] < chosen[1] && small[2] < chosen[2], "{small:?} {chosen:?}");
    // Small ones mind a large P and large packets, which keep processor and link from them.
    assert!(large[0] < chosen[0], "{large:?} {chosen:?}");
    let [small, large] = [0, 2].map(|size| counts(choice.cell(size, 1).unwrap()));
    assert!(small[1] < chosen[1] && large[0] < chosen[0], "{small:?} {large:?}");
    // The middle is best. (64 packets of 512 bytes are no long quantum.)
    assert_eq!(choice.place().1, 1);
    assert!((0..3).all(|size| score(&choice, size, 1) > score(&choice, size, 0)));
    assert!((1..3).all(|size| score(&choice, size, 1) > score(&choice, size, 2)));
    assert!(choice.place().0 > 0);
}

#[test]
fn on_the_machine_of_the_papers_blocking_and_small_packets_cost_channels() {
    let choice = choose_among(&[table_2b(2048), table_2b(4096), table_2b(6144)], &[1, 4, 16, 64]).unwrap();
    for size in 1..3 {
        let row: Vec<u64> = (0..4).map(|quantum| score(&choice, size, quantum)).collect();
        assert!(row.is_sorted_by(|one, next| one >= next) && row[0] > row[2] && row[2] > row[3], "{row:?}");
    }
    // C_l for each packet: of 2,048 bytes best effort alone may ask for all of the processor.
    assert_eq!((score(&choice, 0, 0), choice.place().0), (0, 2));
    // No price of a small P: this machine looks at its inputs for nothing, and changes the handler inside a message only for
    // a more urgent one, of which each brings one switch back at most.
    assert_eq!(choice.chosen().quantum, 1);
    // With inputs to look at, there is.
    let looking = |(packet, host): (u32, Platform)| (packet, Platform { demultiplex: micros(200), ..host });
    let choice = choose_among(&[looking(table_2b(4096))], &[1, 4, 64]).unwrap();
    let bulk = |quantum| choice.cell(0, quantum).unwrap().counts[2];
    assert!(bulk(0) < bulk(1) && score(&choice, 0, 1) > score(&choice, 0, 2), "{choice:?}");
}

#[test]
fn spacing_lets_channels_in_where_handing_over_is_dear() {
    for (link_cost, none_before) in [(3, false), (8, true)] {
        let host = fast(link_cost);
        let spaced = laxity::calibration::derive::spread(host.clone());
        let references = reference::references(std::slice::from_ref(&spaced), 1).unwrap();
        let of = |host: &Platform| -> Vec<u32> {
            references.iter().map(|one| count(host, Rule::Split, &one.contract).unwrap()).collect()
        };
        let (before, after) = (of(&host), of(&spaced));
        assert!(before.iter().zip(&after).all(|(before, after)| before < after), "{before:?} {after:?}");
        assert_eq!(before.iter().all(|&count| count == 0), none_before, "{before:?}");
    }
}

#[test]
fn what_admits_nothing_is_said_and_so_is_nonsense() {
    assert_eq!(choose(&[]), Err(ChooseError::NoSizes));
    // The hand-overs of best effort may take all of the processor.
    let error = choose_among(&[(1400, fast(8))], &[4]).unwrap_err();
    let refusal = Refusal::new(Code::ProcessorUtilisation, Stage::SendingProcessor);
    assert_eq!(error, ChooseError::NothingFits { kind: "control", refusal });
    assert!(error.to_string().starts_with("not one control channel is granted"), "{error}");
    let wrong = Platform { quantum: 0, ..fast(1) };
    assert!(choose_among(&[(1400, wrong)], &[4]).is_ok());
    let wrong = Platform { switch: Duration::from_secs(2), ..fast(1) };
    assert!(matches!(choose(&[(1400, wrong)]), Err(ChooseError::Platform(error)) if error.0.field == "switch"));
}

#[test]
fn the_order_of_the_sizes_does_not_matter_and_twice_is_the_same() {
    let (a, b) = (quiet(1024), quiet(4096));
    let one = choose_among(&[a.clone(), b.clone()], &[2, 8]).unwrap();
    assert_eq!(choose_among(&[b.clone(), a, b], &[2, 8]), Ok(one.clone()));
    assert_eq!((one.sizes, one.quanta), (vec![1024, 4096], vec![2, 8]));
}

/// What follows from counts by (S, P), one kind, of the split rule; the composite rule admits nothing.
fn from_counts(rows: &[&[u32]]) -> Choice {
    from_usable_counts(rows, |_| true)
}

fn from_usable_counts(rows: &[&[u32]], usable: impl Fn(usize) -> bool) -> Choice {
    let host = fast(1);
    let sizes: Vec<(u32, Platform)> = (1..).zip(rows).map(|(size, _)| (size * 1000, host.clone())).collect();
    let quanta = &QUANTA[..rows[0].len()];
    let references = reference::references(std::slice::from_ref(&host), 1).unwrap();
    let of = |channels| vec![channels];
    let split: Vec<Vec<u32>> = rows.iter().flat_map(|row| row.iter().map(|&channels| of(channels))).collect();
    let composite: Vec<Vec<u32>> = split.iter().map(|_| of(0)).collect();
    let usable: Vec<bool> = (0..split.len()).map(usable).collect();
    best(&sizes.iter().collect::<Vec<_>>(), quanta, references[..1].to_vec(), [split, composite], &usable)
}

#[test]
fn of_what_is_alike_the_smallest_quantum_and_then_the_largest_packet_win() {
    let chosen = |rows: &[&[u32]]| {
        let choice = from_counts(rows);
        (choice.chosen().packet, choice.chosen().quantum)
    };
    assert_eq!(chosen(&[&[1, 3, 3], &[1, 2, 3]]), (1000, 2));
    assert_eq!(chosen(&[&[1, 3, 3], &[1, 3, 3]]), (2000, 2));
    // 98 of 100 are alike, 97 are not.
    assert_eq!(chosen(&[&[98, 100], &[97, 100]]), (1000, 1));
    assert_eq!(chosen(&[&[97, 100], &[97, 99]]), (2000, 2));
    assert_eq!(chosen(&[&[0, 0], &[0, 0]]), (2000, 1));
}

#[test]
fn a_quantum_with_which_looks_do_not_keep_up_is_not_taken() {
    let choice = from_usable_counts(&[&[1, 3, 9]], |place| place < 2);
    assert_eq!(choice.chosen().quantum, 2);
    // 32 frames at 122.72 µs are 3.9 ms, and a step of this host with its hand-over takes 75 µs.
    let slow = |quantum| {
        let (packet_cost, link_cost) = (Duration::from_micros(60), Duration::from_micros(15));
        let assumed = Platform::assumed_host();
        let link = LinkModel { spacing: link_cost * 3, ..assumed.link };
        Platform { quantum, packet_cost, link_cost, link, ..assumed }
    };
    let keeps_up = |quantum| host(&slow(quantum), Rule::Split).unwrap().looks_keep_up();
    assert_eq!([1, 8, 16, 32].map(keeps_up), [true, true, true, false]);
    let choice = choose_among(&[(1400, slow(1))], &[16, 32]).unwrap();
    assert_eq!(choice.chosen().quantum, 16);
}

#[test]
fn the_reason_names_what_the_neighbours_admit() {
    let choice = from_counts(&[&[8, 9, 7], &[5, MOST, MOST]]);
    assert_eq!(
        choice.why(),
        "P = 2 and S = 2000 bytes admit at least 32 control; with P = 1: 5 control; with P = 4: as many; \
         with S = 1000: 9 control."
    );
    assert_eq!(choice.cell(0, 3), None);
    assert_eq!(choice.cell(2, 0), None);
}

use super::*;
use crate::admission::route::{Hop, compose};
use crate::platform::{BestEffort, LinkModel};
use crate::units::Rate;
use proptest::prelude::*;

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Table 3: 60 KB messages at 1200, 2000 and 2000 KB/s, deadlines 40, 25 and 30 ms.
fn table_3(channel: usize) -> Contract {
    let (interval, deadline) = [(50_000, 40_000), (30_000, 25_000), (30_000, 30_000)][channel];
    Contract::new(61_440, 61_440, micros(interval), 1, micros(deadline)).unwrap()
}

/// Table 3's channels, inserted in this order.
fn table_2b(block: BlockTerm, order: [usize; 3]) -> DOrder {
    let mut host = DOrder::new(&Platform::papers_table_2b(), block).unwrap();
    for (number, channel) in order.into_iter().enumerate() {
        assert_eq!(host.insert(&table_3(channel)), Ok(number));
    }
    host
}

fn responses(host: &DOrder) -> Vec<(usize, u64)> {
    host.channels().iter().map(|channel| (channel.position, channel.response.as_nanos())).collect()
}

#[test]
fn table_3_as_printed() {
    // Each is inserted on top, which leaves 1, 2, 0.
    let host = table_2b(BlockTerm::Printed, [0, 2, 1]);
    assert_eq!(responses(&host), [(2, 26_117_500), (1, 19_115_000), (0, 12_112_500)]);
    for channel in host.channels() {
        assert_eq!(
            (channel.packets, channel.service, channel.wait),
            (15, Duration::from_nanos(7_002_500), micros(5110))
        );
    }
    // d = D, all the slack being on this hop: 13.9, 10.9, 12.9 ms.
    let slack: Vec<u64> =
        host.channels().iter().map(|c| ((c.contract.deadline() - c.response).as_nanos() + 50_000) / 100_000).collect();
    assert_eq!(slack, [139, 109, 129]);
}

#[test]
fn table_3_with_min() {
    let host = table_2b(BlockTerm::Min, [0, 2, 1]);
    assert_eq!(responses(&host), [(2, 22_750_000), (1, 15_820_000), (0, 8_890_000)]);
    for channel in host.channels() {
        assert_eq!((channel.service, channel.wait), (micros(6930), micros(1960)));
    }
}

#[test]
fn the_order_is_that_of_insertion_as_long_as_all_hold() {
    // Deadlines 40, 25, 30: the last one stands on top although 25 is earlier. Its r is 12.1 ms, and earliest deadline
    // first gives it up to 15.05 ms: a response is no bound under another policy.
    assert_eq!(
        responses(&table_2b(BlockTerm::Printed, [0, 1, 2])),
        [(2, 26_117_500), (1, 19_115_000), (0, 12_112_500)]
    );
}

#[test]
fn a_newcomer_sinks_below_those_that_it_would_break() {
    let mut host = DOrder::new(&Platform::papers_table_2b(), BlockTerm::Printed).unwrap();
    let tight = table_3(1).with_deadline(micros(12_200)).unwrap();
    host.insert(&tight).unwrap();
    host.insert(&table_3(0)).unwrap();
    assert_eq!(responses(&host), [(0, 12_112_500), (1, 19_115_000)]);
    // A second tight one has no place: below the first its own response is too long.
    assert_eq!(host.insert(&tight), Err(DOrderRefusal::Deadline { within: micros(12_200) }));
    assert_eq!(responses(&host), [(0, 12_112_500), (1, 19_115_000)]);
}

/// A platform of whole microseconds with C_x for L_x; best effort of `best_effort` packets.
fn costs(quantum: u32, switch: u64, first: u64, other: u64, link_cost: u64, link: u64, best_effort: u32) -> Platform {
    let table = Platform::papers_table_2b();
    Platform {
        quantum,
        switch: micros(switch),
        cache: Duration::ZERO,
        first_packet: micros(first),
        packet_cost: micros(other),
        link_cost: micros(link_cost),
        link: LinkModel { setup: micros(link), ..LinkModel::UNLIMITED },
        best_effort: BestEffort { message_packets: best_effort, ..table.best_effort },
        ..table
    }
}

fn one_packet() -> Contract {
    Contract::new(1000, 1000, Duration::from_millis(10), 1, Duration::from_millis(10)).unwrap()
}

#[test]
fn bounds_that_a_run_exceeds() {
    // One channel, no switch cost: 240 µs are seen, because C_l also interrupts the message itself.
    let mut first = DOrder::new(&costs(2, 0, 20, 10, 40, 20, 2), BlockTerm::Printed).unwrap();
    first.insert(&one_packet()).unwrap();
    assert_eq!(responses(&first), [(0, 210_000)]);
    // Two channels of one packet, released together: 50 + 10 + 50 + 10 + 1 = 121 µs, because each has its own switch.
    let mut second = DOrder::new(&costs(1, 50, 10, 10, 0, 1, 0), BlockTerm::Printed).unwrap();
    second.insert(&one_packet()).unwrap();
    second.insert(&one_packet()).unwrap();
    assert_eq!(responses(&second), [(1, 83_000), (0, 72_000)]);
    // All terms: 220 µs are seen.
    let mut third = DOrder::new(&costs(1, 55, 20, 20, 20, 25, 1), BlockTerm::Printed).unwrap();
    third.insert(&one_packet()).unwrap();
    assert_eq!(responses(&third), [(0, 185_000)]);
}

#[test]
fn processing_that_is_dearer_than_the_link() {
    // C_p 30 ≥ L_x 25: C_pm + C_lm + L_x(S_last) + C_pr = 20 + 30·2 + 3·5 + 25 + (2/2)·10.
    let mut host = DOrder::new(&costs(2, 10, 20, 30, 5, 25, 0), BlockTerm::Printed).unwrap();
    let contract = Contract::new(3 * 4096, 1, Duration::from_millis(10), 1, Duration::from_millis(10)).unwrap();
    host.insert(&contract).unwrap();
    assert_eq!(host.channels()[0].service, micros(130));
}

#[test]
fn a_short_last_packet_takes_the_link_less() {
    let platform = costs(2, 10, 20, 5, 5, 25, 9);
    // 10 µs and 4 ns for a byte.
    let link = LinkModel { setup: micros(10), rate: Rate::bytes_per_second(250_000_000), ..platform.link };
    let mut host = DOrder::new(&Platform { link, ..platform }, BlockTerm::Printed).unwrap();
    let contract = Contract::new(2 * 4096 + 500, 1, Duration::from_millis(10), 1, Duration::from_millis(10)).unwrap();
    host.insert(&contract).unwrap();
    let full = 10_000 + 4 * 4096;
    assert_eq!(host.channels()[0].service.as_nanos(), 20_000 + 2 * full + (10_000 + 4 * 500) + 3 * 5000 + 10_000);
    // Best effort's nine packets block, not the three of the channel.
    let block: u64 = 20_000 + 8 * 5000;
    assert_eq!(host.channels()[0].wait.as_nanos(), block + block.div_ceil(full) * 5000 + 10_000 + full);
}

proptest! {
    /// Each channel's response is the least solution in microseconds, where all costs are whole ones, and holds; and a channel that exists is
    /// refused nothing as long as T_w stays.
    #[test]
    fn what_was_admitted_holds(
        requests in prop::collection::vec((1u32..6, 100u64..3000, 50u64..4000), 1..10), quantum in 1u32..4,
        switch in 0u64..20, best_effort in 0u32..5,
    ) {
        let mut host = DOrder::new(&costs(quantum, switch, 20, 10, 5, 25, best_effort), BlockTerm::Min).unwrap();
        for (packets, interval, deadline) in requests {
            let before: Vec<DOrderChannel> = host.channels().to_vec();
            let contract = Contract::new(u64::from(packets) * 4096, 1, micros(interval), 1, micros(deadline)).unwrap();
            match host.insert(&contract) {
                Ok(number) => prop_assert_eq!(number, before.len()),
                Err(refused) => {
                    prop_assert_eq!(host.channels(), &before[..]);
                    let most = before.iter().map(|channel| channel.packets).max().unwrap_or(0).max(best_effort);
                    let same_wait = packets.min(quantum) <= most.min(quantum);
                    let breaks = matches!(refused, DOrderRefusal::BreaksExisting { .. });
                    prop_assert!(!(breaks && same_wait));
                }
            }
            for (index, channel) in host.channels().iter().enumerate() {
                prop_assert!(channel.response <= within(&channel.contract));
                let in_micros = |span: Duration| span.as_nanos() / 1000;
                let above: Vec<&DOrderChannel> =
                    host.channels().iter().filter(|other| other.position < channel.position).collect();
                prop_assert_eq!(above.len(), channel.position, "channel {}", index);
                let solution = (1..).find(|&r: &u64| {
                    let waits: u64 = above
                        .iter()
                        .map(|other| r.div_ceil(in_micros(other.contract.interval())) * in_micros(other.service))
                        .sum();
                    r == in_micros(channel.wait) + in_micros(channel.service) + waits
                });
                prop_assert_eq!(solution, Some(in_micros(channel.response)));
            }
        }
    }
}

#[test]
fn parts_of_a_nanosecond_are_rounded_up_at_the_end_only() {
    // (N − 1)/P = 1/3 of 10,000 ns for each; three of them are 10,000, not 10,002.
    let mut host = DOrder::new(&costs(3, 10, 20, 10, 5, 25, 0), BlockTerm::Printed).unwrap();
    let contract = Contract::new(2 * 4096, 1, Duration::from_millis(10), 1, Duration::from_millis(10)).unwrap();
    for _ in 0..3 {
        host.insert(&contract).unwrap();
    }
    let (exact, third) = (20_000 + 2 * 25_000 + 2 * 5000, 10_000);
    let wait = 20_000 + 2 * 10_000 + 2 * 5000 + 10_000 + 25_000;
    assert_eq!(host.channels()[0].service.as_nanos(), exact + third / 3 + 1);
    let lowest = host.channels().iter().find(|channel| channel.position == 2).unwrap();
    assert_eq!(lowest.response.as_nanos(), wait + 3 * exact + third);
}

#[test]
fn refusals_in_their_order() {
    let host = |block| DOrder::new(&Platform::papers_table_2b(), block).unwrap();
    let millis = Duration::from_millis;
    let mut empty = host(BlockTerm::Printed);
    // 65,536 packets of 64 bytes.
    let small = Platform { packet: 64, ..costs(4, 0, 20, 10, 5, 25, 0) };
    let small = Platform { best_effort: BestEffort { packet_min: 1, packet_max: 64, ..small.best_effort }, ..small };
    let huge = Contract::new(64 << 16, 1, millis(1), 1, millis(1)).unwrap();
    assert_eq!(DOrder::new(&small, BlockTerm::Min).unwrap().insert(&huge), Err(DOrderRefusal::BadParameters));
    assert_eq!(
        DOrder::new(&costs(1, 0, 1, 1, 1, 0, 0), BlockTerm::Min).unwrap().insert(&one_packet()),
        Err(DOrderRefusal::BadParameters)
    );
    let fast = Contract::new(61_440, 1, millis(7), 1, millis(40)).unwrap();
    assert_eq!(empty.insert(&fast), Err(DOrderRefusal::Utilisation));
    let within = millis(12);
    let tight = table_3(1).with_deadline(within).unwrap();
    assert_eq!(empty.insert(&tight), Err(DOrderRefusal::Deadline { within }));
    // A long message makes the wait of all channels longer, wherever it stands itself.
    let platform = Platform::papers_table_2b();
    let none = BestEffort { message_packets: 0, ..platform.best_effort };
    let mut breaks = DOrder::new(&Platform { best_effort: none, ..platform }, BlockTerm::Printed).unwrap();
    let short = Contract::new(4096, 1, millis(50), 1, Duration::from_micros(3000)).unwrap();
    breaks.insert(&short).unwrap();
    let before = responses(&breaks);
    let long = Contract::new(40 * 4096, 1, millis(100), 1, millis(100)).unwrap();
    assert_eq!(breaks.insert(&long), Err(DOrderRefusal::BreaksExisting { channel: 0 }));
    assert_eq!(responses(&breaks), before);
}

#[test]
fn a_route_adds_up_its_hops() {
    let hops = [
        DOrder::new(&Platform::papers_table_2b(), BlockTerm::Printed).unwrap(),
        table_2b(BlockTerm::Printed, [0, 2, 1]),
    ];
    let relaxed = Contract::new(61_440, 1, Duration::from_millis(100), 1, Duration::from_millis(80)).unwrap();
    let tried = |hop: &DOrder, contract: &Contract| {
        let mut hop = hop.clone();
        let number = hop.insert(contract).unwrap();
        hop.channels()[number]
    };
    // On the second hop it stands below the others.
    let alone = hops.each_ref().map(|hop| tried(hop, &relaxed));
    assert_eq!(
        alone.map(|placed| (placed.response, placed.position)),
        [(micros(12_112) + Duration::from_nanos(500), 0), (micros(47_125), 3)]
    );
    let hop = |placed: DOrderChannel, propagation| Hop { least: placed.response, propagation };
    let route = [hop(alone[0], micros(775)), hop(alone[1], Duration::ZERO)];
    let deadlines = compose(&route, relaxed.deadline()).unwrap();
    assert_eq!(deadlines.iter().copied().sum::<Duration>(), micros(80_000 - 775));
    for ((host, deadline), alone) in hops.iter().zip(deadlines).zip(alone) {
        assert_eq!(tried(host, &relaxed.with_deadline(deadline).unwrap()).response, alone.response);
    }
    let needed = alone[0].response + alone[1].response;
    assert_eq!(compose(&route, needed), Err(micros(775)));
}

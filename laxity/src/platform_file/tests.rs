use laxity_core::platform::{BestEffort, Interference, LinkModel, Starts};
use laxity_core::units::Rate;

use super::*;

fn host(text: &str) -> Result<Platform, FileError> {
    parse(text, "host.toml", Platform::assumed_host())
}

#[test]
fn table_2b_in_a_file_is_table_2b() {
    let text = r#"
        [platform]
        packet = "4096B"
        quantum = 4
        switch = "55us"
        cache = "90us"
        first_packet = "420us"
        packet_cost = "170us"
        receive_first = "420us"
        receive_packet = "170us"
        demultiplex = "0"
        receive_batch = 1
        link_cost = "160us"
        transmit_batch = 1
        link_setup = "40200ns"
        link_rate = "20MB/s"
        link_overhead = "0"
        link_floor = "4096B"
        packet_spacing = "0"
        wake_up = "0"
        handover = "0"
        propagation = "0"
        clock_error = "0"
        best_effort_message = 15
        best_effort_packet_min = "4096B"
        best_effort_packet_max = "4KiB"
        interference_burst = "0"
        upcall_switch = "0"
    "#;
    assert_eq!(host(text), Ok(Platform::channels_table_2b()));
}

#[test]
fn every_key_is_read_into_its_own_place() {
    let text = r#"
        [platform]
        packet = "1001B"
        quantum = 2
        switch = "3ns"
        cache = "4ns"
        first_packet = "5ns"
        packet_cost = "6ns"
        receive_first = "7ns"
        receive_packet = "8ns"
        demultiplex = "9ns"
        receive_batch = 10
        link_cost = "11ns"
        transmit_batch = 12
        link_setup = "13ns"
        link_rate = "14B/s"
        receive_rate = "37B/s"
        foreign = "38ns"
        link_overhead = "15B"
        link_floor = "16B"
        packet_spacing = "36ns"
        wake_up = "17ns"
        handover = "18ns"
        propagation = "19ns"
        clock_error = "20ns"
        clock_drift = 39
        best_effort_message = 21
        best_effort_packet_min = "22B"
        best_effort_packet_max = "23B"
        best_effort_burst = 29
        best_effort_spacing = "30ns"
        upcall_switch = "31ns"
        upcall_step = "38ns"
        interference_burst = "24ns"
        [[platform.interference]]
        period = "26ns"
        cost = "25ns"
        [[platform.interference]]
        period = "28ns"
        cost = "27ns"
        [[platform.envelope]]
        window = "33ns"
        budget = "32ns"
        [[platform.envelope]]
        window = "35ns"
        budget = "34ns"
    "#;
    let ns = Duration::from_nanos;
    let expected = Platform {
        machine: MachineModel::Executive,
        upcall_switch: ns(31),
        upcall_step: ns(38),
        packet: 1001,
        quantum: 2,
        switch: ns(3),
        cache: ns(4),
        first_packet: ns(5),
        packet_cost: ns(6),
        receive_first: ns(7),
        receive_packet: ns(8),
        demultiplex: ns(9),
        receive_batch: 10,
        link_cost: ns(11),
        transmit_batch: 12,
        foreign: ns(38),
        receive_rate: Rate::bytes_per_second(37),
        link: LinkModel {
            setup: ns(13),
            rate: Rate::bytes_per_second(14),
            overhead_bytes: 15,
            floor_bytes: 16,
            spacing: ns(36),
        },
        wake_up: ns(17),
        handover: ns(18),
        propagation: ns(19),
        clock_error: ns(20),
        clock_drift_ppm: 39,
        best_effort: BestEffort {
            message_packets: 21,
            packet_min: 22,
            packet_max: 23,
            starts: Some(Starts { burst: 29, spacing: ns(30) }),
        },
        claims: Vec::new(),
        interference: Interference {
            burst: ns(24),
            periodic: vec![(ns(26), ns(25)), (ns(28), ns(27))],
            envelopes: vec![(ns(33), ns(32)), (ns(35), ns(34))],
        },
    };
    assert_eq!(host(text), Ok(expected));
}

#[test]
fn absent_keys_keep_their_defaults_and_follow_a_smaller_packet() {
    assert_eq!(host(""), Ok(Platform::assumed_host()));
    assert_eq!(host("[platform]\nlink_rate = \"unlimited\"").unwrap().link.rate, None);
    let small = host("[platform]\npacket = \"100B\"").unwrap();
    assert_eq!((small.link.floor_bytes, small.best_effort.packet_max), (100, 100));
}

#[test]
fn the_papers_machine_has_the_defaults_of_the_papers() {
    assert_eq!(host("[platform]\nmachine = \"papers\""), Ok(Platform::papers_table_2b()));
    assert_eq!(host("[platform]\nmachine = \"executive\""), Ok(Platform::assumed_host()));
    let machine =
        |mode: &str| host(&format!("[platform]\nlink_mode = {mode:?}\nmachine = \"papers\"")).unwrap().machine;
    assert_eq!((machine("inline"), machine("offload")), (MachineModel::PapersInline, MachineModel::PapersOffload));
    // 61,440 bytes are 43 packets of 1400 and one of 1240.
    let best_effort = host("[platform]\nmachine = \"papers\"\npacket = \"1400B\"").unwrap().best_effort;
    assert_eq!((best_effort.message_packets, best_effort.packet_min, best_effort.packet_max), (44, 1240, 1400));
    let best_effort = host("[platform]\nmachine = \"papers\"\nbest_effort_message = 3").unwrap().best_effort;
    assert_eq!((best_effort.message_packets, best_effort.packet_min, best_effort.packet_max), (3, 4096, 4096));
}

#[test]
fn a_best_effort_message_is_packets_or_bytes() {
    let packets = |message: &str| {
        let text = format!("[platform]\nbest_effort_message = {message}\npacket = \"1000B\"");
        host(&text).unwrap().best_effort.message_packets
    };
    let found = ["0", "7", "\"0\"", "\"0B\"", "\"1B\"", "\"60KiB\"", "\"60KB\""].map(packets);
    assert_eq!(found, [0, 7, 0, 0, 1, 62, 60]);
}

#[test]
fn a_bad_file_says_where_what_was_found_and_what_was_expected() {
    for (text, line, key, problem) in [
        (
            "[platform]\nswitch = \"5 parsecs\"",
            2,
            "platform.switch",
            "platform.switch: \"5 parsecs\" is no span of time: the unit \"parsecs\" is not known; expected a number and \
             one of ns, us, ms, s, min, h, such as 50ms",
        ),
        (
            "[platform]\nswitch = 55",
            2,
            "platform.switch",
            "platform.switch is 55, expected a span of time in quotes such as \"55us\"",
        ),
        (
            "\n[platform]\n\npacket = \"9KiB\"",
            4,
            "platform.packet",
            "platform.packet is 9.216KB, expected 64B to 8.9KB",
        ),
        (
            "[platform]\npacket = \"5GiB\"",
            2,
            "platform.packet",
            "platform.packet is 5368709120 bytes, expected at most 4294967295 bytes",
        ),
        ("[platform]\nquantum = 0", 2, "platform.quantum", "platform.quantum is 0, expected 1 to 256"),
        (
            "[platform]\nquantum = -1",
            2,
            "platform.quantum",
            "platform.quantum is -1, expected a whole number such as 4",
        ),
        (
            "[platform]\nquantum = \"4\"",
            2,
            "platform.quantum",
            "platform.quantum is \"4\", expected a whole number such as 4",
        ),
        (
            "[platform]\nquantum = 4.0",
            2,
            "platform.quantum",
            "platform.quantum is 4.0, expected a whole number such as 4",
        ),
        ("[platform]\nwake_up = \"2s\"", 2, "platform.wake_up", "platform.wake_up is 2s, expected 0ns to 1s"),
        (
            "[platform]\nlink_rate = true",
            2,
            "platform.link_rate",
            "platform.link_rate is true, expected a rate in quotes such as \"20MB/s\", or \"unlimited\"",
        ),
        ("[plattform]\n", 1, "plattform", "the key \"plattform\" is not known, expected platform"),
        ("platform = 3\n", 1, "platform", "platform is 3, expected a table: [platform]"),
        (
            "[platform]\n[[platform.interference]]\ncost = \"1us\"",
            2,
            "platform.interference",
            "platform.interference.period is missing, expected a span of time such as \"4ms\"",
        ),
        (
            "[platform]\n[[platform.interference]]\nperiod = \"1us\"\ncost = \"2us\"\n[[platform.interference]]\nperiod = \
             \"1us\"\ncost = \"1us\"",
            4,
            "platform.interference.cost",
            "platform.interference.cost is 2us, expected 0ns to 1us",
        ),
        (
            "[platform.interference]\nperiod = \"1us\"",
            1,
            "platform.interference",
            "platform.interference is a value of type table, expected tables with period and cost: \
             [[platform.interference]]",
        ),
        (
            "[[platform.interference]]\nperiodd = \"1us\"",
            2,
            "platform.interference.periodd",
            "the key \"platform.interference.periodd\" is not known, expected period or cost",
        ),
    ] {
        let error = host(text).unwrap_err();
        assert_eq!((error.line, error.key.as_str(), error.problem.as_str()), (line, key, problem), "{text}");
    }
    let error = host("[platform]\nswich = \"5us\"").unwrap_err();
    assert!(error.to_string().starts_with("host.toml:2: the key \"platform.swich\" is not known, expected packet, "));
}

#[test]
fn what_is_not_toml_names_the_line() {
    for (text, line) in [("[platform]\npacket =", 2), ("[platform]\npacket = \"1B\"\npacket = \"2B\"", 3), ("\n\n}", 3)]
    {
        let error = host(text).unwrap_err();
        assert_eq!(error.line, line, "{error}");
        assert!(error.problem.starts_with("not TOML: ") && !error.problem.contains('\n'), "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn no_file_makes_it_panic(junk in "(\\[\\[?platform(\\.interference)?\\]\\]?\n)?([a-z_]{0,9} ?= ?.{0,9}\n){0,3}") {
        let _ = host(&junk);
    }
}

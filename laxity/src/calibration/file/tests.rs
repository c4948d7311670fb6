use laxity_core::admission::confidence::batches::Batching;
use laxity_core::admission::confidence::{Probability, upper_bound};
use laxity_core::platform::{Platform, Starts};
use laxity_core::units::{Duration, Rate};
use laxity_link::LinkKind;
use proptest::prelude::*;

use super::super::tests::example;
use super::super::{CalibrationConditions, Cost, Load, Observer, Piece, Window, derive};
use super::*;
use crate::realtime::Scheduling;

/// The text with the digest that it should have.
fn signed(body: &str) -> String {
    format!("{body}{DIGEST}\"{:016x}\"\n", fnv1a64(body.as_bytes()))
}

/// A calibration's text without its last line.
fn body(calibration: &Calibration) -> String {
    let text = calibration.to_toml();
    let end = text.rfind(DIGEST).unwrap();
    text[..end].to_owned()
}

fn refused(text: &str) -> FileError {
    let error = Calibration::parse(text, "calibration.toml").expect_err(text);
    assert!(error.problem.contains("calibrate"), "says what to do: {error}");
    assert!(!error.to_string().contains(char::is_control), "{error:?}");
    error
}

#[test]
fn what_is_written_is_read() {
    let calibration = example();
    let text = calibration.to_toml();
    assert_eq!(Calibration::parse(&text, "calibration.toml").unwrap(), calibration);
    assert!(text.lines().all(|line| line.chars().count() <= 140), "{text}");
    for said in [
        "# C_l: handing one packet to the link, system call included.\n",
        "date = \"2026-11-22T06:49:47Z\"",
        "exceedance = \"0.001\"",
        "load.hogs = 2 ",
        "confidence = \"0.95\"",
    ] {
        assert!(text.contains(said), "{said} in\n{text}");
    }
    // The hash of Fowler, Noll and Vo, from its authors' table.
    assert_eq!([fnv1a64(b""), fnv1a64(b"foobar")], [0xcbf2_9ce4_8422_2325, 0x8594_4171_f739_67e8]);
}

#[test]
fn wherever_it_is_cut_it_is_refused() {
    let text = example().to_toml();
    // Before that it has nothing but comments.
    let head = text.find("[calibration]").unwrap();
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        let error = refused(&text[..end]);
        assert!(
            end <= head || error.problem.starts_with("the file was cut short, or was never a calibration"),
            "{end}: {error}"
        );
    }
}

#[test]
fn whatever_is_changed_it_is_refused() {
    let text = example().to_toml();
    let mut reasons = std::collections::BTreeMap::new();
    for at in (0..text.len()).filter(|at| text.as_bytes()[*at].is_ascii()) {
        for other in [b'0', b'\n'] {
            let mut bytes = text.clone().into_bytes();
            if std::mem::replace(&mut bytes[at], other) != other {
                let error = refused(&String::from_utf8(bytes).unwrap());
                *reasons.entry(error.problem.chars().take(20).collect::<String>()).or_insert(0) += 1;
            }
        }
    }
    assert!(reasons["the file was changed"] > 5_000, "{reasons:?}");
}

/// Each change of a good file, and the key and the problem of the error that it leads to although the digest is right.
#[test]
fn what_makes_no_sense_is_refused_even_with_a_digest() {
    let good = body(&example());
    for (from, to, key, problem) in [
        (
            "version = 4 ",
            "version = 5 ",
            "calibration.version",
            "calibration.version is 5, expected 4: a later laxity wrote it, take that one or calibrate with this one",
        ),
        ("version = 4 ", "version = 0 ", "calibration.version", "calibration.version is 0, expected 4"),
        ("version = 4 ", "versions = 3 ", "calibration.version", "calibration.version is missing, expected 4"),
        ("[calibration]", "[calibrations]", "calibration.version", "calibration.version is missing, expected 4"),
        ("processors = 2", "processors = 0", "calibration", "calibration.processors is 0, expected at least 1"),
        (
            "\"fifo 70\"",
            "\"fifo 100\"",
            "calibration.scheduling",
            "calibration.scheduling is \"fifo 100\", expected \"fifo 70\" (1 to 99), \"short slice\" or \"ordinary\"",
        ),
        (
            "2026-11-22T06:49:47Z",
            "1969-11-22T06:49:47Z",
            "calibration.date",
            "calibration.date is \"1969-11-22T06:49:47Z\", expected a date such as \"2026-05-09T14:03:00Z\"",
        ),
        ("\"0.95\"", "\"0.4\"", "calibration", "calibration.confidence is out of range, expected 0.5 to less than 1"),
        ("\"0.95\"", "\"1\"", "calibration", "calibration.confidence is out of range, expected 0.5 to less than 1"),
        (
            "\"0.95\"",
            "\"95%\"",
            "calibration.confidence",
            "calibration.confidence is \"95%\", expected a probability in quotes such as \"0.000075\", exact to 12 places",
        ),
        (
            "\"eth0\"",
            "\"e\\u001b[1m\"",
            "calibration.interface",
            "calibration.interface is \"e\\u{1b}[1m\", expected at most 256 characters in quotes, none of them a control character",
        ),
        (
            "memory_locked = true",
            "memory_locked = 1",
            "calibration.memory_locked",
            "calibration.memory_locked is 1, expected true or false",
        ),
        (
            "load.flood = 1000",
            "load.flod = 1000",
            "calibration.load.flod",
            "the key \"calibration.load.flod\" is not known, expected hogs, flood",
        ),
        (
            "kind = \"submit\"",
            "kind = \"sumbit\"",
            "calibration.cost.kind",
            "calibration.cost.kind is \"sumbit\", expected \"submit\" or \"first\" or \"next\" or \"reassemble\" or \"deliver\" or \"link\" or \"demultiplex\" or \"round\" or \"switch\" or \"cache\" or \"timer\" or \"wake\" or \"handover\" or \"occupancy\"",
        ),
        (
            "packet = \"512B\"\nsamples",
            "packet = \"1MB\"\nsamples",
            "calibration.cost.packet",
            "calibration.cost.packet is 1000000 bytes, expected 1 to 8900 bytes",
        ),
        (
            "claimed = \"2us\"",
            "claimed = \"1us\"",
            "calibration.cost",
            "the cost submit: claimed is 1us, expected at least the median of 1.007us",
        ),
        ("samples = 10000", "samples = 0", "calibration.cost", "the cost submit: samples is 0, expected at least 1"),
        (
            "samples = 10000",
            "samples = 100",
            "calibration.cost",
            "the cost submit: exceedance is 0.001, expected at least 0.029513049608: 100 samples carry no more",
        ),
        (
            "kind = \"next\"\npacket = \"1400B\"",
            "kind = \"next\"\npacket = \"512B\"",
            "calibration.cost",
            "the cost next of 512B is there twice",
        ),
        (
            "observer = \"working\"",
            "observer = \"spinning\"",
            "calibration.window",
            "the window of 1ms (spinning) is there twice, expected a smaller budget that is exceeded more often",
        ),
        (
            "window = \"1ms\"\nwindows",
            "window = \"11ms\"\nwindows",
            "calibration.window",
            "the window of 1ms (working) stands behind a longer one, expected the shortest first",
        ),
        (
            "budget = \"400us\"",
            "budget = \"4ms\"",
            "calibration.window",
            "the window of 1ms (spinning): budget and largest are 4ms and 401us, expected at most the window",
        ),
        (
            "batch = 1",
            "batch = 0",
            "calibration.window",
            "the window of 1ms (spinning): window, windows, parts, stride, batches, batch and bad are expected to be more than 0",
        ),
        (
            "batches = 600000",
            "batches = 60",
            "calibration.window",
            "the window of 1ms (spinning): exceedance is 0.000008458588, expected at least 0.048702913311: 60 batches carry no more",
        ),
        (
            "packet = \"1400B\"      ",
            "packet = \"1500B\"      ",
            "platform",
            "platform.packet is 1.5KB, expected one of the sizes that were measured",
        ),
        (
            "link_cost = \"10us\"",
            "link_cost = \"9us\"",
            "platform",
            "platform.link_cost is 9us, expected at least 10us, which follows from the costs",
        ),
        (
            "[[platform.envelope]]\nwindow = \"1ms\"\nbudget = \"500us\"",
            "[[platform.envelope]]\nwindow = \"1ms\"\nbudget = \"499us\"",
            "platform",
            "platform.envelope.budget of 1ms is 499us, expected at least the 500us claimed",
        ),
        (
            "[[platform.envelope]]\nwindow = \"1ms\"",
            "[[platform.envelope]]\nwindow = \"2ms\"",
            "platform",
            "platform.envelope.window is 2ms, expected one that was measured",
        ),
        (
            "[platform]\n",
            "[platform]\nmachine = \"papers\"\n",
            "platform.packet_spacing",
            "platform.packet_spacing is 42.72us, expected 0ns to 0ns",
        ),
        ("quantum = 16", "quantum = 0", "platform.quantum", "platform.quantum is 0, expected 1 to 256"),
        (
            "[digest]",
            "[digests]",
            "digests",
            "the key \"digests\" is not known, expected calibration, platform or digest",
        ),
        (
            "[platform]\n",
            "[platforms]\n",
            "platforms",
            "the key \"platforms\" is not known, expected calibration, platform or digest",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        let error = refused(&signed(&good.replacen(from, to, 1)));
        let (found, _) = error.problem.rsplit_once("; ").unwrap();
        assert_eq!((error.key.as_str(), found), (key, problem), "{from} -> {to}");
    }
    let unsigned = format!("{}{DIGEST}\"0123456789abcdef\"\n", good);
    let error = refused(&unsigned);
    assert!(
        error.problem.starts_with("the file was changed after it was measured: its digest is another; calibrate again")
    );
    assert_eq!(error.line, unsigned.lines().count());
}

#[test]
fn other_files_are_no_calibrations() {
    for (text, problem) in [
        ("", "the file is empty, expected a calibration"),
        (
            "[platform]\npacket = \"1400B\"\n",
            "the file is no calibration: calibration is missing, expected a table: [calibration]",
        ),
        ("calibration = 3\n", "calibration is 3, expected a table: [calibration]"),
        ("<html>\n", "the file was cut short, or was never a calibration: its last line is no digest (not TOML: "),
    ] {
        let error = refused(text);
        assert!(error.problem.starts_with(problem), "{error}");
    }
    let long = format!("{}\n{}", example().to_toml(), "#".repeat(MOST_BYTES as usize));
    assert!(refused(&long).problem.starts_with("the file is longer than 262144 bytes, which no calibration is"));
    // Deep nesting is TOML's to refuse.
    refused(&format!("a = {}", "[".repeat(200_000)));
}

#[test]
fn what_is_no_regular_file_is_not_read() {
    let directory = std::env::temp_dir().join(format!("laxity-calibration-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let at = |name: &str| directory.join(name);
    std::fs::write(at("latin"), b"[calibration]\nlink = \"\xe4\"\n").unwrap();
    std::fs::write(at("long"), vec![b'#'; MOST_BYTES as usize + 1]).unwrap();
    std::fs::write(at("good"), example().to_toml()).unwrap();
    assert_eq!(Calibration::read(&at("good")).unwrap(), example());
    for (path, why) in [
        (directory.clone(), "is a directory"),
        (at("absent"), "No such file or directory"),
        (at("latin"), "it is no text (not UTF-8)"),
        (at("long"), "the file is longer than 262144 bytes"),
        ("/dev/zero".into(), "no regular file"),
    ] {
        let error = Calibration::read(&path).unwrap_err();
        assert_eq!(error.exit_status(), 2);
        let said = error.to_string();
        assert!(said.starts_with(&format!("{}: ", path.display())) && said.contains(why), "{said}");
        assert!(said.contains("LAXITY_CALIBRATION=none"), "{said}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

prop_compose! {
    fn cost(alpha: Probability)(
        kind in prop::sample::select(&Piece::ALL[..]),
        packet in prop::option::of(1u32..=8_900),
        samples in 1u64..=i64::MAX as u64,
        // A platform's costs are a second at the most, and some are sums.
        median in 0u64..400_000_000,
        claimed in 0u64..400_000_000,
        more in 0u64..1_000_000_000_000,
        largest in any::<u64>(),
    ) -> Cost {
        Cost {
            kind,
            packet,
            samples,
            median: Duration::from_nanos(median),
            claimed: Duration::from_nanos(claimed.max(median)),
            exceedance: Probability::from_parts(upper_bound(0, samples, alpha).parts() + more),
            largest: Duration::from_nanos(largest.max(median)),
        }
    }
}

prop_compose! {
    fn window(alpha: Probability)(
        observer in prop::sample::select(&Observer::ALL[..]),
        length in 1u64..10_000_000_000,
        windows in 1u64..1 << 40,
        parts in 1u64..20,
        batch in 1u64..1 << 40,
        bad in 1u64..1 << 40,
        shares in [0u64..=1000, 0..=1000, 0..=1000],
        more in 0u64..1_000_000_000_000,
    ) -> Window {
        let part = |share: u64| Duration::from_nanos(length).mul_ratio(share, 1000);
        let batch = 1 + batch % windows;
        let (batches, bad) = (windows / batch, 1 + bad % batch);
        let median = *shares.iter().min().unwrap();
        Window {
            observer,
            window: Duration::from_nanos(length),
            windows,
            parts,
            stride: 1,
            batches,
            batch,
            bad,
            median: part(median),
            budget: part(shares[0]),
            exceedance: Probability::from_parts({
                let (windows_of_batch, most_bad) = (batch as usize, bad as usize);
                let batching = Batching { windows: windows_of_batch, most_bad };
                batching.least(batches, alpha).parts() + more
            }),
            largest: part(shares[1]),
        }
    }
}

prop_compose! {
    fn taken(alpha: Probability)(
        names in prop::array::uniform3("[^\\p{C}\u{2028}\u{2029}]{0,40}"),
        processors in 1u32..,
        date in 0u64..253_402_300_800,
        duration in any::<u64>(),
        load in (any::<u32>(), 0u64..1 << 60),
        scheduling in prop_oneof![
            (1u8..=99).prop_map(Scheduling::Fifo), Just(Scheduling::ShortSlice), Just(Scheduling::Ordinary)
        ],
        flags in any::<[bool; 3]>(),
    ) -> CalibrationConditions {
        let [kernel, processor, interface] = names;
        let [memory_locked, kept_awake, is_xdp] = flags;
        let link = if is_xdp { LinkKind::Xdp } else { LinkKind::Udp };
        let (duration, load) = (Duration::from_nanos(duration), Load { hogs: load.0, flood: load.1 });
        CalibrationConditions {
            kernel,
            processor,
            processors,
            date,
            duration,
            load,
            scheduling,
            memory_locked,
            kept_awake,
            link,
            interface,
            alpha,
        }
    }
}

/// A calibration with these figures and a platform that allows for them.
fn whole(
    taken: CalibrationConditions,
    mut costs: Vec<Cost>,
    mut windows: Vec<Window>,
    quantum: u32,
    policed: bool,
) -> Calibration {
    costs.sort_by_key(|cost| (cost.kind, cost.packet));
    costs.dedup_by_key(|cost| (cost.kind, cost.packet));
    windows.sort_by_key(|window| (window.window, window.observer));
    windows.dedup_by_key(|window| (window.window, window.observer));
    let mut platform = Platform { quantum, ..Platform::assumed_host() };
    if let Some(packet) = costs.iter().filter_map(|cost| cost.packet).find(|packet| *packet >= 1400) {
        platform.packet = packet;
    } else {
        costs.retain(|cost| cost.packet.is_none());
    }
    let packet = platform.packet;
    platform = derive::processor(&costs, packet, platform);
    platform.link.rate = Rate::bytes_per_second(taken.load.flood);
    platform.best_effort.starts = policed.then_some(Starts { burst: 3, spacing: Duration::from_nanos(1_000_001) });
    platform.interference.periodic =
        vec![(taken.duration.max(Duration::from_nanos(1)).min(Duration::from_secs(9)), Duration::ZERO)];
    for window in windows.iter().filter(|window| window.observer == Observer::Working) {
        platform.interference.envelopes.push((window.window, window.window));
    }
    Calibration { taken, costs, windows, platform }
}

proptest! {
    #[test]
    fn every_calibration_survives_its_file(
        (taken, costs, windows) in (1u64..=500_000_000_000).prop_map(Probability::from_parts).prop_flat_map(|alpha| (
            taken(alpha), prop::collection::vec(cost(alpha), 0..20), prop::collection::vec(window(alpha), 0..8)
        )),
        quantum in 1u32..=256,
        policed in any::<bool>(),
    ) {
        let calibration = whole(taken, costs, windows, quantum, policed);
        let text = calibration.to_toml();
        prop_assert_eq!(Calibration::parse(&text, "calibration.toml"), Ok(calibration), "{}", text);
    }

    /// Nothing that is signed makes it panic.
    #[test]
    fn no_text_makes_it_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), ".{0,6}"), 1..4)
    ) {
        let mut text = body(&example());
        for (from, to, put) in edits {
            let at = |index: prop::sample::Index, text: &str| text.floor_char_boundary(index.index(text.len() + 1));
            let (from, to) = (at(from, &text), at(to, &text));
            let short = from.min(to)..from.max(to).min(from.min(to) + 40);
            let end = text.floor_char_boundary(short.end);
            text.replace_range(short.start..end.max(short.start), &put);
        }
        let _ = Calibration::parse(&signed(&text), "calibration.toml");
    }
}

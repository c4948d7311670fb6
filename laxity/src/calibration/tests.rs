//! Calibrations to test with.

use laxity_core::platform::Interference;

use super::*;

fn cost(kind: Piece, packet: Option<u32>, micros: u64) -> Cost {
    Cost {
        kind,
        packet,
        samples: 10_000,
        median: Duration::from_nanos(micros * 500 + 7),
        claimed: Duration::from_micros(micros),
        exceedance: Probability::from_millionths(1000),
        largest: Duration::from_micros(10 * micros),
    }
}

fn window(observer: Observer, micros: u64, budget: u64, windows: u64) -> Window {
    Window {
        observer,
        window: Duration::from_micros(micros),
        windows,
        parts: 1,
        stride: 1,
        batches: windows,
        batch: 1,
        bad: 1,
        median: Duration::from_nanos(1),
        budget: Duration::from_micros(budget),
        exceedance: laxity_core::admission::confidence::upper_bound(0, windows, ALPHA.divided_by(8)),
        largest: Duration::from_micros(budget + 1),
    }
}

const ALPHA: Probability = Probability::from_millionths(50_000);

/// A calibration that makes sense, of ten minutes, for packets of 512 and 1400 bytes.
pub(super) fn example() -> Calibration {
    let mut costs = vec![cost(Piece::Submit, None, 2)];
    for (kind, small, large) in [
        (Piece::First, 6, 8),
        (Piece::Next, 3, 4),
        (Piece::Reassemble, 3, 4),
        (Piece::Deliver, 6, 8),
        (Piece::Link, 9, 10),
        (Piece::Demultiplex, 2, 2),
    ] {
        costs.extend([cost(kind, Some(512), small), cost(kind, Some(1400), large)]);
    }
    for (kind, micros) in [(Piece::Switch, 1), (Piece::Cache, 4), (Piece::Timer, 150), (Piece::Handover, 150)] {
        costs.push(cost(kind, None, micros));
    }
    let windows = vec![
        window(Observer::Spinning, 1000, 400, 600_000),
        window(Observer::Working, 1000, 500, 600_000),
        window(Observer::Spinning, 10_000, 1500, 60_000),
        window(Observer::Working, 10_000, 1400, 60_000),
    ];
    let envelopes = [(1000, 500), (10_000, 1500)];
    let envelopes = envelopes.map(|(window, budget)| (Duration::from_micros(window), Duration::from_micros(budget)));
    let interference = Interference { envelopes: envelopes.to_vec(), ..Interference::default() };
    let taken = CalibrationConditions {
        kernel: "6.18.5 #1 SMP \"PREEMPT\" \\ 2026".to_owned(),
        processor: "Some CPU @ 2.10GHz µ".to_owned(),
        processors: 2,
        date: 1_795_330_187,
        duration: Duration::from_secs(600),
        load: Load { hogs: 2, flood: 1000 },
        scheduling: Scheduling::Fifo(70),
        memory_locked: true,
        kept_awake: false,
        link: LinkKind::Udp,
        interface: "eth0".to_owned(),
        alpha: ALPHA,
    };
    let platform = derive::processor(&costs, 1400, Platform { interference, ..Platform::assumed_host() });
    Calibration { taken, costs, windows, platform }
}

use laxity_core::platform::Interference;
use laxity_drive::Meter as _;

use super::*;

fn at(micros: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + micros * 1000)
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// C_p^1st is 8 µs, C_p 4, a change of handler 5, C_l 10, K·C_d 64; of 100 µs 20 may be stolen.
fn platform() -> Platform {
    let envelopes = vec![(micros(100), micros(20))];
    Platform { interference: Interference { envelopes, ..Interference::default() }, ..Platform::assumed_host() }
}

fn one(piece: Piece, switched: bool) -> WorkDone {
    WorkDone { switched, ..WorkDone::of(piece, 1) }
}

fn meter() -> Meter {
    Meter::new(at(0), &platform(), &WindowClaims::default(), None)
}

/// (pairs of windows, exceeded, most stolen in µs) until `end`, half a window after the last one began.
fn watched(meter: &mut Meter, end: u64) -> (u64, u64, u64) {
    meter.skip(at(end));
    meter.settle();
    let window = meter.premises.windows[0];
    (window.windows, window.exceeded, window.largest.as_nanos() / 1000)
}

#[test]
fn what_a_piece_takes_beyond_its_cost_is_stolen() {
    let mut meter = meter();
    meter.lap(&one(Piece::First, false), at(8));
    meter.lap(&one(Piece::Next, true), at(17));
    assert_eq!(meter.premises.overruns().count(), 0);
    meter.lap(&one(Piece::Next, false), at(36));
    assert_eq!(watched(&mut meter, 150), (1, 0, 15));
    let overruns: Vec<_> = meter.premises.overruns().collect();
    assert_eq!(overruns, [(crate::calibration::Piece::Next, Overruns { count: 1, largest: micros(15) })]);
    assert!(!meter.premises.are_violated());
}

#[test]
fn many_small_excesses_of_a_window_add_up() {
    let mut meter = meter();
    for piece in 1..=6 {
        meter.lap(&one(Piece::Next, false), at(piece * 8));
    }
    assert_eq!(watched(&mut meter, 250), (2, 1, 24));
    assert!(meter.premises.are_violated());
}

#[test]
fn packets_that_are_handed_over_together_may_take_as_long_as_one_by_one() {
    let mut meter = meter();
    meter.lap(&WorkDone::of(Piece::Link, 2), at(20));
    assert_eq!(meter.premises.overruns().count(), 0);
    meter.lap(&WorkDone::of(Piece::Link, 2), at(50));
    // A flush that the network did not take anything of is nothing's cost.
    meter.lap(&WorkDone::of(Piece::Link, 0), at(70));
    assert_eq!(watched(&mut meter, 150), (1, 0, 10));
}

#[test]
fn a_look_costs_the_same_however_many_frames_it_finds() {
    for frames in [0, 1, MANY, MANY + 1, 32] {
        let mut meter = meter();
        meter.looked(frames, at(64));
        assert_eq!(watched(&mut meter, 150), (1, 0, 0), "{frames}");
        let mut meter = self::meter();
        meter.looked(frames, at(90));
        assert_eq!(watched(&mut meter, 150), (1, 1, 26), "{frames}");
    }
}

#[test]
fn sleep_is_no_piece_of_work_and_waking_late_is_stolen() {
    let mut meter = meter();
    meter.skip(at(5000));
    meter.lap(&one(Piece::Next, false), at(5004));
    // 200 µs are allowed for.
    meter.record(Piece::Timer, micros(230), at(5300));
    assert_eq!(watched(&mut meter, 5450), (54, 1, 30));
    // Who waits for a message that is late in its mailbox waits for what is charged elsewhere.
    meter.record(Piece::Handover, micros(900), at(5400));
    assert_eq!(watched(&mut meter, 5550), (55, 1, 30));
    assert_eq!(meter.premises.overruns().count(), 2);
}

#[test]
fn a_calibration_records_each_piece_and_each_window() {
    let histograms = Histograms::new();
    let sampling = Sampling {
        histograms: Arc::clone(&histograms),
        windows: vec![Recorder::new(at(0), micros(10), micros(1000))],
        charged: Some(Platform { packet_cost: micros(3), ..platform() }),
    };
    let mut meter = Meter::new(at(0), &platform(), &WindowClaims::default(), Some(Box::new(sampling)));
    meter.lap(&one(Piece::Next, false), at(4));
    meter.lap(&one(Piece::Next, true), at(8));
    meter.skip(at(20));
    let sampling = meter.finish(at(40)).unwrap();
    let samples = |switched| histograms.of(Piece::Next, switched).counts();
    assert_eq!((samples(false), samples(true)), (vec![(micros(4), 1)], vec![(micros(4), 1)]));
    let windows = sampling.windows.into_iter().next().unwrap().finish().values;
    assert_eq!(windows, [1000, 0, 0]);
    assert!(meter.finish(at(50)).is_none());
}

#[test]
fn whatever_is_done_between_two_preemption_points_takes_one_look_together() {
    let mut meter = meter();
    meter.lap(&WorkDone::of(Piece::Submit, 10), at(40));
    meter.looked(0, at(60));
    // 4 µs are left of 64.
    meter.lap(&one(Piece::Round, false), at(80));
    assert_eq!(watched(&mut meter, 150), (1, 0, 16));
    meter.preemption_point();
    meter.lap(&WorkDone::of(Piece::Submit, 10), at(160));
    assert_eq!(watched(&mut meter, 250), (2, 0, 16));
}

#[test]
fn premises_are_published_without_allocating() {
    let mut meter = meter();
    let mut published = Premises::default();
    published.copy_from(&meter.premises);
    let before = published.windows.as_ptr();
    meter.lap(&one(Piece::Next, false), at(500));
    meter.settle();
    published.copy_from(&meter.premises);
    assert_eq!(published, meter.premises);
    assert_eq!(published.windows.as_ptr(), before);
}

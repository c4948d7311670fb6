use super::diagram::{polyline, steps};
use super::*;

#[test]
fn ticks_are_round_and_inside() {
    let ticks = |scale: Scale, length| scale.ticks(length, 1.0);
    assert_eq!(ticks(Scale::linear(40.0), 4.0), [0.0, 20.0, 40.0]);
    assert_eq!(ticks(Scale::exact(10.0), 5.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
    let decades = Scale::log(90.0, 9_000.0);
    assert_eq!(([decades.low, decades.high], ticks(decades, 4.0)), ([50.0, 20_000.0], vec![100.0, 1_000.0, 10_000.0]));
    assert_eq!(ticks(Scale::log(1.0, 99_999.0), 3.0), [10.0, 1_000.0, 100_000.0]);
    assert_eq!(Scale::log(10.0, 50.0).ticks(300.0, 60.0), [10.0, 20.0, 50.0, 100.0]);
}

#[test]
fn labels_stand_evenly() {
    assert_eq!(Scale::exact(300.0).ticks(204.0, 34.0), [0.0, 50.0, 100.0, 150.0, 200.0, 250.0, 300.0]);
    assert_eq!(Scale::exact(10.0).ticks(204.0, 34.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
    assert_eq!(Scale::exact(300.0).ticks(204.0, 50.0), [0.0, 100.0, 200.0, 300.0]);
    assert_eq!(Scale::log_exact(5.0, 200.0).ticks(148.0, 14.0), [5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
}

#[test]
fn an_axis_holds_zero_and_everything() {
    let of = |values: &[f64], top| {
        let scale = Scale::around(values.iter().copied(), top);
        ([scale.low, scale.high], scale.ticks(240.0, 34.0)[1] - scale.ticks(240.0, 34.0)[0])
    };
    assert_eq!(of(&[], 0.0), ([0.0, 1.0], 1.0));
    assert_eq!(of(&[120.0, 4677.0], 0.0), ([0.0, 5000.0], 1000.0));
    assert_eq!(of(&[-28_000.0, 4_000.0], 0.0), ([-30_000.0, 10_000.0], 10_000.0));
    assert_eq!(of(&[0.0, 0.0], 100.0), ([0.0, 100.0], 20.0));
}

#[test]
fn labels_are_exact() {
    let label = |value, unit| Unit::Number(unit).label(value);
    assert_eq!([label(125.0, 100), label(12_000.0, 1), label(-500.0, 1000)], ["1.25", "12,000", "−0.5"]);
    assert_eq!([label(0.0, 100), label(400.0, 100)], ["0", "4"]);
    let shares = [1e12, 1e10, 1e3].map(|part| Unit::Part(1e12).label(part));
    assert_eq!(shares, ["100\u{a0}%", "1\u{a0}%", "0.0000001\u{a0}%"]);
}

proptest::proptest! {
    /// Whatever comes in, an axis has finite positions in its order and labels that have room.
    #[test]
    fn axes_survive_everything(a: u64, b: u64, c: u64, d: u64) {
        let [a, b, c, d] = [a, b, c, d].map(|value| value as f64);
        for scale in [Scale::linear(a), Scale::exact(a), Scale::log(a, b), Scale::around([a, -b].into_iter(), c)] {
            let (low, high) = (scale.position(c.min(d)), scale.position(c.max(d)));
            proptest::prop_assert!((0.0..=1.0).contains(&low) && low <= high && high <= 1.0);
            let ticks = scale.ticks(300.0, 60.0);
            proptest::prop_assert!(ticks.len() <= 6 && ticks.is_sorted(), "{ticks:?}");
            let places: Vec<f64> = ticks.into_iter().map(|value| scale.position(value)).collect();
            let far = |pair: &[f64]| (pair[1] - pair[0]) * 300.0 > 59.999;
            proptest::prop_assert!(places.windows(2).all(far), "{places:?}");
        }
    }
}

#[test]
fn steps_keep_their_ends_and_leave_out_what_is_not_seen() {
    let points = [(0.0, 9.0), (0.3, 8.9), (5.0, 8.0), (5.1, 8.0), (5.2, 7.9)];
    assert_eq!(steps(points), "M0 9H5V8H5.2V7.9");
    assert_eq!((steps([]), polyline([(1.0, 2.0), (3.0, 4.0)])), (String::new(), "M1 2L3 4".to_owned()));
}

#[test]
fn texts_are_cut_or_broken_where_they_end() {
    assert_eq!((fitting("abcdef", 35.0), fitting("abcde", 35.0)), ("abcd…".to_owned(), "abcde".to_owned()));
    assert_eq!((middle_cut("abcdefgh", 35.0), middle_cut("abcde", 35.0)), ("ab…gh".to_owned(), "abcde".to_owned()));
    assert_eq!(lines("one two  three", 50.0), ["one two", "three"]);
    assert_eq!(lines("", 50.0), [] as [&str; 0]);
    assert_eq!((short(1.0), short(-2.26)), ("1".to_owned(), "-2.3".to_owned()));
}

#[test]
fn a_legend_breaks_where_there_is_no_room() {
    let text = legend(&names(["ab", "cd", "ef"]), [10.0, 180.0]).0.into_string();
    let places: Vec<&str> =
        text.split("class=\"name\" x=\"").skip(1).filter_map(|rest| rest.split('>').next()).collect();
    assert_eq!(places, ["44\" y=\"4\"", "115.8\" y=\"4\"", "44\" y=\"22\""]);
}

#[test]
fn a_picture_is_well_formed_whatever_it_shows() {
    let line = Series { points: vec![(0.0, -3.0), (7.0, i32::MAX.into())], ..Series::line(5, []) };
    for (lines, is_wide) in [(vec![], false), (vec![line], true)] {
        let diagram = Diagram::of_lines("<a & b>", ("load", 1), ("ms", 1), 0, lines);
        let (blocks, notes) = (vec![diagram.block(is_wide, CARD)], vec!["a <note>".to_owned()]);
        let text = Picture { title: "t".into(), legend: names(["<one>"]), blocks, notes, ..Picture::default() }.svg();
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n") && !text.contains("NaN"), "{text}");
        assert!(!text.contains("<one>") && !text.contains("<note>"));
        assert_eq!(text.contains("class=\"zero\""), is_wide, "where something is below zero");
    }
    assert!(Picture::default().svg().ends_with("</svg>\n"));
}

#[test]
fn dots_are_thinned_to_what_can_be_seen() {
    let scales = [Scale::exact(10.0), Scale::exact(1_000.0)];
    let frame = Frame { left: 0.0, right: 10.0, top: 0.0, bottom: 100.0, room: [1.0, 10.0], scales };
    let points = (0..1_000).map(|number| (number % 2, number));
    let dots = Series::new(Shape::Dots("h0"), Look::Named("late"), points);
    let diagram = Diagram::of_lines("", ("", 1), ("", 1), 0, [dots]);
    let text = diagram.draw(frame).into_string();
    assert_eq!(text.matches("h0").count(), 8, "{text}");
    assert!(text.contains("M0 100h0") && text.contains("M1 0h0"), "the extremes: {text}");
}

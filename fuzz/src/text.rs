//! Quantities, addresses and names as people write them: no text makes a reader panic, what it reads is exact, and what it
//! refuses is one line for a terminal.

use laxity::text::{ChannelAddress, DisplayRate, DisplaySize, HostAddress, TextError, duration, interval, rate, size};
use laxity_core::event::Name;
use laxity_core::units::{Duration, Rate};

/// The input is a text; what is not UTF-8 is replaced.
pub fn text(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    quantity(text, duration(text).map(Duration::as_nanos), SPANS);
    quantity(text, size(text), SIZES);
    quantity(text, rate(text).map(Rate::as_bytes_per_second), RATES);
    match interval(text) {
        Ok(found) => {
            let per_second = text.trim().strip_suffix("/s").map(|number| number.trim_end());
            match per_second {
                // The longest interval that still allows the rate: f · r ≤ 10⁹ < (f + 1) · r.
                Some(number) => {
                    let (digits, scale) = decimal(number).expect("it was read");
                    let (nanos, billion) = (u128::from(found.as_nanos()), 1_000_000_000 * scale);
                    assert!(nanos.checked_mul(digits).is_some_and(|product| product <= billion));
                    assert!((nanos + 1).checked_mul(digits).is_none_or(|product| product > billion));
                }
                None => assert_eq!(Ok(found), duration(text)),
            }
        }
        Err(error) => presentable(&error),
    }
    if let Ok(found) = duration(text) {
        // Three decimals are not always all, but they are a text that means no more.
        let again = duration(&found.to_string()).expect("what is shown can be read");
        assert!(again <= found && found.as_nanos() - again.as_nanos() <= found.as_nanos() / 1000);
    }
    if let Ok(found) = size(text) {
        let again = size(&DisplaySize(found).to_string()).expect("what is shown can be read");
        assert!(again <= found && found - again <= found / 1000);
        assert!(rate(&DisplayRate(found).to_string()).is_ok() || found == 0);
    }
    match HostAddress::parse(text, 5709) {
        Ok(address) => assert_eq!(HostAddress::parse(&address.to_string(), 1), Ok(address)),
        Err(error) => presentable(&error),
    }
    match ChannelAddress::parse(text, 5709) {
        Ok(address) => {
            assert!(address.host.port != 0);
            assert_eq!(ChannelAddress::parse(&address.to_string(), 1), Ok(address));
        }
        Err(error) => presentable(&error),
    }
    match Name::new(text) {
        Ok(name) => {
            assert_eq!(name.as_str(), text);
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'));
            assert!(ChannelAddress::parse(&format!("host/{text}"), 1).is_ok_and(|address| address.name == name));
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
}

/// A unit, and how many of the smallest it is, times eight for what counts bits.
type Unit = (&'static str, u128);

const SPANS: &[Unit] = &[
    ("ns", 8),
    ("us", 8_000),
    ("µs", 8_000),
    ("ms", 8_000_000),
    ("min", 480_000_000_000),
    ("h", 28_800_000_000_000),
    ("s", 8_000_000_000),
];
const SIZES: &[Unit] = &[
    ("KiB", 8 << 10),
    ("MiB", 8 << 20),
    ("GiB", 8 << 30),
    ("KB", 8_000),
    ("kB", 8_000),
    ("MB", 8_000_000),
    ("GB", 8_000_000_000),
    ("B", 8),
];
const RATES: &[Unit] = &[
    ("KiB/s", 8 << 10),
    ("MiB/s", 8 << 20),
    ("GiB/s", 8 << 30),
    ("KB/s", 8_000),
    ("kB/s", 8_000),
    ("MB/s", 8_000_000),
    ("GB/s", 8_000_000_000),
    ("B/s", 8),
    ("Kbit/s", 1_000),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("Tbit/s", 1_000_000_000_000),
    ("bit/s", 1),
];

/// What was read is what the digits say, by long multiplication.
fn quantity(text: &str, found: Result<u64, TextError>, units: &[Unit]) {
    let found = match found {
        Ok(found) => found,
        Err(error) => return presentable(&error),
    };
    let text = text.trim();
    let known = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), *factor)));
    let (number, factor) = known.unwrap_or((text, 8));
    let (digits, scale) = decimal(number).expect("it was read as a number");
    assert!(known.is_some() || digits == 0, "only zero needs no unit");
    let product = digits.checked_mul(factor).expect("it fits 64 bits");
    assert_eq!((product / scale / 8, product % scale, product / scale % 8), (u128::from(found), 0, 0), "{text}");
}

/// Digits and the power of ten that divides them.
fn decimal(text: &str) -> Option<(u128, u128)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    let digits = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    Some((digits, 10u128.checked_pow(fraction.len() as u32)?))
}

fn presentable(error: &TextError) {
    let line = error.to_string();
    assert!(!line.contains(char::is_control) && line.len() < 2_000, "{line:?}");
}

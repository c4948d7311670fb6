//! Quantities and addresses in the form in which people write them: `50ms`, `60KiB`, `100Mbit/s`, `20/s`, `[::1]:5709/camera`.
//!
//! ```
//! use laxity::text::{duration, size};
//! use laxity::units::Duration;
//!
//! assert_eq!(duration("1.5ms").unwrap(), Duration::from_micros(1500));
//! assert_eq!(size("60KiB").unwrap(), 61_440);
//! println!("{}", duration("20").unwrap_err());
//! ```
//!
//! Every unit is written out; only zero needs none. Admission depends on these values, so they are exact: decimals are read digit
//! by digit, and a value that is not a whole number of nanoseconds or bytes is an error instead of being rounded. One reader
//! serves all quantities (docs/adr/0006-units-are-read-by-hand.md gives the reason).
//!
//! | What | Units |
//! |---|---|
//! | span of time | `ns`, `us` or `µs`, `ms`, `s`, `min`, `h` |
//! | size | `B`, `KB` `MB` `GB` (powers of 1000), `KiB` `MiB` `GiB` (powers of 1024) |
//! | rate | a size with `/s`, or `bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s` (powers of 1000, 8 bits a byte) |
//! | interval | a span of time, or messages per second: `20/s` |

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};

use laxity_core::event::Name;
use laxity_core::probability::Probability;
use laxity_core::units::{Duration, NANOS_PER_SECOND, Rate};
use laxity_core::wire::WireError;

/// The error for a text that is not a valid quantity or address: the text, the problem, and the expected form. The writer of the
/// text is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is no {what}: {problem}; expected {expected}", ShortenedText(found))]
pub struct TextError {
    /// The quantity or address that was expected.
    pub what: &'static str,
    /// The text.
    pub found: String,
    /// The problem.
    pub problem: Problem,
    /// The expected form, with an example.
    pub expected: &'static str,
}

/// The problem of a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// It does not begin with digits, or has more than one decimal point, or a sign.
    #[error("it does not begin with a number")]
    NoNumber,
    /// A number without a unit.
    #[error("the unit is missing")]
    NoUnit,
    /// An unknown unit.
    #[error("the unit {} is not known", ShortenedText(.0))]
    UnknownUnit(String),
    /// A fraction that is not from 0 to 1, or finer than 10⁻¹².
    #[error("it is no fraction of up to twelve digits")]
    NoFraction,
    /// Not a whole number of the smallest unit.
    #[error("it is not a whole number of {0}")]
    NotWhole(&'static str),
    /// More than 64 bits can hold.
    #[error("it is too large")]
    TooLarge,
    /// A rate of zero.
    #[error("it must be more than zero")]
    Zero,
    /// An address without a channel's name.
    #[error("the channel's name is missing")]
    NoName,
    /// A channel's name that is not valid.
    #[error("{0}")]
    Name(WireError),
    /// An address without a host.
    #[error("the host is missing")]
    NoHost,
    /// A host's name or address with an invalid character.
    #[error("{} is no host", ShortenedText(.0))]
    Host(String),
    /// A port that is not valid.
    #[error("{} is no port", ShortenedText(.0))]
    Port(String),
    /// An IPv6 address whose end cannot be distinguished from a port.
    #[error("an IPv6 address stands in brackets")]
    Unbracketed,
}

/// A text in quotes, escaped and cut to a length that fits a line.
pub(crate) struct ShortenedText<'a>(pub(crate) &'a str);

impl fmt::Display for ShortenedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 60;
        match self.0.char_indices().nth(MOST) {
            Some((cut, _)) => write!(f, "{:?}…", &self.0[..cut]),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// One unit: how it is written, and how many of the smallest it is.
type Unit = (&'static str, u64);

const SPANS: &[Unit] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS_PER_SECOND),
    ("min", 60 * NANOS_PER_SECOND),
    ("h", 3_600 * NANOS_PER_SECOND),
];

const SIZES: &[Unit] = &[
    ("B", 1),
    ("KB", 1_000),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

const BIT_RATES: &[Unit] = &[
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("Tbit/s", 1_000_000_000_000),
];

const SPAN_EXPECTED: &str = "a number and one of ns, us, ms, s, min, h, such as 50ms";
const SIZE_EXPECTED: &str = "a number and one of B, KB, MB, GB, KiB, MiB, GiB, such as 60KiB";
const RATE_EXPECTED: &str = "a number and a unit, such as 16MB/s or 100Mbit/s";
const INTERVAL_EXPECTED: &str = "a span of time such as 50ms, or messages per second such as 20/s";
const FRACTION_EXPECTED: &str = "a fraction such as 0.01 or 1e-2";
const HOST_EXPECTED: &str = "host or host:port, such as 127.0.0.1:5709, [::1]:5709 or robot.local";
const CHANNEL_EXPECTED: &str = "host/name or host:port/name, such as 127.0.0.1:5709/camera or [::1]/camera";

/// Reads a span of time: `50ms`, `1.5s`, `40200ns`, `2min`, `0`.
///
/// # Errors
/// If the text is not a span of time, or is not a whole number of nanoseconds.
pub fn duration(text: &str) -> Result<Duration, TextError> {
    read(text, SPANS, "ns").map(Duration::from_nanos).map_err(problem("span of time", text, SPAN_EXPECTED))
}

/// Reads a size in bytes: `60KB` is 60,000, `60KiB` is 61,440, `4096B`, `0`.
///
/// # Errors
/// If the text is not a size, or is not a whole number of bytes.
pub fn size(text: &str) -> Result<u64, TextError> {
    read(text, SIZES, "bytes").map_err(problem("size", text, SIZE_EXPECTED))
}

/// Reads a rate: `16MB/s`, `100Mbit/s`.
///
/// # Errors
/// If the text is not a rate, is zero, or is not a whole number of bytes per second.
pub fn rate(text: &str) -> Result<Rate, TextError> {
    read_rate(text.trim()).map_err(problem("rate", text, RATE_EXPECTED))
}

/// Reads the shortest interval between messages: a span of time, or the messages per second that it allows.
///
/// `30/s` is rounded down to 33,333,333 ns, so that a sender that keeps the rate never breaks the contract.
///
/// # Errors
/// If the text is not an interval, or is a rate of zero.
pub fn interval(text: &str) -> Result<Duration, TextError> {
    let outcome = match text.trim().strip_suffix("/s") {
        Some(number) => per_second(number.trim_end()),
        None => read(text, SPANS, "ns"),
    };
    outcome.map(Duration::from_nanos).map_err(problem("interval", text, INTERVAL_EXPECTED))
}

/// Reads a fraction: `0.01`, `1e-2`.
///
/// # Errors
/// If the text is not a fraction from 0 to 1, or is finer than 10⁻¹².
pub fn fraction(text: &str) -> Result<Probability, TextError> {
    Probability::read(text.trim()).ok_or(Problem::NoFraction).map_err(problem("fraction", text, FRACTION_EXPECTED))
}

fn problem(what: &'static str, found: &str, expected: &'static str) -> impl FnOnce(Problem) -> TextError {
    let found = found.to_owned();
    move |problem| TextError { what, found, problem, expected }
}

fn read_rate(text: &str) -> Result<Rate, Problem> {
    let (number, unit) = Decimal::split(text)?;
    if unit.is_empty() {
        return Err(Problem::NoUnit);
    }
    let bytes = match (lookup(BIT_RATES, unit), unit.strip_suffix("/s").and_then(|unit| lookup(SIZES, unit))) {
        (Some(bits), _) => match number.times(bits, "bits per second")? {
            bits if bits % 8 == 0 => bits / 8,
            _ => return Err(Problem::NotWhole("bytes per second")),
        },
        (None, Some(bytes)) => number.times(bytes, "bytes per second")?,
        (None, None) => return Err(Problem::UnknownUnit(unit.to_owned())),
    };
    Rate::bytes_per_second(bytes).ok_or(Problem::Zero)
}

/// ⌊10⁹ / number⌋ ns.
fn per_second(text: &str) -> Result<u64, Problem> {
    let (number, rest) = Decimal::split(text)?;
    match (rest, number.digits) {
        ("", 0) => Err(Problem::Zero),
        ("", digits) => {
            let nanos = u128::from(NANOS_PER_SECOND) * 10u128.pow(number.decimals) / digits;
            u64::try_from(nanos).map_err(|_| Problem::TooLarge)
        }
        (rest, _) => Err(Problem::UnknownUnit(format!("{rest}/s"))),
    }
}

fn read(text: &str, units: &[Unit], smallest: &'static str) -> Result<u64, Problem> {
    let (number, unit) = Decimal::split(text.trim())?;
    match lookup(units, unit) {
        Some(factor) => number.times(factor, smallest),
        None if !unit.is_empty() => Err(Problem::UnknownUnit(unit.to_owned())),
        None if number.digits == 0 => Ok(0),
        None => Err(Problem::NoUnit),
    }
}

fn lookup(units: &[Unit], unit: &str) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|&(_, factor)| factor)
}

/// A decimal number as it was written: `digits / 10^decimals`.
struct Decimal {
    digits: u128,
    decimals: u32,
}

impl Decimal {
    /// As many digits as 64 bits have, before and after the point; more cannot be needed.
    const MOST_DIGITS: usize = 20;

    /// The number at the start of `text`, and the unit behind it.
    fn split(text: &str) -> Result<(Self, &str), Problem> {
        if text.is_empty() {
            return Err(Problem::Empty);
        }
        let (whole, rest) = leading_digits(text);
        let (fraction, rest) = rest.strip_prefix('.').map_or(("0", rest), leading_digits);
        if whole.is_empty() || fraction.is_empty() || rest.starts_with(['.', ',', '_']) {
            return Err(Problem::NoNumber);
        }
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        if whole.len() > Self::MOST_DIGITS || fraction.len() > Self::MOST_DIGITS {
            return Err(if fraction.is_empty() { Problem::TooLarge } else { Problem::NoNumber });
        }
        // At most forty digits could exceed 128 bits by a little.
        let digits = whole
            .bytes()
            .chain(fraction.bytes())
            .try_fold(0u128, |sum, digit| sum.checked_mul(10)?.checked_add(u128::from(digit - b'0')));
        let digits = digits.ok_or(Problem::TooLarge)?;
        Ok((Self { digits, decimals: fraction.len() as u32 }, rest.trim_start()))
    }

    /// The number in the smallest unit, of which the written one has `factor`.
    fn times(&self, factor: u64, smallest: &'static str) -> Result<u64, Problem> {
        let product = self.digits.checked_mul(u128::from(factor)).ok_or(Problem::TooLarge)?;
        let scale = 10u128.pow(self.decimals);
        if product % scale != 0 {
            return Err(Problem::NotWhole(smallest));
        }
        u64::try_from(product / scale).map_err(|_| Problem::TooLarge)
    }
}

fn leading_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// A host and its port as written, before a look-up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostAddress {
    /// A host name, an IPv4 address, or an IPv6 address without its brackets.
    pub host: String,
    /// The UDP port; 0 lets the kernel choose one, where this host binds it.
    pub port: u16,
}

/// A channel at a host: `host[:port]/name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelAddress {
    /// The host of the receiver.
    pub host: HostAddress,
    /// The name of the receiver there.
    pub name: Name,
}

impl HostAddress {
    /// Reads `host[:port]`; an IPv6 address stands in brackets.
    ///
    /// # Errors
    /// If the text is not such an address.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, TextError> {
        Self::read(text.trim(), default_port).map_err(problem("address", text, HOST_EXPECTED))
    }

    fn read(text: &str, default_port: u16) -> Result<Self, Problem> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or(Problem::Unbracketed)?;
                // An interface may follow, as in fe80::1%eth0.
                let (address, zone) = host.split_once('%').unwrap_or((host, "0"));
                if address.parse::<Ipv6Addr>().is_err() || !is_host(zone) {
                    return Err(Problem::Host(host.to_owned()));
                }
                match rest.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if rest.is_empty() => (host, None),
                    None => return Err(Problem::Port(rest.to_owned())),
                }
            }
            None => match text.split_once(':') {
                Some((_, port)) if port.contains(':') => return Err(Problem::Unbracketed),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err(Problem::NoHost);
        }
        if !text.starts_with('[') && !is_host(host) {
            return Err(Problem::Host(host.to_owned()));
        }
        let port = match port {
            // `parse` takes a sign, which no port has.
            Some(port) => {
                port.parse().ok().filter(|_| !port.starts_with('+')).ok_or_else(|| Problem::Port(port.to_owned()))?
            }
            None => default_port,
        };
        Ok(Self { host: host.to_owned(), port })
    }

    /// Looks the host up, and returns at least one address. Blocks: never call it where a deadline counts.
    ///
    /// # Errors
    /// The error of the system's resolver.
    pub fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        let found: Vec<SocketAddr> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        if found.is_empty() {
            let message = format!("{} has no address", ShortenedText(&self.host));
            return Err(std::io::Error::new(std::io::ErrorKind::NotFound, message));
        }
        Ok(found)
    }
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl ChannelAddress {
    /// Reads `host[:port]/name`; an IPv6 address stands in brackets.
    ///
    /// # Errors
    /// If the text is not such an address, or has port 0, at which no receiver can be reached.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, TextError> {
        Self::read(text.trim(), default_port).map_err(problem("channel address", text, CHANNEL_EXPECTED))
    }

    fn read(text: &str, default_port: u16) -> Result<Self, Problem> {
        let (host, name) = text.split_once('/').ok_or(Problem::NoName)?;
        if name.is_empty() {
            return Err(Problem::NoName);
        }
        let host = HostAddress::read(host, default_port)?;
        if host.port == 0 {
            return Err(Problem::Port("0".to_owned()));
        }
        Ok(Self { host, name: Name::new(name).map_err(Problem::Name)? })
    }
}

impl fmt::Display for ChannelAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.name.as_str())
    }
}

/// A size for tables, in powers of 1000, cut to three decimals: `60KB`, `1.44MB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisplaySize(
    /// Bytes.
    pub u64,
);

/// A rate for tables, in powers of 1000, cut to three decimals: `12.5MB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisplayRate(
    /// Bytes per second.
    pub u64,
);

impl fmt::Display for DisplaySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..=999 => return write!(f, "{}B", self.0),
            1_000..=999_999 => (1_000, "KB"),
            1_000_000..=999_999_999 => (1_000_000, "MB"),
            _ => (1_000_000_000, "GB"),
        };
        let (whole, thousandths) = (self.0 / unit, self.0 % unit * 1_000 / unit);
        match thousandths {
            0 => write!(f, "{whole}{name}"),
            _ => write!(f, "{whole}.{}{name}", format!("{thousandths:03}").trim_end_matches('0')),
        }
    }
}

impl fmt::Display for DisplayRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", DisplaySize(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> Result<u64, Problem> {
        duration(text).map(Duration::as_nanos).map_err(|error| error.problem)
    }
    fn unknown(unit: &str) -> Problem {
        Problem::UnknownUnit(unit.to_owned())
    }

    #[test]
    fn spans_of_time_are_exact() {
        for (text, expected) in [
            ("50ms", 50_000_000),
            ("1.5s", 1_500_000_000),
            ("1.5ms", 1_500_000),
            ("200us", 200_000),
            ("200µs", 200_000),
            ("40200ns", 40_200),
            ("40.2 us", 40_200),
            (" 2min ", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0", 0),
            ("0.0", 0),
            ("0.000000001s", 1),
            ("000000000000000000000001ns", 1),
            ("18446744073709551615ns", u64::MAX),
        ] {
            assert_eq!(nanos(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_of_time_says_why() {
        for (text, expected) in [
            ("", Problem::Empty),
            ("  ", Problem::Empty),
            ("50", Problem::NoUnit),
            ("ms", Problem::NoNumber),
            ("-5ms", Problem::NoNumber),
            ("+5ms", Problem::NoNumber),
            (".5ms", Problem::NoNumber),
            ("5.ms", Problem::NoNumber),
            ("1.2.3ms", Problem::NoNumber),
            ("1,5ms", Problem::NoNumber),
            ("1_000ms", Problem::NoNumber),
            ("0.5ns", Problem::NotWhole("ns")),
            ("1.0000001us", Problem::NotWhole("ns")),
            ("5 parsecs", unknown("parsecs")),
            ("5MS", unknown("MS")),
            ("1m", unknown("m")),
            ("1e3ms", unknown("e3ms")),
            ("18446744073709551616ns", Problem::TooLarge),
            ("99999999999999999999h", Problem::TooLarge),
            ("99999999999999999999.99999999999999999999h", Problem::TooLarge),
            ("999999999999999999999h", Problem::TooLarge),
            ("٣ms", Problem::NoNumber),
        ] {
            assert_eq!(nanos(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn sizes_know_both_thousands() {
        for (text, expected) in [
            ("60KB", 60_000),
            ("60kB", 60_000),
            ("60KiB", 61_440),
            ("4096B", 4_096),
            ("1.5KiB", 1_536),
            ("2MiB", 2 << 20),
            ("0", 0),
            ("1GB", 1_000_000_000),
        ] {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        assert_eq!(size("4096").unwrap_err().problem, Problem::NoUnit);
        assert_eq!(size("0.1B").unwrap_err().problem, Problem::NotWhole("bytes"));
        assert_eq!(size("60kb").unwrap_err().problem, unknown("kb"));
        assert_eq!(size("99999999999GiB").unwrap_err().problem, Problem::TooLarge);
    }

    #[test]
    fn rates_in_bytes_and_in_bits() {
        for (text, expected) in [
            ("16MB/s", 16_000_000),
            ("100Mbit/s", 12_500_000),
            ("2.5Gbit/s", 312_500_000),
            ("8 bit/s", 1),
            ("1KiB/s", 1024),
        ] {
            assert_eq!(rate(text).map(Rate::as_bytes_per_second), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("0MB/s", Problem::Zero),
            ("0", Problem::NoUnit),
            ("9bit/s", Problem::NotWhole("bytes per second")),
            ("0.5bit/s", Problem::NotWhole("bits per second")),
            ("16MB", unknown("MB")),
            ("16Mb/s", unknown("Mb/s")),
            ("20/s", unknown("/s")),
        ] {
            assert_eq!(rate(text).unwrap_err().problem, expected, "{text}");
        }
    }

    #[test]
    fn an_interval_may_be_a_rate_of_messages_and_never_breaks_it() {
        for (text, expected) in
            [("50ms", 50_000_000), ("20/s", 50_000_000), ("30/s", 33_333_333), ("0.5/s", 2_000_000_000)]
        {
            assert_eq!(interval(text).map(Duration::as_nanos), Ok(expected), "{text}");
        }
        assert_eq!(interval("0/s").unwrap_err().problem, Problem::Zero);
        assert_eq!(interval("/s").unwrap_err().problem, Problem::Empty);
        assert_eq!(interval("16MB/s").unwrap_err().problem, unknown("MB/s"));
        assert_eq!(interval("20").unwrap_err().problem, Problem::NoUnit);
    }

    #[test]
    fn addresses_of_both_families() {
        for (text, host, port) in [
            ("127.0.0.1", "127.0.0.1", 7),
            ("127.0.0.1:9000", "127.0.0.1", 9000),
            ("robot.local:0", "robot.local", 0),
            ("[::1]", "::1", 7),
            ("[fe80::1%eth0]:9000", "fe80::1%eth0", 9000),
        ] {
            assert_eq!(HostAddress::parse(text, 7), Ok(HostAddress { host: host.to_owned(), port }), "{text}");
        }
        for (text, expected) in [
            ("", Problem::NoHost),
            (":9000", Problem::NoHost),
            ("::1", Problem::Unbracketed),
            ("[::1", Problem::Unbracketed),
            ("[localhost]:1", Problem::Host("localhost".to_owned())),
            ("[::1]9", Problem::Port("9".to_owned())),
            ("host:", Problem::Port(String::new())),
            ("host:+9", Problem::Port("+9".to_owned())),
            ("host:65536", Problem::Port("65536".to_owned())),
            ("ho st", Problem::Host("ho st".to_owned())),
            ("a\u{7}", Problem::Host("a\u{7}".to_owned())),
        ] {
            assert_eq!(HostAddress::parse(text, 7).unwrap_err().problem, expected, "{text}");
        }
        for text in ["127.0.0.1:9000", "[::1]:7"] {
            let address = HostAddress::parse(text, 7).unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.resolve().unwrap(), [text.parse().unwrap()]);
        }
    }

    #[test]
    fn channel_addresses_need_a_name_and_a_port() {
        let address = ChannelAddress::parse("[::1]:9000/camera", 7).unwrap();
        assert_eq!((address.host.port, address.name.as_str()), (9000, "camera"));
        assert_eq!(ChannelAddress::parse("h/camera", 7).unwrap().to_string(), "h:7/camera");
        assert_eq!(ChannelAddress::parse("127.0.0.1:9000", 7).unwrap_err().problem, Problem::NoName);
        assert_eq!(ChannelAddress::parse("h/", 7).unwrap_err().problem, Problem::NoName);
        assert_eq!(ChannelAddress::parse("/camera", 7).unwrap_err().problem, Problem::NoHost);
        assert_eq!(ChannelAddress::parse("h:0/camera", 7).unwrap_err().problem, Problem::Port("0".to_owned()));
        assert!(matches!(ChannelAddress::parse("h/a/b", 7).unwrap_err().problem, Problem::Name(_)));
        assert!(matches!(
            ChannelAddress::parse(&format!("h/{}", "x".repeat(65)), 7).unwrap_err().problem,
            Problem::Name(_)
        ));
    }

    #[test]
    fn an_error_is_one_escaped_line_of_bounded_length() {
        assert_eq!(
            duration("5 parsecs").unwrap_err().to_string(),
            "\"5 parsecs\" is no span of time: the unit \"parsecs\" is not known; expected a number and one of ns, us, ms, s, \
             min, h, such as 50ms"
        );
        let hostile = format!("1\u{1b}[2J\n{}", "x".repeat(10_000));
        let text = duration(&hostile).unwrap_err().to_string();
        assert!(text.len() < 400 && !text.contains(char::is_control), "{text}");
    }

    #[test]
    fn sizes_and_rates_are_short_in_tables() {
        for (bytes, text) in
            [(0, "0B"), (999, "999B"), (61_440, "61.44KB"), (1_440_000, "1.44MB"), (2_000_000_000, "2GB")]
        {
            assert_eq!(DisplaySize(bytes).to_string(), text);
            assert_eq!(DisplayRate(bytes).to_string(), format!("{text}/s"));
        }
    }

    proptest::proptest! {
        /// Whatever is written out as nanoseconds or bytes is read back; whatever else comes in does not panic.
        #[test]
        fn whole_numbers_come_back(value: u64, junk in ".{0,40}") {
            proptest::prop_assert_eq!(nanos(&format!("{value}ns")), Ok(value));
            proptest::prop_assert_eq!(size(&format!("{value}B")), Ok(value));
            let _ = (duration(&junk), size(&junk), rate(&junk), interval(&junk));
            let _ = (HostAddress::parse(&junk, 1), ChannelAddress::parse(&junk, 1));
        }

        /// A decimal is its digits: split anywhere, it means the same as the whole number in the smaller unit.
        #[test]
        fn decimals_are_exact(millis in 0u64..1_000_000_000, micros in 0u64..1000) {
            let expected = (millis * 1000 + micros) * 1000;
            proptest::prop_assert_eq!(nanos(&format!("{millis}.{micros:03}ms")), Ok(expected));
        }
    }
}

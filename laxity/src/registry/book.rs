//! What the registry holds, and what may be added to it.
//!
//! **Why a partition is sound.** Each executive j paces itself by a link that is f_j of the real one, Σ f_j ≤ 1, and hands
//! packets over until its own model has A_j of work: in any span w it hands over at most `f_j (w + A_j) + L_j` of the real
//! link's time, L_j being its largest packet on the real link. So a packet of executive i, which by i's model has left at c,
//! has left the common first-come-first-served link at
//!
//! ```text
//! c + Σ_{j≠i} (f_j A_j + L_j)  ≤  c + max_{j≠i} A_j + Σ_{j≠i} L_j
//! ```
//!
//! That is a term of every bound ([`Claim::allowance_ns`]); a newcomer that would make it larger than somebody reckoned with
//! is not taken in. What an executive that is gone has left in the link's queue is waited for ([`Book::settled_ns`]).

use std::net::SocketAddr;

use laxity_core::wire::check_name;
use serde::{Deserialize, Serialize};

use super::process;

/// The version of the format; another one is not read.
pub(super) const VERSION: u32 = 1;
pub(super) const FORMAT: &str = "laxity-registry";
/// Executives that an allowance is made for; more can only join if their packets are smaller than that.
pub(crate) const SEATS: u64 = 16;
/// Channels that are named for each executive; more are counted.
pub(crate) const MOST_LISTED: usize = 32;
const MOST_EXECUTIVES: usize = 1024;
const MOST_TEXT: usize = 200;
const MOST_QUOTED: usize = 600;
const MOST_NANOS: u64 = 1 << 46;
const MOST_RATE: u64 = 1 << 46;
/// No executive leaves more behind than this takes to leave the link.
const MOST_SETTLING: u64 = 200_000_000;

/// The whole registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Book {
    pub(super) format: String,
    pub(super) version: u32,
    /// Which boot of the host this is about.
    pub(super) boot: String,
    /// Until then (CLOCK_MONOTONIC) the link may hold packets of executives that are gone.
    pub(crate) settled_ns: u64,
    pub(crate) executives: Vec<Claim>,
}

/// What one executive claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    pub(crate) pid: u32,
    /// When that process started, in the kernel's ticks.
    pub(crate) start: u64,
    /// The executive's number in its process.
    pub(crate) number: u64,
    pub(crate) address: SocketAddr,
    /// What the process calls itself.
    pub(crate) command: String,
    /// What it takes for the link's rate, bytes per second.
    pub(crate) link_rate: u64,
    /// Its share of it.
    pub(crate) link: u64,
    /// The part of its share that it does not need, and gives back when somebody wishes for it.
    pub(crate) revocable: u64,
    /// How much more it waits for.
    pub(crate) wish: u64,
    /// Its share of one processor in the long run.
    pub(crate) processor_ppm: u64,
    /// A.
    pub(crate) look_ahead_ns: u64,
    /// C_x of the link.
    pub(crate) setup_ns: u64,
    /// The largest packet that it may hand over, bytes on the link.
    pub(crate) packet_bytes: u64,
    /// How much its bounds allow for the packets of all others.
    pub(crate) allowance_ns: u64,
    pub(crate) channels: Vec<HeldChannel>,
    /// Channels that are not listed.
    pub(crate) more: u64,
}

/// A channel of an executive, for whoever is refused because of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldChannel {
    /// Which way it goes.
    pub direction: Direction,
    /// Its name.
    pub name: String,
    /// The other side.
    pub peer: SocketAddr,
    /// Its contract in words.
    pub contract: String,
    /// Bytes per second of its largest messages; 0 for best effort.
    pub rate: u64,
}

/// Which way a channel goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Direction {
    /// From that executive.
    Sends,
    /// To it.
    Receives,
}

/// Names an executive on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) number: u64,
}

impl Claim {
    pub(crate) fn key(&self) -> Key {
        Key { pid: self.pid, start: self.start, number: self.number }
    }

    fn is_alive(&self) -> bool {
        process::start_time(self.pid) == Some(self.start)
    }

    /// L: the largest packet on a link of `rate`.
    fn packet_nanos(&self, rate: u64) -> u64 {
        let nanos = (u128::from(self.packet_bytes) * 1_000_000_000).div_ceil(rate.max(1).into());
        self.setup_ns.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How long after its last packet was handed over its model, and so the link, may still be busy with them.
    pub(crate) fn settling(&self) -> u64 {
        let packet = self.packet_nanos(self.link_rate);
        let packet = u128::from(packet) * u128::from(self.link_rate) / u128::from(self.link.max(1));
        u64::try_from(packet).unwrap_or(u64::MAX).saturating_add(self.look_ahead_ns).min(MOST_SETTLING)
    }

    /// The allowance that an executive makes for all others: one look-ahead, and a packet of each, if they are as it is.
    pub(crate) fn own_allowance(&self) -> u64 {
        let packets = self.packet_nanos(self.link_rate).saturating_mul(SEATS - 1);
        self.look_ahead_ns.saturating_add(packets).min(MOST_NANOS)
    }

    fn check(&self) -> Result<(), String> {
        let range = |field: &str, found: u64, least: u64, most: u64| {
            if (least..=most).contains(&found) {
                Ok(())
            } else {
                Err(format!("{field} of pid {} is {found}, expected {least} to {most}", self.pid))
            }
        };
        range("pid", self.pid.into(), 1, i32::MAX as u64)?;
        range("link_rate", self.link_rate, 1, MOST_RATE)?;
        range("link", self.link, 0, self.link_rate)?;
        range("revocable", self.revocable, 0, self.link)?;
        range("wish", self.wish, 0, self.link_rate)?;
        range("processor_ppm", self.processor_ppm, 0, 1_000_000)?;
        range("look_ahead_ns", self.look_ahead_ns, 0, MOST_NANOS)?;
        range("setup_ns", self.setup_ns, 0, MOST_NANOS)?;
        range("packet_bytes", self.packet_bytes, 0, 1 << 20)?;
        range("allowance_ns", self.allowance_ns, 0, MOST_NANOS)?;
        range("more", self.more, 0, u32::MAX.into())?;
        range("the number of channels", self.channels.len() as u64, 0, MOST_LISTED as u64)?;
        text("command", &self.command)?;
        for channel in &self.channels {
            check_name(&channel.name).map_err(|error| format!("a channel's name: {error}"))?;
            text("contract", &channel.contract)?;
        }
        Ok(())
    }
}

/// Text that is shown to people: short, and without anything that a terminal obeys.
fn text(field: &str, found: &str) -> Result<(), String> {
    if found.len() > MOST_TEXT || found.contains(char::is_control) {
        return Err(format!("{field} has control characters or more than {MOST_TEXT} bytes"));
    }
    Ok(())
}

/// `found` as [`text`] wants it.
pub(crate) fn presentable(found: &str) -> String {
    shown(found, MOST_TEXT)
}

/// What a reader says is wrong: it quotes the file, which somebody else wrote.
fn quoted(error: &serde_json::Error) -> String {
    shown(&error.to_string(), MOST_QUOTED)
}

/// Without what a terminal obeys, and of at most `most` bytes.
fn shown(found: &str, most: usize) -> String {
    let mut safe: String = found.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    while safe.len() > most {
        safe.pop();
    }
    safe
}

/// Only what tells whether the rest can be read.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

impl Book {
    pub(super) fn empty(boot: &str) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            boot: boot.to_owned(),
            settled_ns: 0,
            executives: Vec::new(),
        }
    }

    /// Reads and checks what somebody wrote; says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let head: Head = serde_json::from_str(text).map_err(|error| format!("not a registry: {}", quoted(&error)))?;
        if head.format != FORMAT {
            return Err(format!("not a registry: its format is {:?}", presentable(&head.format)));
        }
        if head.version != VERSION {
            return Err(format!("version {} of the registry, this program reads version {VERSION}", head.version));
        }
        let book: Self = serde_json::from_str(text).map_err(|error| quoted(&error))?;
        book.check()?;
        Ok(book)
    }

    fn check(&self) -> Result<(), String> {
        if self.executives.len() > MOST_EXECUTIVES {
            return Err(format!("more than {MOST_EXECUTIVES} executives"));
        }
        let mut keys: Vec<Key> = self.executives.iter().map(Claim::key).collect();
        keys.sort_unstable();
        if keys.windows(2).any(|two| two[0] == two[1]) {
            return Err("an executive has two claims".to_owned());
        }
        self.executives.iter().try_for_each(Claim::check)?;
        if self.claimed() > self.rate().into() {
            return Err(format!(
                "the claims are {} B/s together, more than the link's {}",
                self.claimed(),
                self.rate()
            ));
        }
        Ok(())
    }

    /// Forgets what is about processes that are gone, or about another boot.
    pub(super) fn lapse(&mut self, boot: &str, now: u64) {
        if self.boot != boot {
            *self = Self::empty(boot);
        }
        let (alive, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.executives).into_iter().partition(Claim::is_alive);
        self.executives = alive;
        for claim in &gone {
            self.settle(claim, now);
        }
        // Nobody leaves more behind; so a wrong value does no lasting harm.
        self.settled_ns = self.settled_ns.min(now.saturating_add(MOST_SETTLING));
    }

    fn settle(&mut self, gone: &Claim, now: u64) {
        self.settled_ns = self.settled_ns.max(now.saturating_add(gone.settling()));
    }

    /// The link's rate: the least that anybody with a share takes it for; `u64::MAX` if nobody is here. Who still waits for a
    /// first share has no say: that could be less than what the others have.
    fn rate(&self) -> u64 {
        let holders = self.executives.iter().filter(|claim| claim.link > 0);
        holders.map(|claim| claim.link_rate).min().unwrap_or(u64::MAX)
    }

    fn claimed(&self) -> u128 {
        self.executives.iter().map(|claim| u128::from(claim.link)).sum()
    }

    /// What nobody has claimed of the link, bytes per second, if `reader` takes it for `link_rate`.
    pub(crate) fn free(&self, link_rate: u64) -> u64 {
        let free = u128::from(self.rate().min(link_rate)).saturating_sub(self.claimed());
        u64::try_from(free).unwrap_or(u64::MAX)
    }

    /// What all but `key` have of the processors, millionths of one.
    pub(crate) fn processor_of_others(&self, key: Key) -> u64 {
        self.others(key).fold(0, |sum, claim| sum.saturating_add(claim.processor_ppm))
    }

    /// What all but `key` would give back.
    pub(crate) fn revocable(&self, key: Key) -> u64 {
        self.others(key).fold(0, |sum, claim| sum.saturating_add(claim.revocable))
    }

    /// True if there is no executive but `key`.
    pub(crate) fn is_alone(&self, key: Key) -> bool {
        self.others(key).next().is_none()
    }

    /// True if somebody but `key` waits for others to give back.
    pub(crate) fn is_wished(&self, key: Key) -> bool {
        self.others(key).any(|other| other.wish > 0)
    }

    pub(crate) fn others(&self, key: Key) -> impl Iterator<Item = &Claim> {
        self.executives.iter().filter(move |claim| claim.key() != key)
    }

    pub(crate) fn find(&mut self, key: Key) -> Option<&mut Claim> {
        self.executives.iter_mut().find(|claim| claim.key() == key)
    }

    /// Whether everybody's allowance for the others' packets still holds with `newcomer`.
    pub(crate) fn has_seat(&self, newcomer: &Claim) -> bool {
        let all = || self.executives.iter().chain([newcomer]);
        let rate = all().map(|claim| claim.link_rate).min().unwrap_or(u64::MAX);
        self.executives.len() < MOST_EXECUTIVES
            && all().all(|own| {
                let others = || all().filter(|other| other.key() != own.key());
                let ahead = others().map(|other| other.look_ahead_ns).max().unwrap_or(0);
                let packets = others().fold(0u64, |sum, other| sum.saturating_add(other.packet_nanos(rate)));
                ahead.saturating_add(packets) <= own.allowance_ns
            })
    }

    pub(crate) fn remove(&mut self, key: Key, now: u64) {
        if let Some(at) = self.executives.iter().position(|claim| claim.key() == key) {
            let gone = self.executives.remove(at);
            self.settle(&gone, now);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in super::super) fn claim(number: u64, link: u64) -> Claim {
        let pid = std::process::id();
        Claim {
            pid,
            start: process::start_time(pid).unwrap(),
            number,
            address: "127.0.0.1:5709".parse().unwrap(),
            command: "send camera".to_owned(),
            link_rate: 1_000_000,
            link,
            revocable: 0,
            wish: 0,
            processor_ppm: 1000,
            look_ahead_ns: 274_001,
            setup_ns: 0,
            packet_bytes: 1526,
            allowance_ns: 274_001 + 15 * 1_526_000,
            channels: vec![HeldChannel {
                direction: Direction::Sends,
                name: "camera".to_owned(),
                peer: "127.0.0.1:9".parse().unwrap(),
                contract: "20000B every 5ms".to_owned(),
                rate: 4_000_000,
            }],
            more: 0,
        }
    }

    fn book(claims: Vec<Claim>) -> Book {
        Book { executives: claims, ..Book::empty("this boot") }
    }

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_is_named() {
        let book = book(vec![claim(1, 10), claim(2, 20)]);
        let text = serde_json::to_string(&book).unwrap();
        assert_eq!(Book::parse(&text).unwrap(), book);
        let wrong = |from: &str, to: &str, says: &str| {
            let error = Book::parse(&text.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(says) && !error.contains(char::is_control), "{error:?}");
        };
        wrong("laxity-registry", "else", "format");
        wrong("\"version\":1", "\"version\":2", "version 2");
        wrong("{", "", "not a registry");
        wrong("\"link\":10", "\"link\":-1", "-1");
        wrong("\"link\":10", "\"link\":1000001", "expected 0 to 1000000");
        wrong("\"link\":10", "\"link\":999999", "together");
        wrong("\"number\":2", "\"number\":1", "two claims");
        wrong("send camera", "send\\u001b[2J", "control characters");
        wrong("\"camera\"", "\"a/b\"", "name");
        wrong("\"more\":0", "\"more\":0,\"extra\":1", "extra");
        wrong("\"more\":0", "\"more\":0,\"\\u001b[2J\":1", "unknown field `?[2J`");
        wrong("\"processor_ppm\":1000", "\"processor_ppm\":-1", "-1");
        for end in 0..text.len() {
            assert!(Book::parse(&text[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn the_dead_and_the_reborn_lapse_and_their_packets_are_waited_for() {
        let mut reborn = claim(2, 20);
        reborn.start += 1;
        let gone = Claim { pid: i32::MAX as u32, ..claim(3, 20) };
        let mut book = book(vec![claim(1, 10), reborn.clone(), gone]);
        book.lapse("this boot", 1000);
        assert_eq!(book.executives, [claim(1, 10)]);
        assert_eq!(book.settled_ns, 1000 + reborn.settling());
        assert_eq!(reborn.settling(), MOST_SETTLING, "a packet of 1.5 kB at 20 B/s");
        book.lapse("another boot", 5000);
        assert_eq!(book, Book::empty("another boot"));
    }

    #[test]
    fn a_seventeenth_executive_has_no_seat() {
        let mut book = book(Vec::new());
        let mut number = 0;
        while book.has_seat(&claim(number, 10)) {
            book.executives.push(claim(number, 10));
            number += 1;
        }
        assert_eq!(number, SEATS);
        assert!(!book.has_seat(&Claim { link_rate: 1000, ..claim(99, 10) }));
        assert_eq!(claim(1, 10).own_allowance(), claim(1, 10).allowance_ns);
    }

    #[test]
    fn the_least_rate_that_anybody_believes_in_counts() {
        let book = book(vec![claim(1, 300_000), Claim { link_rate: 500_000, ..claim(2, 100_000) }]);
        assert_eq!(book.free(1_000_000), 100_000);
        assert_eq!(book.free(450_000), 50_000);
        assert_eq!(book.free(10), 0);
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_an_error_and_no_panic(text in ".{0,200}") {
            prop_assert!(Book::parse(&text).is_err());
        }
        #[test]
        fn any_text_can_be_made_presentable(found in ".{0,300}") {
            prop_assert!(text("x", &presentable(&found)).is_ok());
        }
    }
}

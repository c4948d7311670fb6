//! The trace event format of Chrome, which Perfetto opens: one event a line, written as it comes.
//!
//! Timestamps are microseconds with three decimals, so nanoseconds are exact; no float is computed.

use std::fmt::{self, Arguments, Display};
use std::io::{self, Write};

use laxity_core::units::Instant;

/// Nanoseconds as microseconds.
pub(super) struct Micros(pub(super) i128);

impl From<Instant> for Micros {
    fn from(at: Instant) -> Self {
        Self(at.as_nanos().into())
    }
}

impl Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, nanos) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        write!(f, "{sign}{}.{:03}", nanos / 1000, nanos % 1000)
    }
}

/// A text as a JSON string, in its quotes.
pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is always JSON")
}

/// A track: a process, and a thread of it.
#[derive(Clone, Copy)]
pub(super) struct Track {
    pub(super) pid: u64,
    pub(super) tid: u64,
}

/// From when until when.
pub(super) type Span = (Instant, Instant);

/// Writes events, and remembers the first failure; after it nothing is written.
pub(super) struct Events<W> {
    out: W,
    failure: Option<io::Error>,
    written: u64,
}

impl<W: Write> Events<W> {
    /// Begins the file; `about` are key and value (a JSON value) of what the whole trace is about.
    pub(super) fn new(out: W, about: &[(&str, String)]) -> Self {
        let mut events = Self { out, failure: None, written: 0 };
        let about: Vec<String> = about.iter().map(|(key, value)| format!("{}:{value}", quoted(key))).collect();
        let head = format!("{{\"displayTimeUnit\":\"ns\",\"otherData\":{{{}}},\"traceEvents\":[", about.join(","));
        events.text(format_args!("{head}"));
        events
    }

    fn text(&mut self, text: Arguments<'_>) {
        if self.failure.is_none() {
            self.failure = self.out.write_fmt(text).err();
        }
    }

    fn event(&mut self, event: Arguments<'_>) {
        let separator = if self.written == 0 { "" } else { "," };
        self.written += 1;
        self.text(format_args!("{separator}\n{{{event}}}"));
    }

    /// The name of a process or of a track (`thread`), and its place among the others.
    pub(super) fn called(&mut self, kind: &str, Track { pid, tid }: Track, name: &str, place: u64) {
        for (key, value) in [("name", quoted(name)), ("sort_index", place.to_string())] {
            self.event(format_args!(
                "\"ph\":\"M\",\"name\":\"{kind}_{key}\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"{key}\":{value}}}"
            ));
        }
    }

    /// A span on a track. `name` is in its quotes, `more` are further members, each with a comma before it.
    pub(super) fn slice(&mut self, track: Track, name: &str, (start, end): Span, more: Arguments<'_>) {
        let Track { pid, tid } = track;
        let (ts, dur) = (Micros::from(start), Micros(end.since(start).as_nanos().into()));
        self.event(format_args!(
            "\"ph\":\"X\",\"name\":{name},\"pid\":{pid},\"tid\":{tid},\"ts\":{ts},\"dur\":{dur}{more}"
        ));
    }

    /// A point on a track; as [`Events::slice`].
    pub(super) fn instant(&mut self, Track { pid, tid }: Track, name: &str, at: Instant, more: Arguments<'_>) {
        let ts = Micros::from(at);
        self.event(format_args!(
            "\"ph\":\"i\",\"s\":\"t\",\"name\":{name},\"pid\":{pid},\"tid\":{tid},\"ts\":{ts}{more}"
        ));
    }

    /// A counter's value from now on; `counter` is in its quotes.
    pub(super) fn counter(&mut self, pid: u64, name: &str, at: Instant, counter: &str, value: &dyn Display) {
        let ts = Micros::from(at);
        self.event(format_args!(
            "\"ph\":\"C\",\"name\":{name},\"pid\":{pid},\"ts\":{ts},\"args\":{{{counter}:{value}}}"
        ));
    }

    /// A begin, end or point (`b`, `e`, `n`) of the asynchronous span `id` of a process; as [`Events::slice`]. The id is local to the
    /// process: a viewer shows spans with others than local ones apart from all processes.
    pub(super) fn part(&mut self, phase: char, (pid, id): (u64, &str), name: &str, at: Instant, more: Arguments<'_>) {
        let ts = Micros::from(at);
        self.event(format_args!(
            "\"ph\":\"{phase}\",\"cat\":\"channel\",\"id2\":{{\"local\":\"{id}\"}},\"name\":{name},\"pid\":{pid},\"tid\":{pid},\"ts\":{ts}{more}"
        ));
    }

    /// Ends the file.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.text(format_args!("\n]}}\n"));
        if self.failure.is_none() {
            self.failure = self.out.flush().err();
        }
        self.failure.map_or(Ok(self.out), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_exact() {
        let texts = [0, 1, 999, 1_000, 1_234_567, -1, -40_010].map(|nanos| Micros(nanos).to_string());
        assert_eq!(texts, ["0.000", "0.001", "0.999", "1.000", "1234.567", "-0.001", "-40.010"]);
        assert_eq!(Micros::from(Instant::MAX).to_string(), "18446744073709551.615");
    }

    #[test]
    fn a_failure_of_the_file_is_told_at_the_end() {
        struct FullDisk(usize);
        impl Write for FullDisk {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for (room, fails) in [(20, true), (10_000, false)] {
            let mut events = Events::new(FullDisk(room), &[]);
            events.called("process", Track { pid: 1, tid: 0 }, "a", 1);
            assert_eq!(events.finish().is_err(), fails);
        }
    }
}

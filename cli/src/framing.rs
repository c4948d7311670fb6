//! How messages stand in a pipe: a stream of bytes is cut into messages, and messages are written as a stream.
//!
//! | Framing | What the stream is |
//! |---|---|
//! | `fixed:N` | messages of N bytes, one after the other; the last one of a stream may be shorter |
//! | `length32` | before each message its length in bytes, as 32 bits, big endian |
//!
//! Nothing is ever cut, padded or merged: what the framing cannot express is an error that says at which byte of the stream
//! it happened. Reading needs memory for one message, whatever the stream claims.

use std::fmt;
use std::io::{self, Read, Write};
use std::num::NonZeroU32;
use std::str::FromStr;

use laxity::text;

/// How messages are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Messages of so many bytes.
    Fixed(NonZeroU32),
    /// The length before each message.
    Length32,
}

/// Bytes of the length in front of a message.
const LENGTH_BYTES: u32 = size_of::<u32>() as u32;

impl FromStr for Framing {
    type Err = String;

    /// Reads `fixed:1400B`, `fixed:1400` or `length32`.
    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected length32, or fixed and the bytes of each message, such as fixed:1400";
        if text == "length32" {
            return Ok(Self::Length32);
        }
        let number = text.strip_prefix("fixed:").ok_or_else(|| format!("{text:?} is no framing; {EXPECTED}"))?;
        // The position says what the number is; so bytes need no unit here.
        let bytes = match number.parse::<u64>() {
            Ok(bytes) => bytes,
            Err(_) => text::size(number).map_err(|error| format!("{text:?}: {error}"))?,
        };
        let bytes = u32::try_from(bytes).ok().and_then(NonZeroU32::new);
        bytes.map(Self::Fixed).ok_or_else(|| format!("{text:?}: a message has 1 to {} bytes; {EXPECTED}", u32::MAX))
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "fixed:{bytes}"),
            Self::Length32 => f.write_str("length32"),
        }
    }
}

/// Why a stream cannot be cut into messages, or messages cannot be written as a stream. Positions count from 0.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FramingError {
    /// The stream ended within a message or its length.
    #[error(
        "the input ends at byte {at}, in the middle of {part} that begins at byte {start}: {found} of {expected} bytes are there"
    )]
    Truncated {
        /// "a message" or "a length".
        part: &'static str,
        /// Where it begins.
        start: u64,
        /// Where the stream ends.
        at: u64,
        /// Bytes of it that are there.
        found: u64,
        /// Bytes that it should have.
        expected: u64,
    },
    /// A message longer than the channel takes.
    #[error(
        "the message at byte {at} has {found} bytes, the channel takes at most {most} (--max-message); is the input framed as {framing}?"
    )]
    TooLong {
        /// Where its length begins.
        at: u64,
        /// Its bytes.
        found: u64,
        /// The most that is possible.
        most: u32,
        /// The framing of the stream.
        framing: Framing,
    },
    /// A message without bytes; no channel carries one.
    #[error("the message at byte {at} is empty, expected at least 1 byte; is the input framed as length32?")]
    Empty {
        /// Where its length begins.
        at: u64,
    },
    /// A message that `fixed:N` cannot express.
    #[error(
        "the message for byte {at} of the output does not fit fixed:{expected}: {found} bytes{after}; use --framing length32"
    )]
    NotFixed {
        /// Where it would be written.
        at: u64,
        /// Its bytes.
        found: u64,
        /// N.
        expected: u32,
        /// Says so if it is the one before that was too short.
        after: &'static str,
    },
    /// The pipe itself failed.
    #[error("{what} at byte {at}: {source}")]
    Io {
        /// "reading the input" or "writing the output".
        what: &'static str,
        /// How far it came.
        at: u64,
        /// What the system said.
        source: io::Error,
    },
}

/// Cuts a stream into messages. Reads in pieces as they are needed; give it a buffered stream.
pub(crate) struct Reader<R> {
    input: R,
    framing: Framing,
    max_message: u32,
    /// Bytes read so far.
    at: u64,
}

impl<R: Read> Reader<R> {
    /// Messages of at most `max_message` bytes from `input`; those of a fixed size have no more.
    pub(crate) fn new(input: R, framing: Framing, max_message: u32) -> Self {
        Self { input, framing, max_message, at: 0 }
    }

    /// Puts the next message into `message`, whose contents it replaces; false at the end of the stream.
    ///
    /// A last message of `fixed:N` that is shorter is delivered as it is.
    ///
    /// # Errors
    /// The stream cannot be cut; `message` then holds nothing of use, and so will every further call.
    pub(crate) fn next(&mut self, message: &mut Vec<u8>) -> Result<bool, FramingError> {
        match self.framing {
            Framing::Fixed(bytes) => Ok(self.fill(message, bytes.get())? > 0),
            Framing::Length32 => self.next_with_length(message),
        }
    }

    fn next_with_length(&mut self, message: &mut Vec<u8>) -> Result<bool, FramingError> {
        let start = self.at;
        if self.fill(message, LENGTH_BYTES)? == 0 {
            return Ok(false);
        }
        let length = message.as_slice().try_into().map_err(|_| self.truncated("a length", start, LENGTH_BYTES))?;
        let length = u32::from_be_bytes(length);
        if length > self.max_message {
            let (found, most, framing) = (length.into(), self.max_message, self.framing);
            return Err(FramingError::TooLong { at: start, found, most, framing });
        }
        if length == 0 {
            return Err(FramingError::Empty { at: start });
        }
        let start = self.at;
        if self.fill(message, length)? < length {
            return Err(self.truncated("a message", start, length));
        }
        Ok(true)
    }

    fn truncated(&self, part: &'static str, start: u64, expected: u32) -> FramingError {
        FramingError::Truncated { part, start, at: self.at, found: self.at - start, expected: expected.into() }
    }

    /// Puts the next `most` bytes into `bytes`, fewer if the stream ends before; returns how many there are.
    fn fill(&mut self, bytes: &mut Vec<u8>, most: u32) -> Result<u32, FramingError> {
        bytes.clear();
        let read = self.input.by_ref().take(most.into()).read_to_end(bytes);
        self.at += bytes.len() as u64;
        read.map_err(|source| FramingError::Io { what: "reading the input", at: self.at, source })?;
        Ok(bytes.len() as u32)
    }
}

/// Writes messages as a stream.
pub(crate) struct Writer<W> {
    output: W,
    framing: Framing,
    /// Bytes written so far.
    at: u64,
    /// Bytes of a message shorter than `fixed:N`, after which no other can be told from it.
    short: Option<u64>,
}

impl<W: Write> Writer<W> {
    /// Writes to `output`.
    pub(crate) fn new(output: W, framing: Framing) -> Self {
        Self { output, framing, at: 0, short: None }
    }

    /// Writes one message. It may stay in the buffer of the output until [`Writer::flush`].
    ///
    /// # Errors
    /// [`FramingError::NotFixed`] if `fixed:N` cannot express it: it is longer, or follows one that was shorter. Nothing is
    /// written then.
    pub(crate) fn write(&mut self, message: &[u8]) -> Result<(), FramingError> {
        match self.framing {
            Framing::Fixed(bytes) => {
                let (found, expected) = (self.short.unwrap_or(message.len() as u64), bytes.get());
                if self.short.is_some() || found > u64::from(expected) {
                    let after = if self.short.is_some() { " in the one before it" } else { "" };
                    return Err(FramingError::NotFixed { at: self.at, found, expected, after });
                }
                self.short = (found < u64::from(expected)).then_some(found);
            }
            Framing::Length32 => {
                let length = u32::try_from(message.len()).expect("no channel carries a longer message");
                self.write_all(&length.to_be_bytes())?;
            }
        }
        self.write_all(message)
    }

    /// Passes on what the output has buffered.
    ///
    /// # Errors
    /// [`FramingError::Io`].
    pub(crate) fn flush(&mut self) -> Result<(), FramingError> {
        let at = self.at;
        self.output.flush().map_err(|source| FramingError::Io { what: "writing the output", at, source })
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FramingError> {
        let at = self.at;
        self.output.write_all(bytes).map_err(|source| FramingError::Io { what: "writing the output", at, source })?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fixed(bytes: u32) -> Framing {
        Framing::Fixed(NonZeroU32::new(bytes).unwrap())
    }

    fn cut(stream: &[u8], framing: Framing, max_message: u32) -> Result<Vec<Vec<u8>>, FramingError> {
        let mut reader = Reader::new(stream, framing, max_message);
        let (mut messages, mut message) = (Vec::new(), Vec::new());
        while reader.next(&mut message)? {
            messages.push(message.clone());
        }
        assert!(!reader.next(&mut message)?, "the end stays the end");
        Ok(messages)
    }

    fn join(messages: &[Vec<u8>], framing: Framing) -> Result<Vec<u8>, FramingError> {
        let mut stream = Vec::new();
        let mut writer = Writer::new(&mut stream, framing);
        messages.iter().try_for_each(|message| writer.write(message))?;
        writer.flush()?;
        Ok(stream)
    }

    /// A stream that gives one byte at a time, and is interrupted before each.
    struct Dribble<'a>(&'a [u8], bool);

    impl Read for Dribble<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let most = bytes.len().min(1);
            self.0.read(&mut bytes[..most])
        }
    }

    #[test]
    fn framings_are_read_as_they_are_shown() {
        for (text, framing) in [("length32", Framing::Length32), ("fixed:1400", fixed(1400))] {
            assert_eq!(text.parse(), Ok(framing));
            assert_eq!(framing.to_string(), text);
        }
        assert_eq!("fixed:60KiB".parse(), Ok(fixed(61_440)));
        for text in ["", "fixed", "fixed:", "fixed:0", "fixed:-1", "fixed:4294967296", "fixed:9 parsecs", "lines"] {
            let error = text.parse::<Framing>().unwrap_err();
            assert!(error.starts_with(&format!("{text:?}")) && error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn a_shorter_last_message_of_a_fixed_size_is_delivered_as_it_is() {
        assert_eq!(cut(b"abcdefgh", fixed(3), 3).unwrap(), [&b"abc"[..], b"def", b"gh"]);
        assert_eq!(cut(b"", fixed(3), 3).unwrap(), [[0; 0]; 0]);
    }

    #[test]
    fn a_stream_that_ends_too_early_says_at_which_byte() {
        let error = cut(&[0, 0, 0, 1, 9, 0, 0], Framing::Length32, 10).unwrap_err().to_string();
        assert_eq!(
            error,
            "the input ends at byte 7, in the middle of a length that begins at byte 5: 2 of 4 bytes are there"
        );
        let error = cut(&[0, 0, 0, 3, 9, 9], Framing::Length32, 10).unwrap_err().to_string();
        assert_eq!(
            error,
            "the input ends at byte 6, in the middle of a message that begins at byte 4: 2 of 3 bytes are there"
        );
    }

    #[test]
    fn lengths_that_cannot_be_are_refused_before_memory_is_taken() {
        let error = cut(b"\0\0\0\x01x\xff\xff\xff\xff", Framing::Length32, 10).unwrap_err();
        assert!(matches!(error, FramingError::TooLong { at: 5, found: 4_294_967_295, most: 10, .. }), "{error}");
        assert!(matches!(cut(&[0; 4], Framing::Length32, 10), Err(FramingError::Empty { at: 0 })));
    }

    #[test]
    fn a_fixed_size_does_not_hide_where_messages_end() {
        let written = |sizes: &[usize]| join(&sizes.iter().map(|&size| vec![7; size]).collect::<Vec<_>>(), fixed(3));
        assert_eq!(written(&[3, 3, 2]).unwrap().len(), 8);
        assert!(matches!(written(&[3, 4]), Err(FramingError::NotFixed { at: 3, found: 4, expected: 3, after: "" })));
        let error = written(&[3, 2, 3]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the message for byte 5 of the output does not fit fixed:3: 2 bytes in the one before it; use --framing length32"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..20)) {
            let stream = join(&messages, Framing::Length32).unwrap();
            prop_assert_eq!(&cut(&stream, Framing::Length32, 50).unwrap(), &messages);
            let mut reader = Reader::new(Dribble(&stream, false), Framing::Length32, 50);
            let mut message = Vec::new();
            for expected in &messages {
                prop_assert!(reader.next(&mut message).unwrap());
                prop_assert_eq!(&message, expected);
            }
            prop_assert!(!reader.next(&mut message).unwrap());
        }

        #[test]
        fn a_stream_cut_at_a_fixed_size_is_the_same_stream(stream in prop::collection::vec(any::<u8>(), 0..200), size in 1u32..20) {
            let messages = cut(&stream, fixed(size), 20).unwrap();
            prop_assert!(messages.iter().rev().skip(1).all(|message| message.len() == size as usize));
            prop_assert_eq!(join(&messages, fixed(size)).unwrap(), stream);
        }

        /// Whatever comes in is cut or refused; what is cut before the end is a true prefix.
        #[test]
        fn any_stream_is_cut_or_refused(stream in prop::collection::vec(prop_oneof![Just(0u8), 0..9u8, any::<u8>()], 0..100)) {
            let mut reader = Reader::new(&stream[..], Framing::Length32, 30);
            let (mut message, mut joined) = (Vec::new(), Vec::new());
            while matches!(reader.next(&mut message), Ok(true)) {
                joined.extend((message.len() as u32).to_be_bytes());
                joined.extend(&message);
            }
            prop_assert!(stream.starts_with(&joined));
        }
    }
}

//! A target's input as a source of choices. When it is used up every choice is zero, and the target ends.

/// The rest of the input.
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// True if nothing is left to choose by.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    pub fn bool(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// 0 to `most`; one byte is spent if that is enough.
    pub fn up_to(&mut self, most: u64) -> u64 {
        let choice = match most {
            0 => return 0,
            1..=0xff => u64::from(self.u8()),
            0x100..=0xffff => u64::from(self.u16()),
            _ => self.u64(),
        };
        if most == u64::MAX { choice } else { choice % (most + 1) }
    }

    /// A place in a row of `count`, which is not zero.
    pub fn place(&mut self, count: usize) -> usize {
        self.up_to(count as u64 - 1) as usize
    }

    /// A number whose size is a choice too: small, in between, and at the upper edge.
    pub fn number(&mut self) -> u64 {
        match self.u8() {
            bits @ 0..=64 => self.u64() >> (64 - u32::from(bits)).min(63),
            below @ 65..=79 => u64::MAX - u64::from(below - 65),
            small => u64::from(small - 80),
        }
    }

    /// At most `most` bytes.
    pub fn slice(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.u8())
    }
}

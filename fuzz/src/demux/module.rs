//! Handlers in the kernel: no object file makes the loader panic, and what it links is what it promises, whatever the object says of itself.
//!
//! The kernel has no part in it: no map is made, and nothing is loaded.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::LazyLock;

use super::program::{HandlerError, Module};

/// Objects that a compiler made.
const WHOLE: [&[u8]; 12] = [
    include_bytes!("../../../lab/tests/handlers/count.bpf.o"),
    include_bytes!("../../../lab/tests/handlers/endless.bpf.o"),
    include_bytes!("../../../lab/tests/handlers/helper.bpf.o"),
    include_bytes!("../../../lab/tests/handlers/large.bpf.o"),
    include_bytes!("../../../lab/tests/handlers/nameless.bpf.o"),
    include_bytes!("../../../lab/tests/handlers/outside.bpf.o"),
    include_bytes!("../../../lab/tests/handlers/program.bpf.o"),
    include_bytes!("../../../lab/tests/handlers/ring.bpf.o"),
    include_bytes!("../../../lab/tests/handlers/scribble.bpf.o"),
    include_bytes!("../../../lab/tests/handlers/slow.bpf.o"),
    include_bytes!("../../../lab/tests/handlers/talkative.bpf.o"),
    include_bytes!("../../../lab/examples/emergency-stop/stop.bpf.o"),
];

/// The input is an object file, or the number of one of [`WHOLE`] and changes to it.
pub fn kernel_module(data: &[u8]) {
    static MAP: LazyLock<OwnedFd> = LazyLock::new(|| File::open("/dev/null").expect("every system has it").into());
    let changed = match data {
        [] | [0x7F, b'E', b'L', b'F', ..] => data.to_vec(),
        [number, changes @ ..] => changed(WHOLE[usize::from(*number) % WHOLE.len()], changes),
    };
    match Module::linked_with(&changed, &MAP) {
        Ok((instructions, maps)) => {
            assert!(maps.iter().all(|map| *map > 2 && *map != MAP.as_raw_fd()));
            let words: Vec<[u8; 8]> = instructions
                .iter()
                .map(|it| {
                    let registers = it.src_reg() << 4 | it.dst_reg();
                    let ([low, high], [a, b, c, d]) = (it.off.to_le_bytes(), it.imm.to_le_bytes());
                    [it.code, registers, low, high, a, b, c, d]
                })
                .collect();
            is_harmless(&words, &maps);
        }
        Err(HandlerError::Refused(why)) => {
            assert!(!why.is_empty() && why.len() < 4_000, "{} bytes", why.len());
            assert!(!why.contains(char::is_control), "{why:?}");
        }
        Err(other) => panic!("{other}"),
    }
}

/// The calls that `docs/events.md` names: maps, time, a random number, the processor's.
const HELPERS: [i32; 6] = [1, 2, 3, 5, 7, 8];

/// Written anew from the kernel's description of instructions.
fn is_harmless(words: &[[u8; 8]], maps: &[i32]) {
    assert!(
        (1..=8_192).contains(&words.len()) && maps.len() <= 16,
        "{} instructions, {} maps",
        words.len(),
        maps.len()
    );
    let mut place = 0;
    while let Some(&[code, registers, low, high, ref immediate @ ..]) = words.get(place) {
        let (immediate, others) = (i32::from_le_bytes(*immediate), (registers & 0xF, low, high));
        match (code & 7, code) {
            // BPF_LD: of 64 bits, with a second half.
            (0, 0x18) => {
                let half = words.get(place + 1).expect("it is whole");
                assert_eq!(half[0], 0, "the second half of {place}");
                match registers >> 4 {
                    0 => {}
                    1 | 2 => assert!(maps.contains(&immediate), "instruction {place} names descriptor {immediate}"),
                    other => panic!("instruction {place} loads an address of kind {other}"),
                }
                place += 1;
            }
            // From the packet, by its mode.
            (0, _) => assert!(!matches!(code >> 5, 1 | 2), "instruction {place} reads a packet"),
            // BPF_JMP: a call by its number, or within.
            (5, _) if code >> 4 == 8 => match (code, registers >> 4) {
                (0x85, 0) => assert!(HELPERS.contains(&immediate), "instruction {place} calls {immediate}"),
                (0x85, 1) => {
                    let to = place as i64 + 1 + i64::from(immediate);
                    assert!(
                        others == (0, 0, 0) && (0..words.len() as i64).contains(&to),
                        "instruction {place} calls {to}"
                    );
                }
                _ => panic!("instruction {place} is a call of another kind"),
            },
            _ => {}
        }
        place += 1;
    }
}

/// An object with changes: where, and what.
fn changed(whole: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut object = whole.to_vec();
    let mut changes = Changes(changes);
    while !changes.0.is_empty() {
        let (how, which, place) = (changes.byte(), changes.byte(), changes.pair());
        // Section headers are of 64 bytes, and here at the end.
        let headers = u64::from_le_bytes(whole[40..48].try_into().expect("eight bytes")) as usize;
        let count = (whole.len() - headers) / 64;
        let header = headers + usize::from(which) % count * 64;
        let field = |at: usize| {
            u64::from_le_bytes(whole[header + at..header + at + 8].try_into().expect("eight bytes")) as usize
        };
        let (begin, bytes) = match how % 4 {
            // Of the file, of the header of a section, and of its contents: symbols, relocations, code and types have numbers of four or eight bytes.
            0 => (usize::from(place) % whole.len(), 1),
            1 => (header + usize::from(place) % 16 * 4, 8),
            2 => (field(24) + usize::from(place) % (field(32) / 4).max(1) * 4, 4),
            _ => (field(24) + usize::from(place) % field(32).max(1), 1),
        };
        let value = changes.number(how);
        let end = (begin + bytes).min(object.len());
        object[begin..end].copy_from_slice(&value.to_le_bytes()[..end - begin]);
    }
    object
}

struct Changes<'a>(&'a [u8]);

impl Changes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn pair(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Small, near to a power of two, or negative.
    fn number(&mut self, how: u8) -> u64 {
        let (small, power) = (u64::from(self.byte()), how >> 2);
        match power {
            0..=15 => small,
            16 => small.wrapping_neg(),
            17..=19 => (small << (8 * (power - 16))) | u64::from(self.pair()),
            _ => (1u64 << (power - 1)).wrapping_add(small).wrapping_sub(128),
        }
    }
}

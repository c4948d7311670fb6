//! A survey of an object file before its reader has it. The reader trusts what an object says of itself: it panics on some, asks for as much memory as
//! a section is said to have, and takes the product of several lengths to go through the types of maps. Nothing here takes more than a few times the
//! object's bytes.

use object::elf::{EM_BPF, ET_REL, SHT_NOBITS};
use object::read::elf::{ElfFile64, SectionHeader};
use object::{NativeEndian, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolKind};

use super::module::{CALL, LOAD_WIDE, MOST_BYTES, MOST_MAPS};

/// Sections of an object; a compiler makes some 25 with what debuggers want.
const MOST_SECTIONS: usize = 256;
/// Bytes of the name of a type or of one of its members.
const MOST_NAME: usize = 256;
/// Of an instruction: the registers of a call of a function of the object.
const OF_THE_OBJECT: u8 = 0x10;

type Elf<'data> = ElfFile64<'data, NativeEndian>;

/// An object that its reader can have.
pub(super) struct ObjectSurvey {
    /// Without what it says of lines, which is of no use here; and where a reader that wants whole words finds some.
    pub(super) bytes: Vec<u8>,
    /// The targets to which code refers by an address: symbols, and their sections.
    pub(super) references: Vec<(usize, usize)>,
}

impl ObjectSurvey {
    /// Of at most [`MOST_BYTES`] bytes that may be anything.
    ///
    /// # Errors
    /// The errors in them.
    pub(super) fn of(bytes: &[u8]) -> Result<Self, String> {
        let mut bytes = bytes.to_vec();
        let file = read(&bytes)?;
        let sections = file.sections().count();
        if sections > MOST_SECTIONS {
            return Err(format!("it has {sections} sections, expected at most {MOST_SECTIONS}"));
        }
        let (mut all, mut of_maps, mut lines) = (0u64, 0, Vec::new());
        for section in file.sections() {
            let name = section.name().map_err(damaged)?;
            let header = section.elf_section_header();
            all = all.saturating_add(section.size());
            if section.address() != 0 {
                return Err(format!("its section {name:?} has an address, expected an object that is not linked"));
            }
            if header.sh_type(NativeEndian) == SHT_NOBITS && !name.starts_with(".bss") {
                return Err(format!("its section {name:?} has no contents"));
            }
            section.data().map_err(damaged)?;
            match name {
                ".BTF" => check_types(section.data().map_err(damaged)?)?,
                ".BTF.ext" => lines.push(section.index()),
                _ => {}
            }
            of_maps += usize::from(name.starts_with(".maps"));
        }
        if all > MOST_BYTES as u64 {
            return Err(format!("its sections have {all} bytes, expected at most {MOST_BYTES}"));
        }
        if of_maps > 1 {
            return Err(format!("it has {of_maps} sections of maps, expected one"));
        }
        check_symbols(&file)?;
        let mut references = Vec::new();
        for section in file.sections() {
            if section.name().is_ok_and(|name| name.starts_with(".text")) {
                check_relocations(&file, &section, &mut references)?;
            }
        }
        // The reader passes over a section without a name.
        let table = file.elf_header().e_shoff.get(NativeEndian) as usize;
        for SectionIndex(index) in lines {
            let header = table + index * size_of::<object::elf::SectionHeader64<NativeEndian>>();
            bytes[header..header + 4].fill(0);
        }
        if read(&bytes)?.section_by_name(".BTF.ext").is_some() {
            return Err("its first name is not empty".to_owned());
        }
        Ok(Self { bytes, references })
    }
}

fn damaged(why: object::read::Error) -> String {
    why.to_string()
}

fn read(bytes: &[u8]) -> Result<Elf<'_>, String> {
    let file = Elf::parse(bytes).map_err(damaged)?;
    let header = file.elf_header();
    let (kind, machine) = (header.e_type.get(NativeEndian), header.e_machine.get(NativeEndian));
    if (kind, machine) != (ET_REL, EM_BPF) {
        return Err(format!("it is of kind {kind} for machine {machine}, expected {ET_REL} for {EM_BPF}"));
    }
    Ok(file)
}

/// Each name is short together with the others, and each symbol lies within its section.
fn check_symbols(file: &Elf<'_>) -> Result<(), String> {
    let mut names = 0;
    for symbol in file.symbols() {
        let name = symbol.name().map_err(damaged)?;
        names += name.len();
        if names > MOST_BYTES {
            return Err(format!("the names of its symbols have more than {MOST_BYTES} bytes"));
        }
        let Some(section) = symbol.section_index() else { continue };
        let room = file.section_by_index(section).map_err(damaged)?.size();
        if symbol.address().checked_add(symbol.size()).is_none_or(|end| end > room) {
            return Err(format!("its symbol {name:?} goes beyond its section, which has {room} bytes"));
        }
    }
    Ok(())
}

/// Each relocation of a section of code is of a call of a function, or of an address that is none of code.
fn check_relocations(
    file: &Elf<'_>,
    section: &object::read::elf::ElfSection64<'_, '_, NativeEndian>,
    references: &mut Vec<(usize, usize)>,
) -> Result<(), String> {
    let code = section.data().map_err(damaged)?;
    let is_code = |section: SectionIndex| {
        file.section_by_index(section).and_then(|section| section.name()).is_ok_and(|name| name.starts_with(".text"))
    };
    for (offset, relocation) in section.relocations() {
        let wrong = |what: &str| Err(format!("its relocation at byte {offset} of its code {what}"));
        let RelocationTarget::Symbol(index) = relocation.target() else { return wrong("is of no symbol") };
        let symbol = file.symbol_by_index(index).map_err(damaged)?;
        let at = usize::try_from(offset).ok().filter(|at| at.is_multiple_of(8));
        let Some(&[what, registers, low, high, ref immediate @ ..]) =
            at.and_then(|at| code.get(at..)).and_then(|rest| rest.first_chunk::<8>())
        else {
            return wrong("is of no instruction");
        };
        let immediate = i32::from_ne_bytes(*immediate);
        let in_code = symbol.section_index().filter(|section| is_code(*section));
        match (what, relocation.size()) {
            (CALL, 32) if (registers, low, high) == (OF_THE_OBJECT, 0, 0) => {
                let is_function = match symbol.kind() {
                    SymbolKind::Text => symbol.section_index().is_some(),
                    SymbolKind::Section => in_code.is_none() || immediate >= -1,
                    _ => in_code.is_none(),
                };
                if !is_function {
                    return wrong("is of a call, and its symbol is no function of the object");
                }
            }
            (LOAD_WIDE, 64) if symbol.kind() != SymbolKind::Text && in_code.is_none() => {
                if immediate.unsigned_abs() as usize > MOST_BYTES {
                    return wrong("is of an address that is far from its symbol");
                }
                references.extend(symbol.section_index().map(|section| (index.0, section.0)));
            }
            _ => return wrong("is neither of a call nor of an address of data"),
        }
    }
    Ok(())
}

/// A type of BTF, as far as it matters.
struct BtfType {
    kind: u32,
    /// Bytes of it, or the type that it is of.
    third: u32,
    /// Of an array.
    element: u32,
    length: u32,
}

// enum of include/uapi/linux/btf.h.
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const VAR: u32 = 14;
const DATA_SECTION: u32 = 15;

/// Types are named by short strings, no array has more bytes than can be told, and there are no more maps than may be.
fn check_types(btf: &[u8]) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("what it says of types {what}"));
    let word = |from: &[u8], place: usize| {
        from.get(4 * place..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_ne_bytes(*word))
    };
    let part = |offset: usize| {
        let begin = u64::from(word(btf, 1)) + u64::from(word(btf, offset));
        let range = begin as usize..(begin + u64::from(word(btf, offset + 1))) as usize;
        btf.get(range)
    };
    let (Some(mut rest), Some(strings), true) = (part(2), part(4), btf.len() >= 24) else {
        return wrong("is not whole");
    };
    let name = |offset: u32| {
        let from = strings.get(offset as usize..)?;
        let end = from.iter().take(MOST_NAME).position(|byte| *byte == 0)?;
        Some(&from[..end])
    };
    let (mut types, mut maps) = (Vec::new(), 0);
    while !rest.is_empty() {
        let (kind, count) = (word(rest, 1) >> 24 & 0x1F, word(rest, 1) as usize & 0xFFFF);
        let more = match kind {
            1 | VAR | 17 => 4,
            ARRAY => 12,
            STRUCT | 5 | DATA_SECTION | 19 => 12 * count,
            6 | 13 => 8 * count,
            2 | 7..=12 | 16 | 18 => 0,
            _ => return wrong("is of a kind that there is not"),
        };
        let Some((this, next)) = rest.split_at_checked(12 + more) else { return wrong("ends within one") };
        rest = next;
        let Some(named) = name(word(this, 0)) else { return wrong("has a name that is too long, or nowhere") };
        if kind == STRUCT && !this[12..].chunks_exact(12).all(|member| name(word(member, 0)).is_some()) {
            return wrong("has a member's name that is too long, or nowhere");
        }
        maps += if kind == DATA_SECTION && named.starts_with(b".maps") { count } else { 0 };
        if maps > MOST_MAPS {
            return wrong(&format!("has more than {MOST_MAPS} maps"));
        }
        types.push(BtfType { kind, third: word(this, 2), element: word(this, 3), length: word(this, 5) });
    }
    for array in types.iter().filter(|of| of.kind == ARRAY) {
        let bytes = u64::from(size_of_element(&types, array)) * u64::from(array.length);
        if bytes > u64::from(u32::MAX) {
            return wrong(&format!("has an array of {bytes} bytes"));
        }
    }
    Ok(())
}

/// Bytes of what an array is of, if that is known; a type may be of itself.
fn size_of_element(types: &[BtfType], array: &BtfType) -> u32 {
    let mut id = array.element;
    for _ in 0..40 {
        // The first is of nothing.
        let Some(found) = (id as usize).checked_sub(1).and_then(|place| types.get(place)) else { return 0 };
        match found.kind {
            1 | STRUCT | 5 | 6 | DATA_SECTION | 16 | 19 => return found.third,
            PTR => return 8,
            // Has a turn of its own.
            ARRAY => return 0,
            _ => id = found.third,
        }
    }
    0
}

//! An application's function for the kernel, as an object file of clang: read, checked against the rules for handlers, and with its maps made.
//!
//! Nothing of the object is believed: only functions and plain maps may be in it, only the calls that are listed here, and no reference to a
//! map but those that the object has itself. The kernel's verifier checks the rest, when the object is loaded behind [`super::handlers`].

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use aya::maps::{MapData, MapError, RingBuf};
use aya_obj::generated::{bpf_insn, bpf_map_type};
use aya_obj::maps::BtfMap;
use aya_obj::{EbpfSectionKind, Object, ProgramSection};
use laxity_core::units::Instant;

use super::handlers::HandlerError;
use super::survey::ObjectSurvey;
use super::{Error, OBJECT, kernel};

/// Bytes of the largest object.
pub(super) const MOST_BYTES: usize = 1 << 20;
/// Instructions of the function, with those that it calls.
const MOST_INSTRUCTIONS: usize = 4096;
/// Functions, with the one that is called.
const MOST_FUNCTIONS: usize = 64;
/// Maps of an object, and bytes of each at most, with what the kernel has beside each entry; and of a value, which the kernel copies whole.
pub(super) const MOST_MAPS: usize = 16;
const MOST_MAP_BYTES: u64 = 1 << 20;
const BESIDE_ENTRY: u64 = 64;
const MOST_VALUE: u32 = 4096;
/// The name of the function that it must have.
const ENTRY: &str = "on_message";

/// Calls to the kernel that a handler may make: look up, update and delete in its maps, the time, a random number, the processor's number.
const ALLOWED: [i32; 6] = [1, 2, 3, 5, 7, 8];

// Of an instruction: what it is, and what the second register of a call or of a constant of 64 bits says.
pub(super) const CALL: u8 = 0x85;
const CALL_BY_REGISTER: u8 = 0x8D;
pub(super) const LOAD_WIDE: u8 = 0x18;
const OF_THE_KERNEL: u8 = 0;
const OF_THE_OBJECT: u8 = 1;
const OF_A_MAP: u8 = 1;
const IN_A_MAP: u8 = 2;
/// The class and mode of what loads from the packet by itself: `LD | ABS`, `LD | IND`.
const CLASS_AND_MODE: u8 = 0xE7;
const FROM_PACKET: [u8; 2] = [0x20, 0x40];

/// A function for the kernel, with its maps. It goes behind the demultiplexer of one channel at a time.
pub struct Module {
    pub(super) instructions: Vec<bpf_insn>,
    maps: Vec<Arc<ModuleMap>>,
    pub(super) notices: Arc<MapData>,
}

impl Module {
    /// Reads an object file, and makes the maps that it declares; the second value is told of messages. For set-up.
    ///
    /// # Errors
    /// It is no object file, or has something that a handler may not have; the user may not make maps.
    pub fn new(object: &[u8]) -> Result<(Self, Notices), HandlerError> {
        // None is known to be left by which the reader panics; if there is one, it is no reason to end the application.
        let read = catch_unwind(AssertUnwindSafe(|| Self::read(object, &ModuleMap::new)));
        let (instructions, maps) =
            read.unwrap_or_else(|_| Err(HandlerError::refused("it is no object file of clang -target bpf")))?;
        let notices = Object::parse(OBJECT).ok().and_then(|mut own| own.maps.remove("notices")).ok_or(Error::Object)?;
        let notices = || MapData::create(notices.clone(), "laxity_notices", None).map_err(Error::map);
        let ring = notices()?;
        let shared = MapData::from_fd(ring.fd().as_fd().try_clone_to_owned().map_err(Error::kernel("dup"))?);
        let notices = Notices(RingBuf::try_from(aya::maps::Map::RingBuf(ring)).map_err(Error::map)?);
        Ok((Self { instructions, maps, notices: Arc::new(shared.map_err(Error::map)?) }, notices))
    }

    /// As [`Module::new`] does, but with `map` in the place of each map, and without the kernel: the instructions, and the descriptors that they may name.
    // For tests and the fuzz target.
    #[allow(dead_code)]
    pub(crate) fn linked_with(object: &[u8], map: &OwnedFd) -> Result<(Vec<bpf_insn>, Vec<i32>), HandlerError> {
        let make = |name: &str, declared: &aya_obj::Map| {
            ModuleMap::check(name, declared)?;
            let fd = map.try_clone().map_err(Error::kernel("dup"))?;
            Ok(ModuleMap { name: name.to_owned(), fd, key_bytes: 0, value_bytes: 0 })
        };
        let (instructions, maps) = Self::read(object, &make)?;
        let fds = maps.iter().map(|map| map.raw_fd()).collect();
        Ok((instructions, fds))
    }

    fn read(bytes: &[u8], make: MakeMap<'_>) -> Result<(Vec<bpf_insn>, Vec<Arc<ModuleMap>>), HandlerError> {
        let refused = |why: String| Err(HandlerError::refused(why));
        if bytes.len() > MOST_BYTES {
            return refused(format!("it has {} bytes, expected at most {MOST_BYTES}", bytes.len()));
        }
        let what = |why: &dyn std::fmt::Display| {
            HandlerError::refused(format!("it is no object file of clang -target bpf: {why}"))
        };
        let ObjectSurvey { bytes, references } = ObjectSurvey::of(bytes).map_err(|why| what(&why))?;
        let mut object = Object::parse(&bytes).map_err(|why| what(&why))?;
        if let Some(program) = object.programs.keys().next() {
            return refused(format!("it has a program {program:?} in a section of its own, expected functions only"));
        }
        let entries = || object.functions.iter().filter(|(_, function)| function.name == ENTRY);
        let Some((&(section_index, address), _)) = entries().next() else {
            return refused(format!("it has no function {ENTRY}"));
        };
        let all: usize = object.functions.values().map(|function| function.instructions.len()).sum();
        let sections: HashSet<usize> = object.functions.keys().map(|&(section, _)| section).collect();
        if sections.len() > 1 || object.functions.len() > MOST_FUNCTIONS {
            let (functions, sections) = (object.functions.len(), sections.len());
            return refused(format!(
                "it has {functions} functions in {sections} sections, expected at most {MOST_FUNCTIONS} in one (-fno-function-sections)"
            ));
        }
        if all > MOST_INSTRUCTIONS {
            return refused(format!("its functions have {all} instructions, expected at most {MOST_INSTRUCTIONS}"));
        }
        if object.maps.len() > MOST_MAPS {
            return refused(format!("it has {} maps, expected at most {MOST_MAPS}", object.maps.len()));
        }
        if !object.functions.values().all(|function| can_be_linked(&function.instructions)) {
            return refused("a function of it ends within an instruction, or calls one that is far away".to_owned());
        }
        // A map is named by its symbol, and a global variable by its section.
        let is_map = |&(symbol, section): &(usize, usize)| {
            let named =
                |map: &aya_obj::Map| map.symbol_index().map_or(map.section_index() == section, |own| own == symbol);
            object.maps.values().any(named)
        };
        if let Some((symbol, _)) = references.iter().find(|reference| !is_map(reference)) {
            return refused(format!("it refers to what is none of its maps (symbol {symbol})"));
        }
        let maps = object.maps.iter().map(|(name, map)| make(name, map).map(Arc::new));
        let maps = maps.collect::<Result<Vec<_>, _>>()?;
        let declared = object.maps.clone();
        let made = maps.iter().filter_map(|map| Some((map.name.as_str(), map.raw_fd(), declared.get(&map.name)?)));
        let link = |why: &dyn std::fmt::Display| HandlerError::refused(format!("it cannot be linked: {why}"));
        object.relocate_maps(made, &sections).map_err(|why| link(&why))?;
        // To the linker it is a program.
        let (license, section) = (object.license.clone(), ProgramSection::SocketFilter);
        let program = aya_obj::Program { license, kernel_version: None, section, section_index, address };
        object.programs.insert(ENTRY.to_owned(), program);
        object.relocate_calls(&sections).map_err(|why| link(&why))?;
        let linked = object.functions.remove(&(section_index, address)).map(|function| function.instructions);
        let linked = linked.unwrap_or_default();
        let fds: Vec<i32> = maps.iter().map(|map| map.raw_fd()).collect();
        check(&linked, &fds).map_err(HandlerError::refused)?;
        if linked.len() > 2 * MOST_INSTRUCTIONS {
            return refused(format!("with what it calls it has {} instructions", linked.len()));
        }
        Ok((linked, maps))
    }

    /// One without maps.
    #[cfg(test)]
    pub(super) fn of(instructions: Vec<bpf_insn>) -> Self {
        let mut own = Object::parse(OBJECT).unwrap();
        let notices = MapData::create(own.maps.remove("notices").unwrap(), "laxity_notices", None).unwrap();
        Self { instructions, maps: Vec::new(), notices: Arc::new(notices) }
    }

    /// A map of its own, by its name in the source; those of global variables have the name of their section.
    pub fn map(&self, name: &str) -> Option<Arc<ModuleMap>> {
        self.maps.iter().find(|map| map.name == name).cloned()
    }
}

/// Makes a map of this name.
type MakeMap<'a> = &'a dyn Fn(&str, &aya_obj::Map) -> Result<ModuleMap, HandlerError>;

/// Checks that the linker can take a function's instructions, as it relies on: none of two halves is cut, and no call overflows.
fn can_be_linked(instructions: &[bpf_insn]) -> bool {
    let mut rest = instructions.iter();
    while let Some(instruction) = rest.next() {
        if instruction.code == LOAD_WIDE && rest.next().is_none_or(|half| half.code != 0)
            || instruction.code == CALL && instruction.imm == i32::MAX
        {
            return false;
        }
    }
    true
}

/// Holds instructions against what a handler may do, as they are when they have been linked: what the object says of itself may change any of them.
/// `maps` are the descriptors of its own.
fn check(instructions: &[bpf_insn], maps: &[i32]) -> Result<(), String> {
    let mut rest = instructions.iter().enumerate();
    while let Some((place, instruction)) = rest.next() {
        let (code, register) = (instruction.code, instruction.src_reg());
        let at = |what: &str| Err(format!("it {what} (instruction {place})"));
        match (code, register) {
            (CALL, OF_THE_KERNEL) if ALLOWED.contains(&instruction.imm) => {}
            (CALL, OF_THE_KERNEL) => {
                return at(&format!("calls the kernel's function {}, expected one of {ALLOWED:?}", instruction.imm));
            }
            (CALL, OF_THE_OBJECT) => {
                // The linker leaves alone what has anything in other fields. What is linked goes behind instructions of ours, which it may not call.
                let to = place as i64 + 1 + i64::from(instruction.imm);
                if (instruction.dst_reg(), instruction.off) != (0, 0) || !(0..instructions.len() as i64).contains(&to) {
                    return at("calls what is no function of its own");
                }
            }
            (CALL, _) => return at("calls a function of the kernel that is no helper"),
            (CALL_BY_REGISTER, _) => return at("calls by a register"),
            (LOAD_WIDE, kind) => {
                let is_own = kind == 0 || [OF_A_MAP, IN_A_MAP].contains(&kind) && maps.contains(&instruction.imm);
                // Its second half is no instruction.
                if !is_own || rest.next().is_none_or(|(_, half)| half.code != 0) {
                    return at("names a map that is none of the object's");
                }
            }
            _ if FROM_PACKET.contains(&(code & CLASS_AND_MODE)) => return at("reads the packet by itself"),
            _ => {}
        }
    }
    Ok(())
}

/// A map of a handler's, which it shares with its application. Entries are read and written whole.
pub struct ModuleMap {
    name: String,
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl ModuleMap {
    /// True if there may be such a map.
    fn check(name: &str, map: &aya_obj::Map) -> Result<(), HandlerError> {
        use bpf_map_type::{BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LRU_HASH};
        let plain = [BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LRU_HASH].map(|kind| kind as u32);
        let refused = |why: String| Err(HandlerError::refused(format!("its map {name:?} {why}")));
        if !plain.contains(&map.map_type()) {
            return refused(format!("is of kind {}, expected an array, hash or LRU hash", map.map_type()));
        }
        if map.value_size() > MOST_VALUE {
            return refused(format!("has values of {} bytes, expected at most {MOST_VALUE}", map.value_size()));
        }
        let entry = u64::from(map.key_size()) + u64::from(map.value_size()) + BESIDE_ENTRY;
        let bytes = u64::from(map.max_entries()).saturating_mul(entry);
        if bytes > MOST_MAP_BYTES {
            return refused(format!("has {bytes} bytes, expected at most {MOST_MAP_BYTES}"));
        }
        Ok(())
    }

    fn new(name: &str, map: &aya_obj::Map) -> Result<Self, HandlerError> {
        Self::check(name, map)?;
        // No name of the kernel's view has the dot that those of sections begin with.
        let shown = format!("laxity_{}", name.trim_start_matches('.'));
        let shown: String = shown.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let mut plain = map.clone();
        if let aya_obj::Map::Btf(BtfMap { def, .. }) = &mut plain {
            // The types that clang tells of keys and values are of no use here, and stay out.
            (def.btf_key_type_id, def.btf_value_type_id) = (0, 0);
        }
        let made = match MapData::create(plain, &shown, None) {
            Err(MapError::CreateError { io_error: why, .. }) if why.kind() == io::ErrorKind::InvalidInput => {
                return Err(HandlerError::refused(format!("its map {name:?} is none to the kernel: {why}")));
            }
            made => made.map_err(Error::map)?,
        };
        let fd = made.fd().as_fd().try_clone_to_owned().map_err(Error::kernel("dup"))?;
        let (key_bytes, value_bytes) = (map.key_size() as usize, map.value_size() as usize);
        let made = Self { name: name.to_owned(), fd, key_bytes, value_bytes };
        let is_initial = matches!(map.section_kind(), EbpfSectionKind::Data | EbpfSectionKind::Rodata);
        if is_initial && map.data().len() == value_bytes {
            made.set(&0u32.to_ne_bytes(), map.data()).map_err(|source| Error::Kernel { what: "a map", source })?;
        }
        Ok(made)
    }

    fn raw_fd(&self) -> i32 {
        use std::os::fd::AsRawFd;
        self.fd.as_raw_fd()
    }

    /// The value at `key`, if there is one.
    ///
    /// # Errors
    /// The key has another length than the map's; the kernel refuses.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.check_length("key", key, self.key_bytes)?;
        // The kernel writes whole words.
        let mut value = vec![0; self.value_bytes.next_multiple_of(8)];
        let found = kernel::look_up(self.fd.as_fd(), key, &mut value)?;
        value.truncate(self.value_bytes);
        Ok(found.then_some(value))
    }

    /// Sets the value at `key`.
    ///
    /// # Errors
    /// One of them has another length than the map's; there is no such place in an array, or no room in a hash.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check_length("key", key, self.key_bytes)?;
        self.check_length("value", value, self.value_bytes)?;
        kernel::update(self.fd.as_fd(), key, value)
    }

    fn check_length(&self, what: &str, found: &[u8], expected: usize) -> io::Result<()> {
        if found.len() == expected {
            return Ok(());
        }
        let why = format!("the {what} of map {:?} has {expected} bytes, found {}", self.name, found.len());
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

/// The notices of a handler in the kernel to its application: messages that it was done with, in the order in which they came.
pub struct Notices(RingBuf<MapData>);

/// A message that a handler in the kernel was done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The message's number on its channel, from 0.
    pub sequence: u64,
    /// The time at which its application sent it, to a microsecond; on the sender's clock.
    pub sent: Instant,
    /// The time at which its packet came to the handler.
    pub arrived: Instant,
    /// The message, as the handler left it.
    pub message: Vec<u8>,
}

impl Notices {
    /// The next one, if there is one.
    pub fn poll(&mut self) -> Option<Notice> {
        let item = self.0.next()?;
        // sequence, sent, arrived, bytes, and what is the reply's.
        let word = |at: usize| item.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_ne_bytes);
        let message = item.get(32..).unwrap_or_default().to_vec();
        Some(Notice {
            sequence: word(0).unwrap_or(0),
            sent: Instant::from_nanos(word(8).unwrap_or(0)),
            arrived: Instant::from_nanos(word(16).unwrap_or(0)),
            message,
        })
    }
}

impl AsFd for Notices {
    /// Readable when there is one.
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

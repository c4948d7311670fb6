//! The loader of handlers in the kernel, with objects that may be anything. The fuzz target says what it checks.

use super::differential::replay;
use crate::xdp::program;

#[path = "../../../../../fuzz/src/demux/module.rs"]
#[allow(unreachable_pub, reason = "the fuzz target is a module of another crate, too")]
mod target;

#[test]
fn the_corpus_and_what_is_near_to_it() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "kernel_module", 5_000, target::kernel_module);
}

/// An object of these sections, by name, kind, section that it is linked to, and contents.
fn object_of(sections: &[(&str, u32, u32, Vec<u8>)]) -> Vec<u8> {
    let mut names = b"\0".to_vec();
    let (mut file, mut headers) = (vec![0; 64], vec![0; 64]);
    let all = sections.iter().cloned().chain([(".names", 3, 0, Vec::new())]);
    for (name, kind, link, contents) in all {
        let at = names.len() as u32;
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        let contents = if name == ".names" { names.clone() } else { contents };
        file.resize(file.len().next_multiple_of(8), 0);
        for word in [at, kind] {
            headers.extend_from_slice(&word.to_le_bytes());
        }
        for word in [0, 0, file.len() as u64, contents.len() as u64, u64::from(link), 8, 24] {
            headers.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&contents);
    }
    file.resize(file.len().next_multiple_of(8), 0);
    let (begin, count) = (file.len() as u64, sections.len() as u16 + 2);
    file.extend_from_slice(&headers);
    file[..7].copy_from_slice(b"\x7FELF\x02\x01\x01");
    file[16..24].copy_from_slice(&[1, 0, 247, 0, 1, 0, 0, 0]);
    file[40..48].copy_from_slice(&begin.to_le_bytes());
    let halves: [u16; 6] = [64, 0, 0, 64, count, count - 1];
    file[52..].iter_mut().zip(halves.iter().flat_map(|half| half.to_le_bytes())).for_each(|(to, from)| *to = from);
    file
}

/// An object that says of its types what these words do, with these strings.
fn object_of_types(types: &[u32], strings: &[u8]) -> Vec<u8> {
    let bytes = 4 * types.len() as u32;
    let header = [0x1_EB9F, 24, 0, bytes, bytes, strings.len() as u32];
    let words = header.iter().chain(types).flat_map(|word| word.to_le_bytes());
    object_of(&[(".BTF", 1, 0, words.chain(strings.iter().copied()).collect())])
}

fn refusal(object: &[u8]) -> String {
    let map = std::fs::File::open("/dev/null").unwrap().into();
    program::Module::linked_with(object, &map).unwrap_err().to_string()
}

#[test]
fn what_would_take_its_reader_very_long_or_all_memory_is_refused_at_once() {
    let begin = std::time::Instant::now();
    // The reader has a copy of each name, here 10 GB together, and each is the end of the one before it.
    let mut names = vec![b'n'; 500_000];
    names.push(0);
    let symbols: Vec<u8> =
        (0..20_000u32).flat_map(|number| [number, 0x10, 0, 0, 0, 0]).flat_map(|word| word.to_le_bytes()).collect();
    let why = refusal(&object_of(&[(".strtab", 3, 0, names), (".symtab", 2, 1, symbols)]));
    assert!(why.contains("the names of its symbols have more than 1048576 bytes"), "{why}");

    // Maps, times members of their structure, times bytes of a member's name.
    let structure = |members: usize| [&[0, 4 << 24 | members as u32, 0][..], &[9, 0, 0].repeat(members)].concat();
    let maps =
        |count: usize| [&[7, 14 << 24, 1, 1, 1, 15 << 24 | count as u32, 0][..], &[2, 0, 0].repeat(count)].concat();
    let strings = |bytes: usize| [b"\0.maps\0m\0", &vec![b'n'; bytes][..], b"\0"].concat();
    for (members, count, name, expected) in [
        (20_000, 20_000, 10, "more than 16 maps"),
        (20_000, 16, 20_000, "a member's name that is too long"),
        (20_000, 16, 200, "no function on_message"),
    ] {
        let why = refusal(&object_of_types(&[structure(members), maps(count)].concat(), &strings(name)));
        assert!(why.contains(expected), "{why}");
    }
    // An array of as many bytes as there are not.
    let why = refusal(&object_of_types(&[0, 1 << 24, 8, 64, 0, 3 << 24, 0, 1, 1, u32::MAX], b"\0"));
    assert!(why.contains("an array of 34359738360 bytes"), "{why}");
    assert!(begin.elapsed().as_secs() < 5, "it takes {:?}", begin.elapsed());
}

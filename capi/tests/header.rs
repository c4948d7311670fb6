//! `laxity.h` is what the sources say. `LAXITY_WRITE_HEADER=1 cargo test -p laxity-c --test header` writes it anew.

use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, ExportConfig, Language, RenameRule, Style};

const HEAD: &str = r#"/* Laxity: guaranteed quality of service for stock Linux. The C API; docs/c-api.md is about how to use it.
 *
 * Written by capi/tests/header.rs from capi/src; do not edit.
 *
 * Rules for all functions:
 *
 * Pointers: a pointer to an object is null or was given by this library and not given back. Other pointers are null or point to what their type
 * says, as many as the function says, for as long as the call takes. A null pointer, a text that is not UTF-8 or an unknown constant is an error,
 * LAXITY_BAD_ARGUMENT, and nothing is done; what is said of null here is said where it means something else.
 * Ownership: what a function sets through a pointer to a pointer is the caller's, to be given to the function that frees it, once. It is set to null if the
 * function fails. An argument stays the caller's, and is copied where the library needs it later.
 * Threads: each type says so. Handlers run on a thread of the library.
 * Errors: an int is LAXITY_OK, or says what failed, and laxity_last_error() says why in words. Values above zero are the exit status that a command
 * should end with.
 * Units: times are ns, points in time those of CLOCK_MONOTONIC; sizes are bytes. Processes that fork() use the library in one of both only.
 * Versions: before version 1.0 programs are to be compiled anew with each version of the library.
 */"#;

/// Types that C sees: `HostConfig` is `laxity_host_config` there.
const TYPES: [&str; 21] = [
    "ChannelFigures",
    "Contract",
    "FreeState",
    "Handler",
    "Host",
    "HostConfig",
    "Listener",
    "Overrun",
    "Periodic",
    "Posted",
    "Progress",
    "Receiver",
    "Run",
    "Sender",
    "State",
    "Tick",
    "Upcall",
    "UpcallFigures",
    "UpcallSpec",
    "Upcalls",
    "UpcallsConfig",
];

/// `laxity_` and the words of a type's name.
fn c_name(rust: &str) -> String {
    let mut name = "laxity".to_owned();
    for letter in rust.chars() {
        if letter.is_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

fn header(sources: &Path) -> String {
    let config = Config {
        language: Language::C,
        header: Some(HEAD.to_owned()),
        include_guard: Some("LAXITY_H".to_owned()),
        cpp_compat: true,
        line_length: 120,
        style: Style::Tag,
        documentation_style: DocumentationStyle::C99,
        usize_is_size_t: true,
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
        export: ExportConfig {
            include: ["Progress", "Overrun"].map(str::to_owned).to_vec(),
            rename: TYPES.iter().map(|name| ((*name).to_owned(), c_name(name))).collect(),
            ..ExportConfig::default()
        },
        enumeration: EnumConfig { rename_variants: RenameRule::QualifiedScreamingSnakeCase, ..EnumConfig::default() },
        ..Config::default()
    };
    let files = ["failure", "host", "channel", "run", "upcalls", "periodic"];
    let builder = files.iter().fold(Builder::new().with_config(config), |builder, file| {
        builder.with_src(sources.join(format!("src/{file}.rs")))
    });
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_is_the_one_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (file, expected) = (root.join("laxity.h"), header(root));
    if std::env::var_os("LAXITY_WRITE_HEADER").is_some() {
        std::fs::write(&file, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == expected, "laxity.h is not what the sources say: LAXITY_WRITE_HEADER=1 writes it anew");
}

//! Files in TOML: none makes a reader panic, each mistake has a line of the file, and what is read can be.

use std::collections::BTreeSet;

use laxity::system_file;
use laxity::{Calibration, FileError, platform_file};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;

/// The input is a file; one that is not UTF-8 never comes to be read.
pub fn system_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match system_file::parse(text, "system.toml") {
        Ok(system) => {
            assert_eq!(system.platform.validate(), Ok(()));
            for channel in &system.channels {
                let it = channel.request.contract;
                let (max, min, burst) = (it.max_message(), it.min_message(), it.burst());
                let again = Contract::new(max.into(), min.into(), it.interval(), burst.into(), it.deadline());
                assert_eq!(again, Ok(it), "a contract beyond its limits");
            }
            for upcall in &system.upcalls {
                assert!(!upcall.cost.is_zero() && upcall.cost <= upcall.period);
                assert!(upcall.block >= 1 && upcall.block <= upcall.batch);
            }
            let channels: Vec<&str> = system.channels.iter().map(|channel| channel.name.as_str()).collect();
            let upcalls: Vec<&str> = system.upcalls.iter().map(|upcall| upcall.name.as_str()).collect();
            assert!(!channels.is_empty() || !upcalls.is_empty(), "nothing is asked for");
            for names in [channels, upcalls] {
                assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "two have one name");
            }
        }
        Err(error) => {
            presentable(text, &error);
            // What stands above a mistake moves it down, and changes nothing else; but a byte order mark stands at the beginning.
            if !text.starts_with('\u{feff}') {
                moved_down(text, &error);
            }
        }
    }
    match platform_file::parse(text, "host.toml", Platform::assumed_host()) {
        Ok(platform) => assert_eq!(platform.validate(), Ok(())),
        Err(error) => presentable(text, &error),
    }
    calibration(text);
    // With a digest that is right, what is wrong behind it is found too.
    calibration(&signed(text));
}

/// The mistake of a file with one line more above it.
fn moved_down(text: &str, error: &FileError) {
    let lower = format!("# a line more\n{text}");
    let moved = system_file::parse(&lower, "system.toml").expect_err("the same mistake");
    // A file whose error is in no one place has its error at the top.
    let expected = if error.key.is_empty() && error.line == 1 { 1..=2 } else { error.line + 1..=error.line + 1 };
    assert!(expected.contains(&moved.line), "line {} became {}", error.line, moved.line);
    assert_eq!((&moved.key, &moved.file), (&error.key, &error.file));
}

/// A calibration that is read survives being written.
fn calibration(text: &str) {
    match Calibration::parse(text, "calibration.toml") {
        Ok(calibration) => {
            assert_eq!(calibration.platform.validate(), Ok(()));
            assert_eq!(Calibration::parse(&calibration.to_toml(), "again.toml"), Ok(calibration));
        }
        Err(error) => presentable(text, &error),
    }
}

/// The text with the digest of what stands before it, as the last line of a calibration has it.
fn signed(text: &str) -> String {
    const DIGEST: &str = "fnv1a64 = ";
    let body = &text[..text.rfind(DIGEST).unwrap_or(text.len())];
    let digest = body
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{body}{DIGEST}\"{digest:016x}\"\n")
}

/// One line for a terminal, about a line of the file.
fn presentable(text: &str, error: &FileError) {
    assert!((1..=text.split('\n').count()).contains(&error.line), "line {} of {}", error.line, text.lines().count());
    assert!(!error.problem.is_empty() && error.problem.len() < 4_000, "{} bytes", error.problem.len());
    assert!(!error.to_string().contains(char::is_control), "{:?}", error.to_string());
}

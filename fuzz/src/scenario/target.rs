//! Files of `laxity sim`: none makes the reader panic, each mistake has a line of the file, and what is read refers to what is
//! there and ends when it says.

use laxity_core::units::Instant;

use super::file::{self, Scenario};

/// The input is a file; one that is not UTF-8 never comes to be read. It may name one file of a platform.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let reader = |name: &str| match name {
        "host.toml" => Ok("[platform]\npacket = \"1200B\"\n".to_owned()),
        _ => Err("there is none".to_owned()),
    };
    let read = |text: &str| file::parse(text, "scenario.toml", None, &reader);
    match read(text) {
        Ok(scenario) => consistent(&scenario),
        Err(error) => {
            let lines = text.split('\n').count();
            assert!((1..=lines).contains(&error.line), "line {} of {lines}", error.line);
            assert!(!error.problem.is_empty() && error.problem.len() < 4_000, "{} bytes", error.problem.len());
            assert!(!error.to_string().contains(char::is_control), "{:?}", error.to_string());
            // What stands above a mistake moves it down, and changes nothing else; but a byte order mark stands at the beginning.
            if text.starts_with('\u{feff}') {
                return;
            }
            let moved = read(&format!("# a line more\n{text}")).expect_err("the same mistake");
            let whole = error.line == 1;
            assert!(moved.line == error.line + 1 || (whole && moved.line == 1), "{} became {}", error.line, moved.line);
            assert_eq!(moved.key, error.key);
        }
    }
}

fn consistent(scenario: &Scenario) {
    let (hosts, channels) = (scenario.hosts.len(), scenario.channels.len());
    assert!(Instant::ZERO <= scenario.start && scenario.start < scenario.end);
    assert!(scenario.hosts.iter().all(|host| host.platform.validate().is_ok()));
    for channel in &scenario.channels {
        let mut path: Vec<usize> = channel.hosts().collect();
        assert!(path.iter().all(|&host| host < hosts), "{path:?} of {hosts}");
        path.sort_unstable();
        path.dedup();
        assert_eq!(path.len(), channel.hosts().count(), "no channel passes a host twice");
    }
    assert!(scenario.sources.iter().all(|feed| feed.source.channel.0 < channels));
    assert!(scenario.faults.iter().all(|fault| fault.from <= fault.until && fault.until <= scenario.end));
}

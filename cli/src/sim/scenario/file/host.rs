//! One `[[host]]` table.

use laxity::FileError;
use laxity::platform_file;
use laxity::source::{Entry, Table};
use laxity_core::admission::Settings;
use laxity_core::admission::answer::Rule;
use laxity_core::limits::MAX_CHANNELS;
use laxity_core::platform::Platform;
use laxity_sim::WakeUp;
use toml::de::DeValue;

use super::Reader;

const PLATFORM: &str =
    "\"assumed-host\", \"channels-table-2b\", \"papers-table-2b\", a file such as \"host.toml\", or a table";

/// A host that is asked for.
#[derive(Debug)]
pub(in super::super) struct Host {
    pub(in super::super) name: String,
    pub(in super::super) platform: Platform,
    pub(in super::super) settings: Settings,
    pub(in super::super) wake_up: WakeUp,
    /// Whether it has a clock of its own; else it is the one that the other hosts share.
    pub(in super::super) own_clock: bool,
    /// Arenas, if they are not to be as large as needed.
    pub(in super::super) channels: Option<u32>,
    pub(in super::super) frames: Option<u32>,
}

pub(super) fn read(table: &Table<'_, '_>, reader: Reader<'_>) -> Result<Host, FileError> {
    table.only("name, platform, test, send_early, receive_early, wake_up, clock, channels or frames")?;
    // As live hosts do unless they are told otherwise.
    let default = Settings::work_conserving(Rule::default());
    let rules = [("split", Rule::Split), ("composite", Rule::Composite)];
    let flag = |name, default| table.get(name).map_or(Ok(default), |entry| entry.flag());
    let settings = Settings {
        rule: table.get("test").map_or(Ok(default.rule), |test| test.word(&rules))?,
        send_early: flag("send_early", default.send_early)?,
        receive_early: flag("receive_early", default.receive_early)?,
    };
    let wake_ups = [("worst", WakeUp::Worst), ("uniform", WakeUp::Uniform)];
    let clocks = [("shared", false), ("own", true)];
    let count =
        |name, most| table.get(name).map(|entry: Entry<'_, '_>| entry.within(entry.count()?, 1..=most)).transpose();
    Ok(Host {
        name: table.need("name", "a name in quotes such as \"robot\"")?.name()?,
        platform: table.get("platform").map_or(Ok(Platform::assumed_host()), |entry| platform(&entry, reader))?,
        settings,
        wake_up: table.get("wake_up").map_or(Ok(WakeUp::Worst), |wake_up| wake_up.word(&wake_ups))?,
        own_clock: table.get("clock").map_or(Ok(false), |clock| clock.word(&clocks))?,
        channels: count("channels", MAX_CHANNELS as u32)?,
        frames: count("frames", 1 << 20)?,
    })
}

/// A table, the name of one that is built in, or a file.
fn platform(entry: &Entry<'_, '_>, reader: Reader<'_>) -> Result<Platform, FileError> {
    if let DeValue::Table(_) = entry.value {
        return platform_file::read(entry, Platform::assumed_host());
    }
    match entry.text(PLATFORM)? {
        "assumed-host" => Ok(Platform::assumed_host()),
        "channels-table-2b" => Ok(Platform::channels_table_2b()),
        "papers-table-2b" => Ok(Platform::papers_table_2b()),
        file if file.ends_with(".toml") => {
            let cannot = |problem| format!("host.platform: {} cannot be read: {problem}", file.escape_debug());
            let text = reader(file).map_err(|problem| entry.error(cannot(problem)))?;
            platform_file::parse(&text, file, Platform::assumed_host())
        }
        _ => Err(entry.wrong_kind(PLATFORM)),
    }
}

//! One `[[host]]` table.

use laxity::FileError;
use laxity::platform_file;
use laxity::source::{Value, in_order};
use laxity_core::admission::Settings;
use laxity_core::admission::answer::Rule;
use laxity_core::limits::MAX_CHANNELS;
use laxity_core::platform::Platform;
use laxity_sim::WakeUp;
use toml::de::DeValue;

use super::{Entry, Reader};

const KEYS: &str = "name, platform, test, send_early, receive_early, wake_up, clock, channels or frames";
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

pub(super) fn read(entry: &Entry<'_, '_>, reader: Reader<'_>) -> Result<Host, FileError> {
    let mut name = None;
    let mut host = Host {
        name: String::new(),
        platform: Platform::assumed_host(),
        // As live hosts do unless they are told otherwise.
        settings: Settings { receive_early: true, ..Settings::default() },
        wake_up: WakeUp::Worst,
        own_clock: false,
        channels: None,
        frames: None,
    };
    for (key, value) in in_order(entry.table) {
        let full = entry.key(key.get_ref());
        let count = |most| entry.count_within(&full, value, 1, most);
        match key.get_ref().as_ref() {
            "name" => name = Some(entry.name(&full, value)?),
            "platform" => host.platform = platform(entry, key.span().start, value, reader)?,
            "test" => {
                host.settings.rule =
                    [Rule::Split, Rule::Composite][entry.source.word(&full, value, &["split", "composite"])?];
            }
            "send_early" => host.settings.send_early = entry.flag(&full, value)?,
            "receive_early" => host.settings.receive_early = entry.flag(&full, value)?,
            "wake_up" => {
                host.wake_up =
                    [WakeUp::Worst, WakeUp::Uniform][entry.source.word(&full, value, &["worst", "uniform"])?];
            }
            "clock" => host.own_clock = entry.source.word(&full, value, &["shared", "own"])? == 1,
            "channels" => host.channels = Some(count(MAX_CHANNELS as u32)?),
            "frames" => host.frames = Some(count(1 << 20)?),
            other => return Err(entry.source.unknown(key.span().start, "host.", other, KEYS)),
        }
    }
    host.name = entry.needed(name, "name", "a name in quotes such as \"robot\"")?;
    Ok(host)
}

/// A table, the name of one that is built in, or a file.
fn platform(entry: &Entry<'_, '_>, at: usize, value: Value<'_, '_>, reader: Reader<'_>) -> Result<Platform, FileError> {
    let name = match value.get_ref() {
        DeValue::Table(_) => return platform_file::read(entry.source, at, value, Platform::assumed_host()),
        _ => entry.source.text("host.platform", value, PLATFORM)?,
    };
    match name {
        "assumed-host" => Ok(Platform::assumed_host()),
        "channels-table-2b" => Ok(Platform::channels_table_2b()),
        "papers-table-2b" => Ok(Platform::papers_table_2b()),
        file if file.ends_with(".toml") => {
            let text = reader(file).map_err(|problem| {
                let problem = format!("host.platform: {} cannot be read: {problem}", file.escape_debug());
                entry.source.error(value.span().start, "host.platform", problem)
            })?;
            platform_file::parse(&text, file, Platform::assumed_host())
        }
        _ => Err(entry.source.wrong_kind("host.platform", value, PLATFORM)),
    }
}

//! Processes that take the processor.

use std::process::{Child, Command, Stdio};

use laxity_core::units::Duration;

use crate::error::Error;

/// The number of processor-bound processes.
pub const HOGS: usize = 4;

/// Processor-bound processes of normal priority. Dropping them ends them.
///
/// Each ends by itself after its limit, as soon as this process is gone, and after `limit` of processor time at the latest.
pub struct Hogs(Vec<Child>);

/// Counts. Uses nothing but the shell's own commands: no process is started, so it is one process that only computes. Looks at
/// the clock, which is that of /proc/uptime and never set back, and at whether we live, about every 100 ms. Our number is given
/// to it: if we were killed before it began, `$PPID` would be another's.
const HOG: &str = r#"
    ulimit -t "$1"
    read -r up rest < /proc/uptime
    end=$((${up%.*} + $1))
    while [ "${up%.*}" -lt "$end" ] && kill -0 "$2" 2> /dev/null; do
        i=0
        while [ "$i" -lt 30000 ]; do i=$((i + 1)); done
        read -r up rest < /proc/uptime
    done
"#;

impl Hogs {
    /// Starts `count` of them for at most `limit`, rounded up to whole seconds, and at most an hour.
    ///
    /// # Errors
    /// If the system starts no more processes; those that were started are ended.
    pub fn start(count: usize, limit: Duration) -> Result<Self, Error> {
        let seconds = limit.div_ceil(Duration::from_secs(1)).clamp(1, 3600).to_string();
        let mut hogs = Self(Vec::with_capacity(count));
        for _ in 0..count {
            let child = Command::new("sh")
                .args(["-c", HOG, "laxity-hog", &seconds, &std::process::id().to_string()])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(Error::system("starting a processor-bound process (sh)"))?;
            hogs.0.push(child);
        }
        Ok(hogs)
    }

    /// The numbers of the processes.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(Child::id)
    }

    /// The number of those that have not ended.
    pub fn running(&mut self) -> usize {
        self.0.iter_mut().filter_map(|child| child.try_wait().ok()).filter(Option::is_none).count()
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

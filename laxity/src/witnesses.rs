//! The witnesses of stolen time on this host: counters of the kernel and the hypervisor that show when the platform took the processor.
//!
//! Time that no witness explains counts as Laxity's fault (docs/adr/0008-attribution-by-evidence.md). A missing witness is reported
//! before a message is late: by [`HostStatus::notes`](crate::HostStatus::notes), and by `laxity doctor`.
//!
//! ```
//! for missing in laxity::witnesses::missing(std::path::Path::new("/")) {
//!     println!("{missing}");
//! }
//! ```

use std::fs;
use std::path::Path;

/// Reads the clock ticks that the hypervisor has taken from all processors together since boot, as it reports them. `None` if the
/// kernel does not report them.
///
/// The files are read below `root`, which is `/` for this host.
pub fn steal(root: &Path) -> Option<u64> {
    let stat = fs::read_to_string(root.join("proc/stat")).ok()?;
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    all.split_whitespace().nth(7)?.parse().ok()
}

/// True if the processor or the kernel reports that this host is a virtual machine. The files are read below `root`: `/`.
pub fn is_virtual(root: &Path) -> bool {
    let about = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = about.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
        || root.join("sys/hypervisor/type").exists()
}

/// Lists the witnesses that this host lacks, each with the causes that cannot be distinguished without it. Empty if none is missing. The
/// files are read below `root`: `/`.
pub fn missing(root: &Path) -> Vec<String> {
    let mut missing = Vec::new();
    let schedstat = fs::read_to_string(root.join("proc/thread-self/schedstat")).unwrap_or_default();
    if schedstat.split_whitespace().nth(1).and_then(|delay| delay.parse::<u64>().ok()).is_none() {
        let told = "the kernel does not count how long a thread waits for a processor (schedstat): where the executive has also waited by itself, \
             the platform's time is called laxity";
        missing.push(told.to_owned());
    }
    if is_virtual(root) && steal(root).unwrap_or(0) == 0 {
        let told = "this is a virtual machine whose hypervisor has never accounted for time that it takes (steal in /proc/stat): such time is \
             called laxity";
        missing.push(told.to_owned());
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_names_the_witnesses_that_it_lacks() {
        let root = std::env::temp_dir().join(format!("laxity-witnesses-{}", std::process::id()));
        let file = |name: &str, text: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let count = || missing(&root).len();
        assert_eq!((count(), steal(&root), is_virtual(&root)), (1, None, false));
        file("proc/thread-self/schedstat", "12 0 1\n");
        assert_eq!(count(), 0);
        file("proc/cpuinfo", "model name : x\nflags\t\t: fpu hypervisor lm\n");
        assert_eq!((count(), is_virtual(&root)), (1, true));
        file("proc/stat", "cpu  1 2 3 4 5 6 7 42 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n");
        assert_eq!((count(), steal(&root)), (0, Some(42)));
        file("proc/cpuinfo", "model name : hypervisor\nflags : fpu lm\n");
        assert!(!is_virtual(&root));
        fs::remove_dir_all(&root).unwrap();
    }
}

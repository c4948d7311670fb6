//! The identity of a process across boots and reused process ids: the boot id, and the start time of the process.
//!
//! A record that stores both can be checked later: if either differs, the process that wrote it is gone.
//!
//! ```
//! use laxity::process::{boot, start_time};
//!
//! let (before, own) = (boot().unwrap(), start_time(std::process::id()));
//! assert_eq!((boot().unwrap(), start_time(std::process::id())), (before, own));
//! ```

use std::fs;
use std::io;

/// Reads the identity of this boot. A record with another identity belongs to processes that are gone.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Reads the start time of process `pid`, in the kernel's clock ticks since boot; `None` if there is no such process, or it is a zombie.
pub fn start_time(pid: u32) -> Option<u64> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Field 22 of `/proc/PID/stat` (proc(5)). The name in field 2 may hold blanks and brackets, so the search begins after its last
/// bracket.
fn parse(stat: &str) -> Option<u64> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    // Field 20 after field 3, then field 22.
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    // A first thread that has ended while others go on is a zombie, too.
    let is_dead = matches!(state, "Z" | "X" | "x") && threads <= 1;
    (!is_dead).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let stat = |name: &str, state: &str, threads: u32| {
            format!("7 ({name}) {state} 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 98765 1000 10 ...")
        };
        assert_eq!(parse(&stat("laxity", "S", 3)), Some(98765));
        assert_eq!(parse(&stat("a) R 1 (b", "R", 1)), Some(98765));
        assert_eq!(parse(&stat("dead", "Z", 1)), None);
        assert_eq!(parse(&stat("headless", "Z", 2)), Some(98765));
        assert_eq!(parse("7 (short) S 1"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn this_process_lives_and_number_zero_does_not() {
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(start_time(0), None);
        assert!(!boot().unwrap().is_empty());
    }
}

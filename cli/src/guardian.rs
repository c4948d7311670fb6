//! A process that outlives the one that changes the machine: it waits until that is gone, however that came, and undoes what is
//! left in the [`laxity::ledger`].
//!
//! It has a session of its own, so that no terminal takes it along. It notices the end of the other process by the end of a
//! pipe. After an orderly end it finds nothing to do, or is told so.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use laxity::ledger::{JournalReport, Ledger};

use crate::failure::Failure;
use crate::file::failed;

/// What it says when it is ready.
const READY: &[u8] = b"ready\n";
/// What it is told when all is undone.
const DONE: &[u8] = b"done\n";
/// How long the locks of a process that is killed may be held after its pipe has ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// A guardian of this process. Drop it when all is undone: it is told so, and its end waited for.
pub(crate) struct Guardian(Child);

impl Guardian {
    /// Starts one for the journals in `directory`, and waits until it is ready.
    pub(crate) fn start(directory: &Path) -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("laxity")
            .args(["doctor", "--guardian"])
            .arg(directory)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = vec![0; READY.len()];
        let answer = child.stdout.take().map_or(Ok(()), |mut answer| answer.read_exact(&mut said));
        if answer.is_ok() && said == READY {
            return Ok(Self(child));
        }
        let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        Err(io::Error::other(format!("the guardian is not ready ({status})")))
    }
}

/// The guardian of a process that changes something for as long as it runs.
static FOR_LIFE: OnceLock<Guardian> = OnceLock::new();

/// Undoes what processes left that were killed, and says so. With `for_life` this process has a guardian from here on, until it ends.
pub(crate) fn look_after(for_life: bool) -> Result<(), Failure> {
    let ledger = match Ledger::of_this_host() {
        // A process that changes nothing needs no ledger.
        Err(_) if !for_life => return Ok(()),
        ledger => ledger.map_err(laxity::Error::from)?,
    };
    say(&ledger.recover());
    if for_life {
        let guardian = Guardian::start(ledger.directory()).map_err(failed(ledger.directory()))?;
        let _ = FOR_LIFE.set(guardian);
    }
    Ok(())
}

/// Says what became of the changes that other processes left.
pub(crate) fn say(found: &[JournalReport]) {
    for line in found.iter().flat_map(JournalReport::lines) {
        eprintln!("laxity: {line}");
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        if let Some(pipe) = &mut self.0.stdin {
            let _ = pipe.write_all(DONE);
        }
        let _ = self.0.wait();
    }
}

/// The guardian itself. Its status is always 0: no process waits for another answer.
pub(crate) fn run(directory: &Path) -> Result<u8, Failure> {
    let failed = |what| move |source| Failure::Laxity(laxity::Error::System { what, source });
    let guarded = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    // From here on a terminal, or a group of processes, that ends does not end it. It fails for a leader, which is as good.
    let _ = rustix::process::setsid();
    ctrlc::set_handler(|| {}).map_err(io::Error::other).map_err(failed("ignoring signals"))?;
    // A process that is killed already hears nothing; but its journal is there.
    let mut out = io::stdout();
    let _ = out.write_all(READY).and_then(|()| out.flush());
    let mut told = Vec::new();
    let _ = io::stdin().take(DONE.len() as u64).read_to_end(&mut told);
    if told != DONE {
        say(&Ledger::at(directory, Path::new("/")).recover_after(guarded, PATIENCE));
    }
    Ok(0)
}

//! A process that outlives the doctor: it waits until the doctor is gone, however that came, and undoes what is left.
//!
//! It has a session of its own, so that no terminal takes it along, and notices the doctor's end by the end of a pipe. After an
//! orderly end there is no journal any more, and it just ends.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::failure::Failure;

use super::super::root::Root;
use super::journal::Place;
use super::undo_journal;

/// What it says when it is ready.
const READY: &[u8] = b"ready\n";
/// How long it waits for others who may be undoing the same.
const PATIENCE: Duration = Duration::from_secs(5);

/// The doctor's side: starts a guardian and waits until it is ready. To wait for its end lets it end.
pub(super) fn start(place: &Place) -> io::Result<Child> {
    let mut child = Command::new("/proc/self/exe")
        .arg0("laxity")
        .args(["doctor", "--guardian"])
        .arg(place.directory())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = vec![0; READY.len()];
    let answer = child.stdout.take().map_or(Ok(()), |mut answer| answer.read_exact(&mut said));
    if answer.is_ok() && said == READY {
        return Ok(child);
    }
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    Err(io::Error::other(format!("the guardian is not ready ({status})")))
}

/// The guardian itself. Always 0: nobody waits for another answer.
pub(crate) fn guard(root: &Root, directory: &Path) -> Result<u8, Failure> {
    let failed = |what| move |source| Failure::Laxity(laxity::Error::System { what, source });
    // From here on a terminal, or a group of processes, that ends does not end it. Already a leader: so be it.
    let _ = rustix::process::setsid();
    ctrlc::set_handler(|| {}).map_err(io::Error::other).map_err(failed("ignoring signals"))?;
    // A doctor that is killed already hears nothing; but its journal is there.
    let mut out = io::stdout();
    let _ = out.write_all(READY).and_then(|()| out.flush());
    // Nobody ever writes: this ends with the last process that holds the other end, the doctor.
    let mut nothing = [0; 64];
    while let Ok(1..) = io::stdin().read(&mut nothing) {}
    let place = Place::at(directory);
    if !place.file().exists() {
        return Ok(0);
    }
    // With the lock, whatever journal is there is of somebody who is gone.
    match place.lock(PATIENCE) {
        Ok(Some(_locked)) => {
            for line in undo_journal(root, &place) {
                eprintln!("laxity: the doctor was killed; {line}");
            }
        }
        // Somebody has it who undoes, or has undone, the same.
        Ok(None) => {}
        Err(error) => eprintln!("laxity: the doctor was killed, and its changes cannot be undone: {error}"),
    }
    Ok(0)
}

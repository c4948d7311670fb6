//! An executive in a process of its own: `laxity serve` on one of the hosts.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};

use super::ThreadSetup;
use crate::conditions::stay_on;
use crate::error::Error;
use crate::hosts::Hosts;
use crate::sys::ends_with_its_thread;

/// The line of the command once processes can attach; notes come before it.
const SERVES: &str = "serving at ";

/// A process that serves, until this is dropped or this process ends, however it does.
pub(super) struct ServerProcess {
    child: Child,
    /// Read to its end, so that the process can say its last words.
    said: BufReader<ChildStderr>,
    /// The thread that has started it, with which it ends, and what ends that one.
    owner: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl ServerProcess {
    /// Starts it on a host of the lab, with costs that are assumed, its threads on the processor of that end; waits until it serves.
    pub(super) fn start(
        lab: &Hosts,
        host: usize,
        manner: ThreadSetup,
        laxity: &Path,
        socket: &Path,
        address: SocketAddr,
        over_xdp: bool,
    ) -> Result<Self, Error> {
        let mut command = Command::new(laxity);
        command.args(["serve", "--calibration", "none", "--claims", "off"]);
        command.args(["--link", if over_xdp { "xdp" } else { "udp" }, "--bind"]).arg(address.to_string());
        command.arg("--socket").arg(socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        ends_with_its_thread(&mut command);
        let namespace = lab.namespaces[host].try_clone().map_err(Error::system("a network namespace"))?;
        let (started, starts) = mpsc::channel();
        let (owner, ends) = mpsc::channel::<()>();
        let owns = thread::spawn(move || {
            let mut start = || {
                namespace.enter()?;
                stay_on(manner.processor);
                command.spawn()
            };
            let _ = started.send(start());
            // Until the other end is gone.
            let _ = ends.recv();
        });
        let child = starts.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::BrokenPipe.into()));
        let mut child = child.map_err(Error::system("laxity serve"))?;
        let said = child.stderr.take().ok_or_else(|| std::io::ErrorKind::BrokenPipe.into());
        let said = BufReader::new(said.map_err(Error::system("what laxity serve says"))?);
        let mut served = Self { child, said, owner: Some((owner, owns)) };
        // Its remarks on itself.
        let (mut notes, mut line) = (Vec::new(), String::new());
        while served.said.read_line(&mut line).map_err(Error::system("what laxity serve says"))? > 0 {
            if line.starts_with(SERVES) {
                return Ok(served);
            }
            notes.push(line.trim_start_matches("note: ").trim_end().to_owned());
            line.clear();
        }
        let status = served.child.wait().map_err(Error::system("laxity serve"))?.code();
        let text = format!("laxity serve: {}", notes.join("; "));
        Err(Error::Other { status: status.and_then(|status| u8::try_from(status).ok()).unwrap_or(1), text })
    }

    /// Its process.
    pub(super) fn process(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_pid()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.said.read_to_end(&mut Vec::new());
            let _ = self.child.wait();
        }
        if let Some((owner, owns)) = self.owner.take() {
            drop(owner);
            let _ = owns.join();
        }
    }
}

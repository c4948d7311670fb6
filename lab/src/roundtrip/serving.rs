//! An executive in a process of its own: `laxity serve` on one of the hosts.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use laxity_core::units::Duration;
use laxity_link::sys;
use rustix::process::{Pid, Signal, kill_process};

use super::Manner;
use crate::error::Error;
use crate::hosts::Hosts;

/// What the command says once processes can attach; notes come before it.
const SERVES: &str = "serving at ";

/// A process that serves, until this is dropped.
#[derive(Debug)]
pub(super) struct Served {
    child: Child,
    /// What it said of itself.
    pub(super) notes: Vec<String>,
}

/// What it is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'a> {
    /// The command.
    pub(super) laxity: &'a Path,
    pub(super) socket: &'a Path,
    pub(super) address: SocketAddr,
    pub(super) over_xdp: bool,
    pub(super) spin: Duration,
}

impl Served {
    /// Starts it on a host of the lab, with costs that are assumed, its threads on the processor of that end; waits until it serves.
    pub(super) fn start(lab: &Hosts, host: usize, manner: Manner, told: Told<'_>) -> Result<Self, Error> {
        let Told { laxity, socket, address, over_xdp, spin } = told;
        let mut command = Command::new(laxity);
        command.args(["serve", "--calibration", "none", "--claims", "off"]);
        command.args(["--link", if over_xdp { "xdp" } else { "udp" }, "--bind"]).arg(address.to_string());
        command.arg("--spin").arg(format!("{}ns", spin.as_nanos())).arg("--socket").arg(socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = lab.on(host, || {
            if let Some(processor) = manner.processor {
                let _ = sys::pin(processor);
            }
            command.spawn()
        });
        let child = child.map_err(Error::system("laxity serve"))?;
        let mut served = Self { child, notes: Vec::new() };
        for line in served.child.stderr.take().into_iter().flat_map(|said| BufReader::new(said).lines()) {
            let line = line.map_err(Error::system("what laxity serve says"))?;
            if line.starts_with(SERVES) {
                return Ok(served);
            }
            served.notes.push(line.trim_start_matches("note: ").to_owned());
        }
        let status = served.child.wait().map_err(Error::system("laxity serve"))?.code();
        let text = format!("laxity serve: {}", served.notes.join("; "));
        Err(Error::Lab { status: status.and_then(|status| u8::try_from(status).ok()).unwrap_or(1), text })
    }

    /// Its process.
    pub(super) fn process(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_pid()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

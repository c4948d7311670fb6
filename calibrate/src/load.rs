//! The declared background load, which runs beside a calibration so that the calibration sees a busy host.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration as StdDuration;

use crate::link::loopback_pair;
use laxity::calibration::Load;
use laxity_lab::Error;

/// The memory that a hog walks through: more than a second-level cache.
const WALK_BYTES: usize = 8 << 20;
/// A cache line.
const LINE: usize = 64;
/// The interval at which the flood sends the packets that are due.
const TICK: StdDuration = StdDuration::from_millis(1);
/// Bytes of an unknown peer's packet.
const FLOOD_BYTES: usize = 200;

/// The load, while it runs. Dropping it ends it.
pub(super) struct RunningLoad {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl RunningLoad {
    /// Starts it, at ordinary priority.
    ///
    /// # Errors
    /// The system has no thread or no socket left.
    pub(super) fn start(load: Load) -> Result<Self, Error> {
        let mut running = Self { stop: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        for number in 0..load.hogs {
            running.spawn(format!("load-hog-{number}"), hog)?;
        }
        if load.flood > 0 {
            let system = Error::system("opening a socket");
            let (from, to) = loopback_pair().map_err(system)?;
            from.set_nonblocking(true).map_err(system)?;
            to.set_read_timeout(Some(TICK)).map_err(system)?;
            let each_tick = load.flood.div_ceil(1000);
            running.spawn("load-flood".to_owned(), move |stop| flood(&from, each_tick, stop))?;
            running.spawn("load-drain".to_owned(), move |stop| drain(&to, stop))?;
        }
        Ok(running)
    }

    fn spawn(&mut self, name: String, work: impl FnOnce(&AtomicBool) + Send + 'static) -> Result<(), Error> {
        let stop = Arc::clone(&self.stop);
        let thread = thread::Builder::new().name(name).spawn(move || work(&stop));
        self.threads.push(thread.map_err(Error::system("starting a thread"))?);
        Ok(())
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Computes, and walks through memory.
fn hog(stop: &AtomicBool) {
    let mut memory = vec![0u8; WALK_BYTES];
    let mut number = 1u64;
    while !stop.load(Ordering::Relaxed) {
        for line in memory.chunks_mut(LINE) {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            line[0] = line[0].wrapping_add((number >> 56) as u8);
        }
    }
    std::hint::black_box(memory);
}

fn flood(socket: &UdpSocket, each_tick: u64, stop: &AtomicBool) {
    let packet = [0x5a; FLOOD_BYTES];
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..each_tick {
            // A full buffer drops: it is a flood.
            let _ = socket.send(&packet);
        }
        thread::sleep(TICK);
    }
}

fn drain(socket: &UdpSocket, stop: &AtomicBool) {
    let mut packet = [0; FLOOD_BYTES];
    while !stop.load(Ordering::Relaxed) {
        let _ = socket.recv(&mut packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends() {
        let running = RunningLoad::start(Load { hogs: 1, flood: 1000 }).unwrap();
        assert_eq!(running.threads.len(), 3);
        drop(running);
    }
}

//! The packets that both hosts receive, by stream: kernel threads of their own process the packets of each `[rio §2.0.1]`.

use std::io;

use laxity_link::sys;
use laxity_link::xdp::steer::{Flow, InterfaceStreams, PolicingRate, Protocol};

use crate::hosts::{Hosts, InterfaceEnd};

/// A connection over TCP to a port of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) name: &'static str,
    pub(super) port: u16,
    /// Of the kernel's threads that process its packets; `None` for ordinary ones.
    pub(super) priority: Option<u8>,
    /// Of what the server receives.
    pub(super) policing: Option<PolicingRate>,
}

/// Both ends steer what they receive until this is dropped.
pub(super) struct SteeredEnds {
    server: InterfaceStreams,
    /// The streams, and their places at the server.
    streams: Vec<(Stream, usize)>,
    _client: InterfaceStreams,
}

impl SteeredEnds {
    /// Each host's threads stay on its processor.
    ///
    /// # Errors
    /// `PermissionDenied`; the kernel cannot steer, or a thread does not get its priority.
    pub(super) fn open(
        lab: &Hosts,
        places: [InterfaceEnd; 2],
        processors: [Option<usize>; 2],
        streams: &[Stream],
    ) -> io::Result<Self> {
        let end = |host: usize| {
            let processor = processors[host].unwrap_or(0);
            lab.on(host, || {
                let mut steering = InterfaceStreams::open(places[host].interface).map_err(io::Error::other)?;
                let mut of_streams = Vec::new();
                for stream in streams {
                    let place =
                        steering.add(&stream.flow(host), stream.policing.filter(|_| host == 1).as_ref(), processor)?;
                    stream.rank(steering.thread(place))?;
                    of_streams.push(place);
                }
                Ok((steering, of_streams))
            })
        };
        let (client, _) = end(0)?;
        let (server, places) = end(1)?;
        let streams = streams.iter().copied().zip(places).collect();
        Ok(Self { server, streams, _client: client })
    }

    /// The number of packets of each stream that the server's kernel threads have processed, and of those beyond its policing.
    pub(super) fn counted(&self) -> Vec<String> {
        let Self { server, streams, .. } = self;
        let told = |(stream, place): &(Stream, usize)| {
            let (all, beyond) = server.counted(*place);
            let beyond = stream.policing.map_or_else(String::new, |PolicingRate { packets, period, .. }| {
                format!(", {beyond} of them beyond {packets} in {period}")
            });
            format!("{}: {all} packets by the server's kernel thread{beyond}", stream.name)
        };
        streams.iter().map(told).collect()
    }
}

impl Stream {
    /// The flow of it that a host receives.
    fn flow(&self, host: usize) -> Flow {
        let port = Some(self.port);
        let flow = Flow { protocol: Some(Protocol::Tcp), ..Flow::default() };
        if host == 0 { Flow { remote_port: port, ..flow } } else { Flow { local_port: port, ..flow } }
    }

    /// Gives a kernel thread the priority of the stream. One that does not get it is no thread of this stream; an ordinary one needs nothing.
    fn rank(&self, thread: Option<i32>) -> io::Result<()> {
        match (thread, self.priority) {
            (Some(thread), Some(priority)) => sys::real_time_of(thread, priority),
            (Some(thread), None) => sys::ordinary(thread),
            (None, None) => Ok(()),
            (None, Some(_)) => {
                let problem = format!("the kernel thread of {} is not known, so it has no priority", self.name);
                Err(io::Error::new(io::ErrorKind::Unsupported, problem))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_steers_what_it_receives() {
        let stream = Stream { name: "echo", port: 7, priority: None, policing: None };
        let [client, server] = [0, 1].map(|host| stream.flow(host));
        assert_eq!((client.local_port, client.remote_port), (None, Some(7)));
        assert!(stream.rank(None).is_ok(), "the kernel's threads are ordinary ones by themselves");
        assert!(Stream { priority: Some(61), ..stream }.rank(None).is_err());
        assert_eq!((server.local_port, server.remote_port), (Some(7), None));
    }
}

//! The place of a host's executive: this process, or another one to which the host attaches; and the change when that process
//! ends.
//!
//! The paper has a library in each process, or a server for all of them [nps §3]. Here the library of one process serves the
//! others, and any of them may replace it.

use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_link::sys;

use crate::attach::protocol::EncodedHost;
use crate::attached::ExecutiveConnection;
use crate::claims::ClaimDirectory;
use crate::config::HostConfig;
use crate::error::Error;
use crate::guard::Coverage;
use crate::host::{Attachment, Host, HostExecutive, own_name};
use crate::placement::Placement;
use crate::realtime::Scheduling;
use crate::serving::access::Access;
use crate::serving::{ServeConfig, claim, default_socket, host_socket, socket_in};

/// The limit until another process serves that is about to, or has given up its socket.
const TO_SETTLE: StdDuration = StdDuration::from_secs(5);
/// The interval of looks in that time.
const LOOK: StdDuration = StdDuration::from_millis(10);

impl Host {
    /// Attaches to the executive that serves at the configured socket.
    pub(crate) fn attach(config: &HostConfig) -> Result<Self, Error> {
        let command = config.advanced.command.clone().unwrap_or_else(own_name);
        let attach = |socket: &Path| ExecutiveConnection::attach(socket, command.clone());
        // The host's own server, if this user may use it, comes before those of the user's processes.
        let is_default = config.server.is_none() && !matches!(config.advanced.claims, Some(ClaimDirectory::At(_)));
        let host = host_socket().filter(|_| is_default).map(|socket| attach(&socket));
        let (attached, told) = host
            .filter(|host| !host.as_ref().is_err_and(|error| error.is_unserved() || error.exit_status() == 4))
            .unwrap_or_else(|| attach(&config.place()))?;
        let EncodedHost { pid, address, stays, has_key, status, .. } = told;
        // Otherwise this process could not take the place of that one.
        let follows = config.placement == Placement::Auto && !stays && !has_key && status.link == config.link.kind();
        let executive = HostExecutive::Remote(attached, Box::new(Attachment { config: config.clone(), follows }));
        // If it is of no use it is dropped, and leaves.
        let host = Self { executive, address, status, has_key: false, channels: Default::default() };
        if config.key.is_some() {
            return Err(Error::KeyElsewhere);
        }
        if config.guard.is_some() && Coverage::of(&host.status.costs.platform) == Coverage::Laxity {
            return Err(Error::GuardElsewhere { pid });
        }
        let is_real_time = matches!(host.status.scheduling, Scheduling::Fifo(_));
        if let Some(priority) = config.advanced.fifo_priority.filter(|_| !is_real_time)
            && may_be_real_time(priority)
        {
            return Err(Error::ServedBelow { pid });
        }
        Ok(host)
    }

    /// Attaches to the executive that serves at the configured socket; if there is none, becomes it.
    pub(crate) fn attach_or_serve(config: HostConfig) -> Result<Self, Error> {
        let place = config.place();
        let until = StdInstant::now() + TO_SETTLE;
        loop {
            match Self::attach(&config) {
                Err(error) if error.is_unserved() => {}
                attached => return attached,
            }
            if config.server.is_none() {
                // The directory in which it meets others exists.
                config.advanced.claims.as_ref().map(ClaimDirectory::directory).transpose()?;
            }
            // Before the executive is made, so that of several processes that begin at once only one makes it.
            match claim(&place) {
                Ok(place) => {
                    let mut host = Self::start_own(config)?;
                    let mut serving = host.serve_at(place, Access::default(), ServeConfig::default().memory, false)?;
                    if let HostExecutive::Local(here) = &mut host.executive {
                        here.end_service = Some(Box::new(move || serving.end()));
                    }
                    return Ok(host);
                }
                // The other process is about to serve, or to end.
                Err(Error::Serves { .. }) if StdInstant::now() < until => std::thread::sleep(LOOK),
                Err(error @ Error::Serves { .. }) => return Err(error),
                Err(error) => {
                    let mut host = Self::start_own(config)?;
                    host.status.notes.push(format!("other processes cannot attach to this one: {error}"));
                    return Ok(host);
                }
            }
        }
    }

    /// True if the executive is in another process, to which this host is attached.
    pub fn is_attached(&self) -> bool {
        self.attached().is_some()
    }

    /// The process id of the executive: this process, or the one to which the host is attached. Grants hold as long as it lives.
    pub fn executive(&self) -> u32 {
        self.attached().map_or_else(std::process::id, |attached| attached.pid)
    }

    /// The problem of the link's guard ([`GuardConfig`](crate::GuardConfig)), as of a second ago at most. `None` if there is no problem or no guard,
    /// or if the executive is in another process.
    pub fn guard_problem(&self) -> Option<String> {
        self.local().ok()?.guard.as_ref()?.problem()
    }

    /// Finds a new executive after the process of the old one has ended ([`Error::is_of_lost_executive`]). True if the executive
    /// is now in this process.
    ///
    /// The host attaches to the process that serves now. If none does and the placement is [`Placement::Auto`], it becomes the
    /// executive and serves the others, at the address that the old one had. It does not replace an executive that was started to
    /// serve ([`Host::serve`]), had a key, or had another kind of link: it waits for the next one instead.
    ///
    /// The call takes up to five seconds. All channels and listeners of the old executive have ended and must be opened again. A
    /// host whose executive still runs stays as it is.
    ///
    /// # Errors
    /// As [`Host::start`]. The call can be repeated.
    pub fn reattach(&mut self) -> Result<bool, Error> {
        let HostExecutive::Remote(attached, attachment) = &self.executive else { return Ok(true) };
        if attached.is_taking() {
            return Ok(false);
        }
        let Attachment { mut config, follows } = Attachment::clone(attachment);
        (config.bind, config.advanced.any_port) = (self.address(), false);
        let (old, until) = (self.executive(), StdInstant::now() + TO_SETTLE);
        // The claims of the old executive may last a moment longer.
        let is_claimed = |error: &Error| matches!(error, Error::Claimed { holder, .. } if holder.pid == old);
        let channels = std::sync::Arc::clone(&self.channels);
        *self = loop {
            let again = if follows { Self::attach_or_serve(config.clone()) } else { Self::attach(&config) };
            match again {
                // A killed process may not have released its port yet; a server may be starting again.
                Err(error)
                    if StdInstant::now() < until
                        && (error.is_unserved() || error.address_in_use().is_some() || is_claimed(&error)) =>
                {
                    std::thread::sleep(LOOK);
                }
                again => break again?,
            }
        };
        // They have ended, and are still held.
        self.channels = channels;
        Ok(self.attached().is_none())
    }
}

impl HostConfig {
    /// The path of the socket at which this host attaches, or at which other processes attach to it: [`HostConfig::server`], or the
    /// one for the directory of its claims.
    pub fn place(&self) -> PathBuf {
        match (&self.server, &self.advanced.claims) {
            (Some(socket), _) => socket.clone(),
            (None, Some(ClaimDirectory::At(directory))) => socket_in(directory),
            (None, _) => default_socket(),
        }
    }
}

/// True if this process may have that SCHED_FIFO priority: a thread tries it.
fn may_be_real_time(priority: u8) -> bool {
    let tries = std::thread::spawn(move || sys::real_time(priority).is_ok());
    tries.join().unwrap_or(false)
}

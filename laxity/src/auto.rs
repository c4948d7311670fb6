//! Where a host's executive is: in this process, or in another one to which it attaches; and what is done when that one ends.
//!
//! The paper's stack is a library in each process or a server for all of them (*nps*, §3). Here it is the library of one process that serves the
//! others, and any of them may follow it.

use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_link::sys;

use crate::attached::{Attached, HostTold};
use crate::claims::ClaimDirectory;
use crate::error::Error;
use crate::guard::Covers;
use crate::host::{Attachment, Host, HostConfig, own_name};
use crate::placement::Placement;
use crate::realtime::Scheduling;
use crate::serving::access::Access;
use crate::serving::{ServeConfig, claim, default_place, place_in, place_of_host};
use crate::standing::Standing;

/// How long it may take until another process serves, which is about to, or has let go of its place.
const TO_SETTLE: StdDuration = StdDuration::from_secs(5);
/// How often it is looked meanwhile.
const LOOK: StdDuration = StdDuration::from_millis(10);

impl Host {
    /// Attaches to the executive that serves at the configured place.
    pub(crate) fn attach(config: &HostConfig) -> Result<Self, Error> {
        let command = config.command.clone().unwrap_or_else(own_name);
        let attach = |socket: &Path| Attached::attach(socket, command.clone());
        // The host's own server, if this user may have it, before those of the user's processes.
        let is_default = config.server.is_none() && !matches!(config.claims, Some(ClaimDirectory::At(_)));
        let host = place_of_host().filter(|_| is_default).map(|socket| attach(&socket));
        let (attached, told) = match host {
            Some(Err(error)) if error.is_unserved() || error.exit_status() == 4 => attach(&config.place())?,
            Some(attached) => attached?,
            None => attach(&config.place())?,
        };
        let HostTold {
            pid,
            address,
            stays,
            link,
            has_key,
            costs,
            backing,
            scheduling,
            memory_locked,
            kept_awake,
            notes,
        } = told;
        if config.key.is_some() {
            attached.leave();
            return Err(Error::KeyElsewhere);
        }
        if config.guard.is_some() && Covers::of(&costs.platform) == Covers::Laxity {
            attached.leave();
            return Err(Error::GuardElsewhere { pid });
        }
        let is_real_time = matches!(scheduling, Scheduling::Fifo(_));
        if let Some(priority) = config.fifo_priority.filter(|_| !is_real_time)
            && may_be_real_time(priority)
        {
            attached.leave();
            return Err(Error::ServedBelow { pid });
        }
        let standing = Standing { costs, backing, link, scheduling, memory_locked, kept_awake, notes };
        // Else this process could not be what that one was.
        let follows = config.placement == Placement::Auto && !stays && !has_key && link == config.link.kind();
        Ok(Self::of_attached(attached, address, standing, Attachment { config: config.clone(), follows }))
    }

    /// Attaches to the executive that serves at the configured place, or, if there is none, becomes it.
    pub(crate) fn attach_or_serve(config: HostConfig) -> Result<Self, Error> {
        let place = config.place();
        let until = StdInstant::now() + TO_SETTLE;
        loop {
            match Self::attach(&config) {
                Err(error) if error.is_unserved() => {}
                attached => return attached,
            }
            if config.server.is_none() {
                // Where it meets others is there.
                config.claims.as_ref().map(ClaimDirectory::directory).transpose()?;
            }
            // Before there is an executive: of several processes that begin at once only one makes it.
            match claim(&place) {
                Ok(place) => {
                    let mut host = Self::start_own(config)?;
                    let serving = host.serve_at(place, Access::default(), ServeConfig::default().memory, false)?;
                    host.keep_serving(Box::new(serving));
                    return Ok(host);
                }
                // That one is about to serve, or to end.
                Err(Error::Serves { .. }) if StdInstant::now() < until => std::thread::sleep(LOOK),
                Err(error @ Error::Serves { .. }) => return Err(error),
                Err(error) => {
                    let mut host = Self::start_own(config)?;
                    host.standing.notes.push(format!("other processes cannot attach to this one: {error}"));
                    return Ok(host);
                }
            }
        }
    }

    /// Whether the executive is another process's.
    pub fn is_attached(&self) -> bool {
        self.attached().is_some()
    }

    /// The process of the executive: this one, or the one to which it is attached. Grants hold as long as that process lives.
    pub fn executive(&self) -> u32 {
        self.attached().map_or_else(std::process::id, |attached| attached.pid())
    }

    /// What is wrong with the guard of its link, if there is one, as of a second ago at most; `None` if the executive is another process's.
    pub fn guard_problem(&self) -> Option<String> {
        self.here().ok()?.guard.as_ref()?.problem()
    }

    /// Finds another executive, after that of another process has ended ([`Error::is_of_lost_executive`]): attaches to the process that serves
    /// now, or, with [`Placement::Auto`] and if none does, becomes the executive and serves the others, at the address that the old one had. One that was there to serve
    /// ([`Host::serve`]), had a key, or another kind of link, is not followed but waited for. Waits up to five seconds. Channels and listeners of the old one are over: they are to be opened again. True if the executive is now in this process.
    ///
    /// A host whose executive is in this process, or there still, stays as it is.
    ///
    /// # Errors
    /// As [`Host::start`]. It can be tried again.
    pub fn reattach(&mut self) -> Result<bool, Error> {
        let Some((attached, attachment)) = self.attached().zip(self.attachment.as_deref()) else { return Ok(true) };
        if attached.is_taking() {
            return Ok(false);
        }
        let Attachment { mut config, follows } = attachment.clone();
        (config.bind, config.any_port) = (self.address(), false);
        let (old, until) = (self.executive(), StdInstant::now() + TO_SETTLE);
        // What that one has claimed it still has for a moment.
        let is_claimed = |error: &Error| matches!(error, Error::Claimed { holder, .. } if holder.pid == old);
        *self = loop {
            let again = if follows { Self::attach_or_serve(config.clone()) } else { Self::attach(&config) };
            match again {
                // One that has been killed may not have let go of its port yet; a server may be on its way again.
                Err(error)
                    if StdInstant::now() < until
                        && (error.is_unserved() || error.is_port_in_use() || is_claimed(&error)) =>
                {
                    std::thread::sleep(LOOK);
                }
                again => break again?,
            }
        };
        Ok(self.attached().is_none())
    }
}

impl HostConfig {
    /// The socket at which it attaches, or other processes do: [`HostConfig::server`], or the one for the directory of its claims.
    pub fn place(&self) -> PathBuf {
        match (&self.server, &self.claims) {
            (Some(socket), _) => socket.clone(),
            (None, Some(ClaimDirectory::At(directory))) => place_in(directory),
            (None, _) => default_place(),
        }
    }
}

/// Whether this process may have that SCHED_FIFO priority: a thread tries.
fn may_be_real_time(priority: u8) -> bool {
    let tries = std::thread::spawn(move || sys::real_time(priority).is_ok());
    tries.join().unwrap_or(false)
}

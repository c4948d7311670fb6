//! The place of a channel's executive, as its application's threads see it: this process, or another one to which this one is
//! attached.

use std::net::SocketAddr;
use std::sync::Arc;

use laxity_core::contract::Contract;
use laxity_core::event::{End, Name};
use laxity_core::figures::Figures;
use laxity_core::send::SendCounters;
use laxity_link::sys;

use crate::control::HostShared;
use crate::doorbell::Doorbell;
use crate::error::Error;
use crate::executive::{self, ExecutiveCommand, InlineExecutive};
use crate::grant::Grant;
use crate::handler_kernel::HandlerReserve;
use crate::port::Port;

/// The executive of a channel.
pub(crate) trait ChannelExecutive: Send + Sync {
    /// # Errors
    /// The executive is gone, or this is no place to ask it for anything.
    fn check_running(&self) -> Result<(), Error>;
    /// # Errors
    /// The executive is gone, or about to end: it takes no message any more.
    fn check_taking(&self) -> Result<(), Error> {
        self.check_running()
    }
    /// Before a message is put into a mailbox.
    ///
    /// # Errors
    /// As [`ChannelExecutive::check_taking`].
    fn begin_put(&self) -> Result<(), Error> {
        Ok(())
    }
    /// The message is in, and rung for.
    fn end_put(&self) {}
    /// True if its process is gone without notice.
    fn is_lost(&self) -> bool {
        false
    }
    /// The doorbell by which a channel tells it that there is work.
    fn doorbell(&self) -> &Arc<Doorbell>;
    /// The executive, if applications' threads do its work.
    fn inline(&self) -> Option<&Arc<dyn InlineExecutive>> {
        None
    }
    /// Its resources for handlers in the kernel, if they are possible.
    fn kernel(&self) -> Option<&HandlerReserve> {
        None
    }
    /// Closes a channel once all is sent, unless it is over.
    fn close(&self, port: &Arc<Port>);
    /// The application has let go of a channel, which was closed.
    fn forget(&self, port: &Arc<Port>);
    /// The counters of a sending channel so far.
    fn send_counters(&self, port: &Port) -> SendCounters;
    /// The figures of a receiving channel so far.
    fn figures(&self, port: &Port, grant: &Grant) -> Figures;
    /// The error for an application that still uses a channel with `peer` that ended as `end` says.
    fn of_end(&self, end: End, peer: SocketAddr) -> Error {
        Error::of_end(end, peer, false)
    }
    /// Receives by this name no more.
    fn unlisten(&self, name: Name);
}

impl ChannelExecutive for HostShared {
    fn check_running(&self) -> Result<(), Error> {
        match () {
            () if sys::forks() != self.forks => Err(Error::Forked),
            () if executive::is_inside() => Err(Error::Interrupted),
            () if self.is_stopped() => Err(Error::Stopped),
            () => Ok(()),
        }
    }
    fn doorbell(&self) -> &Arc<Doorbell> {
        &self.doorbell
    }
    fn inline(&self) -> Option<&Arc<dyn InlineExecutive>> {
        self.inline.as_ref()
    }
    fn kernel(&self) -> Option<&HandlerReserve> {
        self.kernel.as_ref()
    }
    fn close(&self, port: &Arc<Port>) {
        let channel =
            self.state().channels.iter().find(|(_, known)| Arc::ptr_eq(&known.port, port)).map(|(channel, _)| *channel);
        if let Some(channel) = channel {
            self.command(ExecutiveCommand::Close(channel));
        }
    }
    fn forget(&self, _: &Arc<Port>) {}
    fn send_counters(&self, port: &Port) -> SendCounters {
        port.statistics.send_counters()
    }
    fn figures(&self, port: &Port, grant: &Grant) -> Figures {
        of_port(port, grant)
    }
    fn unlisten(&self, name: Name) {
        self.state().listeners.retain(|other| other.name != name);
        self.command(ExecutiveCommand::Unlisten(name));
    }
}

/// The figures of a channel whose executive is in this process.
pub(crate) fn of_port(port: &Port, grant: &Grant) -> Figures {
    let contract = grant.service.contract();
    port.statistics.figures(&grant.name, contract.is_none(), contract.map(Contract::deadline))
}

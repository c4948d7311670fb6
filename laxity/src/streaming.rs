//! Streams of a host, whether its executive is in this process or in another one.

use crate::attach::protocol::AttachRequest;
use crate::error::Error;
use crate::host::Host;
use crate::streams::{StreamError, StreamReport, StreamSpec};

impl Host {
    /// Admits a stream for a flow of kernel sockets, and makes its paths. Returns its first report.
    ///
    /// The stream stays until it is removed, or the executive ends.
    ///
    /// # Errors
    /// [`Error::Stream`] if the executive reserves nothing for streams, not enough is left, or the request is not valid. If the
    /// executive is in another process, this process must run as root or as the user of that process.
    pub fn add_stream(&self, spec: StreamSpec) -> Result<StreamReport, Error> {
        match self.attached() {
            Some(attached) => {
                let asked = attached.ask_streams(|ticket| AttachRequest::AddStream { ticket, spec: Box::new(spec) });
                asked?.pop().ok_or(Error::Stopped)
            }
            None => Ok(self.local()?.streams.as_ref().ok_or(StreamError::NotKept)?.add(spec)?),
        }
    }

    /// Removes a stream, and returns its last report. Its packets then take their usual path again.
    ///
    /// # Errors
    /// [`Error::Stream`] if there is no stream of that name; else as [`Host::add_stream`].
    pub fn remove_stream(&self, name: &str) -> Result<StreamReport, Error> {
        match self.attached() {
            Some(attached) => {
                let name = name.to_owned();
                let asked = attached.ask_streams(|ticket| AttachRequest::RemoveStream { ticket, name });
                asked?.pop().ok_or(Error::Stopped)
            }
            None => Ok(self.local()?.streams.as_ref().ok_or(StreamError::NotKept)?.remove(name)?),
        }
    }

    /// Reports all streams, in the order in which they were added.
    ///
    /// # Errors
    /// [`Error::Stream`] if the executive reserves nothing for streams; else as [`Host::add_stream`].
    pub fn streams(&self) -> Result<Vec<StreamReport>, Error> {
        match self.attached() {
            Some(attached) => attached.ask_streams(|ticket| AttachRequest::Streams { ticket }),
            None => Ok(self.local()?.streams.as_ref().ok_or(StreamError::NotKept)?.list()),
        }
    }
}

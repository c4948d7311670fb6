//! Streams of a host, whether its executive is in this process or in another one.

use crate::error::Error;
use crate::host::Host;
use crate::streams::{StreamError, StreamReport, StreamSpec};

impl Host {
    /// Admits a stream for a flow of kernel sockets, and makes its paths; it stays until it is removed, or the executive ends. What it has done so far.
    ///
    /// # Errors
    /// [`Error::Stream`]: the executive keeps nothing for streams, or not enough is left, or what is asked for cannot be; if it is another process's,
    /// this one has to be root's or of its user.
    pub fn add_stream(&self, spec: StreamSpec) -> Result<StreamReport, Error> {
        match self.attached() {
            Some(attached) => attached.add_stream(spec),
            None => Ok(self.here()?.streams.as_ref().ok_or(StreamError::NotKept)?.add(spec)?),
        }
    }

    /// Takes a stream away: its packets go their usual way again. What it has done.
    ///
    /// # Errors
    /// [`Error::Stream`]: there is none of that name; likewise.
    pub fn remove_stream(&self, name: &str) -> Result<StreamReport, Error> {
        match self.attached() {
            Some(attached) => attached.remove_stream(name),
            None => Ok(self.here()?.streams.as_ref().ok_or(StreamError::NotKept)?.remove(name)?),
        }
    }

    /// All streams, in the order in which they came.
    ///
    /// # Errors
    /// [`Error::Stream`]: the executive keeps nothing for streams; likewise.
    pub fn streams(&self) -> Result<Vec<StreamReport>, Error> {
        match self.attached() {
            Some(attached) => attached.streams(),
            None => Ok(self.here()?.streams.as_ref().ok_or(StreamError::NotKept)?.list()),
        }
    }
}

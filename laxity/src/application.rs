//! An application in another process, as the executive that serves it sees it. What it writes is an allegation until it is checked
//! ([`laxity_shm`]).

use std::sync::Arc;

use laxity_core::admission::{Refusal, Utilisation};
use laxity_core::event::End;

use crate::grant::Grant;
use crate::port::{Port, ReceiveSlot, SendSlot};

/// An application in another process.
pub(crate) trait Application: std::fmt::Debug + Send + Sync {
    /// Memory for a channel that it sends on: so many messages of so many bytes. `takes` is its share of processor and link in the long run.
    ///
    /// # Errors
    /// It has none left, or its user may have no more.
    fn sending(self: Arc<Self>, messages: usize, bytes: usize, takes: Utilisation) -> Result<SendSlot, Refusal>;
    /// Likewise, for one that it receives.
    ///
    /// # Errors
    /// As [`Application::sending`].
    fn receiving(self: Arc<Self>, messages: usize, bytes: usize, takes: Utilisation) -> Result<ReceiveSlot, Refusal>;
    /// A channel that it listens for is open. False if it has gone, or has given the channel up.
    fn accepted(&self, port: &Arc<Port>, grant: &Grant) -> bool;
    /// A channel did not come to be after all.
    fn not_opened(&self, port: &Arc<Port>);
    /// A channel has ended.
    fn ended(&self, port: &Arc<Port>, end: End);
}

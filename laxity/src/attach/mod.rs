//! Applications that attach to the executive of another process: the paper's protocol server [nps §3], in which the same stack serves all.
//!
//! ```text
//! application's process                       executive's process
//!   ExecutiveConnection ───── control, Unix socket ───────  client's thread ── control thread
//!   Sender ─────── mailbox in shared memory ───  executive
//! ```
//!
//! What is asked for goes through a socket; messages go through memory that both have, copied in once and out once, and the executive takes them from
//! there itself: there is no thread in between. The executive's process trusts nothing that the other one writes ([`laxity_shm`]); an application trusts
//! the process whose channels it uses.
//!
//! | Module | What it is |
//! |---|---|
//! | `protocol` | what both sides say to each other |
//! | `socket` | how: whole messages, with descriptors |
//! | `flags` | whether an application broke the protocol, or is gone |
//! | `free` | which memory of an application is free |
//! | `layout` | where what stands in the shared memory |
//! | [`crate::remote_mailbox`] | both ends of a channel's mailbox there |
//! | [`crate::serving`] | the executive's side: [`Host::serve`](crate::Host::serve) |
//! | [`crate::attached`] | the application's side: a [`ChannelExecutive`](crate::channel_executive::ChannelExecutive) |

pub(crate) mod flags;
pub(crate) mod free;
pub(crate) mod layout;
pub(crate) mod protocol;
pub(crate) mod socket;

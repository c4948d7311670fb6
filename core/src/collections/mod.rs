//! Containers of a fixed capacity: they allocate when they are made and never again.

mod deadline_heap;
mod fifo_set;
mod ring;
mod slab;
mod token_map;

pub use deadline_heap::DeadlineHeap;
pub use fifo_set::FifoSet;
pub use ring::Ring;
pub use slab::{Key, Slab};
pub use token_map::TokenMap;

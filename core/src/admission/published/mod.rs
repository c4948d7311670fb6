//! The tests as the papers print them, and what they lead to. Nothing here decides whether a channel may exist.
//!
//! | file | what it is |
//! |---|---|
//! | [`d_order`] | D_order with the service and wait times of [channels §3.2] |
//! | [`rate_monotonic`] | the utilisation tests of [rtu §5.3]: Liu and Layland, Sha, RMDP |

pub mod d_order;
pub mod rate_monotonic;

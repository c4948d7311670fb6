//! One suite for every link: what [`laxity_link::Link`] promises, each promise a test, run for each implementation.
//!
//! A link that is new implements [`pair::Pair`] in a file of its own here, and gets a line at the end. What it does differently, and
//! may, it says in the constants of that trait.

mod cases;
#[path = "../../../link/tests/common/counting.rs"]
mod counting;
mod emulated;
#[path = "../common/lab.rs"]
mod lab;
mod pair;
mod udp;
mod xdp;

use counting::allocations;

/// A module of tests for one kind of link, in it one for each family of addresses.
macro_rules! conforms {
    ($name:ident, $pair:ty, $family:ident, $ipv6:literal, $($case:ident),* $(,)?) => {
        mod $name {
            mod $family {
                $(#[test]
                fn $case() {
                    crate::cases::$case::<$pair>(crate::pair::Setup::new($ipv6));
                })*
            }
        }
    };
    ($name:ident, $pair:ty, $family:ident, $ipv6:literal) => {
        conforms!(
            $name,
            $pair,
            $family,
            $ipv6,
            every_packet_arrives_once_as_it_was_sent,
            each_class_is_in_order,
            a_whole_batch_leaves_at_once_and_there_is_room_again,
            who_stages_without_room_is_told,
            no_more_is_received_than_asked_for,
            overload_loses_packets_but_no_frames,
            what_is_too_long_is_dropped_alone_counted_and_reported,
            an_absent_peer_disturbs_no_other,
            without_frames_nothing_breaks,
            frames_are_conserved_whatever_is_done,
            nothing_is_allocated_after_set_up,
            what_is_not_expected_any_more_does_no_harm,
            any_bytes_are_carried_by_what_does_not_look,
        );
    };
}

conforms!(over_udp, crate::udp::OverUdp, v4, false);
conforms!(over_udp_too, crate::udp::OverUdp, v6, true);
conforms!(over_an_emulated_wire, crate::emulated::OverEmulated, v4, false);
conforms!(over_an_emulated_wire_too, crate::emulated::OverEmulated, v6, true);
// Each mode with one family: what differs is where the program runs, and what stands before a packet.
conforms!(over_xdp_in_the_driver, crate::xdp::OverXdp<true>, v4, false);
conforms!(over_xdp_behind_the_driver, crate::xdp::OverXdp<false>, v6, true);

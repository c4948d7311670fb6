//! On loopback, and of what the kernel of this machine says. Pairs of interfaces are tested in the laboratory (`lab/tests/netlink.rs`).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

#[test]
fn loopback_is_found_in_every_way() {
    let mut netlink = Netlink::open().unwrap();
    let all = netlink.interfaces().unwrap();
    let loopback = all.iter().find(|interface| interface.index == 1).unwrap();
    assert_eq!((loopback.mac, loopback.vlan), ([0; 6], None));
    assert_eq!(netlink.interface_by_index(1).unwrap().as_ref(), Some(loopback));
    assert_eq!(netlink.interface_by_name(&loopback.name).unwrap().as_ref(), Some(loopback));
    for absent in [0, 0x7fff_fff0, u32::MAX] {
        assert_eq!(netlink.interface_by_index(absent).unwrap(), None);
    }
    assert_eq!(netlink.interface_by_name("no-such-device").unwrap(), None);
    for bad in ["", "a name", "much-too-long-name", "a/b", "..", "nul\0"] {
        assert_eq!(netlink.interface_by_name(bad).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{bad}");
    }
    let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
    if loopback.is_up {
        assert_eq!(netlink.interface_of_address(localhost).unwrap().as_ref(), Some(loopback));
        let route = netlink.route(localhost, None).unwrap();
        assert!(route.is_local && route.interface == 1 && route.next_hop == localhost, "{route:?}");
    }
    let error = netlink.route(localhost, Some(Ipv6Addr::LOCALHOST.into())).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    // One error leaves the socket as it was.
    assert!(netlink.interface_by_index(1).unwrap().is_some());
}

/// What the kernel says of everything that it has, datagram by datagram.
fn said() -> Vec<Vec<u8>> {
    use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
    use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
    let questions = [
        Message::GetLink(LinkMessage::default()),
        Message::GetAddress(AddressMessage::default()),
        Message::GetRoute(RouteMessage::default()),
        Message::GetNeighbour(NeighbourMessage::default()),
    ];
    let mut said = Vec::new();
    for question in questions {
        let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
        socket.bind_auto().unwrap();
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).unwrap();
        loop {
            let (datagram, _) = socket.recv_from_full().unwrap();
            // NLMSG_ERROR, NLMSG_DONE.
            let is_last = exchange::messages(&datagram).any(|message| matches!(message.message_type(), 2 | 3));
            said.push(datagram);
            if is_last {
                break;
            }
        }
    }
    said
}

/// Reads all that is in a datagram in every way. How much that was.
fn read(datagram: &[u8]) -> usize {
    let mut found = 0;
    for message in exchange::messages(datagram) {
        let bytes = message.into_inner();
        let Ok(message) = netlink_packet_core::NetlinkMessage::<Message>::deserialize(bytes) else { continue };
        let netlink_packet_core::NetlinkPayload::InnerMessage(message) = message.payload else { continue };
        found += usize::from(interface(&message).is_some());
        for to in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            found += usize::from(route(&message, to).is_some());
            found += usize::from(neighbour(&message, 1, to).is_some());
        }
        if let Message::NewAddress(message) = &message {
            found += usize::from(address(message).is_some());
        }
    }
    found
}

#[test]
fn nothing_that_comes_makes_it_panic() {
    let datagrams = said();
    assert!(datagrams.iter().map(|datagram| read(datagram)).sum::<usize>() > 0);
    // SplitMix64, so that what fails once fails again.
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    };
    for datagram in &datagrams {
        for _ in 0..500 {
            let mut changed = datagram.clone();
            for _ in 0..=random(4) {
                let at = random(changed.len());
                changed[at] = [0, 1, 4, 0xff, random(256) as u8][random(5)];
            }
            changed.truncate(1 + random(2 * changed.len()));
            read(&changed);
        }
    }
}

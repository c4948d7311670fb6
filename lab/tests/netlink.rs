//! The kernel's tables, with a pair of interfaces in namespaces of their own, where that is permitted.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use laxity_lab::interfaces::{self, Veth};
use laxity_lab::sys::namespace::Namespace;
use laxity_link::netlink::{GuardClasses, Neighbour, NeighbourState, Netlink, NetlinkWatch, Route, StreamClasses};
use laxity_link::sys::device::{Offload, offload};
use laxity_link::sys::features::{keep_vlan_tags, queues, set_offload, set_queues};

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const ABSENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99));
const A6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
const B6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));

/// A namespace, or why there can be none.
fn namespace() -> Option<Namespace> {
    match Namespace::new() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            println!("skipped: {error}");
            None
        }
        namespace => Some(namespace.unwrap()),
    }
}

/// Two namespaces, joined.
fn pair() -> Option<(Namespace, Namespace)> {
    let (a, b) = (namespace()?, namespace()?);
    let made = a.within(|| {
        let mut netlink = Netlink::open()?;
        let veth = Veth { name: "va", peer: "vb", peer_namespace: Some(b.as_fd()), queues: 2, mtu: 1400 };
        interfaces::create_veth(&mut netlink, &veth)?;
        assert_eq!(interfaces::create_veth(&mut netlink, &veth).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        Ok(())
    });
    match made {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            println!("skipped: no veth here: {error}");
            return None;
        }
        made => made.unwrap(),
    }
    for (namespace, name, addresses) in [(&a, "va", [A, A6]), (&b, "vb", [B, B6])] {
        let ready = namespace.within(|| {
            let mut netlink = Netlink::open()?;
            let index = netlink.interface_by_name(name)?.unwrap().index;
            interfaces::add_address(&mut netlink, index, addresses[0], 24)?;
            interfaces::add_address(&mut netlink, index, addresses[1], 64)?;
            interfaces::set_up(&mut netlink, 1, true)?;
            interfaces::set_up(&mut netlink, index, true)
        });
        ready.unwrap();
    }
    Some((a, b))
}

/// Looks until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(10), "not so after ten seconds: {what}");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_pair_has_what_it_was_given() {
    let Some((a, b)) = pair() else { return };
    let ends = [(&a, "va", A, A6, B), (&b, "vb", B, B6, A)];
    for (namespace, name, own, own6, other) in ends {
        let checked = namespace.within(|| {
            let mut netlink = Netlink::open()?;
            let found = netlink.interface_by_name(name)?.unwrap();
            assert!(found.is_up && found.runs && found.mtu == 1400 && found.mac != [0; 6], "{found:?}");
            assert!(found.addresses.contains(&(own, 24)) && found.addresses.contains(&(own6, 64)), "{found:?}");
            assert_eq!((found.vlan, found.program), (None, None));
            assert_eq!(netlink.interface_of_address(own6)?.as_ref(), Some(&found));
            assert_eq!(netlink.interface_of_address(other)?, None);
            assert_eq!(queues(name)?, (2, 2));
            assert!(set_queues(name, 2, 3).is_err() && set_queues(name, 2, 2).is_ok());

            let route = netlink.route(other, None)?;
            let expected = Route {
                interface: found.index,
                next_hop: other,
                source: Some(own),
                is_local: false,
                is_unicast: true,
                mtu: None,
            };
            assert_eq!(route, expected);
            assert_eq!(netlink.route(other, Some(own))?, expected);
            for local in [own, own6] {
                // The kernel takes note of an IPv6 address a moment later.
                until("an own address is local", || netlink.route(local, None).unwrap().is_local);
                let route = netlink.route(local, None)?;
                assert!(route.is_local && route.interface == 1, "{route:?}");
            }
            assert!(!netlink.route(IpAddr::from([192, 0, 2, 255]), None)?.is_unicast);
            let error = netlink.route(IpAddr::from([198, 51, 100, 1]), None).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);

            interfaces::set_mtu(&mut netlink, found.index, 1300)?;
            assert_eq!(netlink.interface_by_index(found.index)?.unwrap().mtu, 1300);
            assert_eq!(
                interfaces::add_address(&mut netlink, found.index, own, 33).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
            assert_eq!(
                interfaces::add_address(&mut netlink, found.index, own, 24).unwrap_err().kind(),
                io::ErrorKind::AlreadyExists
            );
            assert!(
                interfaces::set_up(&mut netlink, 0, true).is_err()
                    && interfaces::delete_interface(&mut netlink, 0x7fff_fff0).is_err()
            );
            Ok(())
        });
        checked.unwrap();
    }
}

#[test]
fn a_vlan_stands_on_its_interface() {
    let Some((a, _b)) = pair() else { return };
    let checked = a.within(|| {
        let mut netlink = Netlink::open()?;
        let below = netlink.interface_by_name("va")?.unwrap().index;
        assert_eq!(
            interfaces::create_vlan(&mut netlink, "va.0", below, 0).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        match interfaces::create_vlan(&mut netlink, "va.42", below, 42) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                println!("skipped: no VLANs in this kernel: {error}");
                return Ok(());
            }
            made => made?,
        }
        let vlan = netlink.interface_by_name("va.42")?.unwrap();
        assert_eq!(vlan.vlan, Some((below, 42)));
        assert!(!vlan.is_up && !vlan.runs);
        interfaces::set_up(&mut netlink, vlan.index, true)?;
        assert!(netlink.interface_by_name("va.42")?.unwrap().is_up);
        // It goes with what it stands on, and the other end goes, too.
        interfaces::delete_interface(&mut netlink, below)?;
        assert_eq!(netlink.interface_by_name("va.42")?, None);
        assert_eq!(netlink.interfaces()?.iter().filter(|interface| interface.name.starts_with("va")).count(), 0);
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn offloads_go_off() {
    let Some((a, _b)) = pair() else { return };
    let checked = a.within(|| {
        use Offload::{GenericReceive, GenericSegmentation, ReceiveChecksum, TransmitChecksum, TransmitSegmentation};
        for which in [TransmitSegmentation, GenericSegmentation, GenericReceive, TransmitChecksum, ReceiveChecksum] {
            set_offload("va", which, false)?;
            assert!(!offload("va", which)?, "{which:?}");
        }
        set_offload("va", GenericReceive, true)?;
        assert!(offload("va", GenericReceive)?);
        keep_vlan_tags("va")
    });
    checked.unwrap();
}

#[test]
fn neighbours_are_looked_for_and_told() {
    let Some((a, _b)) = pair() else { return };
    let checked = a.within(|| {
        let mut netlink = Netlink::open()?;
        let mut watch = NetlinkWatch::open()?;
        let index = netlink.interface_by_name("va")?.unwrap().index;
        assert_eq!(netlink.neighbour(index, B)?, None);
        for other in [B, B6] {
            netlink.refresh_neighbour(index, other)?;
            until("the other end is found", || {
                netlink.neighbour(index, other).unwrap().is_some_and(|found| found.usable_mac().is_some())
            });
            let found = netlink.neighbour(index, other)?.unwrap();
            let is_permanent = matches!(found.state, NeighbourState::Permanent | NeighbourState::Noarp);
            assert!(found.mac.is_some() && !is_permanent, "{found:?}");
        }
        netlink.refresh_neighbour(index, ABSENT)?;
        let state = netlink.neighbour(index, ABSENT)?.unwrap();
        assert_eq!((state.state, state.usable_mac()), (NeighbourState::Incomplete, None));
        until("no host answers", || {
            netlink.neighbour(index, ABSENT).unwrap().is_none_or(|found| found.state == NeighbourState::Failed)
        });
        // By hand, and it stays so.
        let mac = [2, 0, 0, 0, 0, 9];
        interfaces::set_neighbour(&mut netlink, index, ABSENT, mac)?;
        let set = Neighbour { mac: Some(mac), state: NeighbourState::Permanent };
        assert_eq!(netlink.neighbour(index, ABSENT)?, Some(set));
        netlink.refresh_neighbour(index, ABSENT)?;
        assert_eq!(netlink.neighbour(index, ABSENT)?, Some(set));
        assert!(watch.drain()?);
        assert!(netlink.neighbour(0x7fff_fff0, B).is_err());
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn a_watch_hears_of_its_own_namespace_only() {
    let (Some(here), Some(there)) = (namespace(), namespace()) else { return };
    let mut watch = here.within(NetlinkWatch::open).unwrap();
    let mut netlink = here.within(Netlink::open).unwrap();
    assert!(!watch.drain().unwrap());
    there.within(|| interfaces::set_up(&mut Netlink::open()?, 1, true)).unwrap();
    assert!(!watch.drain().unwrap());
    interfaces::set_up(&mut netlink, 1, true).unwrap();
    assert!(watch.drain().unwrap());
    assert!(!watch.drain().unwrap());
    interfaces::add_address(&mut netlink, 1, A, 32).unwrap();
    assert!(watch.drain().unwrap());
    interfaces::remove_address(&mut netlink, 1, A, 32).unwrap();
    assert!(watch.drain().unwrap());
    assert_eq!(interfaces::remove_address(&mut netlink, 1, A, 32).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    assert!(!netlink.interface_by_index(1).unwrap().unwrap().addresses.iter().any(|(found, _)| *found == A));
}

#[test]
fn what_was_lost_may_be_anything() {
    let Some(here) = namespace() else { return };
    let mut watch = here.within(NetlinkWatch::open).unwrap();
    let mut netlink = here.within(Netlink::open).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&watch, 1).unwrap();
    for _ in 0..50 {
        interfaces::set_up(&mut netlink, 1, true).unwrap();
        interfaces::set_up(&mut netlink, 1, false).unwrap();
    }
    assert!(watch.drain().unwrap());
    assert!(!watch.drain().unwrap());
}

#[test]
fn packets_cross_a_pair_in_both_families() {
    let Some((a, b)) = pair() else { return };
    for (from, to) in [(A, B), (A6, B6)] {
        let receiver = b.within(|| UdpSocket::bind((to, 0))).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let sender = a.within(|| UdpSocket::bind((from, 0))).unwrap();
        sender.send_to(b"hello", receiver.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(receiver.recv_from(&mut buffer).unwrap(), (5, sender.local_addr().unwrap()));
    }
}

/// What a host says that cannot pass on a packet of ours from `from` to `to`, because the next link carries `mtu` bytes.
fn too_big(from: (IpAddr, u16), to: (IpAddr, u16), mtu: u16) -> Vec<u8> {
    let ports = [from.1.to_be_bytes(), to.1.to_be_bytes(), [0, 108], [0, 0]].concat();
    match (from.0, to.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = [0x45, 0, 0, 128, 0, 0, 0x40, 0, 64, 17, 0, 0];
            let body = [header.as_slice(), &source.octets(), &destination.octets(), &ports].concat();
            let mut message = [[3, 4, 0, 0, 0, 0].as_slice(), &mtu.to_be_bytes(), &body].concat();
            let words = message.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            let sum: u32 = words.sum();
            let checksum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
            message[2..4].copy_from_slice(&checksum.to_be_bytes());
            message
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = [0x60, 0, 0, 0, 0, 108, 17, 64];
            let body = [header.as_slice(), &source.octets(), &destination.octets(), &ports].concat();
            [[2, 0, 0, 0, 0, 0].as_slice(), &mtu.to_be_bytes(), &body].concat()
        }
        _ => unreachable!("both are of one family"),
    }
}

#[test]
fn what_any_host_may_say_of_a_path_is_no_limit() {
    use std::net::SocketAddr;

    use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket, sockopt};

    let Some((a, b)) = pair() else { return };
    for (own, other, family, protocol, mtu) in
        [(A, B, AddressFamily::INET, ipproto::ICMP, 552), (A6, B6, AddressFamily::INET6, ipproto::ICMPV6, 1280)]
    {
        // An address of IPv6 is of use a moment after it was given.
        let bound = a.within(|| {
            let mut bound = None;
            until("the address is there", || {
                bound = UdpSocket::bind((own, 0)).ok().filter(|socket| socket.connect((other, 9)).is_ok());
                bound.is_some()
            });
            Ok(bound.unwrap())
        });
        let ours = bound.unwrap();
        let known = || if own.is_ipv4() { sockopt::ip_mtu(&ours) } else { sockopt::ipv6_mtu(&ours) };
        let port = ours.local_addr().unwrap().port();
        let forged = b.within(|| Ok(socket(family, SocketType::RAW, Some(protocol))?)).unwrap();
        let message = too_big((own, port), (other, 9), mtu);
        until("the kernel believes it", || {
            let _ = sendto(&forged, &message, SendFlags::DONTWAIT, &SocketAddr::new(own, 0));
            known().unwrap() == u32::from(mtu)
        });
        let route = a.within(|| Netlink::open()?.route(other, Some(own))).unwrap();
        assert_eq!(route.mtu, None, "{route:?}");
    }
}

#[test]
fn an_interface_is_guarded_once_and_nothing_else_is_removed() {
    let Some((a, _b)) = pair() else { return };
    a.within(|| {
        let mut netlink = Netlink::open()?;
        let index = interfaces::find(&mut netlink, "va")?.index;
        let before = netlink.root_discipline(index)?.unwrap();
        assert_eq!(before.handle, 0, "the kernel's own: {before:?}");
        assert!(!netlink.unguard(index)?);
        let classes = GuardClasses {
            rate: 12_500_000,
            floor: 625_000,
            ceiling: 12_500_000,
            mtu: 1400,
            streams: StreamClasses::default(),
        };
        netlink.guard(index, &classes)?;
        let found = netlink.root_discipline(index)?.unwrap();
        assert_eq!((found.kind.as_str(), found.handle), ("htb", GuardClasses::HANDLE));
        // One that is there is left alone, also if it is a guard.
        assert_eq!(netlink.guard(index, &classes).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(netlink.root_discipline(index)?.as_ref(), Some(&found));
        assert!(netlink.unguard(index)?);
        assert_eq!(netlink.root_discipline(index)?, Some(before));
        assert!(!netlink.unguard(index)? && !netlink.unguard(9_999)?);
        // Faster than 32 bits say.
        netlink.guard(
            index,
            &GuardClasses {
                rate: 12_500_000_000,
                floor: 625_000_000,
                ceiling: 625_000_000,
                mtu: 1400,
                streams: StreamClasses::default(),
            },
        )?;
        assert!(netlink.unguard(index)?);
        Ok(())
    })
    .unwrap();
}

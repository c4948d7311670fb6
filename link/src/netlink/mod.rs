//! Interfaces, addresses, routes and neighbours, as the kernel's tables have them (rtnetlink).
//!
//! For set-up and for a thread beside the data path: every call allocates and waits for the kernel. A [`Netlink`] and a
//! [`NetlinkWatch`] speak of the network namespace that their thread was in when they were opened, wherever it goes later.
//!
//! The kernel's messages are checked: a message of another sender, an answer to another question, one that was cut or cannot be
//! read. In a list, an entry that cannot be read is left out, since it may concern a device of a kind that this code does not know; where one
//! thing was asked for, it is an error.
//!
//! Left out: rules, tables other than those that a lookup finds, link-local destinations (they need an interface to be looked up with).

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVlan, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage, LinkXdp,
    State as OperationalState,
};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia};

mod exchange;
mod guard;
#[cfg(test)]
mod tests;
mod watch;

pub use exchange::Netlink;
pub use guard::{GuardClasses, RootDiscipline, StreamClasses};
pub use netlink_packet_route::neighbour::NeighbourState;
pub use watch::NetlinkWatch;

/// The longest name that an interface can have, bytes.
const NAME_MAX: usize = 15;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its number in this network namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its address at the link layer; zeroes if it has none of that form.
    pub mac: [u8; 6],
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// True if it was set up.
    pub is_up: bool,
    /// True if it runs: set up, and connected.
    pub runs: bool,
    /// True if its driver says that it works (`operstate` is `up`). Many virtual devices run and say nothing.
    pub is_operating: bool,
    /// The interface below a VLAN, by its number (0 if that is in another namespace), and the VLAN.
    pub vlan: Option<(u32, u16)>,
    /// Its kind if it is a virtual one: `veth`, `bridge` and so on.
    pub kind: Option<String>,
    /// The number of the program that is attached to it (XDP).
    pub program: Option<u32>,
    /// Its addresses, with the bits of their networks.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// The route of packets to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The interface. For an address of this host it is the loopback interface, whichever interface has the address.
    pub interface: u32,
    /// The host to which they are handed there: a gateway, or the address itself.
    pub next_hop: IpAddr,
    /// Their source, unless the sender chooses another one.
    pub source: Option<IpAddr>,
    /// True if the address is one of this host: the packets reach no network.
    pub is_local: bool,
    /// True if they go to one neighbour; false for broadcast and multicast.
    pub is_unicast: bool,
    /// The largest IP packet that the route was set up for, bytes, if that was said. The size that the kernel has learned of the path for a
    /// while is not in it: any host can send the message that teaches it.
    pub mtu: Option<u32>,
}

/// Another host on the same link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address at the link layer, if that is known and of that form.
    pub mac: Option<[u8; 6]>,
    /// Its reliability. One that was set by hand, or is not to be asked for, never becomes stale.
    pub state: NeighbourState,
}

impl Neighbour {
    /// The address to send to, unless the neighbour did not answer when it was asked last.
    pub fn usable_mac(&self) -> Option<[u8; 6]> {
        use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
        self.mac.filter(|_| matches!(self.state, Reachable | Permanent | Noarp | Stale | Delay | Probe))
    }
}

impl Netlink {
    /// All interfaces.
    ///
    /// # Errors
    /// The kernel's; `TimedOut` if it does not answer; `InvalidData` if its tables change faster than they can be read.
    pub fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        let links = self.ask(Message::GetLink(without_statistics()), NLM_F_DUMP)?;
        let mut found: Vec<Interface> = links.iter().filter_map(interface).collect();
        self.add_addresses(&mut found)?;
        Ok(found)
    }

    /// The interface of this name.
    ///
    /// # Errors
    /// As [`interfaces`](Self::interfaces); `InvalidInput` for a name that none can have.
    pub fn interface_by_name(&mut self, name: &str) -> io::Result<Option<Interface>> {
        check_name(name)?;
        let mut question = without_statistics();
        question.attributes.push(LinkAttribute::IfName(name.to_owned()));
        Ok(self.one_interface(question)?.filter(|found| found.name == name))
    }

    /// The interface of this number.
    ///
    /// # Errors
    /// As [`interfaces`](Self::interfaces).
    pub fn interface_by_index(&mut self, index: u32) -> io::Result<Option<Interface>> {
        if index == 0 || i32::try_from(index).is_err() {
            return Ok(None);
        }
        let mut question = without_statistics();
        question.header.index = index;
        Ok(self.one_interface(question)?.filter(|found| found.index == index))
    }

    /// The interface that has this address.
    ///
    /// # Errors
    /// As [`interfaces`](Self::interfaces).
    pub fn interface_of_address(&mut self, address: IpAddr) -> io::Result<Option<Interface>> {
        let all = self.interfaces()?;
        Ok(all.into_iter().find(|interface| interface.addresses.iter().any(|(found, _)| *found == address)))
    }

    fn one_interface(&mut self, question: LinkMessage) -> io::Result<Option<Interface>> {
        let answers = match self.ask(Message::GetLink(question), 0) {
            Err(error) if is(&error, libc::ENODEV) => return Ok(None),
            answers => answers?,
        };
        let found =
            answers.iter().find_map(interface).ok_or_else(|| invalid("no interface in the answer about one"))?;
        let mut found = [found];
        self.add_addresses(&mut found)?;
        let [found] = found;
        Ok(Some(found))
    }

    fn add_addresses(&mut self, interfaces: &mut [Interface]) -> io::Result<()> {
        for message in self.ask(Message::GetAddress(AddressMessage::default()), NLM_F_DUMP)? {
            let Message::NewAddress(message) = message else { continue };
            let Some(interface) = interfaces.iter_mut().find(|interface| interface.index == message.header.index)
            else {
                continue;
            };
            interface.addresses.extend(address(&message));
        }
        Ok(())
    }

    /// The route by which packets to `to` leave, of which `from` is the source, or which the kernel chooses one for. It is a lookup, no probe: whether
    /// the next hop answers is not known.
    ///
    /// # Errors
    /// No route (`NetworkUnreachable`, `HostUnreachable`), or one that forbids it; `InvalidInput` if the addresses are of two
    /// families; else as [`interfaces`](Self::interfaces).
    pub fn route(&mut self, to: IpAddr, from: Option<IpAddr>) -> io::Result<Route> {
        if from.is_some_and(|from| from.is_ipv4() != to.is_ipv4()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a route needs both addresses of one family"));
        }
        let from = from.filter(|from| !from.is_unspecified());
        let mut question = RouteMessage::default();
        question.header.address_family = exchange::family(to);
        question.header.destination_prefix_length = bits(to);
        question.attributes.push(RouteAttribute::Destination(to.into()));
        if let Some(from) = from {
            question.header.source_prefix_length = bits(from);
            question.attributes.push(RouteAttribute::Source(from.into()));
        }
        let answers = self.ask(Message::GetRoute(question), 0)?;
        let found = answers.iter().find_map(|answer| route(answer, to));
        // The kernel does not repeat a source that it was given.
        let found = found.map(|found| Route { source: found.source.or(from), ..found });
        found.ok_or_else(|| invalid("no route in the answer about one"))
    }

    /// The kernel's entry of the neighbour that has this address; `None` if the kernel has not heard of it.
    ///
    /// # Errors
    /// No such interface; else as [`interfaces`](Self::interfaces).
    pub fn neighbour(&mut self, interface: u32, address: IpAddr) -> io::Result<Option<Neighbour>> {
        let question = of_neighbour(interface, address);
        let answers = match self.ask(Message::GetNeighbour(question), 0) {
            Err(error) if is(&error, libc::ENOENT) => return Ok(None),
            answers => answers?,
        };
        let found = answers.iter().find_map(|answer| neighbour(answer, interface, address));
        found.map(Some).ok_or_else(|| invalid("no neighbour in the answer about one"))
    }

    /// Lets the kernel behave as if a packet went to this neighbour: it looks for one that is not known, and soon asks one that is
    /// stale. Nothing happens to one that was set by hand.
    ///
    /// # Errors
    /// `PermissionDenied`, no such interface.
    pub fn refresh_neighbour(&mut self, interface: u32, address: IpAddr) -> io::Result<()> {
        // The kernel would take "permanent" away.
        let found = self.neighbour(interface, address)?;
        if found.is_some_and(|found| matches!(found.state, NeighbourState::Permanent | NeighbourState::Noarp)) {
            return Ok(());
        }
        let mut message = of_neighbour(interface, address);
        message.header.flags = NeighbourFlags::Use;
        self.change(Message::NewNeighbour(message), NLM_F_CREATE)
    }

    /// Changes one of the tables, as `message` says; `flags` are beside "request" and "acknowledge". It is done when the call returns.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN in the network namespace, and the kernel's other refusals.
    pub fn change(&mut self, message: Message, flags: u16) -> io::Result<()> {
        self.ask(message, flags).map(drop)
    }
}

/// A message about a neighbour.
fn of_neighbour(interface: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = exchange::family(address);
    message.header.ifindex = interface;
    message.attributes.push(NeighbourAttribute::Destination(address.into()));
    message
}

/// Those of all devices would make the answers several times as long.
fn without_statistics() -> LinkMessage {
    let mut question = LinkMessage::default();
    question.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    question
}

/// Reads an interface, without its addresses.
fn interface(message: &Message) -> Option<Interface> {
    let Message::NewLink(message) = message else { return None };
    let flags = message.header.flags;
    let mut found = Interface {
        index: message.header.index,
        is_up: flags.contains(LinkFlags::Up),
        runs: flags.contains(LinkFlags::Up | LinkFlags::Running),
        ..Interface::default()
    };
    let (mut below, mut is_elsewhere, mut vlan) = (0, false, None);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name.clone_from(name),
            LinkAttribute::Address(mac) => found.mac = mac.as_slice().try_into().unwrap_or_default(),
            LinkAttribute::Mtu(mtu) => found.mtu = *mtu,
            LinkAttribute::OperState(state) => found.is_operating = *state == OperationalState::Up,
            LinkAttribute::Link(index) => below = *index,
            LinkAttribute::LinkNetNsId(_) => is_elsewhere = true,
            LinkAttribute::LinkInfo(info) => {
                vlan = vlan_of(info);
                let kind =
                    |info: &LinkInfo| if let LinkInfo::Kind(kind) = info { Some(kind.to_string()) } else { None };
                found.kind = info.iter().find_map(kind);
            }
            LinkAttribute::Xdp(xdp) => found.program = program(xdp),
            _ => {}
        }
    }
    found.vlan = vlan.map(|vlan| (if is_elsewhere { 0 } else { below }, vlan));
    (found.index != 0 && check_name(&found.name).is_ok()).then_some(found)
}

fn vlan_of(info: &[LinkInfo]) -> Option<u16> {
    let is_vlan = info.iter().any(|info| matches!(info, LinkInfo::Kind(InfoKind::Vlan)));
    let data =
        info.iter().find_map(|info| if let LinkInfo::Data(InfoData::Vlan(data)) = info { Some(data) } else { None })?;
    let id = data.iter().find_map(|data| if let InfoVlan::Id(id) = data { Some(*id) } else { None })?;
    is_vlan.then_some(id)
}

/// The program in the driver counts first, then the kernel's generic one, then the device's own.
fn program(xdp: &[LinkXdp]) -> Option<u32> {
    let rank = |xdp: &LinkXdp| match *xdp {
        LinkXdp::ProgId(number) => Some((0, number)),
        LinkXdp::DrvProgId(number) => Some((1, number)),
        LinkXdp::SkbProgId(number) => Some((2, number)),
        LinkXdp::HwProgId(number) => Some((3, number)),
        _ => None,
    };
    xdp.iter().filter_map(rank).min().map(|(_, number)| number).filter(|number| *number != 0)
}

/// Reads an address: on a link between two, the other end's is beside it.
fn address(message: &AddressMessage) -> Option<(IpAddr, u8)> {
    let rank = |attribute: &AddressAttribute| match attribute {
        AddressAttribute::Local(address) => Some((0, *address)),
        AddressAttribute::Address(address) => Some((1, *address)),
        _ => None,
    };
    let (_, address) = message.attributes.iter().filter_map(rank).min()?;
    let prefix = message.header.prefix_len;
    (prefix <= bits(address)).then_some((address, prefix))
}

fn route(message: &Message, to: IpAddr) -> Option<Route> {
    let Message::NewRoute(message) = message else { return None };
    if message.header.address_family != exchange::family(to) {
        return None;
    }
    let kind = message.header.kind;
    let mut found = Route {
        interface: 0,
        next_hop: to,
        source: None,
        is_local: kind == RouteType::Local,
        is_unicast: matches!(kind, RouteType::Unicast | RouteType::Local),
        mtu: None,
    };
    let mut expires = false;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::CacheInfo(info) => expires = info.expires != 0,
            RouteAttribute::Oif(index) => found.interface = *index,
            RouteAttribute::Gateway(gateway) => found.next_hop = ip(gateway)?,
            RouteAttribute::Via(RouteVia::Inet(gateway)) => found.next_hop = (*gateway).into(),
            RouteAttribute::Via(RouteVia::Inet6(gateway)) => found.next_hop = (*gateway).into(),
            RouteAttribute::PrefSource(source) => found.source = ip(source),
            RouteAttribute::Metrics(metrics) => {
                let mtu = |metric: &_| if let RouteMetric::Mtu(bytes @ 1..) = metric { Some(*bytes) } else { None };
                found.mtu = metrics.iter().find_map(mtu);
            }
            _ => {}
        }
    }
    found.mtu = found.mtu.filter(|_| !expires);
    (found.interface != 0).then_some(found)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn neighbour(message: &Message, interface: u32, address: IpAddr) -> Option<Neighbour> {
    let Message::NewNeighbour(NeighbourMessage { header, attributes, .. }) = message else { return None };
    let is_it = attributes.iter().any(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(found)) => address == *found,
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(found)) => address == *found,
        _ => false,
    });
    if header.ifindex != interface || !is_it {
        return None;
    }
    let mac = attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(mac) => mac.as_slice().try_into().ok(),
        _ => None,
    });
    Some(Neighbour { mac, state: header.state })
}

const fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Checks that an interface can have this name.
///
/// # Errors
/// `InvalidInput`, with the reason.
pub fn check_name(name: &str) -> io::Result<()> {
    let can_be = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':' || byte >= 0x80;
    if name.is_empty() || name.len() > NAME_MAX || name == "." || name == ".." || !name.bytes().all(can_be) {
        let problem = format!("an interface's name has 1 to {NAME_MAX} bytes, without blanks, / and :");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(())
}

fn invalid(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

fn is(error: &io::Error, code: i32) -> bool {
    error.raw_os_error() == Some(code)
}

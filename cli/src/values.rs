//! Values of options: read, looked up, and held against limits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use laxity::DEFAULT_PORT;
use laxity::text::{self, HostAddress, TextError};
use laxity_core::units::Duration;

use crate::failure::Failure;

/// Reads the value of an option.
pub(crate) fn option<T>(
    option: &'static str,
    text: &str,
    read: impl FnOnce(&str) -> Result<T, TextError>,
) -> Result<T, Failure> {
    read(text).map_err(|error| Failure::Option { option, error })
}

/// Reads one of these values of the library by its name; behind it stands what the command says of it.
pub(crate) fn named<T: Copy + Send + Sync + 'static>(
    values: &'static [(&'static str, T, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let possible = values.iter().map(|(name, _, help)| PossibleValue::new(*name).help(*help));
    let value = |given: String| values.iter().find(|(name, ..)| *name == given).map(|(_, value, _)| *value);
    PossibleValuesParser::new(possible).try_map(move |given| value(given).ok_or("it is none of these"))
}

/// Looks an address up.
pub(crate) fn look_up(address: &HostAddress) -> Result<SocketAddr, Failure> {
    let found = address.resolve().map_err(|source| Failure::Lookup { host: address.host.clone(), source })?;
    Ok(found[0])
}

/// The address that `--bind` gives.
pub(crate) fn bound(text: &str, default_port: u16) -> Result<SocketAddr, Failure> {
    look_up(&option("--bind", text, |text| HostAddress::parse(text, default_port))?)
}

/// The span that an option gives.
pub(crate) fn span_within(name: &'static str, text: &str, [least, most]: [Duration; 2]) -> Result<Duration, Failure> {
    let span = option(name, text, text::duration)?;
    if !(least..=most).contains(&span) {
        return Err(Failure::Usage(format!("{name} is {span}, expected {least} to {most}")));
    }
    Ok(span)
}

/// Every address of this host, if it has IPv6 then both families.
pub(crate) fn everywhere() -> SocketAddr {
    match std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT)),
        Err(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT)),
    }
}

/// The address of this host that the kernel sends to `peer` from, which says the interface, too; any if there is no way.
pub(crate) fn nearest(peer: SocketAddr) -> SocketAddr {
    let any = towards(peer);
    let near = UdpSocket::bind(any).and_then(|socket| socket.connect(peer).and_then(|()| socket.local_addr()));
    near.map_or(any, |near| SocketAddr::new(near.ip(), 0))
}

/// Any port of the family of `peer`; on loopback for a peer on loopback.
pub(crate) fn towards(peer: SocketAddr) -> SocketAddr {
    let address: IpAddr = match peer.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(ip) if ip.is_loopback() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(address, 0)
}

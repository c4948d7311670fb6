//! Laxity itself on this host: what its processes have claimed, and its port.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};

use laxity::{ClaimDirectory, ClaimHolder, ClaimsError, DEFAULT_PORT};

use super::{Doctor, Finding, State};
use crate::report::escaped;

pub(super) fn probe(_doctor: &Doctor<'_>) -> Vec<Finding> {
    let place = ClaimDirectory::Default;
    let holders = place.holders();
    let port = port(&holders);
    let directory = place.directory().map(|directory| directory.display().to_string());
    vec![told(directory, holders), port]
}

fn told(directory: Result<String, ClaimsError>, holders: Result<Vec<ClaimHolder>, ClaimsError>) -> Finding {
    let name = "claims";
    match directory.and_then(|directory| Ok((directory, holders?))) {
        Err(error) => Finding::new(name, State::Bad, escaped(&error.to_string()).into_owned())
            .mended_by("what the message says; until then Laxity starts only with `--claims`"),
        Ok((directory, holders)) => {
            let each: Vec<String> = holders.iter().map(one).collect();
            let found = match each.as_slice() {
                [] => format!("in {directory}; no Laxity process has one"),
                each => format!("in {directory}; {}", each.join(", ")),
            };
            Finding::new(name, State::Good, found)
        }
    }
}

fn one(holder: &ClaimHolder) -> String {
    let ClaimHolder { pid, command, address, link, .. } = holder;
    let processors = holder.listed_processors();
    format!(
        "pid {pid} ({}) at {address} has {} and processors {processors}",
        escaped(command),
        escaped(&link.to_string())
    )
}

fn port(holders: &Result<Vec<ClaimHolder>, ClaimsError>) -> Finding {
    let name = format!("port {DEFAULT_PORT}");
    match UdpSocket::bind((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT)) {
        Ok(_) => Finding::new(name, State::Good, "free"),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let holder = holders.iter().flatten().find(|holder| holder.address.port() == DEFAULT_PORT);
            match holder {
                Some(ClaimHolder { pid, .. }) => {
                    Finding::new(name, State::Good, format!("in use by Laxity's pid {pid}"))
                }
                None => Finding::new(name, State::Poor, "in use by a program that has no claim here")
                    .says("`laxity recv` without `--bind` takes another port")
                    .mended_by(format!(
                        "`ss -ulpn sport = :{DEFAULT_PORT}` names it; or `laxity recv --bind HOST:PORT`"
                    )),
            }
        }
        Err(error) => Finding::new(name, State::Poor, format!("unavailable: {error}"))
            .mended_by("`laxity recv --bind HOST:PORT` with another one"),
    }
}

#[cfg(test)]
mod tests {
    use laxity::{ClaimedLink, NetworkNamespace};

    use super::*;

    #[test]
    fn those_that_have_a_claim_are_named() {
        let holder = ClaimHolder {
            pid: 7,
            command: "recv camera\u{1b}".to_owned(),
            address: "10.0.0.1:5709".parse().unwrap(),
            link: ClaimedLink::Interface { name: "eth0".to_owned(), index: 2 },
            network: NetworkNamespace { device: 4, inode: 1 },
            processors: vec![0, 1, 3],
        };
        let finding = told(Ok("/run/laxity".to_owned()), Ok(vec![holder]));
        assert_eq!(finding.state, State::Good);
        let expected = "in /run/laxity; pid 7 (recv camera\\u{1b}) at 10.0.0.1:5709 has link eth0 and processors 0-1,3";
        assert_eq!(finding.found, expected);
        let damaged = ClaimsError::Damaged { file: "/run/laxity/7-1.claim".into(), what: "nonsense".to_owned() };
        assert_eq!(told(Ok("/run/laxity".to_owned()), Err(damaged)).state, State::Bad);
    }
}

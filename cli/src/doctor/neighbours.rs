//! Laxity itself on this host: its registry, its port, and its other processes.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};

use laxity::{DEFAULT_PORT, Holder, Registry, RegistryError};
use laxity_core::units::Rate;

use super::{Doctor, Finding, State};
use crate::report::escaped;

pub(super) fn probe(_doctor: &Doctor<'_>) -> Vec<Finding> {
    let registry = Registry::Default;
    let holders = registry.holders();
    let port = port(&holders);
    let directory = registry.directory().map(|directory| directory.display().to_string());
    vec![told(directory, holders), port]
}

fn told(directory: Result<String, RegistryError>, holders: Result<Vec<Holder>, RegistryError>) -> Finding {
    let name = "host registry";
    match directory.and_then(|directory| Ok((directory, holders?))) {
        Err(error) => Finding::new(name, State::Bad, escaped(&error.to_string()).into_owned())
            .mended_by("what the message says; until then Laxity starts only with `--registry`"),
        Ok((directory, holders)) => {
            let each: Vec<String> = holders.iter().map(one).collect();
            let found = match each.as_slice() {
                [] => format!("in {directory}; no other Laxity process uses it"),
                each => format!("in {directory}; used by {}", each.join(", ")),
            };
            Finding::new(name, State::Good, found)
        }
    }
}

fn one(holder: &Holder) -> String {
    let link = Rate::bytes_per_second(holder.link)
        .map_or_else(|| "nothing".to_owned(), |rate| laxity::text::DisplayRate(rate.as_bytes_per_second()).to_string());
    format!(
        "pid {} ({}) with {} channels, {link} of the link and {:.1}% of a processor",
        holder.pid,
        escaped(&holder.command),
        holder.channels.len() as u64 + holder.more,
        holder.processor_ppm as f64 / 1e4
    )
}

fn port(holders: &Result<Vec<Holder>, RegistryError>) -> Finding {
    let name = format!("port {DEFAULT_PORT}");
    match UdpSocket::bind((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT)) {
        Ok(_) => Finding::new(name, State::Good, "free"),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let ours = holders.as_ref().is_ok_and(|holders| !holders.is_empty());
            if ours {
                return Finding::new(
                    name,
                    State::Good,
                    "in use, and Laxity runs here: the next receiver takes another port",
                );
            }
            Finding::new(name, State::Poor, "in use by a program that is not in this user's registry")
                .says("`laxity recv` without `--bind` fails")
                .mended_by(format!("`ss -ulpn sport = :{DEFAULT_PORT}` names it; or `laxity recv --bind HOST:PORT`"))
        }
        Err(error) => Finding::new(name, State::Poor, format!("cannot be had: {error}"))
            .mended_by("`laxity recv --bind HOST:PORT` with another one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_uses_the_registry_is_named() {
        let holder = Holder {
            pid: 7,
            command: "recv camera\u{1b}".to_owned(),
            link: 1_500_000,
            processor_ppm: 25_000,
            channels: Vec::new(),
            more: 3,
        };
        let finding = told(Ok("/run/laxity".to_owned()), Ok(vec![holder]));
        assert_eq!(finding.state, State::Good);
        assert!(finding.found.contains("pid 7 (recv camera\\u{1b}) with 3 channels, 1.5MB/s"), "{}", finding.found);
        let damaged = RegistryError::Damaged { file: "/run/laxity/registry".into(), what: "nonsense".to_owned() };
        assert_eq!(told(Ok("/run/laxity".to_owned()), Err(damaged)).state, State::Bad);
    }
}

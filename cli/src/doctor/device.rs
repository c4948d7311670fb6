//! Each network device: its queues, what it offloads, and when it interrupts.

use std::io;

use laxity_core::units::Duration;
use laxity_link::netlink::{Interface, Netlink};
use laxity_link::sys::device::{self, Coalescing, Offload};

use super::{Doctor, Finding, Root, State, short};

/// So many devices are told of; a host of containers may have hundreds.
const MOST: usize = 16;
/// Asking takes some tens of microseconds.
const MOST_ASKED: usize = 1000;
/// Interrupts that are kept back for longer are worth a word.
const KEPT_BACK: Duration = Duration::from_micros(20);

/// What a device may do for the processor.
const OFFLOADS: [(Offload, &str); 5] = [
    (Offload::ReceiveChecksum, "receive checksums"),
    (Offload::TransmitChecksum, "transmit checksums"),
    (Offload::TransmitSegmentation, "TSO"),
    (Offload::GenericSegmentation, "GSO"),
    (Offload::GenericReceive, "GRO"),
];

/// What the kernel says of a device beside what stands in `/sys`.
#[derive(Clone, Debug, Default)]
struct Asked {
    driver: Option<String>,
    coalescing: Option<Coalescing>,
    facts: Interface,
    /// Why there are no facts.
    refused: Option<String>,
    offloads: Vec<(Offload, bool)>,
}

impl Asked {
    fn of(name: &str) -> Self {
        let facts = Netlink::open().and_then(|mut netlink| netlink.interface_by_name(name));
        let facts = facts.and_then(|facts| facts.ok_or_else(|| io::ErrorKind::NotFound.into()));
        let refused = facts.as_ref().err().map(ToString::to_string);
        Self {
            driver: device::driver(name).ok(),
            coalescing: device::coalescing(name).ok(),
            facts: facts.unwrap_or_default(),
            refused,
            offloads: OFFLOADS
                .iter()
                .filter_map(|&(each, _)| Some((each, device::offload(name, each).ok()?)))
                .collect(),
        }
    }
    fn has(&self, offload: Offload) -> bool {
        self.offloads.contains(&(offload, true))
    }
}

pub(super) fn probe(doctor: &Doctor<'_>) -> Vec<Finding> {
    let root = &doctor.root;
    let names = names(root);
    let mut devices: Vec<(&String, Asked)> =
        names.iter().take(MOST_ASKED).map(|name| (name, Asked::of(name))).collect();
    devices.sort_by_key(|(_, asked)| !asked.facts.is_up);
    let mut findings: Vec<Finding> = devices.iter().take(MOST).map(|(name, asked)| told(root, name, asked)).collect();
    if names.len() > MOST {
        let found = format!("{} more are not told of", names.len() - MOST);
        findings.push(Finding::new("other devices", State::Unknown, found));
    }
    findings
}

/// The devices of this network namespace; `/sys` may have been mounted in another.
fn names(root: &Root) -> Vec<String> {
    let table = root.line("proc/net/dev").unwrap_or_default();
    table.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

fn told(root: &Root, name: &str, asked: &Asked) -> Finding {
    let of = |what: &str| format!("sys/class/net/{name}/{what}");
    let title = format!("device {name}");
    let mut facts = Vec::new();
    // Another namespace's device of the same name has another number, or none is there.
    let is_shown = root.number(&of("ifindex")) == Some(i64::from(asked.facts.index));
    let driver = if is_shown { root.link(&of("device/driver")) } else { None };
    if let Some(driver) = driver.or_else(|| asked.driver.clone()) {
        facts.push(driver);
    }
    if let Some(refused) = &asked.refused {
        return Finding::new(title, State::Unknown, format!("the kernel does not tell of it: {refused}"));
    }
    if !asked.facts.is_up {
        facts.push("down".to_owned());
        return Finding::new(title, State::Good, facts.join(", "));
    }
    facts.push("up".to_owned());
    facts.push(format!("MTU {}", asked.facts.mtu));
    facts.extend(offloads(asked));
    if is_shown {
        facts.extend(shown(root, name));
    } else {
        facts.push("/sys is of another network namespace and tells no more".to_owned());
    }
    let mut ills = Vec::new();
    let mut remedies = Vec::new();
    let mut kept = None;
    match asked.coalescing {
        Some(found) => {
            let span = Duration::from_micros(u64::from(found.receive_micros));
            let adaptive = if found.adaptive_receive { ", which the device changes by itself" } else { "" };
            facts.push(match found.receive_micros {
                0 => format!("interrupts are not kept back{adaptive}"),
                _ => format!("interrupts are kept back for {span} after a packet arrived{adaptive}"),
            });
            if span > KEPT_BACK || found.adaptive_receive {
                kept = Some(span);
                remedies.push(format!("`sudo ethtool -C {name} adaptive-rx off rx-usecs 0` (more interrupts)"));
            }
        }
        None => facts.push("its interrupts cannot be told to wait".to_owned()),
    }
    if let Some(program) = asked.facts.program {
        ills.push(format!("XDP program {program} is attached and sees each packet first"));
        remedies.push(format!(
            "if nobody needs it, end who attached it (`bpftool net` and `bpftool link` name it); what no process holds goes with \
             `sudo ip link set dev {name} xdp off`"
        ));
    }
    // What a pair of virtual devices does differently from a wire.
    let is_veth = asked.facts.kind.as_deref() == Some("veth") || asked.driver.as_deref() == Some("veth");
    if is_veth && asked.has(Offload::TransmitSegmentation) {
        ills.push(
            "UDP that it sends goes past its peer's queues (NAPI), so that these cannot be given priorities".to_owned(),
        );
        remedies.push(format!("`sudo ethtool -K {name} tso off gso off`"));
    }
    let found = ills.iter().fold(facts.join(", "), |found, ill| format!("{found}. {ill}"));
    let state = if ills.is_empty() && kept.is_none() { State::Good } else { State::Poor };
    let finding = Finding::new(title, state, found).mended_by(remedies.join("; "));
    match kept {
        // The driver's word; a measurement would take a peer.
        Some(span) => {
            finding.says(format!("up to {} for each packet received: as configured, not measured", short(span)))
        }
        None => finding,
    }
}

/// What `/sys` and `/proc/irq` tell of a device.
fn shown(root: &Root, name: &str) -> Vec<String> {
    let of = |what: &str| format!("sys/class/net/{name}/{what}");
    let mut facts = Vec::new();
    if let Some(speed) = root.number(&of("speed")).filter(|&speed| speed > 0) {
        facts.push(format!("{speed}Mbit/s"));
    }
    if root.line(&of("operstate")).as_deref() == Some("down") {
        facts.push("without a carrier".to_owned());
    }
    facts.push(queues(root, name));
    facts.extend(interrupts(root, name));
    if root.number(&of("threaded")) == Some(1) {
        facts.push("received packets are processed in threads of their own (napi/*)".to_owned());
    }
    facts
}

fn queues(root: &Root, name: &str) -> String {
    let queues = root.names(&format!("sys/class/net/{name}/queues"));
    let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count();
    format!("{} receive and {} transmit queues", count("rx-"), count("tx-"))
}

/// Where its interrupts go.
fn interrupts(root: &Root, name: &str) -> Option<String> {
    let lines = root.names(&format!("sys/class/net/{name}/device/msi_irqs"));
    let mut places: Vec<String> =
        lines.iter().filter_map(|line| root.line(&format!("proc/irq/{line}/smp_affinity_list"))).collect();
    places.sort();
    places.dedup();
    (!places.is_empty()).then(|| format!("{} interrupts, on processors {}", lines.len(), places.join(" and ")))
}

fn offloads(asked: &Asked) -> Option<String> {
    let each: Vec<&str> = OFFLOADS.iter().filter(|(offload, _)| asked.has(*offload)).map(|(_, name)| *name).collect();
    (!each.is_empty()).then(|| format!("offloads {}", each.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Fake;
    use super::*;

    fn up() -> Interface {
        Interface { index: 2, is_up: true, mtu: 1500, ..Interface::default() }
    }

    fn plain() -> Asked {
        Asked { facts: up(), ..Asked::default() }
    }

    fn fake(name: &str) -> Fake {
        let fake = Fake::new(&format!("device-{name}"));
        fake.file("proc/net/dev", &format!("Inter-| Receive\n face |bytes\n    lo: 1 2\n{name}:3 4\n"));
        for (file, text) in [("speed", "1000"), ("operstate", "up"), ("ifindex", "2")] {
            fake.file(&format!("sys/class/net/{name}/{file}"), text);
        }
        for queue in ["rx-0", "rx-1", "tx-0"] {
            fake.file(&format!("sys/class/net/{name}/queues/{queue}/x"), "");
        }
        fake.file(&format!("sys/class/net/{name}/device/msi_irqs/33"), "")
            .file("proc/irq/33/smp_affinity_list", "0-1\n");
        fake
    }

    #[test]
    fn a_device_is_described_from_sysfs() {
        let fake = fake("eth0");
        assert_eq!(names(&fake.root()), ["lo", "eth0"]);
        let plain = told(&fake.root(), "eth0", &self::plain());
        for fact in
            ["up", "1000Mbit/s", "MTU 1500", "2 receive and 1 transmit queues", "1 interrupts, on processors 0-1"]
        {
            assert!(plain.found.contains(fact), "{fact}: {}", plain.found);
        }
        assert_eq!((plain.state, plain.remedy), (State::Good, None));
        let coalescing =
            Coalescing { receive_micros: 50, receive_frames: 0, transmit_micros: 0, adaptive_receive: false };
        let late = told(&fake.root(), "eth0", &Asked { coalescing: Some(coalescing), ..self::plain() });
        assert_eq!((late.state, late.cost), (State::Poor, None));
        assert!(late.cost_text.unwrap().contains("50us") && late.remedy.unwrap().contains("ethtool -C eth0"));
    }

    #[test]
    fn another_namespaces_device_of_the_same_name_tells_nothing() {
        let fake = fake("eth2");
        let other = Asked { facts: Interface { index: 7, ..up() }, ..Asked::default() };
        let found = told(&fake.root(), "eth2", &other).found;
        assert!(found.contains("another network namespace") && !found.contains("1000Mbit"), "{found}");
    }

    #[test]
    fn a_device_that_is_down_spoils_nothing() {
        let fake = fake("eth1");
        let found = told(&fake.root(), "eth1", &Asked::default());
        assert_eq!((found.state, found.found.as_str()), (State::Good, "down"));
    }

    #[test]
    fn the_traps_of_veth_are_told_of_veth_only() {
        let fake = fake("v0");
        let offloads = vec![(Offload::TransmitSegmentation, true), (Offload::TransmitChecksum, true)];
        let other = Asked { offloads, driver: Some("e1000".to_owned()), ..plain() };
        assert_eq!(told(&fake.root(), "v0", &other).state, State::Good);
        let facts = Interface { kind: Some("veth".to_owned()), program: Some(9), ..up() };
        let veth = told(&fake.root(), "v0", &Asked { facts, ..other });
        let remedy = veth.remedy.unwrap();
        assert!(remedy.contains("tso off gso off") && remedy.contains("xdp off"), "{remedy}");
        assert!(veth.found.contains("XDP program 9"), "{}", veth.found);
    }
}

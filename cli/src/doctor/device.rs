//! Each network device: its queues, what it offloads, and when it interrupts.

use laxity_core::units::Duration;
use laxity_link::netlink::Interface;
use laxity_link::sys::device::{self, Coalescing, Offload};

use super::report::Observed;
use super::{Doctor, Finding, Root, State, short};

/// So many devices are told of; a host of containers may have hundreds.
const MOST: usize = 16;
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
struct DeviceFacts {
    driver: Option<String>,
    coalescing: Option<Coalescing>,
    facts: Interface,
    /// Those that are on.
    offloads: Vec<Offload>,
}

impl DeviceFacts {
    fn of(interface: &Interface) -> Self {
        let name = &interface.name;
        let is_on = |offload: &Offload| device::offload(name, *offload).unwrap_or(false);
        Self {
            driver: device::driver(name).ok(),
            coalescing: device::coalescing(name).ok(),
            facts: interface.clone(),
            offloads: OFFLOADS.map(|(offload, _)| offload).into_iter().filter(is_on).collect(),
        }
    }
}

/// The devices of this network namespace: those first that are up.
pub(super) fn probe(doctor: &Doctor<'_>) -> Vec<Finding> {
    let unknown =
        |name: String, why: &str| Finding::new(name, State::Unknown, format!("the kernel does not tell of it: {why}"));
    let all = match &doctor.interfaces {
        Ok(all) => all,
        Err(error) => return vec![unknown("devices".to_owned(), &error.to_string())],
    };
    // Of a kind that the reader of the kernel's list does not know.
    let table = doctor.root.line("proc/net/dev").unwrap_or_default();
    let names = table.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim()));
    let unread = names.filter(|name| all.iter().all(|interface| interface.name != *name));
    let unread = unread.take(MOST).map(|name| unknown(format!("device {name}"), "its entry cannot be read"));
    let mut all: Vec<&Interface> = all.iter().collect();
    all.sort_by_key(|interface| !interface.is_up);
    let told = |interface: &&Interface| told(&doctor.root, &interface.name, &DeviceFacts::of(interface));
    let beyond = Finding::beyond(MOST, all.len(), "other devices");
    all.iter().take(MOST).map(told).chain(unread).chain(beyond).collect()
}

fn told(root: &Root, name: &str, asked: &DeviceFacts) -> Finding {
    let title = format!("device {name}");
    let of = |what: &str| format!("sys/class/net/{name}/{what}");
    // Another namespace's device of the same name has another number, or none is there.
    let is_shown = root.number(&of("ifindex")) == Some(i64::from(asked.facts.index));
    let driver = is_shown.then(|| root.link(&of("device/driver"))).flatten();
    let mut seen = Observed::default();
    seen.facts.extend(driver.or_else(|| asked.driver.clone()));
    if !asked.facts.is_up {
        seen.fact("down");
        return Finding::new(title, State::Good, seen.facts.join(", "));
    }
    seen.fact("up");
    seen.fact(format!("MTU {}", asked.facts.mtu));
    let offloads: Vec<&str> =
        OFFLOADS.iter().filter(|(offload, _)| asked.offloads.contains(offload)).map(|(_, name)| *name).collect();
    if !offloads.is_empty() {
        seen.fact(format!("offloads {}", offloads.join(" ")));
    }
    match is_shown {
        true => seen.facts.extend(shown(root, name)),
        false => seen.fact("/sys is of another network namespace and tells no more"),
    }
    let mut kept = None;
    match asked.coalescing {
        Some(found) => {
            let span = Duration::from_micros(u64::from(found.receive_micros));
            let adaptive = if found.adaptive_receive { ", which the device changes by itself" } else { "" };
            seen.fact(match found.receive_micros {
                0 => format!("interrupts are not kept back{adaptive}"),
                _ => format!("interrupts are kept back for {span} after a packet arrived{adaptive}"),
            });
            if span > KEPT_BACK || found.adaptive_receive {
                kept = Some(span);
                seen.remedies.push(format!("`sudo ethtool -C {name} adaptive-rx off rx-usecs 0` (more interrupts)"));
            }
        }
        None => seen.fact("its interrupts cannot be told to wait"),
    }
    if let Some(program) = asked.facts.program {
        seen.problem(
            format!("XDP program {program} is attached and sees each packet first"),
            format!(
                "if no program needs it, end the process that attached it (`bpftool net` and `bpftool link` name it); a program that no process holds goes with \
                 `sudo ip link set dev {name} xdp off`"
            ),
        );
    }
    // What a pair of virtual devices does differently from a wire.
    let is_veth = asked.facts.kind.as_deref() == Some("veth") || asked.driver.as_deref() == Some("veth");
    if is_veth && asked.offloads.contains(&Offload::TransmitSegmentation) {
        seen.problem(
            "UDP that it sends goes past its peer's queues (NAPI), so that these cannot be given priorities",
            format!("`sudo ethtool -K {name} tso off gso off`"),
        );
    }
    let state = if seen.problems.is_empty() && kept.is_none() { State::Good } else { State::Poor };
    let found: Vec<String> = [seen.facts.join(", ")].into_iter().chain(seen.problems).collect();
    let finding = Finding::new(title, state, found.join(". ")).mended_by(seen.remedies.join("; "));
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
    let queues = root.names(&of("queues"));
    let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count();
    let lines = root.names(&of("device/msi_irqs"));
    let mut places: Vec<String> =
        lines.iter().filter_map(|line| root.line(&format!("proc/irq/{line}/smp_affinity_list"))).collect();
    places.sort();
    places.dedup();
    let facts = [
        root.number(&of("speed")).filter(|&speed| speed > 0).map(|speed| format!("{speed}Mbit/s")),
        (root.line(&of("operstate")).as_deref() == Some("down")).then(|| "without a carrier".to_owned()),
        Some(format!("{} receive and {} transmit queues", count("rx-"), count("tx-"))),
        (!places.is_empty()).then(|| format!("{} interrupts, on processors {}", lines.len(), places.join(" and "))),
        (root.number(&of("threaded")) == Some(1))
            .then(|| "received packets are processed in threads of their own (napi/*)".to_owned()),
    ];
    facts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Fake;
    use super::*;

    fn up() -> Interface {
        Interface { index: 2, is_up: true, mtu: 1500, ..Interface::default() }
    }

    fn plain() -> DeviceFacts {
        DeviceFacts { facts: up(), ..DeviceFacts::default() }
    }

    fn fake(name: &str) -> Fake {
        let fake = Fake::new(&format!("device-{name}"));
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
        let plain = told(&fake.root(), "eth0", &self::plain());
        for fact in
            ["up", "1000Mbit/s", "MTU 1500", "2 receive and 1 transmit queues", "1 interrupts, on processors 0-1"]
        {
            assert!(plain.found.contains(fact), "{fact}: {}", plain.found);
        }
        assert_eq!((plain.state, plain.remedy), (State::Good, None));
        let coalescing = Coalescing { receive_micros: 50, adaptive_receive: false };
        let late = told(&fake.root(), "eth0", &DeviceFacts { coalescing: Some(coalescing), ..self::plain() });
        assert_eq!((late.state, late.cost), (State::Poor, None));
        assert!(late.cost_text.unwrap().contains("50us") && late.remedy.unwrap().contains("ethtool -C eth0"));
    }

    #[test]
    fn another_namespaces_device_of_the_same_name_tells_nothing() {
        let fake = fake("eth2");
        let other = DeviceFacts { facts: Interface { index: 7, ..up() }, ..DeviceFacts::default() };
        let found = told(&fake.root(), "eth2", &other).found;
        assert!(found.contains("another network namespace") && !found.contains("1000Mbit"), "{found}");
    }

    #[test]
    fn a_device_that_is_down_spoils_nothing() {
        let fake = fake("eth1");
        let found = told(&fake.root(), "eth1", &DeviceFacts::default());
        assert_eq!((found.state, found.found.as_str()), (State::Good, "down"));
    }

    #[test]
    fn the_traps_of_veth_are_told_of_veth_only() {
        let fake = fake("v0");
        let offloads = vec![Offload::TransmitSegmentation, Offload::TransmitChecksum];
        let other = DeviceFacts { offloads, driver: Some("e1000".to_owned()), ..plain() };
        assert_eq!(told(&fake.root(), "v0", &other).state, State::Good);
        let facts = Interface { kind: Some("veth".to_owned()), program: Some(9), ..up() };
        let veth = told(&fake.root(), "v0", &DeviceFacts { facts, ..other });
        let remedy = veth.remedy.unwrap();
        assert!(remedy.contains("tso off gso off") && remedy.contains("xdp off"), "{remedy}");
        assert!(veth.found.contains("XDP program 9"), "{}", veth.found);
    }
}

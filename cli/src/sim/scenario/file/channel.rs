//! One `[[channel]]` or `[[best_effort]]` table.

use laxity::FileError;
use laxity::source::{Entry, Table};
use laxity::system_file;
use laxity_core::contract::{Contract, Overload, Service, packets};
use laxity_core::limits::MAX_QUEUED_MESSAGES;

use super::{A_HOST, Host, bytes, list, place_of_host};

/// Keys of a channel that a file of one host does not have.
const BESIDE: [&str; 4] = ["from", "to", "via", "overload"];
/// A channel passes through no more hosts than that.
const MOST_BETWEEN: usize = 16;
const BETWEEN: &str = "names of hosts such as [\"relay1\"]";

/// A channel that is asked for.
#[derive(Debug)]
pub(in super::super) struct Channel {
    pub(in super::super) name: String,
    pub(in super::super) service: Service,
    pub(in super::super) overload: Overload,
    /// The places of its hosts.
    pub(in super::super) from: usize,
    pub(in super::super) to: usize,
    /// Those that it passes through, in their order.
    pub(in super::super) via: Vec<usize>,
    /// Where it stands in the file.
    pub(super) at: usize,
}

/// What both kinds have.
fn ends(table: &Table<'_, '_>, service: Service, hosts: &[Host]) -> Result<Channel, FileError> {
    let name = table.need("name", "a name in quotes such as \"camera\"")?.name()?;
    let from = place_of_host(&table.need("from", A_HOST)?, hosts)?;
    let of_to = table.need("to", A_HOST)?;
    let to = place_of_host(&of_to, hosts)?;
    if from == to {
        return Err(of_to.expected(format!("{:?}, where it comes from", hosts[to].name), "another host"));
    }
    let between = table.get("via").map_or(Ok(Vec::new()), |via| list(&via, BETWEEN, (MOST_BETWEEN, "hosts")))?;
    let via = between.iter().map(|entry| place_of_host(entry, hosts)).collect::<Result<Vec<_>, _>>()?;
    for (&host, entry) in via.iter().zip(&between).chain([(&to, &of_to)]) {
        agrees(entry, (&hosts[from], &hosts[host]))?;
    }
    for (place, (&host, entry)) in via.iter().zip(&between).enumerate() {
        let whose = match host {
            host if host == from => "where it comes from",
            host if host == to => "where it goes to",
            host if via[..place].contains(&host) => "where it has been",
            _ => continue,
        };
        return Err(entry.expected(format!("{:?}, {whose}", hosts[host].name), "another host"));
    }
    let policies = [("block", Overload::Block), ("drop", Overload::Drop), ("decay", Overload::Decay)];
    let of_overload = table.get("overload");
    let overload = of_overload.as_ref().map_or(Ok(Overload::Drop), |entry| entry.word(&policies))?;
    if let Some(entry) = between.first()
        && hosts[from].platform.machine.is_papers()
    {
        return Err(entry.error(format!("{}: the papers' machine passes nothing on; leave it out", entry.key)));
    }
    if let (Overload::Decay, false, Some(entry)) = (overload, via.is_empty(), of_overload) {
        let problem = "oversize messages do not pass through hosts yet, expected drop or block";
        return Err(entry.error(format!("{}: {problem}", entry.key)));
    }
    Ok(Channel { name, service, overload, from, to, via, at: table.at })
}

/// Says so if another host of a channel does not go with the one that sends.
fn agrees(entry: &Entry<'_, '_>, (from, other): (&Host, &Host)) -> Result<(), FileError> {
    let [ours, theirs] = [from, other].map(|host| &host.platform);
    if ours.packet != theirs.packet {
        let found = format!("{:?}, with packets of {} bytes", other.name, theirs.packet);
        let expected = format!("a host with packets of {} bytes, as {:?} has them", ours.packet, from.name);
        return Err(entry.expected(found, expected));
    }
    if ours.machine.is_papers() != theirs.machine.is_papers() {
        let found = format!("{:?}, which is another kind of machine than {:?}", other.name, from.name);
        return Err(entry.expected(found, "a host of the same kind"));
    }
    Ok(())
}

pub(super) fn read(table: &Table<'_, '_>, hosts: &[Host]) -> Result<Channel, FileError> {
    if table.name == "channel" {
        let channel = system_file::read_channel(table, &BESIDE)?;
        let contract = channel.request.contract;
        let channel = ends(table, Service::RealTime(contract), hosts)?;
        system_file::check_handler(table, &contract, &hosts[channel.to].platform)?;
        return Ok(channel);
    }
    table.only("name, from, to, via, overload, max_message or queue")?;
    let largest = table.need("max_message", "a size such as \"60KiB\"")?;
    let bytes = bytes(&largest)?;
    let queue = table.get("queue").map_or(Ok(64), |queue| queue.within(queue.count()?, 1..=MAX_QUEUED_MESSAGES))?;
    let service = Service::best_effort(bytes.into(), queue.into())
        .map_err(|error| table.source.error(largest.at, "best_effort", format!("best_effort: {error}")))?;
    let channel = ends(table, service, hosts)?;
    let of = |host: usize| hosts[host].platform.best_effort;
    let packet = channel.hosts().map(|host| of(host).packet_max).min().unwrap_or_default();
    for host in channel.hosts() {
        of(host).check(bytes, packet).map_err(|error| {
            largest.error(format!("{} is too large for {:?}: {error}", largest.key, hosts[host].name))
        })?;
    }
    Ok(channel)
}

impl Channel {
    /// The places of all its hosts: the sender, those in between, the receiver.
    pub(in super::super) fn hosts(&self) -> impl Iterator<Item = usize> {
        core::iter::once(self.from).chain(self.via.iter().copied()).chain([self.to])
    }

    /// Packets of a message of `bytes` bytes.
    pub(super) fn packets(&self, hosts: &[Host], bytes: u32) -> u64 {
        packets(bytes, hosts[self.from].platform.packet).into()
    }

    /// Its contract, if it is real-time.
    pub(in super::super) fn contract(&self) -> Option<&Contract> {
        self.service.contract()
    }
}

//! One `[[channel]]` or `[[best_effort]]` table.

use laxity::FileError;
use laxity::source::{Value, in_order};
use laxity::system_file;
use laxity_core::contract::{Contract, Overload, Service, packets};
use laxity_core::limits::MAX_QUEUED_MESSAGES;
use toml::de::DeValue;

use super::{Entry, Host};

/// Keys of a channel that a file of one host does not have.
const BESIDE: [&str; 4] = ["from", "to", "via", "overload"];
/// A channel passes through no more hosts than that.
const MOST_BETWEEN: usize = 16;
const BEST_EFFORT: &str = "name, from, to, via, overload, max_message or queue";

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
#[derive(Default)]
struct Ends {
    name: Option<String>,
    from: Option<usize>,
    to: Option<(usize, usize)>,
    /// And where each stands in the file.
    via: Vec<(usize, usize)>,
    overload: Option<(Overload, usize)>,
}

impl Ends {
    /// Takes a value in, if it is one of these.
    fn take(
        &mut self,
        entry: &Entry<'_, '_>,
        name: &str,
        value: Value<'_, '_>,
        hosts: &[Host],
    ) -> Result<bool, FileError> {
        let (full, at) = (entry.key(name), value.span().start);
        let host = || entry.place(&full, value, hosts, |host| &host.name, "[[host]]");
        match name {
            "name" => self.name = Some(entry.name(&full, value)?),
            "from" => self.from = Some(host()?),
            "to" => self.to = Some((host()?, at)),
            "via" => self.via = via(entry, &full, value, hosts)?,
            "overload" => {
                let policies = [Overload::Block, Overload::Drop, Overload::Decay];
                let policy = policies[entry.source.word(&full, value, &["block", "drop", "decay"])?];
                self.overload = Some((policy, at));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish(self, entry: &Entry<'_, '_>, service: Service, hosts: &[Host]) -> Result<Channel, FileError> {
        let host = "the name of a [[host]]";
        let name = entry.needed(self.name, "name", "a name in quotes such as \"camera\"")?;
        let from = entry.needed(self.from, "from", host)?;
        let (to, at) = entry.needed(self.to, "to", host)?;
        let (overload, overload_at) = self.overload.unwrap_or((Overload::Drop, entry.at));
        let key = entry.key("to");
        if from == to {
            let found = format!("{:?}, where it comes from", hosts[to].name);
            return Err(entry.source.expected(at, &key, found, "another host"));
        }
        let others = self.via.iter().map(|&via| (via, "via")).chain([((to, at), "to")]);
        for ((host, at), key) in others {
            agrees(entry, (&hosts[from], &hosts[host]), at, &entry.key(key))?;
        }
        for (place, &(host, at)) in self.via.iter().enumerate() {
            let whose = match host {
                host if host == from => "where it comes from",
                host if host == to => "where it goes to",
                host if self.via[..place].iter().any(|(before, _)| *before == host) => "where it has been",
                _ => continue,
            };
            let found = format!("{:?}, {whose}", hosts[host].name);
            return Err(entry.source.expected(at, &entry.key("via"), found, "another host"));
        }
        if let Some(&(_, at)) = self.via.first() {
            let key = entry.key("via");
            if hosts[from].platform.machine.is_papers() {
                let problem = format!("{key}: the papers' machine passes nothing on; leave it out");
                return Err(entry.source.error(at, &key, problem));
            }
            if overload == Overload::Decay {
                let key = entry.key("overload");
                let problem = format!("{key}: oversize messages do not pass through hosts yet, expected drop or block");
                return Err(entry.source.error(overload_at, &key, problem));
            }
        }
        let via = self.via.iter().map(|&(host, _)| host).collect();
        Ok(Channel { name, service, overload, from, to, via, at: entry.at })
    }
}

/// The hosts in between; that they differ is looked at when all of the table is known.
fn via(
    entry: &Entry<'_, '_>,
    key: &str,
    value: Value<'_, '_>,
    hosts: &[Host],
) -> Result<Vec<(usize, usize)>, FileError> {
    let DeValue::Array(values) = value.get_ref() else {
        return Err(entry.source.wrong_kind(key, value, "names of hosts such as [\"relay1\"]"));
    };
    if values.is_empty() || values.len() > MOST_BETWEEN {
        let found = format!("a list of {}", values.len());
        return Err(entry.source.expected(value.span().start, key, found, format!("1 to {MOST_BETWEEN} hosts")));
    }
    let place = |value| entry.place(key, value, hosts, |host| &host.name, "[[host]]");
    values.iter().map(|value| Ok((place(value)?, value.span().start))).collect()
}

/// Says so if another host of a channel does not go with the one that sends.
fn agrees(entry: &Entry<'_, '_>, (from, other): (&Host, &Host), at: usize, key: &str) -> Result<(), FileError> {
    let [ours, theirs] = [from, other].map(|host| &host.platform);
    if ours.packet != theirs.packet {
        let found = format!("{:?}, with packets of {} bytes", other.name, theirs.packet);
        let expected = format!("a host with packets of {} bytes, as {:?} has them", ours.packet, from.name);
        return Err(entry.source.expected(at, key, found, expected));
    }
    if ours.machine.is_papers() != theirs.machine.is_papers() {
        let found = format!("{:?}, which is another kind of machine than {:?}", other.name, from.name);
        return Err(entry.source.expected(at, key, found, "a host of the same kind"));
    }
    Ok(())
}

pub(super) fn read(entry: &Entry<'_, '_>, hosts: &[Host]) -> Result<Channel, FileError> {
    match entry.kind {
        "channel" => real_time(entry, hosts),
        _ => best_effort(entry, hosts),
    }
}

fn real_time(entry: &Entry<'_, '_>, hosts: &[Host]) -> Result<Channel, FileError> {
    let mut ends = Ends::default();
    for (key, value) in in_order(entry.table) {
        ends.take(entry, key.get_ref(), value, hosts)?;
    }
    let channel = system_file::read_channel(entry.source, entry.at, entry.number, entry.table, &BESIDE)?;
    ends.finish(entry, Service::RealTime(channel.request.contract), hosts)
}

fn best_effort(entry: &Entry<'_, '_>, hosts: &[Host]) -> Result<Channel, FileError> {
    let source = entry.source;
    let (mut ends, mut max_message, mut queue) = (Ends::default(), None, 64);
    for (key, value) in in_order(entry.table) {
        let name = key.get_ref().as_ref();
        let full = entry.key(name);
        if ends.take(entry, name, value, hosts)? {
            continue;
        }
        match name {
            "max_message" => max_message = Some((entry.bytes(&full, value)?, value.span().start)),
            "queue" => queue = entry.count_within(&full, value, 1, MAX_QUEUED_MESSAGES)?,
            other => return Err(source.unknown(key.span().start, "best_effort.", other, BEST_EFFORT)),
        }
    }
    let (bytes, at) = entry.needed(max_message, "max_message", "a size such as \"60KiB\"")?;
    let service = Service::best_effort(bytes.into(), queue.into());
    let service = service.map_err(|error| source.error(at, "best_effort", format!("best_effort: {error}")))?;
    let channel = ends.finish(entry, service, hosts)?;
    let of = |host: usize| hosts[host].platform.best_effort;
    let packet = channel.hosts().map(|host| of(host).packet_max).min().unwrap_or_default();
    for host in channel.hosts() {
        of(host).check(bytes, packet).map_err(|error| {
            let problem = format!("best_effort.max_message is too large for {:?}: {error}", hosts[host].name);
            source.error(at, "best_effort.max_message", problem)
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

//! An interface whose queueing discipline is a guard of Laxity's.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use laxity_link::netlink::{GuardClasses, Netlink, check_name};
use serde::{Deserialize, Serialize};

use crate::claims::NetworkNamespace;

/// An interface that is [guarded](laxity_link::netlink::Netlink::guard). A guard is known by its handle, so nothing else is ever removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuardedInterface {
    /// Its network namespace.
    pub namespace: NetworkNamespace,
    /// Its number in that namespace.
    pub interface: u32,
    /// Its name when it was guarded.
    pub name: String,
}

impl GuardedInterface {
    /// True if such an interface is possible.
    pub fn is_known(&self) -> bool {
        self.interface != 0 && check_name(&self.name).is_ok()
    }

    pub(super) fn undo(&self, root: &Path) -> io::Result<Option<String>> {
        let Self { namespace, interface, name } = self;
        let failed =
            |error: io::Error| io::Error::new(error.kind(), format!("{name} could not be freed of its guard: {error}"));
        let here = NetworkNamespace::of_thread().map_err(|error| failed(io::Error::other(error)))?;
        if here != *namespace {
            return match is_there(root, namespace) {
                false => Ok(None),
                true => Err(failed(io::Error::other("it is in another network namespace: run `laxity doctor` there"))),
            };
        }
        let mut netlink = Netlink::open().map_err(failed)?;
        // Looking takes no rights: a process that may not guard an interface has no guard to undo.
        let found = netlink.root_discipline(*interface).map_err(failed)?;
        if found.is_none_or(|found| found.handle != GuardClasses::HANDLE) {
            return Ok(None);
        }
        let removed = netlink.unguard(*interface).map_err(failed)?;
        Ok(removed.then(|| format!("{name} is guarded no more")))
    }
}

/// True if a process is in the namespace, or the namespace has a name, as far as this can be seen.
fn is_there(root: &Path, namespace: &NetworkNamespace) -> bool {
    let entries =
        |directory: &str| fs::read_dir(root.join(directory)).into_iter().flatten().flatten().map(|entry| entry.path());
    let processes = entries("proc").map(|process| process.join("ns/net"));
    let mut all = processes.chain(entries("run/netns"));
    let is_it = |path: PathBuf| match fs::metadata(path) {
        Ok(found) => (found.dev(), found.ino()) == (namespace.device, namespace.inode),
        // What cannot be looked at may be it.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    all.any(is_it)
}

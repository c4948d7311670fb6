//! A lab with a name, that stays: made, removed, and commands run in its hosts.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use super::HostName;
use super::pair::{self, End, Size, VLAN, failed};
use crate::error::Error;
use crate::sys::namespace::{self, Namespace};

/// The name of a lab that was given none.
pub const DEFAULT_NAME: &str = "lab";
/// The place where hosts of labs have the directories that stand in for root's own: the claims of the machine are not theirs.
const DIRECTORIES: &str = "/run/laxity-lab";
/// In each of them a file whose name begins so, and goes on with what tells its namespace from all others.
const MARK: &str = "namespace";
/// The directories that they stand in for.
const ROOTS: &str = "/run/laxity";
/// So that the names of the namespaces are within what the system takes.
const NAME_MAX: usize = 32;

fn namespace_name(lab: &str, host: HostName) -> String {
    format!("{lab}-{host}")
}

fn directory(lab: &str, host: HostName) -> PathBuf {
    Path::new(DIRECTORIES).join(namespace_name(lab, host))
}

fn check_name(name: &str) -> Result<(), Error> {
    let can_be = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || name.len() > NAME_MAX || name.starts_with('-') || !name.bytes().all(can_be) {
        let problem = format!("--name: expected 1 to {NAME_MAX} letters, digits, - and _, and no - first");
        return Err(Error::usage(problem));
    }
    Ok(())
}

/// The option that names the lab to another command of `laxity lab`.
pub fn named(name: &str) -> String {
    if name == DEFAULT_NAME { String::new() } else { format!(" --name {name}") }
}

/// A lab that was made.
#[derive(Debug, Serialize)]
pub struct MadeLab<'a> {
    /// Its name.
    pub name: &'a str,
    /// The VLAN between the hosts; `None` where the kernel has none.
    pub vlan: Option<u16>,
    /// Both hosts.
    pub hosts: [End; 2],
}

/// Takes back what was made, unless it is all there.
struct UnfinishedLab<'a> {
    lab: &'a str,
    /// Those that were marked, and whether they have their name.
    made: Vec<(HostName, Namespace, bool)>,
}

impl Drop for UnfinishedLab<'_> {
    fn drop(&mut self) {
        for (host, namespace, is_named) in &self.made {
            if *is_named {
                let _ = pair::remove(namespace);
                let _ = Namespace::remove_named(&namespace_name(self.lab, *host));
            }
            // Only our own mark: another owner of the name may have one, too.
            let directory = directory(self.lab, *host);
            let _ = mark_of(&directory, namespace).and_then(fs::remove_file);
            let _ = fs::remove_dir(&directory);
        }
        let _ = fs::remove_dir(DIRECTORIES);
    }
}

impl UnfinishedLab<'_> {
    /// Makes a host. It is marked before it has its name, so that a process that finds the name knows its owner, wherever we were ended.
    fn create(&mut self, host: HostName) -> Result<(), Error> {
        let name = namespace_name(self.lab, host);
        let trouble = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::usage(format!(
                "there is a network namespace {name} already; `laxity lab down{}` removes the lab {}, another --name makes another one",
                named(self.lab),
                self.lab
            )),
            _ => failed(format!("making the network namespace {name}"))(error),
        };
        let namespace = Namespace::new().map_err(&trouble)?;
        self.made.push((host, namespace, false));
        let (_, namespace, is_named) = self.made.last_mut().expect("it was pushed");
        mark(&directory(self.lab, host), namespace).map_err(failed("making its directory"))?;
        namespace.give_name(&name).map_err(&trouble)?;
        *is_named = true;
        Ok(())
    }
}

/// Makes a lab, unless `stopped` says before it is all there that it is not wanted any more.
///
/// # Errors
/// It cannot be called so; there is one; not permitted; stopped. Nothing of it is left then.
pub fn up(lab: &str, size: Size, stopped: impl Fn() -> bool) -> Result<MadeLab<'_>, Error> {
    check_name(lab)?;
    let mut half = UnfinishedLab { lab, made: Vec::new() };
    let go_on = || match stopped() {
        true => Err(Error::Other { status: 1, text: "interrupted: what was made is taken back".to_owned() }),
        false => Ok(()),
    };
    for host in HostName::BOTH {
        half.create(host)?;
        go_on()?;
    }
    let [(_, a, _), (_, b, _)] = half.made.as_slice() else { unreachable!("both were made") };
    let mut hosts = pair::join([a, b], size).map_err(failed("joining two hosts"))?;
    go_on()?;
    half.made.clear();
    for (end, host) in hosts.iter_mut().zip(HostName::BOTH) {
        end.namespace = Some(namespace_name(lab, host));
    }
    let vlan = hosts[0].vlan_interface.map(|_| VLAN);
    Ok(MadeLab { name: lab, vlan, hosts })
}

/// A lab that was removed.
#[derive(Debug, Serialize)]
pub struct RemovedLab<'a> {
    /// The name that it had.
    pub name: &'a str,
    /// The network namespaces that are gone.
    pub removed: Vec<String>,
    /// The processes that are still in them.
    pub processes: Vec<u32>,
}

/// Removes a lab, or what is left of one.
///
/// # Errors
/// There is none; it belongs to another program; not permitted.
pub fn down(lab: &str) -> Result<RemovedLab<'_>, Error> {
    check_name(lab)?;
    let mut found = Vec::new();
    for host in HostName::BOTH {
        let name = namespace_name(lab, host);
        let directory = directory(lab, host);
        match Namespace::named(&name) {
            Ok(Some(namespace)) => {
                if !is_marked(&directory, &namespace).map_err(failed(format!("looking into {name}")))? {
                    let advice = format!("`ip netns del {name}` removes it");
                    return Err(no_host(&name, &advice));
                }
                found.push((host, name, Some(namespace)));
            }
            Ok(None) => {}
            // What was left when it was made, and nothing was mounted on it.
            Err(error) if error.kind() == io::ErrorKind::InvalidData && has_marks(&directory) => {
                found.push((host, name, None));
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(no_host(&name, &error.to_string())),
            Err(error) => return Err(failed(format!("looking for the network namespace {name}"))(error)),
        }
    }
    // Of a host that has lost its name otherwise, or never had one.
    for host in HostName::BOTH.into_iter().filter(|host| !found.iter().any(|(found, ..)| found == host)) {
        remove_directory(&directory(lab, host)).map_err(failed("removing its directory"))?;
    }
    if found.is_empty() {
        let (a, b) = (namespace_name(lab, HostName::A), namespace_name(lab, HostName::B));
        return Err(Error::usage(format!("there is no lab {lab}: neither a network namespace {a} nor {b}")));
    }
    let inside = inhabitants(found.iter().filter_map(|(_, _, namespace)| namespace.as_ref()));
    let mut removed = Vec::new();
    for (host, name, namespace) in found {
        let remove = || {
            // A process that is still in it keeps the namespace, but not the interface.
            if let Some(namespace) = &namespace {
                pair::remove(namespace)?;
            }
            Namespace::remove_named(&name)?;
            remove_directory(&directory(lab, host))
        };
        remove().map_err(failed(format!("removing {name}")))?;
        removed.push(name);
    }
    Ok(RemovedLab { name: lab, removed, processes: inside })
}

/// The processes that are in one of these namespaces.
fn inhabitants<'a>(namespaces: impl Iterator<Item = &'a Namespace>) -> Vec<u32> {
    let identities: Vec<(u64, u64)> = namespaces.filter_map(|found| found.identity().ok()).collect();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let is_inside = |number: &u32| {
        let namespace = Namespace::at(Path::new(&format!("/proc/{number}/ns/net")));
        namespace.and_then(|found| found.identity()).is_ok_and(|identity| identities.contains(&identity))
    };
    let mut found: Vec<u32> =
        processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(is_inside).collect();
    found.sort_unstable();
    found
}

/// Becomes a command in a host of a lab that stands, so it returns only if it cannot.
///
/// # Errors
/// There is no such lab; not permitted; there is no such command.
pub fn enter(lab: &str, host: HostName, command: &[OsString]) -> Result<Infallible, Error> {
    check_name(lab)?;
    let name = namespace_name(lab, host);
    let Some(namespace) = Namespace::named(&name).map_err(failed(format!("entering {name}")))? else {
        let problem =
            format!("there is no lab {lab}: no network namespace {name}; `laxity lab up{}` makes it", named(lab));
        return Err(Error::usage(problem));
    };
    let trouble = failed(format!("entering {name}"));
    if !is_marked(&directory(lab, host), &namespace).map_err(&trouble)? {
        return Err(no_host(&name, &format!("`ip netns exec {name}` runs a command in it")));
    }
    namespace.enter().map_err(&trouble)?;
    settle(&directory(lab, host)).map_err(&trouble)?;
    let (program, arguments) = command.split_first().expect("the command line demands one");
    // Only if this fails we are still here.
    let source = Command::new(program).args(arguments).exec();
    Err(Error::Other { status: 2, text: format!("{}: {source}", program.to_string_lossy()) })
}

/// Shows this process what the host has instead of what the machine has: its interfaces, its claims.
fn settle(directory: &Path) -> io::Result<()> {
    namespace::show_devices()?;
    make_directory(directory)?;
    make_directory(Path::new(ROOTS))?;
    Ok(rustix::mount::mount_bind(directory, ROOTS)?)
}

/// With the mode that claims expect.
fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// For a namespace of another program.
fn no_host(name: &str, advice: &str) -> Error {
    Error::usage(format!("the network namespace {name} is no host of a lab: `laxity lab up` did not make it; {advice}"))
}

/// Makes the directory of a host, and notes there which namespace it is of: a namespace that has the name later is no host of a lab.
fn mark(directory: &Path, namespace: &Namespace) -> io::Result<()> {
    make_directory(directory)?;
    fs::write(mark_of(directory, namespace)?, "")
}

fn is_marked(directory: &Path, namespace: &Namespace) -> io::Result<bool> {
    mark_of(directory, namespace)?.try_exists()
}

/// True if a host was made here, or was about to be.
fn has_marks(directory: &Path) -> bool {
    let is_mark = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with(MARK))
    };
    fs::read_dir(directory).is_ok_and(|mut entries| entries.any(is_mark))
}

/// A file for each namespace, so that two that are made at once do not take each other's.
fn mark_of(directory: &Path, namespace: &Namespace) -> io::Result<PathBuf> {
    let (device, number) = namespace.identity()?;
    // The kernel gives the numbers of those that are gone to others, but no cookie.
    let cookie = namespace.cookie()?.unwrap_or(0);
    Ok(directory.join(format!("{MARK}-{device}-{number}-{cookie}")))
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Of the last lab, the directory above, too.
    let _ = fs::remove_dir(DIRECTORIES);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_system_takes_and_nothing_else() {
        for name in ["lab", "a", "my-lab_2", &"x".repeat(32)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "-x", "a/b", "..", "a b", "ä", "a.b", &"x".repeat(33)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}

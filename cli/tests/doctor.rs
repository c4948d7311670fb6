//! `laxity doctor` on the host that it runs on. What needs root says so without it. The machine is put back whatever happens.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{Scratch, golden, text};
use serde_json::Value;

const THROTTLE: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const PERIOD: &str = "/proc/sys/kernel/sched_rt_period_us";
const JOURNAL: &str = "/run/laxity/doctor.changes.json";
const PATIENCE: Duration = Duration::from_secs(20);

/// One at a time: they change the host, or measure it.
static HOST: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    HOST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn throttle() -> String {
    fs::read_to_string(THROTTLE).unwrap_or_default().trim().to_owned()
}

fn doctor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_laxity")).arg("doctor").args(arguments).output().unwrap()
}

fn findings(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    golden::shape("doctor", std::slice::from_ref(&report));
    let findings = report["findings"].as_array().unwrap().clone();
    for finding in &findings {
        assert_eq!(finding.as_object().unwrap().len(), 7, "{finding}");
        let state = finding["state"].as_str().unwrap();
        assert!(["good", "optional", "poor", "bad", "unknown"].contains(&state), "{finding}");
        assert!(!finding["found"].as_str().unwrap().is_empty(), "{finding}");
        assert!(finding["cost_ns"].is_null() || finding["cost_text"].is_string(), "{finding}");
        assert!(state != "bad" || finding["remedy"].is_string(), "{finding}");
        // A user who does not ask for AF_XDP is told of nothing that is poor because of it.
        let of_fast_path = finding["name"].as_str().unwrap().starts_with("fast path");
        assert!(!of_fast_path || !["poor", "bad"].contains(&state), "{finding}");
        assert!(!finding["fixable"].as_bool().unwrap() || finding["remedy"].is_string(), "{finding}");
    }
    findings
}

fn named<'a>(findings: &'a [Value], name: &str) -> &'a Value {
    findings
        .iter()
        .find(|finding| finding["name"] == name)
        .unwrap_or_else(|| panic!("{name} is missing in {findings:?}"))
}

/// The longest wake-up in µs that any process tolerates; `None` where it cannot be read.
fn wanted_latency() -> Option<i32> {
    let mut bytes = [0; 4];
    fs::File::open("/dev/cpu_dma_latency").ok()?.read_exact(&mut bytes).ok()?;
    Some(i32::from_ne_bytes(bytes))
}

/// Waits until it is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A `doctor --fix` whose changes are in force. At the end the host is as it was, whatever happened to it.
struct RunningFix {
    child: Child,
    before: String,
}

impl RunningFix {
    /// Why not, if this host does not allow it.
    fn start() -> Result<Self, String> {
        let before = throttle();
        if !is_root() {
            return Err("not root".to_owned());
        }
        if before == "-1" || before.is_empty() {
            return Err(format!("there is no throttle to be switched off ({before:?})"));
        }
        if let Err(error) = fs::OpenOptions::new().write(true).open(THROTTLE) {
            return Err(format!("{THROTTLE} cannot be written: {error}"));
        }
        let child = Command::new(golden::binary())
            .args(["doctor", "--fix", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut fixing = Self { child, before };
        let mut line = String::new();
        BufReader::new(fixing.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let report: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        golden::shape("doctor-fix", std::slice::from_ref(&report));
        let changes = report["changes"].as_array().unwrap();
        let change = changes.iter().find(|change| change["name"] == THROTTLE).unwrap();
        assert_eq!((&change["state"], &change["new"]), (&"changed".into(), &"-1".into()), "{report}");
        assert_eq!(change["old"], fixing.before.as_str());
        assert_eq!(throttle(), "-1");
        Ok(fixing)
    }

    fn guardian(&self) -> i32 {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        match fs::read_to_string(path) {
            Ok(children) => children.split_whitespace().next().unwrap().parse().unwrap(),
            // Not every kernel tells: look at the parents of all processes.
            Err(_) => processes().into_iter().find(|&(_, parent)| parent == self.child.id()).unwrap().0,
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end; what it said.
    fn ends(&mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for RunningFix {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        std::thread::sleep(Duration::from_millis(100));
        if throttle() != self.before {
            let _ = fs::write(THROTTLE, &self.before);
            let _ = fs::remove_file(JOURNAL);
        }
    }
}

/// Processes and their parents.
fn processes() -> Vec<(i32, u32)> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((pid, stat.get(stat.rfind(')')? + 1..)?.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect()
}

fn started() -> Option<RunningFix> {
    match RunningFix::start() {
        Ok(fixing) => Some(fixing),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}

#[test]
fn this_host_is_examined_and_its_throttle_and_interference_have_a_cost() {
    let _alone = alone();
    let start = Instant::now();
    let findings = findings(&doctor(&["--json"]));
    // The promise is half a minute; this machine is busy with other tests.
    assert!(start.elapsed() < Duration::from_secs(60), "it took {:?}", start.elapsed());
    for name in [
        "real-time priority",
        "witnesses",
        "real-time limit",
        "real-time throttle",
        "interference",
        "idle states",
        "timers",
        "kernel preemption",
        "soft interrupts",
        "device lo",
        "fast path",
        "locked memory",
        "transparent huge pages",
        "swap",
        "socket buffers",
        "clock",
        "clock synchronisation",
        "calibration",
        "claims",
        "port 5709",
    ] {
        named(&findings, name);
    }
    assert!(named(&findings, "clock")["cost_ns"].as_u64().unwrap() > 0);
    let interference = named(&findings, "interference");
    assert!(interference["cost_ns"].as_u64().unwrap() > 0, "{interference}");
    let said = interference["found"].as_str().unwrap();
    assert!(said.contains("cannot be promised here") && said.contains("processor "), "{said}");

    let rights = named(&findings, "real-time priority");
    if rights["state"] != "good" {
        return println!("skipped: the throttle shows only to a real-time thread: {rights}");
    }
    let number = |file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let (Some(runtime), Some(period)) = (number(THROTTLE), number(PERIOD)) else {
        return println!("skipped: the throttle is off: {}", throttle());
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if runtime >= period || period > 1_000_000 || processors < 2 {
        return println!("skipped: no throttle to be seen ({runtime} of {period}, {processors} processors)");
    }
    // The stop lasts what is missing in the period. The kernel looks at its ticks, so half of it up to four times it will do;
    // beside a busy machine it can be longer, but not shorter.
    let throttle = named(&findings, "real-time throttle");
    let (cost, expected) = (throttle["cost_ns"].as_u64().unwrap(), (period - runtime) * 1000);
    assert!(cost >= expected / 2 && cost <= expected * 4, "{cost} where about {expected} was expected: {throttle}");
    assert_eq!((&throttle["state"], &throttle["fixable"]), (&"poor".into(), &true.into()));
    assert!(throttle["remedy"].as_str().unwrap().contains("sched_rt_runtime_us=-1"), "{throttle}");
}

#[test]
fn people_get_tables_with_the_worst_first() {
    let _alone = alone();
    let output = doctor(&["--quick"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let place = |word: &str| said.find(&format!("| {word} "));
    let good = place("good").unwrap_or_else(|| panic!("nothing is good: {said}"));
    assert!(place("poor").is_none_or(|poor| poor < good), "{said}");
    assert!(place("bad").zip(place("poor")).is_none_or(|(bad, poor)| bad < poor), "{said}");
    assert!(said.contains("beside whatever else ran"), "{said}");
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    let _alone = alone();
    if !is_root() {
        return println!("skipped: not root, so no other user to be");
    }
    let scratch = Scratch::new("doctor", "unprivileged");
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = scratch.0.join("laxity");
    fs::copy(env!("CARGO_BIN_EXE_laxity"), &copy).unwrap();
    // Where the claims of that user go.
    let runtime = scratch.0.join("runtime");
    fs::create_dir(&runtime).unwrap();
    std::os::unix::fs::chown(&runtime, Some(65534), Some(65534)).unwrap();
    let as_unprivileged = |arguments: &[&str]| unprivileged(&copy, &runtime, arguments);
    let Some(output) = as_unprivileged(&["--quick", "--json"]) else {
        return println!("skipped: setpriv is not installed");
    };
    let findings = findings(&output);
    let rights = named(&findings, "real-time priority");
    assert_eq!(rights["state"], "bad", "{rights}");
    assert!(rights["cost_ns"].as_u64().unwrap() > 0, "{rights}");
    let remedy = rights["remedy"].as_str().unwrap();
    for way in ["limits.d", "LimitRTPRIO", "setcap", "rtkit"] {
        assert!(remedy.contains(way), "{way}: {remedy}");
    }
    assert!(named(&findings, "locked memory")["remedy"].as_str().unwrap().contains("memlock unlimited"));
    let fast_path = named(&findings, "fast path");
    assert_eq!(fast_path["state"], "optional", "{fast_path}");
    for right in ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_PERFMON"] {
        assert!(fast_path["found"].as_str().unwrap().contains(right), "{right}: {fast_path}");
    }
    assert!(fast_path["remedy"].as_str().unwrap().contains("setcap cap_net_admin"), "{fast_path}");

    let refused = as_unprivileged(&["--fix"]).unwrap();
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("sudo"), "{}", text(&refused.stderr));
}

/// Runs the doctor as the user who owns nothing; `None` without setpriv.
fn unprivileged(laxity: &Path, runtime: &PathBuf, arguments: &[&str]) -> Option<Output> {
    let outcome = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(laxity)
        .arg("doctor")
        .args(arguments)
        .current_dir("/")
        .env("XDG_RUNTIME_DIR", runtime)
        .output();
    match outcome {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        outcome => Some(outcome.unwrap()),
    }
}

#[test]
fn ctrl_c_ends_the_examination_at_once_and_in_order() {
    let _alone = alone();
    let child = Command::new(env!("CARGO_BIN_EXE_laxity"))
        .args(["doctor", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let start = Instant::now();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["interrupted"]), (Some(0), &true.into()), "{report}");
    let skipped = |finding: &Value| finding["found"].as_str().unwrap().contains("interrupted");
    assert!(findings(&output).iter().any(skipped), "{report}");
}

#[test]
fn bad_input_is_refused() {
    let together = doctor(&["--fix", "--quick"]);
    assert_eq!(together.status.code(), Some(2));
    assert!(text(&together.stderr).contains("--fix measures nothing"), "{}", text(&together.stderr));
    for arguments in [&["--", "true"][..], &["now"], &["--fix=yes"]] {
        assert_eq!(doctor(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn fixes_last_as_long_as_the_command_and_its_status_is_passed_on() {
    let _alone = alone();
    // Started and ended once only to see whether it is permitted, and that the end of a command is not the only orderly end.
    let Some(mut fixing) = started() else { return };
    fixing.signal(rustix::process::Signal::INT);
    assert_eq!(fixing.ends().0, Some(0));
    assert_eq!(throttle(), fixing.before);

    let output = doctor(&["--fix", "--", "sh", "-c", &format!("cat {THROTTLE}; exit 7")]);
    assert_eq!((output.status.code(), text(&output.stdout).trim()), (Some(7), "-1"), "{}", text(&output.stderr));
    assert_eq!(throttle(), fixing.before);
    assert!(!Path::new(JOURNAL).exists());
    let output = doctor(&["--fix", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.code(), Some(128 + 15), "{}", text(&output.stderr));
    let output = doctor(&["--fix", "--", "/no/such/command"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("/no/such/command"));
    assert_eq!(throttle(), fixing.before);
}

#[test]
fn a_signal_undoes_the_fixes_and_only_one_doctor_fixes_at_a_time() {
    let _alone = alone();
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::HUP] {
        let Some(mut fixing) = started() else { return };
        let second = doctor(&["--fix", "--", "true"]);
        let said = text(&second.stderr);
        assert_eq!(second.status.code(), Some(4), "{said}");
        assert!(said.contains(&format!("pid {}", fixing.child.id())), "{said}");
        assert_eq!(throttle(), "-1");
        fixing.signal(signal);
        let (status, said) = fixing.ends();
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains(&format!("{THROTTLE} is {} again", fixing.before)), "{said}");
        assert_eq!(throttle(), fixing.before);
        assert!(!Path::new(JOURNAL).exists());
    }
}

#[test]
fn a_command_that_goes_on_is_ended_with_the_doctor() {
    let _alone = alone();
    let Some(mut probe) = started() else { return };
    probe.signal(rustix::process::Signal::TERM);
    probe.ends();
    let child = Command::new(env!("CARGO_BIN_EXE_laxity"))
        .args(["doctor", "--fix", "--", "sleep", "600"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the fixes are in force", || throttle() == "-1");
    // Time for the command to begin.
    std::thread::sleep(Duration::from_millis(300));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15), "{}", text(&output.stderr));
    assert_eq!(throttle(), probe.before);
}

#[test]
fn when_the_doctor_is_killed_its_guardian_undoes_the_fixes() {
    let _alone = alone();
    let Some(mut fixing) = started() else { return };
    assert!(wanted_latency().is_none_or(|wanted| wanted == 0), "{:?}", wanted_latency());
    fixing.child.kill().unwrap();
    until("the guardian puts the throttle back", || throttle() == fixing.before);
    until("the guardian takes the journal away", || !Path::new(JOURNAL).exists());
    let (status, said) = fixing.ends();
    assert_eq!(status, None);
    let expected =
        format!("laxity: doctor (pid {}) was killed; {THROTTLE} is {} again", fixing.child.id(), fixing.before);
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn when_both_are_killed_the_next_doctor_undoes_the_fixes() {
    let _alone = alone();
    let Some(mut fixing) = started() else { return };
    let guardian = rustix::process::Pid::from_raw(fixing.guardian()).unwrap();
    rustix::process::kill_process(guardian, rustix::process::Signal::KILL).unwrap();
    fixing.child.kill().unwrap();
    fixing.child.wait().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(throttle(), "-1", "it is put back already");
    assert!(Path::new(JOURNAL).exists());
    let output = doctor(&["--quick", "--json"]);
    assert_eq!(throttle(), fixing.before);
    assert!(!Path::new(JOURNAL).exists());
    let findings = findings(&output);
    let found = named(&findings, "changes in force")["found"].as_str().unwrap();
    assert!(found.contains(&format!("{THROTTLE} is {} again", fixing.before)), "{found}");
    let who = format!("doctor (pid {})", fixing.child.id());
    assert!(found.contains(&format!("{who} and its guardian were killed earlier")), "{found}");
    assert!(text(&output.stderr).contains(&format!("{who} was killed; ")), "{}", text(&output.stderr));
}

#[test]
fn what_another_program_changed_meanwhile_stays_and_is_told() {
    let _alone = alone();
    let Some(mut fixing) = started() else { return };
    // More than it was: less than the sum of its groups the kernel would refuse.
    fs::write(THROTTLE, "960000").unwrap();
    fixing.signal(rustix::process::Signal::TERM);
    let (status, said) = fixing.ends();
    // The guard puts back what was there before the test.
    let left = throttle();
    assert_eq!((status, left.as_str()), (Some(0), "960000"), "{said}");
    assert!(said.contains("left at 960000: another program changed it"), "{said}");
    assert!(!Path::new(JOURNAL).exists());
}

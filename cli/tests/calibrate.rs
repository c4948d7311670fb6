//! `laxity calibrate` as a user runs it: what it writes, what it leaves behind when it is stopped, and what it refuses. Nothing here
//! depends on how fast or how quiet the host is: so short a calibration may claim that it can promise nothing.

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{Scratch, example, golden, text};
use laxity::Calibration;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The shortest that is permitted.
const SHORTEST: [&str; 2] = ["--duration", "10s"];
const PATIENCE: Duration = Duration::from_secs(60);
const UNPRIVILEGED: u32 = 65_534;

/// One at a time: each of them takes all processors.
static HOST: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    HOST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command that finds no calibration by itself.
fn laxity(arguments: &[&str]) -> Command {
    let mut command = Command::new(golden::binary());
    command.args(arguments).env_remove("LAXITY_CALIBRATION").env("XDG_CONFIG_HOME", "/absent").stdin(Stdio::null());
    if arguments.first() == Some(&"calibrate") {
        // Whatever else runs on this machine.
        command.arg("--beside");
    }
    command
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

/// What is in a directory, hidden files too.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

fn keys(object: &Value) -> Vec<&str> {
    let object = object.as_object().unwrap_or_else(|| panic!("{object}"));
    let mut keys: Vec<_> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

fn whole_picture(file: &Path) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"), "{}", path(file));
}

/// Sends one message over loopback on this calibration: status and standard error of the sender, and what both ends counted.
fn transfer(scratch: &Scratch, calibration: &Path, contract: &[&str]) -> (Option<i32>, String, Vec<Value>) {
    let both = ["--json", "--calibration", path(calibration)];
    let (sender, receiver) = common::transfer(scratch, laxity, contract, &both);
    let (status, said, heard) = (sender.status.code(), text(&sender.stderr), text(&receiver.stderr));
    if status != Some(0) {
        return (status, said, Vec::new());
    }
    assert_eq!(receiver.status.code(), Some(0), "{heard}");
    // A receiver's figures are on standard error, since standard output has the messages.
    let received = heard.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{heard}"));
    let figures = [&sender.stdout[..], received.as_bytes()].map(|json| serde_json::from_slice(json).unwrap());
    (status, said, figures.into())
}

/// Both ends watch what the calibration claims.
fn watches(calibration: &Calibration, figures: &[Value]) {
    assert_eq!(figures.len(), 2);
    for figures in figures {
        let premises = &figures["premises"];
        assert_eq!(keys(premises), ["overruns", "peers", "windows"], "{figures}");
        let watched = premises["windows"].as_array().unwrap().iter();
        let watched: Vec<_> =
            watched.map(|one| (one["window_ns"].as_u64().unwrap(), one["budget_ns"].as_u64().unwrap())).collect();
        let claimed = calibration.platform.interference.envelopes.iter();
        assert_eq!(watched, claimed.map(|(window, budget)| (window.as_nanos(), budget.as_nanos())).collect::<Vec<_>>());
    }
}

/// AF_XDP costs differently, so a socket claims nothing of them.
#[test]
fn af_xdp_is_calibrated_between_two_namespaces() {
    let _alone = alone();
    let scratch = Scratch::new("calibrate", "xdp");
    let file = scratch.0.join("xdp.toml");
    let output = laxity(&[&["calibrate", "--link", "xdp", "-o", path(&file), "--json"][..], &SHORTEST].concat())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    if output.status.code() == Some(4) {
        println!("skipped: {said}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    golden::shape("calibrate", std::slice::from_ref(&report));
    assert_eq!((&report["taken"]["link"], &report["taken"]["interface"]), (&"xdp".into(), &"veth".into()));
    let notes = report["notes"].to_string();
    assert!(notes.contains("pair of virtual interfaces"), "{notes}");
    // Whatever the file is called, and although it claims something of AF_XDP.
    let (status, said, _) = transfer(&scratch, &file, &["--best-effort"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("the link is udp, and was xdp when it was calibrated"), "{said}");
}

#[test]
fn a_short_calibration_is_written_and_used() {
    let _alone = alone();
    let scratch = Scratch::new("calibrate", "short");
    let [file, plot, interference] = ["this.toml", "plot.svg", "interference.svg"].map(|name| scratch.0.join(name));
    let more = ["--plot", path(&plot), "--interference", path(&interference), "--json"];
    let output = laxity(&[&["calibrate", "-o", path(&file)][..], &SHORTEST, &more].concat()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = [
        "against",
        "choice",
        "confidence_ppm",
        "costs",
        "file",
        "level",
        "notes",
        "taken",
        "typical",
        "why",
        "windows",
    ];
    assert_eq!(keys(&report), expected);
    golden::shape("calibrate", std::slice::from_ref(&report));
    assert_eq!((&report["file"], &report["against"]), (&path(&file).into(), &Value::Null));
    assert!(report["taken"]["duration_ns"].as_u64().unwrap() >= 10_000_000_000, "{}", report["taken"]);
    let level = report["level"].as_str().unwrap();
    assert!(["none", "statistical"].contains(&level), "ten seconds carry no {level}: {}", report["why"]);
    assert!(!report["why"].as_array().unwrap().is_empty(), "and it is said why");

    // The file has what was said.
    let calibration = Calibration::read(&file).unwrap();
    let costs = report["costs"].as_array().unwrap();
    assert_eq!(costs.len(), calibration.costs.len());
    for (said, cost) in costs.iter().zip(&calibration.costs) {
        assert_eq!((&said["kind"], &said["packet_bytes"]), (&cost.kind.name().into(), &cost.packet.into()));
        assert_eq!(said["claimed_ns"], cost.claimed.as_nanos());
    }
    // Two observers, four lengths.
    assert_eq!((report["windows"].as_array().unwrap().len(), calibration.windows.len()), (8, 8));
    whole_picture(&interference);
    match &report["choice"] {
        Value::Null => assert!(said.contains("there is nothing to draw") && !plot.exists(), "{said}"),
        choice => {
            assert_eq!(choice["packet_bytes"], calibration.platform.packet);
            whole_picture(&plot);
        }
    }
    assert!(names(&scratch.0).iter().all(|name| !name.ends_with(".tmp")), "{:?}", names(&scratch.0));

    // It is used, whatever it admits.
    let robot = example("robot.toml");
    let output = laxity(&["admit", path(&robot), "--json", "--calibration", path(&file)]).output().unwrap();
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["calibration"]["duration_ns"], report["taken"]["duration_ns"]);
    for channel in answer["channels"].as_array().unwrap() {
        assert_ne!(channel["guarantee"], "calibrated", "{channel}");
    }
    let (status, said, figures) = transfer(&scratch, &file, &["--best-effort"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("calibrated 20"), "{said}");
    watches(&calibration, &figures);
    let (status, said, figures) = transfer(&scratch, &file, &["--interval", "1s", "--deadline", "5s"]);
    match status {
        Some(0) => watches(&calibration, &figures),
        _ => assert!(status == Some(3) && said.contains("refused by"), "{status:?}: {said}"),
    }
}

#[test]
fn an_ordinary_user_gets_what_is_permitted() {
    let _alone = alone();
    let scratch = Scratch::new("calibrate", "user");
    let home = scratch.0.join("home");
    let earlier = scratch.file("earlier.toml", include_str!("../../fuzz/corpus/system_file/calibration"));
    fs::create_dir(&home).unwrap();
    let mut command = if rustix::process::geteuid().is_root() {
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&home, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        let copy = scratch.0.join("laxity");
        fs::copy(env!("CARGO_BIN_EXE_laxity"), &copy).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(copy);
        command
    } else {
        Command::new(env!("CARGO_BIN_EXE_laxity"))
    };
    command.args(["calibrate", "--against", path(&earlier)]).args(SHORTEST).stdin(Stdio::null()).current_dir("/");
    command.env_remove("LAXITY_CALIBRATION").env("XDG_CONFIG_HOME", &home);
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return println!("skipped: setpriv is not installed");
        }
        output => output.unwrap(),
    };
    let (said, page) = (text(&output.stderr), text(&output.stdout));
    assert_eq!(output.status.code(), Some(0), "{said}");
    // Where that user's commands look for it.
    let file = home.join("laxity/calibration.toml");
    assert_eq!(names(file.parent().unwrap()), ["calibration.toml"]);
    assert!(page.ends_with(&format!("Written to {}.\n", path(&file))), "{page}");
    // The other host measured packets of other sizes, or costs that are not measured again to the nanosecond.
    assert!(page.contains("the earlier calibration"), "{page}");
    let calibration = Calibration::read(&file).unwrap();
    let unlocked = "measured without locked memory, which is not permitted here";
    assert_eq!(page.contains(unlocked), !calibration.taken.memory_locked, "{page}");
    if matches!(calibration.taken.scheduling, laxity::Scheduling::Fifo(_)) {
        return println!("skipped: ordinary users may have real-time priority here");
    }
    for words in
        ["measured without real-time priority, which is not permitted here", "Guarantee with it: none.", "as ordinary"]
    {
        assert!(page.contains(words), "{words} in {page}");
    }
    let system = scratch.file(
        "system.toml",
        "[[channel]]\nname = \"a\"\nmax_message = \"1KB\"\ninterval = \"1s\"\ndeadline = \"1s\"\n",
    );
    let answer = laxity(&["admit", path(&system), "--json", "--calibration", path(&file)]).output().unwrap();
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(answer["channels"][0]["guarantee"], "none", "{answer}");
}

/// A calibration in the middle.
struct Measuring(Child);

impl Measuring {
    fn start(directory: &Path, file: &str) -> Self {
        let [file, plot, interference] = [file, "plot.svg", "interference.svg"].map(|name| directory.join(name));
        let pictures = ["--plot", path(&plot), "--interference", path(&interference)];
        let arguments = ["calibrate", "--duration", "1h", "--hogs", "1", "-o", path(&file)];
        let child = laxity(&[&arguments[..], &pictures].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut measuring = Self(child);
        // Its load is there only while it measures.
        measuring.until("its load runs", |measuring| {
            let threads = fs::read_dir(format!("/proc/{}/task", measuring.0.id())).unwrap();
            let mut names = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
            names.any(|name| name.trim() == "load-hog-0")
        });
        measuring
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < PATIENCE, "waited for this in vain: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How it ends after this signal: the status, and what it said.
    fn end(mut self, signal: Signal) -> Output {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
        self.until("its end", |measuring| measuring.0.try_wait().unwrap().is_some());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.0.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        self.0.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
        Output { status: self.0.wait().unwrap(), stdout, stderr }
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_calibration_that_is_stopped_changes_nothing() {
    let _alone = alone();
    let scratch = Scratch::new("calibrate", "stopped");
    let old = "an old file, whatever it holds";
    scratch.file("old.toml", old);
    for (signal, file) in
        [(Signal::INT, "old.toml"), (Signal::TERM, "new.toml"), (Signal::KILL, "old.toml"), (Signal::KILL, "new.toml")]
    {
        let output = Measuring::start(&scratch.0, file).end(signal);
        assert_eq!(names(&scratch.0), ["old.toml"], "{signal:?}");
        assert_eq!(fs::read_to_string(scratch.0.join("old.toml")).unwrap(), old, "{signal:?}");
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        if signal != Signal::KILL {
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.ends_with("laxity: interrupted: nothing was kept\n"), "{said}");
        }
    }
}

/// Exit status 2 and these words, at once and with nothing written.
fn refused(scratch: &Scratch, arguments: &[&str], why: &str) {
    let before = names(&scratch.0);
    let start = Instant::now();
    let output = laxity(&[&["calibrate"][..], arguments].concat()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(said.contains(why), "{why} in {said}");
    assert!(output.stdout.is_empty());
    assert_eq!(names(&scratch.0), before, "{arguments:?}");
    // Not after ten minutes, or a third of them.
    assert!(start.elapsed() < PATIENCE, "{arguments:?}");
}

#[test]
fn what_cannot_be_measured_or_written_is_refused_at_once() {
    let _alone = alone();
    let scratch = Scratch::new("calibrate", "refused");
    let out = scratch.0.join("out.toml");
    let out = path(&out);
    for (duration, why) in [
        ("0s", "--duration is 0ns, expected 10s to a week"),
        ("9999ms", "--duration is 9.999s, expected 10s to a week"),
        ("169h", "expected 10s to a week"),
        ("10", "--duration: "),
        ("soon", "--duration: "),
        ("-10s", "--duration"),
        ("99999999999999999999s", "--duration: "),
    ] {
        refused(&scratch, &[&format!("--duration={duration}"), "-o", out], why);
    }
    for (more, why) in [
        (&["--quick", "--duration", "10s"][..], "cannot be used with"),
        (&["--hogs", "1025"], "--hogs is at most 1024"),
        (&["--hogs=-1"], "--hogs"),
        (&["--flood", "1000001"], "--flood at most 1000000"),
        (&["--flood", "many"], "--flood"),
        (&["--interface", "no-such-device"], "there is no network device \"no-such-device\""),
        (&["--interface", ""], "there is no network device \"\""),
        (&["--interface", "../../../etc"], "there is no network device"),
        (&["--link-rate", "fast"], "--link-rate: "),
        (&["--link-rate", "0Mbit/s"], "--link-rate: "),
        (&["--link-rate", "100"], "--link-rate: "),
    ] {
        refused(&scratch, &[more, &["-o", out]].concat(), why);
    }
    // A device whose driver tells no rate needs one.
    let devices = fs::read_dir("/sys/class/net").unwrap().map(|device| device.unwrap());
    let mut silent = devices.filter(|device| {
        let speed = fs::read_to_string(device.path().join("speed"));
        device.file_name() != "lo" && speed.map_or(true, |speed| speed.trim().parse::<u64>().is_err())
    });
    match silent.next() {
        Some(device) => {
            let name = device.file_name().into_string().unwrap();
            refused(
                &scratch,
                &["--interface", &name, "-o", out],
                "does not tell its rate; give it, for instance --link-rate",
            );
        }
        None => println!("skipped: the driver of every device tells its rate"),
    }
    // Places, of all three files.
    let absent = scratch.0.join("absent/out");
    let beneath = scratch.file("file", "content").join("out");
    for (place, why) in
        [(&scratch.0, "is a directory"), (&absent, "No such file or directory"), (&beneath, "Not a directory")]
    {
        for option in ["-o", "--plot", "--interference"] {
            let whole = [option, path(place)];
            let arguments = if option == "-o" { whole.to_vec() } else { [&whole[..], &["-o", out]].concat() };
            refused(&scratch, &arguments, why);
            refused(&scratch, &arguments, path(place));
        }
    }
    refused(&scratch, &["-o", out, "--plot", out], "cannot hold two");
    refused(&scratch, &["-o", "/proc/laxity-calibration"], "/proc/laxity-calibration: ");
    // An earlier calibration that is none.
    let spoilt = scratch.file("spoilt.toml", "[calibration]\nversion = 1\n");
    refused(&scratch, &["--against", path(&spoilt), "-o", out], path(&spoilt));
    let missing = scratch.0.join("missing.toml");
    refused(&scratch, &["--against", path(&missing), "-o", out], "No such file");
}

#[test]
fn what_the_user_may_not_write_is_refused_at_once() {
    let _alone = alone();
    let scratch = Scratch::new("calibrate", "unwritable");
    let file = scratch.file("theirs.toml", "theirs");
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let mut command = laxity(&["calibrate", "-o", path(&file)]);
    if rustix::process::geteuid().is_root() {
        std::os::unix::process::CommandExt::gid(
            std::os::unix::process::CommandExt::uid(&mut command, UNPRIVILEGED),
            UNPRIVILEGED,
        );
    }
    let outcome = command.output();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).unwrap();
    let Ok(output) = outcome else {
        return println!("skipped: another user may not run the command");
    };
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(path(&file)) && said.contains("Permission denied"), "{said}");
    assert_eq!(
        (names(&scratch.0), fs::read_to_string(&file).unwrap()),
        (vec!["theirs.toml".to_owned()], "theirs".to_owned())
    );
}

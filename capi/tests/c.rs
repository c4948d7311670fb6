//! C programs against the header and the static library: what the header says (`rules.c`), and the example `examples/pipeline.c`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// The static library of this build. Cargo makes it together with the library that this test depends on, so it lies beside this test's program and is
/// never older. Where a build tool puts it elsewhere, cargo is asked to make it.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let beside = program.parent().unwrap();
    let upwards = [beside, beside.parent().unwrap()];
    let found = || upwards.iter().map(|directory| directory.join("liblaxity_c.a")).find(|file| file.exists());
    found().unwrap_or_else(|| {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let made = Command::new(env!("CARGO")).args(["build", "--package", "laxity-c", "--profile", profile]).status();
        assert!(made.unwrap().success());
        found().expect("cargo build has made it where the tests are")
    })
}

/// Compiles a program of this crate's directory, or of an absolute path, with every warning an error.
fn compiled(source: impl AsRef<Path>) -> PathBuf {
    let (root, source) = (Path::new(env!("CARGO_MANIFEST_DIR")), source.as_ref());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source.file_stem().unwrap());
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-o"]).arg(&program);
    compiler.arg("-I").arg(root).arg(root.join(source)).arg(library()).args(["-lpthread", "-ldl", "-lm"]);
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn said(output: &Output) -> String {
    format!("{}\n{}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn the_header_keeps_its_rules() {
    let output = Command::new(compiled("tests/rules.c")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn what_the_documentation_shows_are_programs() {
    let text = include_str!("../../docs/c-api.md");
    let programs: Vec<&str> = text.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let expected = [("channel", "21.5\n"), ("upcall", "10\n")];
    assert_eq!(programs.len(), expected.len());
    for (program, (name, printed)) in programs.into_iter().zip(expected) {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shown-{name}.c"));
        std::fs::write(&source, program).unwrap();
        let output = Command::new(compiled(&source)).env("LAXITY_CALIBRATION", "none").output().unwrap();
        assert!(output.status.success() && output.stdout == printed.as_bytes(), "{name}: {}", said(&output));
    }
}

/// The first processor that this process may use.
fn processor() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    allowed.trim().chars().take_while(char::is_ascii_digit).collect()
}

/// Whether it is in time is for a quiet machine to tell. Here it has to run, and to account for every run that was due and every frame.
#[test]
fn the_example_accounts_for_every_run_and_every_frame() {
    let program = compiled("../examples/pipeline.c");
    let run = || Command::new(&program).args(["--seconds", "1", "--processor", &processor()]).output().unwrap();
    let mut output = run();
    // Another process of this machine may have upcalls on the processor for a while.
    for _ in 0..20 {
        if !said(&output).contains("of another process") {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
        output = run();
    }
    let text = said(&output);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{text}");
    assert_eq!(text.matches(": all accounted for").count(), 3, "{text}");
    assert!(text.contains("\npipeline 25 frames, ") && text.contains(" 0 altered; "), "{text}");
    let bad = Command::new(&program).arg("--bad").output().unwrap();
    assert_eq!(bad.status.code(), Some(2), "{}", said(&bad));
}

//! The examples at the end of each command's help. Those with `sudo` need root.

/// The long help's end: `help`, then the examples.
pub(crate) fn behind(help: &str, examples: &str) -> String {
    format!("{help}\n\n{examples}")
}

pub(crate) const LAXITY: &str = "\
Examples:
  laxity demo
      shows guaranteed channels under attack; writes laxity-demo.html
  laxity admit examples/robot.toml
      answers which channels of a file this host can promise
  laxity doctor
      lists problems of this host, what they cost, and how to mend them";

pub(crate) const RECV: &str = "\
Examples:
  laxity recv camera --bind 127.0.0.1:5709 --framing fixed:1000 > received
      waits for a sender on this host, and writes its messages to a file
  laxity recv camera --figures figures.json > received
      takes senders of other hosts, too; writes the figures to figures.json";

pub(crate) const SEND: &str = "\
Examples:
  head -c 60000 /dev/zero | laxity send 127.0.0.1:5709/camera \\
      --framing fixed:1000 --max-message 1KB --interval 10ms --deadline 50ms
      sends 60 messages of 1000 bytes, one every 10 ms, each within 50 ms;
      needs `laxity recv camera --bind 127.0.0.1:5709` in another terminal
  head -c 60000 /dev/zero | laxity send 127.0.0.1:5709/camera \\
      --framing fixed:1000 --max-message 1KB --best-effort
      sends the same without a contract";

pub(crate) const SERVE: &str = "\
Examples:
  laxity serve --bind 127.0.0.1:5709
      serves `laxity recv` and `laxity send` of this user until Ctrl-C
  laxity serve --check
      prints the rules for other users
  sudo laxity serve --streams=20% --guard
      also keeps a fifth of the processor and of the link for `laxity stream`";

pub(crate) const STREAM: &str = "\
Examples, beside `sudo laxity serve --streams=20% --guard`:
  sudo laxity stream add control --tcp --local :5000 --packets 15 --period 10ms
      gives TCP packets of the local port 5000 a path of their own
  sudo laxity stream list
      shows all streams, and how many packets they had
  sudo laxity stream remove control
      takes the path away again";

pub(crate) const DEMO: &str = "\
Examples:
  laxity demo
      runs all scenarios in a minute; writes laxity-demo.html
  laxity demo --attack flood --stack laxity --duration 1s --no-html
      runs Laxity under a flood, and nothing else
  laxity demo --simulated-only --html simulated.html
      runs the part in virtual time; writes simulated.html";

pub(crate) const ADMIT: &str = "\
Examples:
  laxity admit examples/robot.toml
      grants each channel with a bound, or says what would fit
  laxity admit examples/robot.toml --set
      finds an order in which all channels of the file are granted
  laxity admit examples/robot.toml --plot robot.svg
      also draws demand and bounds";

pub(crate) const CALIBRATE: &str = "\
Examples:
  sudo laxity calibrate --quick
      measures for 35 s; the commands of all users then use the result
  laxity calibrate --quick --no-realtime --output trial.toml
      measures without rights, into a file
  laxity admit examples/robot.toml --calibration trial.toml
      uses that file";

pub(crate) const DOCTOR: &str = "\
Examples:
  laxity doctor --quick
      reports what delays messages on this host, and how to mend it
  sudo laxity doctor --fix -- laxity demo
      changes what is safe, runs the demo, and undoes the changes";

pub(crate) const LAB: &str = "\
Examples:
  sudo laxity lab run --link xdp
      sends guaranteed messages over AF_XDP under a flood, for ten seconds
  sudo laxity lab up
      makes two hosts, a and b, that stay
  sudo laxity lab run a -- ip address
      runs a command in host a
  sudo laxity lab down
      removes both hosts";

pub(crate) const LAB_UP: &str = "\
Examples:
  sudo laxity lab up
      makes the network namespaces lab-a and lab-b
  sudo laxity lab up --name other --queues 2
      makes other-a and other-b, whose interfaces have two queues";

pub(crate) const LAB_DOWN: &str = "\
Examples:
  sudo laxity lab down
      removes what `laxity lab up` made";

pub(crate) const LAB_RUN: &str = "\
Examples:
  sudo laxity lab run --link xdp
      sends guaranteed messages over AF_XDP under a flood, for ten seconds
  sudo laxity lab run --attack hogs --seconds 5 --json
      over UDP, beside threads that compute; prints one JSON object
  sudo laxity lab run a -- ip address
      runs a command in host a of the lab that `laxity lab up` made";

pub(crate) const BENCH: &str = "\
Examples:
  laxity bench channels-guarantee --simulated --plot guarantee.svg
      repeats Fig. 7 of the paper in virtual time, and draws it
  laxity bench upcall-switches --simulated
      repeats an experiment on upcalls
  sudo laxity bench roundtrip
      compares round trips over Laxity and over plain sockets, for some minutes";

pub(crate) const SIM: &str = "\
Examples:
  laxity sim examples/robot.scenario.toml --trace robot.json
      simulates a scenario; writes a trace for ui.perfetto.dev
  laxity sim --swarm --worlds 100
      runs 100 random worlds under all kinds of faults
  laxity sim --search --seconds 10
      tries for ten seconds to break a bound";

pub(crate) const STREAM_ADD: &str = "\
Examples, beside `sudo laxity serve --streams=40% --guard`:
  sudo laxity stream add control --tcp --local :5000 --packets 15 --period 10ms
      gives TCP packets of the local port 5000 a path of their own
  sudo laxity stream add video --udp --remote 192.0.2.2:6000 \\
      --packets 5 --period 20ms --excess dropped
      does so for UDP packets of a peer, and drops those beyond 5 in 20 ms";

pub(crate) const STREAM_LIST: &str = "\
Examples:
  sudo laxity stream list
      shows all streams, and how many packets they had
  sudo laxity stream list --json
      prints one JSON object for each stream";

pub(crate) const STREAM_REMOVE: &str = "\
Examples:
  sudo laxity stream remove control
      takes the path of the stream `control` away";

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, Parser};

    use crate::args::Arguments;

    /// The arguments of `laxity` in a line of shell: from the word `laxity` to the end of the command.
    fn words(line: &str) -> Vec<String> {
        let from = line.find("laxity ").expect("a command");
        line[from..]
            .split_whitespace()
            .take_while(|word| !matches!(*word, ">" | "|" | "<"))
            .map(str::to_owned)
            .collect()
    }

    fn check(command: &Command) -> usize {
        let short =
            command.get_after_help().unwrap_or_else(|| panic!("no example: {}", command.get_name())).to_string();
        let long = command.get_after_long_help().map_or_else(|| short.clone(), ToString::to_string);
        let (_, examples) = short.split_once("Examples").expect("a heading");
        assert!(long.ends_with(examples), "{long}");
        // A line that ends in a backslash goes on.
        let joined = examples.replace("\\\n", "");
        let lines: Vec<&str> =
            joined.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")).collect();
        assert!((1..=4).contains(&lines.len()), "{examples}");
        for line in &lines {
            if let Err(error) = Arguments::try_parse_from(words(line)) {
                panic!("{line}: {error}");
            }
        }
        assert!(examples.lines().all(|line| line.len() <= 80), "{examples}");
        let below = command.get_subcommands().filter(|command| !command.is_hide_set());
        lines.len() + below.map(check).sum::<usize>()
    }

    #[test]
    fn each_help_ends_with_examples_that_can_be_parsed() {
        assert!(check(&Arguments::command()) > 30);
    }
}

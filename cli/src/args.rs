//! The command line: the commands, with examples of each. Their options stand in their own modules.
//!
//! The help is what the comments say: first of a command its first paragraph, then its options, then, if it is the long help, the comment of its
//! arguments, then the examples. Those with `sudo` need root.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

/// Communication with quality-of-service guarantees for stock Linux
///
/// `laxity COMMAND --help` lists the options of a command.
///
/// Exit status:
///   0  done, no miss by Laxity
///   1  a miss by Laxity, an undecided message, a broken premise of a peer's clock
///      or network, or a failed check
///   2  bad input
///   3  refused by admission
///   4  not permitted on this host
///   5  peer, network or port
///
/// Examples:
///   laxity demo
///       shows guaranteed channels under attack; writes laxity-demo.html
///   laxity admit examples/robot.toml
///       answers which channels of a file this host can promise
///   laxity doctor
///       lists problems of this host, what they cost, and how to mend them
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Receives the messages of one channel and writes them to standard output
    ///
    /// Examples:
    ///   laxity recv camera --bind 127.0.0.1:5709 --framing fixed:1000 > received
    ///       waits for a sender on this host, and writes its messages to a file
    ///   laxity recv camera --figures figures.json > received
    ///       takes senders of other hosts, too; writes the figures to figures.json
    #[command(verbatim_doc_comment)]
    Recv(crate::recv::RecvArguments),
    /// Cuts standard input into messages and sends them over one channel
    ///
    /// Examples:
    ///   head -c 60000 /dev/zero | laxity send 127.0.0.1:5709/camera \
    ///       --framing fixed:1000 --max-message 1KB --interval 10ms --deadline 50ms
    ///       sends 60 messages of 1000 bytes, one every 10 ms, each within 50 ms;
    ///       needs `laxity recv camera --bind 127.0.0.1:5709` in another terminal
    ///   head -c 60000 /dev/zero | laxity send 127.0.0.1:5709/camera \
    ///       --framing fixed:1000 --max-message 1KB --best-effort
    ///       sends the same without a contract
    #[command(verbatim_doc_comment)]
    Send(crate::send::SendArguments),
    /// Runs an executive for other processes of this host. Their channels share one link in one order
    ///
    /// Examples:
    ///   laxity serve --bind 127.0.0.1:5709
    ///       serves `laxity recv` and `laxity send` of this user until Ctrl-C
    ///   laxity serve --check
    ///       prints the rules for other users
    ///   sudo laxity serve --streams=20% --guard
    ///       also keeps a fifth of the processor and of the link for `laxity stream`
    #[command(verbatim_doc_comment, after_long_help = help::<crate::serve::ServeArguments>())]
    Serve(crate::serve::ServeArguments),
    /// Gives flows of other programs' sockets prioritised paths through the kernel
    ///
    /// Examples, beside `sudo laxity serve --streams=20% --guard`:
    ///   sudo laxity stream add control --tcp --local :5000 --packets 15 --period 10ms
    ///       gives TCP packets of the local port 5000 a path of their own
    ///   sudo laxity stream list
    ///       shows all streams, and how many packets they had
    ///   sudo laxity stream remove control
    ///       takes the path away again
    #[command(verbatim_doc_comment, after_long_help = help::<crate::stream::StreamArguments>())]
    Stream(crate::stream::StreamArguments),
    /// Compares guaranteed channels under attack with plain and tuned UDP: simulated, then live on this host
    ///
    /// Examples:
    ///   laxity demo
    ///       runs all scenarios in a minute; writes laxity-demo.html
    ///   laxity demo --attack flood --stack laxity --duration 1s --no-html
    ///       runs Laxity under a flood, and nothing else
    ///   laxity demo --simulated-only --html simulated.html
    ///       runs the part in virtual time; writes simulated.html
    #[command(verbatim_doc_comment, after_long_help = help::<crate::demo::DemoArguments>())]
    Demo(crate::demo::DemoArguments),
    /// Answers which channels or upcalls of a file this host can promise. For the others: what would fit, and why not
    ///
    /// Examples:
    ///   laxity admit examples/robot.toml
    ///       grants each channel with a bound, or says what would fit
    ///   laxity admit examples/robot.toml --set
    ///       finds an order in which all channels of the file are granted
    ///   laxity admit examples/robot.toml --plot robot.svg
    ///       also draws demand and bounds
    #[command(verbatim_doc_comment, after_long_help = help::<crate::admit::AdmitArguments>())]
    Admit(crate::admit::AdmitArguments),
    /// Measures the costs of this host and the time that its platform takes away. Writes a file for the other commands
    ///
    /// Examples:
    ///   sudo laxity calibrate --quick
    ///       measures for 35 s; the commands of all users then use the result
    ///   laxity calibrate --quick --no-realtime --output trial.toml
    ///       measures without rights, into a file
    ///   laxity admit examples/robot.toml --calibration trial.toml
    ///       uses that file
    #[command(verbatim_doc_comment, after_long_help = help::<crate::calibrate::CalibrateArguments>())]
    Calibrate(crate::calibrate::CalibrateArguments),
    /// Reports what this host can do, its problems, their cost, and how to mend them
    ///
    /// Examples:
    ///   laxity doctor --quick
    ///       reports what delays messages on this host, and how to mend it
    ///   sudo laxity doctor --fix -- laxity demo
    ///       changes what is safe, runs the demo, and undoes the changes
    #[command(verbatim_doc_comment, after_long_help = help::<crate::doctor::DoctorArguments>())]
    Doctor(crate::doctor::DoctorArguments),
    /// Makes two hosts on this machine, joined by a virtual Ethernet pair, and sends guaranteed messages while unknown peers flood
    ///
    /// Examples:
    ///   sudo laxity lab run --link xdp
    ///       sends guaranteed messages over AF_XDP under a flood, for ten seconds
    ///   sudo laxity lab up
    ///       makes two hosts, a and b, that stay
    ///   sudo laxity lab run a -- ip address
    ///       runs a command in host a
    ///   sudo laxity lab down
    ///       removes both hosts
    #[command(verbatim_doc_comment, after_long_help = help::<crate::lab::LabArguments>())]
    Lab(crate::lab::LabArguments),
    /// Repeats an experiment of the papers, or compares Laxity with programs written by hand
    ///
    /// Examples:
    ///   laxity bench channels-guarantee --simulated --plot guarantee.svg
    ///       repeats Fig. 7 of the paper in virtual time, and draws it
    ///   laxity bench upcall-switches --simulated
    ///       repeats an experiment on upcalls
    ///   sudo laxity bench roundtrip
    ///       compares round trips over Laxity and over plain sockets, for some minutes
    #[command(verbatim_doc_comment, after_long_help = help::<crate::bench::BenchArguments>())]
    Bench(crate::bench::BenchArguments),
    /// Runs the shipping code in virtual time: a scenario from a file, or a search for a broken promise
    ///
    /// Examples:
    ///   laxity sim examples/robot.scenario.toml --trace robot.json
    ///       simulates a scenario; writes a trace for ui.perfetto.dev
    ///   laxity sim --swarm --worlds 100
    ///       runs 100 random worlds under all kinds of faults
    ///   laxity sim --search --seconds 10
    ///       tries for ten seconds to break a bound
    #[command(verbatim_doc_comment, after_long_help = help::<crate::sim::SimArguments>())]
    Sim(crate::sim::SimArguments),
}

/// The arguments that this process was started with. If they are wrong, or ask for help, it ends.
pub(crate) fn given() -> Arguments {
    let matches = arranged(Arguments::command()).get_matches();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// What the comment of these arguments says.
pub(crate) fn help<A: Args>() -> String {
    let said = A::augment_args(clap::Command::new("")).get_long_about().map(ToString::to_string);
    said.expect("a comment of several paragraphs")
}

/// A command, and those below it, with its examples behind its options.
fn arranged(mut command: clap::Command) -> clap::Command {
    let said = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    if let Some((_, examples)) = said.split_once("\n\n") {
        if let Some(help) = command.get_after_long_help() {
            let help = format!("{help}\n\n{examples}");
            command = command.after_long_help(help);
        }
        command = command.long_about(None).after_help(examples.to_owned());
    }
    command.mut_subcommands(arranged)
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, Parser};

    use super::{Arguments, arranged};

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
        assert!(check(&arranged(Arguments::command())) > 30);
    }
}

//! The command line: the commands. The options of each stand in its own module.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use clap::{Parser, Subcommand};

use crate::examples;

/// Communication with quality-of-service guarantees for stock Linux
#[derive(Debug, Parser)]
#[command(version, after_help = examples::behind(EXIT_STATUS, examples::LAXITY))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_STATUS: &str = "\
`laxity COMMAND --help` lists the options of a command.

Exit status:
  0  done, no miss by Laxity
  1  a miss by Laxity, an undecided message, a broken premise of a peer's clock
     or network, or a failed check
  2  bad input
  3  refused by admission
  4  not permitted on this host
  5  peer, network or port";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Receives the messages of one channel and writes them to standard output
    #[command(after_help = examples::RECV)]
    Recv(crate::recv::RecvArguments),
    /// Cuts standard input into messages and sends them over one channel
    #[command(after_help = examples::SEND)]
    Send(crate::send::SendArguments),
    /// Runs an executive for other processes of this host. Their channels share one link in one order
    #[command(after_help = examples::SERVE, after_long_help = examples::behind(crate::serve::HELP, examples::SERVE))]
    Serve(crate::serve::ServeArguments),
    /// Gives flows of other programs' sockets prioritised paths through the kernel
    #[command(after_help = examples::STREAM, after_long_help = examples::behind(crate::stream::HELP, examples::STREAM))]
    Stream(crate::stream::StreamArguments),
    /// Compares guaranteed channels under attack with plain and tuned UDP: simulated, then live on this host
    #[command(after_help = examples::DEMO, after_long_help = examples::behind(crate::demo::HELP, examples::DEMO))]
    Demo(crate::demo::DemoArguments),
    /// Answers which channels or upcalls of a file this host can promise. For the others: what would fit, and why not
    #[command(after_help = examples::ADMIT, after_long_help = examples::behind(crate::admit::HELP, examples::ADMIT))]
    Admit(crate::admit::AdmitArguments),
    /// Measures the costs of this host and the time that its platform takes away. Writes a file for the other commands
    #[command(after_help = examples::CALIBRATE, after_long_help = examples::behind(crate::calibrate::HELP, examples::CALIBRATE))]
    Calibrate(crate::calibrate::CalibrateArguments),
    /// Reports what this host can do, its problems, their cost, and how to mend them
    #[command(after_help = examples::DOCTOR, after_long_help = examples::behind(crate::doctor::HELP, examples::DOCTOR))]
    Doctor(crate::doctor::DoctorArguments),
    /// Makes two hosts on this machine, joined by a virtual Ethernet pair, and sends guaranteed messages while unknown peers flood
    #[command(subcommand, after_help = examples::LAB, after_long_help = examples::behind(crate::lab::HELP, examples::LAB))]
    Lab(crate::lab::LabCommand),
    /// Repeats an experiment of the papers, or compares Laxity with programs written by hand
    #[command(after_help = examples::BENCH, after_long_help = examples::behind(crate::bench::HELP, examples::BENCH))]
    Bench(crate::bench::BenchArguments),
    /// Runs the shipping code in virtual time: a scenario from a file, or a search for a broken promise
    #[command(after_help = examples::SIM, after_long_help = examples::behind(crate::sim::HELP, examples::SIM))]
    Sim(crate::sim::SimArguments),
}

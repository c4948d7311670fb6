//! What the command line says: the commands. What each of them takes stands with it.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use clap::{Parser, Subcommand};

/// Guaranteed-QoS communication for stock Linux.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXIT_STATUS)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_STATUS: &str = "\
Exit status: 0 done, no miss by Laxity; 1 a miss by Laxity, an undecided message, a broken premise of a peer's clock or network, or a failed check; 2 bad input; 3 refused by admission; \
4 not permitted on this host; 5 peer, network or port.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Receives the messages of one channel and writes them to standard output
    Recv(crate::recv::RecvArguments),
    /// Sends standard input, cut into messages, over one channel
    Send(crate::send::SendArguments),
    /// Runs an executive that serves the processes which attach to it, so that all their channels share one link in one order
    #[command(after_long_help = crate::serve::HELP)]
    Serve(crate::serve::ServeArguments),
    /// Gives flows of other programs' sockets prioritised paths through the kernel
    #[command(after_long_help = crate::stream::HELP)]
    Stream(crate::stream::StreamArguments),
    /// Shows guaranteed channels under attack beside what people use today: simulated, then live on this host
    #[command(after_long_help = crate::demo::HELP)]
    Demo(crate::demo::DemoArguments),
    /// Says which channels or upcalls of a file this host can promise; why not the others, and what would fit
    #[command(after_long_help = crate::admit::HELP)]
    Admit(crate::admit::AdmitArguments),
    /// Measures what this host costs and what its platform takes away, and writes it for the other commands
    #[command(after_long_help = crate::calibrate::HELP)]
    Calibrate(crate::calibrate::CalibrateArguments),
    /// Says what this host can do, what spoils it, what that costs here, and how to mend it
    #[command(after_long_help = crate::doctor::HELP)]
    Doctor(crate::doctor::DoctorArguments),
    /// Two hosts on this machine, joined by a virtual Ethernet pair: what a flood of strangers does to guaranteed messages
    #[command(after_long_help = crate::lab::HELP)]
    Lab(crate::lab::LabArguments),
    /// Repeats an experiment of the papers, or holds the fast path against what an expert writes by hand
    #[command(after_long_help = crate::bench::HELP)]
    Bench(crate::bench::BenchArguments),
    /// Runs the shipping code in virtual time: a scenario from a file, or a search for a broken promise
    #[command(after_long_help = crate::sim::HELP)]
    Sim(crate::sim::SimArguments),
}

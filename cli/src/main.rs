//! The `laxity` command.
//!
//! Exit status: 0 done, no miss by Laxity and nothing over a bound; 1 a miss by Laxity, or a failed check; 2 bad input;
//! 3 refused by admission; 4 not permitted on this host; 5 peer, network or port.

mod args;
mod demo;
mod failure;
mod framing;
mod progress;
mod recv;
mod report;
mod send;
mod stop;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Send(arguments) => send::run(&arguments),
        Command::Recv(arguments) => recv::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => {
            eprintln!("laxity: {}", report::escaped(&failure.to_string()));
            ExitCode::from(failure.exit_status())
        }
    }
}

//! The `laxity` command.
//!
//! Exit status: 0 done, no miss by Laxity and nothing over a bound; 1 a miss by Laxity, an undecided message, a broken premise of a peer's clock or
//! network, or a failed check; 2 bad input; 3 refused by admission; 4 not permitted on this host; 5 peer, network or port.

mod admit;
mod args;
mod bench;
mod calibrate;
mod chart;
mod costs;
mod demo;
mod doctor;
mod failure;
mod file;
mod framing;
#[cfg(test)]
mod fuzz;
mod guardian;
mod host;
mod lab;
mod line;
mod link;
mod machine;
mod numbers;
mod pipe;
mod progress;
mod recv;
mod report;
mod send;
mod serve;
mod sim;
mod stop;
mod stream;
mod table;
mod values;

use std::process::ExitCode;

use args::Command;

fn main() -> ExitCode {
    #[cfg(feature = "fault-points")]
    let _points = fail::FailScenario::setup();
    let status = |kept: bool| if kept { 0 } else { 1 };
    let outcome = match args::given().command {
        Command::Send(arguments) => send::run(&arguments).map(status),
        Command::Recv(arguments) => recv::run(&arguments).map(status),
        Command::Serve(arguments) => serve::run(&arguments).map(status),
        Command::Stream(arguments) => stream::run(&arguments).map(status),
        Command::Demo(arguments) => demo::run(&arguments).map(status),
        Command::Admit(arguments) => admit::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments).map(status),
        Command::Calibrate(arguments) => calibrate::run(&arguments).map(status),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments).map(status),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            eprintln!("laxity: {}", report::escaped(&failure.to_string()));
            ExitCode::from(failure.exit_status())
        }
    }
}

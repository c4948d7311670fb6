//! Is this host calibrated, and which guarantee can rest on that?

use laxity::LinkKind;
use laxity::calibration::{Backing, Costs, Level};

use super::{Doctor, Finding, State};
use crate::report::escaped;

pub(super) fn probe(_doctor: &Doctor<'_>) -> Vec<Finding> {
    vec![told(Costs::of_this_host(LinkKind::Udp))]
}

fn told(costs: Result<Costs, laxity::Error>) -> Finding {
    let name = "calibration";
    let costs = match costs {
        Ok(costs) => costs,
        Err(error) => {
            return Finding::new(name, State::Bad, escaped(&error.to_string()).into_owned())
                .mended_by("`laxity calibrate` writes a new one");
        }
    };
    let backing = Backing::expected(&costs);
    let state = match backing.level() {
        Level::Calibrated => State::Good,
        Level::Statistical | Level::None => State::Poor,
    };
    let mut found = format!("{costs}: the guarantee level is at most {}", backing.level());
    for reason in backing.why().iter().cloned().chain(costs.doubts()).chain(costs.passed_over.clone()) {
        found.push_str(&format!("; {}", escaped(&reason)));
    }
    Finding::new(name, state, found).mended_by(match costs.calibration {
        None => "`laxity calibrate`; until then bounds rest on assumed costs",
        Some(_) => {
            "`laxity calibrate`, for as long as can be: how much a calibration may claim depends on how long it took"
        }
    })
}

#[cfg(test)]
mod tests {
    use laxity_core::platform::Platform;

    use super::*;

    #[test]
    fn no_calibration_is_poor_and_an_unusable_one_is_bad() {
        let assumed = told(Ok(Platform::assumed_host().into()));
        assert_eq!(assumed.state, State::Poor);
        assert!(assumed.found.contains("not calibrated") && assumed.found.contains("none"), "{}", assumed.found);
        assert!(assumed.remedy.unwrap().contains("laxity calibrate"));
        let source = std::io::ErrorKind::PermissionDenied.into();
        let unusable =
            told(Err(laxity::Error::Calibration { file: "/etc/laxity/calibration.toml".to_owned(), source }));
        assert_eq!(unusable.state, State::Bad);
        assert!(unusable.found.contains("/etc/laxity/calibration.toml"), "{}", unusable.found);
    }
}

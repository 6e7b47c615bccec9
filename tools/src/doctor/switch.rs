//! Checks of a software switch.

use std::net::IpAddr;

use xwarp_driver::switch::{SwitchError, SwitchObserver, SwitchState, VERSION};

use super::finding::Finding;
use crate::device::ShownSwitch;

/// All checks, in the order in which they are printed. A switch that does not answer leaves only
/// the reason.
pub(super) fn all(switch: &ShownSwitch<'_>) -> anyhow::Result<Vec<Finding>> {
    let observer = match switch.attach() {
        Ok(observer) => observer,
        Err(error) => return Ok(vec![unanswered(&error)]),
    };
    switch.check_name(&observer.device().name)?;
    let socket = Finding::pass("socket", switch.socket.display().to_string());
    Ok(match observer.state() {
        Ok(state) => {
            let of_switch = [
                device(&observer),
                protocol(),
                pairs(&state),
                clients(&state),
            ];
            [socket].into_iter().chain(of_switch).collect()
        }
        Err(error) => vec![socket, unanswered(&error)],
    })
}

fn unanswered(error: &SwitchError) -> Finding {
    let about = match error {
        SwitchError::Unreachable { .. } | SwitchError::NotSocket(_) => "socket",
        _ => "switch",
    };
    Finding::fail(about, error.to_string())
}

fn device(observer: &SwitchObserver) -> Finding {
    let device = observer.device();
    let addresses: Vec<String> = device.addresses.iter().map(IpAddr::to_string).collect();
    let of = observer.process();
    let of = of.map_or_else(String::new, |it| format!(", of process {it}"));
    let says = format!("{} ({}){of}", device.name, addresses.join(", "));
    Finding::pass("device", says)
}

/// The switch would have refused a client that speaks no version of its own.
fn protocol() -> Finding {
    Finding::pass(
        "protocol",
        format!("version {VERSION}, which the switch speaks"),
    )
}

fn pairs(state: &SwitchState) -> Finding {
    let about = "pairs";
    if !state.may_pair {
        let says = "the switch does not see the PID namespace of this process, as of one in a container: all frames go by the switch, which costs one more copy";
        return Finding::warn(about, says);
    }
    let mut others = state.clients.iter().filter(|it| it.process.is_some());
    if others.any(|it| !it.may_pair) {
        let says = "programs of this user in this PID namespace exchange frames without the switch; some clients of this user are in other ones, and their frames go by the switch";
        return Finding::pass(about, says);
    }
    let says = "programs of this user in this PID namespace exchange frames without the switch";
    Finding::pass(about, says)
}

fn clients(state: &SwitchState) -> Finding {
    let says = match state.count {
        0 => "no program is attached".to_owned(),
        1 => "one program is attached".to_owned(),
        count => format!("{count} programs are attached (xwarp status)"),
    };
    Finding::pass("clients", says)
}

#[cfg(test)]
mod tests {
    use xwarp_driver::switch::Counters;

    use super::super::finding::Verdict;
    use super::*;

    fn state(may_pair: bool) -> SwitchState {
        SwitchState {
            generation: 1,
            counters: Counters::default(),
            may_pair,
            count: 0,
            clients: Vec::new(),
        }
    }

    #[test]
    fn namespace_that_the_switch_does_not_see_is_warned_of() {
        assert_eq!(pairs(&state(true)).verdict, Verdict::Pass);
        let unseen = pairs(&state(false));
        assert_eq!(unseen.verdict, Verdict::Warn);
        assert!(unseen.says.contains("go by the switch"), "{unseen:?}");
    }
}

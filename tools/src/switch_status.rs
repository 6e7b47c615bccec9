//! `status` of a software switch: its device, its clients and its counters.

use std::fs;
use std::net::IpAddr;
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Map, Value, json};
use xwarp_driver::switch::{ClientState, Counters, SwitchObserver, SwitchState};

use crate::device::ShownSwitch;
use crate::output::{OutputError, print_line};

pub(crate) fn print(switch: &ShownSwitch<'_>, as_json: bool) -> anyhow::Result<()> {
    let observer = switch.observe()?;
    let state = observer.state()?;
    let processes = Processes::of(&observer);
    if as_json {
        print_line!("{}", json(&switch.socket, &observer, &state, &processes))?;
    } else {
        print_text(&switch.socket, &observer, &state, &processes)?;
    }
    Ok(())
}

fn print_text(
    socket: &Path,
    observer: &SwitchObserver,
    state: &SwitchState,
    processes: &Processes,
) -> Result<(), OutputError> {
    let device = observer.device();
    let process = observer.process();
    let process = process.map_or_else(String::new, |it| format!(", process {it}"));
    print_line!("{}: switch at {}{process}", device.name, socket.display())?;
    let addresses: Vec<String> = device.addresses.iter().map(IpAddr::to_string).collect();
    print_line!("addresses {}", addresses.join(", "))?;
    for (name, frames) in counters(&state.counters).filter(|(_, frames)| *frames > 0) {
        print_line!("{name:>24} {frames:>12}")?;
    }
    if state.count == 0 {
        return print_line!("no program is attached");
    }
    print_line!(
        "{:>10} {:>10} {:>6} {:>6}  command",
        "process",
        "uid",
        "ports",
        "peers"
    )?;
    for client in &state.clients {
        let ClientState {
            uid, ports, peers, ..
        } = client;
        let process = client
            .process
            .map_or_else(|| "-".to_owned(), |it| it.to_string());
        let command = processes.command(client).unwrap_or_else(|| "-".to_owned());
        print_line!("{process:>10} {uid:>10} {ports:>6} {peers:>6}  {command}")?;
    }
    let shown = u32::try_from(state.clients.len()).unwrap_or(u32::MAX);
    match state.count.saturating_sub(shown) {
        0 => Ok(()),
        more => print_line!("and {more} more"),
    }
}

fn json(
    socket: &Path,
    observer: &SwitchObserver,
    state: &SwitchState,
    processes: &Processes,
) -> Value {
    let clients: Vec<Value> = (state.clients.iter())
        .map(|client| {
            json!({
                "process": client.process.map(NonZero::get),
                "uid": client.uid,
                "ports": client.ports,
                "peers": client.peers,
                "may_pair": client.may_pair,
                "command": processes.command(client),
            })
        })
        .collect();
    let device = observer.device();
    json!({
        "dev": device.name, "socket": socket, "process": observer.process(),
        "generation": state.generation, "addresses": device.addresses, "mtu": device.mtu,
        "counters": counters(&state.counters).collect::<Members>().0,
        "attached": state.count, "clients": clients,
    })
}

/// Members of a JSON object.
pub(crate) struct Members(pub(crate) Map<String, Value>);

impl FromIterator<(&'static str, u64)> for Members {
    fn from_iter<I: IntoIterator<Item = (&'static str, u64)>>(each: I) -> Self {
        let each = each.into_iter();
        Self(
            each.map(|(name, value)| (name.to_owned(), json!(value)))
                .collect(),
        )
    }
}

/// Names and values of a switch's counters.
pub(crate) fn counters(all: &Counters) -> impl Iterator<Item = (&'static str, u64)> {
    Counters::NAMES.iter().copied().zip(all.values())
}

/// Processes of clients, as this process sees them.
struct Processes {
    /// The switch numbers processes as this process does.
    are_ours: bool,
}

impl Processes {
    fn of(observer: &SwitchObserver) -> Self {
        let are_ours = observer.process().is_some_and(is_of_our_namespace);
        Self { are_ours }
    }

    /// Name of the program that a client is. `None`: another user's, or /proc does not show it.
    fn command(&self, client: &ClientState) -> Option<String> {
        let process = client.process.filter(|_| self.are_ours)?;
        let folder = format!("/proc/{process}");
        // The process may have ended, and another one may have its number.
        let owner = fs::metadata(&folder).ok()?.uid();
        let name = fs::read_to_string(format!("{folder}/comm")).ok()?;
        (owner == client.uid).then(|| name.trim_end().to_owned())
    }
}

/// Whether a process is of our namespace itself: then it has one number only (`proc_pid_status(5)`).
fn is_of_our_namespace(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|it| it.strip_prefix("NSpid:"));
    numbers.is_some_and(|it| it.split_whitespace().count() == 1)
}

//! Somebody on a guest's cable who changes what passes.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{MsgFlags, send};
use xwarp_system_tests::Host;

use crate::lab::Lab;
use crate::plug::{drain, plug};

/// The ends of a cable from the bridge to the meddler.
const CABLE: [&str; 2] = ["meddle", "meddler"];
/// How often it looks whether it is to stop, in milliseconds.
const LOOK: u16 = 20;

/// Between the bridge and a guest, as long as the value lives.
pub struct Meddler<'a> {
    lab: &'a Lab,
    guest: u8,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<'a> Meddler<'a> {
    /// Changes every frame that goes to a guest.
    pub(crate) fn new(lab: &'a Lab, guest: u8, port: &str, change: fn(&mut [u8])) -> Self {
        let switch = lab.switch();
        lab.pull_out(guest);
        lay(switch, lab.mtus().guests);
        let [bridge, guests] = switch.run(|| [plug(CABLE[1]), plug(port)]);
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                wait(&bridge, &guests);
                drain(&bridge, |frame| {
                    let mut frame = frame.to_vec();
                    change(&mut frame);
                    pass(&guests, &frame);
                });
                drain(&guests, |frame| pass(&bridge, frame));
            }
        });
        Self {
            lab,
            guest,
            stop,
            thread: Some(thread),
        }
    }
}

/// Lays the cable.
fn lay(switch: &Host, mtu: u32) {
    let [bridge, end] = CABLE;
    switch.ip(&format!("link add {bridge} type veth peer name {end}"));
    for interface in CABLE {
        crate::lab::enable(switch, interface, mtu);
    }
    switch.ip(&format!("link set {bridge} master br0"));
}

fn wait(one: &OwnedFd, other: &OwnedFd) {
    let mut wanted = [one, other].map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN));
    poll(&mut wanted, LOOK).expect("our own sockets");
}

/// A frame that finds no room is lost, as on any cable.
fn pass(to: &OwnedFd, frame: &[u8]) {
    let _ = send(to.as_raw_fd(), frame, MsgFlags::empty());
}

impl Drop for Meddler<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        self.lab.switch().ip(&format!("link del {}", CABLE[0]));
        self.lab.plug_in(self.guest);
        if !thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the meddler");
        }
    }
}

//! Interposer on a guest's cable: it changes the frames that pass.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{MsgFlags, send};
use xwarp_system_tests::Host;

use crate::siw::lab::{Lab, enable, port};
use crate::siw::packet_socket::{drain, packet_socket};

/// The ends of a cable from the bridge to the interposer.
const CABLE: [&str; 2] = ["interpose", "interposer"];
/// How often it looks whether it is to stop, in milliseconds.
const LOOK: u16 = 20;

/// Between the bridge and a guest, as long as the value lives.
pub struct Interposer<'a> {
    lab: &'a Lab,
    guest: u8,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lab {
    /// Has every frame changed that goes to a guest, as long as the value lives.
    pub fn interpose(&self, guest: u8, change: fn(&mut [u8])) -> Interposer<'_> {
        Interposer::new(self, guest, &port(guest), change)
    }
}

impl<'a> Interposer<'a> {
    /// Changes every frame that goes to a guest.
    fn new(lab: &'a Lab, guest: u8, port: &str, change: fn(&mut [u8])) -> Self {
        let switch = lab.switch();
        lab.pull_out(guest);
        lay(switch, lab.mtus().guests);
        let [bridge, guests] = switch.run(|| [packet_socket(CABLE[1]), packet_socket(port)]);
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
        enable(switch, interface, mtu);
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

impl Drop for Interposer<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        self.lab.switch().ip(&format!("link del {}", CABLE[0]));
        self.lab.plug_in(self.guest);
        if !thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the interposer");
        }
    }
}

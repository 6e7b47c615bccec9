//! Watching of an interface, against the kernel in namespaces (as root).

use std::cell::Cell;
use std::time::{Duration, Instant};

use nix::libc;
use xwarp_bpf::Buffers;
use xwarp_test_kit::{eventually, needs_root};

use super::netlink::Netlink;
use super::testbed::{FAR, NEAR, Testbed, ip};
use super::*;
use crate::attach::{Attachment, XdpMode};
use crate::wake::Sleeper;

/// The near interface with our program on it, watched. To be called in its namespace.
fn watched(mode: XdpMode) -> (Attachment, InterfaceWatching) {
    watched_as(mode, true)
}

/// Watches an interface. Where the program is `by_link`, the kernel is polled.
fn watched_as(mode: XdpMode, by_link: bool) -> (Attachment, InterfaceWatching) {
    let notifications = Notifications::begin().unwrap();
    let interface = interface_by_name(NEAR).unwrap();
    let attachment =
        Attachment::open(interface.index, NEAR, Some(mode), Buffers::One, false).unwrap();
    let watched = Watched {
        index: interface.index,
        name: interface.name,
        program: attachment.program_id(),
        by_link,
    };
    let (_, bell) = Sleeper::new().unwrap();
    let watching = InterfaceWatch::new(notifications, watched)
        .start(Some(bell))
        .unwrap();
    (attachment, watching)
}

/// Waits until this state of the interface is reported.
fn wait_for_state(
    what: &str,
    monitor: &InterfaceMonitor,
    wanted: impl Fn(&InterfaceState) -> bool,
) {
    eventually(what, || match monitor.take() {
        Some(InterfaceNews::State(state)) => wanted(&state),
        Some(InterfaceNews::Ended(end)) => panic!("{end}"),
        None => false,
    });
}

fn wait_for_end(monitor: &InterfaceMonitor, wanted: &InterfaceEnd) {
    eventually("the interface's end is reported", || match monitor.take() {
        Some(InterfaceNews::Ended(end)) => {
            assert_eq!(end, *wanted);
            true
        }
        Some(InterfaceNews::State(_)) | None => false,
    });
}

#[test]
fn every_change_of_an_interface_is_told() {
    needs_root!();
    let bed = Testbed::new();
    bed.near.run(|| {
        let (attachment, watching) = watched(XdpMode::Generic);
        let monitor = watching.monitor();
        let has = |it: &InterfaceState| it.addresses().any(|address| address == ip("10.77.0.1"));
        let both = |it: &InterfaceState| has(it) && it.up;
        wait_for_state("what it is like at first", &monitor, both);
        let set = |what: &str| bed.near.sh(&format!("ip link set {NEAR} {what}"));
        set("down");
        wait_for_state("it is down", &monitor, |it| !it.up);
        set("up");
        wait_for_state("it is up", &monitor, |it| it.up);
        bed.far.sh(&format!("ip link set {FAR} down"));
        wait_for_state("the carrier is lost", &monitor, |it| !it.up);
        bed.far.sh(&format!("ip link set {FAR} up"));
        wait_for_state("the carrier is back", &monitor, |it| it.up);
        set("mtu 1400");
        wait_for_state("its MTU", &monitor, |it| it.mtu == 1400);
        set("address 02:11:22:33:44:55");
        let mac = MacAddr([2, 0x11, 0x22, 0x33, 0x44, 0x55]);
        wait_for_state("its Ethernet address", &monitor, |it| it.mac == mac);
        bed.near.sh(&format!("ethtool -L {NEAR} rx 2"));
        wait_for_state("its queues", &monitor, |it| {
            it.channels
                .is_some_and(|channels| channels.receiving() == 2)
        });
        let address = |what: &str| bed.near.sh(&format!("ip addr {what}/24 dev {NEAR}"));
        address("del 10.77.0.1");
        wait_for_state("an address is gone", &monitor, |it| !has(it));
        address("add 10.77.0.1");
        wait_for_state("it is back", &monitor, has);
        drop(attachment);
        wait_for_end(&monitor, &InterfaceEnd::Detached(NEAR.to_owned()));
    });
}

/// Nothing else has the interface looked at: what is received here was sent by the kernel.
#[test]
fn settings_and_paths_are_told_by_the_kernel_when_they_change() {
    needs_root!();
    let bed = Testbed::new();
    let neighbour = |last: u32| {
        let mac = format!("02:00:00:00:00:0{last}");
        bed.near.sh(&format!(
            "ip neigh replace 10.77.0.9 lladdr {mac} dev {NEAR}"
        ));
    };
    neighbour(1);
    bed.near.run(|| {
        let (_attachment, watching) = watched_as(XdpMode::Generic, false);
        let monitor = watching.monitor();
        // Veth that is up takes its carrier away meanwhile, which would be noticed.
        bed.near.sh(&format!("ip link set {NEAR} down"));
        wait_for_state("it is down", &monitor, |it| !it.up);
        bed.near.sh(&format!("ethtool -L {NEAR} rx 3"));
        wait_for_state("its queues", &monitor, |it| {
            it.channels
                .is_some_and(|channels| channels.receiving() == 3)
        });
        bed.near.sh(&format!("ip link set {NEAR} up"));
        neighbour(1);
        wait_for_state("it is up", &monitor, |it| it.up);
        let seen = Cell::new(0);
        let wait_for_paths = |what: &str| {
            wait_for_state(what, &monitor, |it| it.paths > seen.replace(it.paths));
        };
        neighbour(2);
        wait_for_paths("a neighbour's address");
        bed.near.sh("ip route add 10.99.0.0/24 via 10.77.0.2");
        wait_for_paths("a route");
        bed.near.sh("ip rule add to 10.99.0.0/24 table main");
        wait_for_paths("a rule");
        bed.near.sh(&format!("ip neigh del 10.77.0.9 dev {NEAR}"));
        wait_for_paths("a neighbour that is gone");
    });
}

/// Waits until the kernel has had no news of interfaces for a second.
fn wait_for_silence() {
    let groups = [
        libc::RTNLGRP_LINK,
        libc::RTNLGRP_IPV4_IFADDR,
        libc::RTNLGRP_IPV6_IFADDR,
    ];
    let notifications = Netlink::listen(&groups).unwrap();
    let second = || Instant::now() + Duration::from_secs(1);
    while notifications.receive(second()).unwrap().is_some() {}
}

/// The kernel sends no notification when a `bpf_link` is closed. Nothing else happens that would
/// have the program looked at.
#[test]
fn detached_program_is_noticed_though_the_kernel_says_nothing() {
    needs_root!();
    let bed = Testbed::new();
    // IPv6 has news of an address some seconds after the interface came up.
    let disabled = format!("/proc/sys/net/ipv6/conf/{NEAR}/disable_ipv6");
    bed.near.sh(&format!("echo 1 > {disabled}"));
    bed.near.run(|| {
        let (attachment, watching) = watched(XdpMode::Native);
        wait_for_silence();
        drop(attachment);
        wait_for_end(
            &watching.monitor(),
            &InterfaceEnd::Detached(NEAR.to_owned()),
        );
    });
}

#[test]
fn interface_that_is_deleted_or_moved_is_told_to_be() {
    needs_root!();
    let bed = Testbed::new();
    bed.near.run(|| {
        let (_attachment, watching) = watched(XdpMode::Generic);
        bed.near.sh(&format!("ip link set {NEAR} name other0"));
        bed.near
            .sh(&format!("ip link set other0 netns {}", bed.far.path()));
        wait_for_end(&watching.monitor(), &InterfaceEnd::Moved(NEAR.to_owned()));
    });
    let bed = Testbed::new();
    bed.near.run(|| {
        let (_attachment, watching) = watched(XdpMode::Generic);
        bed.near.sh(&format!("ip link delete {NEAR}"));
        wait_for_end(&watching.monitor(), &InterfaceEnd::Deleted(NEAR.to_owned()));
    });
}

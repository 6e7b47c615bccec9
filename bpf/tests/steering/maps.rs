//! The maps as the program sees them.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use xwarp_bpf::{Board, MapError, Maps, Shown, Sockets, Verdict, program_name};
use xwarp_test_kit::needs_root;

use crate::frames::{ETHERNET_LEN, IPV4, PORT, SYN, TCP, V4, V6, ethernet, ipv4, tcp};
use crate::kernel::{DROP, Kernel, PASS, REDIRECT, af_xdp_socket};

const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(V4[0], V4[1], V4[2], V4[3]));

fn frame() -> Vec<u8> {
    ethernet(IPV4, &ipv4(TCP, &tcp(PORT, SYN, &[])))
}

#[test]
fn flow_is_ours_from_insert_to_remove() {
    needs_root!();
    let kernel = Kernel::empty();
    let flows = &kernel.maps.flows;
    assert_eq!(kernel.run(&frame()), (PASS, Verdict::NotOurFlow));
    flows.insert(OURS, PORT, 0).unwrap();
    flows.insert(OURS, PORT, 0).unwrap();
    assert!(flows.contains(OURS, PORT).unwrap());
    assert!(!flows.contains(OURS, PORT + 1).unwrap());
    assert_eq!(kernel.run(&frame()), (PASS, Verdict::NoSocket));
    assert!(flows.remove(OURS, PORT).unwrap());
    assert!(!flows.remove(OURS, PORT).unwrap());
    assert_eq!(kernel.run(&frame()), (PASS, Verdict::NotOurFlow));
}

/// A frame to the last byte's address of 10.0.0.0/24.
fn frame_to(host: u8, port: u16) -> Vec<u8> {
    let mut frame = ethernet(IPV4, &ipv4(TCP, &tcp(port, SYN, &[])));
    frame[ETHERNET_LEN + 19] = host;
    frame
}

/// Steps of all kinds in an order that seems random: port, address, and whether it comes or goes;
/// now and then all go.
#[test]
fn program_finds_the_flows_of_a_port_that_there_are() {
    needs_root!();
    let kernel = Kernel::empty();
    let flows = &kernel.maps.flows;
    let mut model = HashSet::new();
    for step in 0..400_u32 {
        let random = step.wrapping_mul(2_654_435_761) >> 16;
        let (host, port) = (1 + (random % 3) as u8, PORT + (random / 3 % 2) as u16);
        let address = IpAddr::from([10, 0, 0, host]);
        if random % 97 == 0 {
            flows.clear().unwrap();
            model.clear();
        } else if random / 6 % 2 == 0 {
            flows.insert(address, port, random % 64).unwrap();
            model.insert((host, port));
        } else {
            let was = flows.remove(address, port).unwrap();
            assert_eq!(was, model.remove(&(host, port)));
        }
        for (host, port) in [1, 2, 3]
            .into_iter()
            .flat_map(|host| [(host, PORT), (host, PORT + 1)])
        {
            let ours = model.contains(&(host, port));
            let expected = if ours {
                Verdict::NoSocket
            } else {
                Verdict::NotOurFlow
            };
            assert_eq!(
                kernel.run(&frame_to(host, port)),
                (PASS, expected),
                "step {step}"
            );
        }
    }
    assert!(model.len() > 1, "there were flows in the end");
}

/// A change of the first queue is known by each way to find a flow.
#[test]
fn first_queue_can_change() {
    needs_root!();
    let kernel = Kernel::empty();
    let (flows, socket) = (&kernel.maps.flows, af_xdp_socket());
    kernel.maps.sockets.set(5, socket.as_fd()).unwrap();
    let second = IpAddr::from([10, 0, 0, 3]);
    for others in [false, true] {
        if others {
            flows.insert(second, PORT, 0).unwrap();
        }
        for (first, expected) in [
            (4, (PASS, Verdict::NoSocket)),
            (5, (DROP, Verdict::Unserved)),
        ] {
            flows.insert(OURS, PORT, first).unwrap();
            assert_eq!(kernel.run(&frame()), expected, "{others}");
        }
    }
}

/// The port's entry names the first flow only.
#[test]
fn first_queue_of_another_address_changes_alone() {
    needs_root!();
    let kernel = Kernel::empty();
    let (flows, socket) = (&kernel.maps.flows, af_xdp_socket());
    kernel.maps.sockets.set(5, socket.as_fd()).unwrap();
    let (served, unserved) = ((DROP, Verdict::Unserved), (PASS, Verdict::NoSocket));
    let second = IpAddr::from([10, 0, 0, 3]);
    let frames = [frame(), frame_to(3, PORT)];
    flows.insert(OURS, PORT, 5).unwrap();
    for (change, expected) in [
        ((second, 5), [served, served]),
        ((second, 4), [served, unserved]),
        ((OURS, 4), [unserved, unserved]),
        ((second, 5), [unserved, served]),
        ((OURS, 5), [served, served]),
    ] {
        flows.insert(change.0, PORT, change.1).unwrap();
        let verdicts = frames.each_ref().map(|frame| kernel.run(frame));
        assert_eq!(verdicts, expected, "{change:?}");
    }
}

#[test]
fn clear_forgets_every_flow() {
    needs_root!();
    let kernel = Kernel::with_flows_and_socket();
    let flows = &kernel.maps.flows;
    for port in 1..=1000 {
        flows.insert(OURS, port, 0).unwrap();
    }
    flows.clear().unwrap();
    assert!(!(1..=1000).any(|port| flows.contains(OURS, port).unwrap()));
    assert_eq!(kernel.run(&frame()), (PASS, Verdict::NotOurFlow));
    flows.clear().unwrap();
}

#[test]
fn full_table_refuses_one_more_and_keeps_the_rest() {
    needs_root!();
    let kernel = Kernel::empty();
    let flows = &kernel.maps.flows;
    for port in 0..=u16::MAX {
        flows.insert(OURS, port, 0).unwrap();
    }
    let other = IpAddr::from(V6);
    let refused = flows.insert(other, PORT, 0).unwrap_err();
    assert!(
        matches!(refused, MapError::Full { flow } if flow.ip() == other),
        "{refused}"
    );
    assert_eq!(
        refused.to_string(),
        "[fd00::2]:4748 cannot be steered: all 65536 flows are in use"
    );
    flows.insert(OURS, PORT, 0).unwrap();
}

#[test]
fn slot_is_full_from_set_to_unset_or_close() {
    needs_root!();
    let mut kernel = Kernel::with_flows_and_socket();
    assert_eq!(kernel.run(&frame()), (REDIRECT, Verdict::Redirected));
    kernel.maps.sockets.unset(0).unwrap();
    kernel.maps.sockets.unset(0).unwrap();
    assert_eq!(kernel.run(&frame()), (PASS, Verdict::NoSocket));
    kernel
        .maps
        .sockets
        .set(0, kernel.socket.as_ref().unwrap().as_fd())
        .unwrap();
    assert_eq!(kernel.run(&frame()), (REDIRECT, Verdict::Redirected));
    kernel.socket = None; // closes it
    assert_eq!(kernel.run(&frame()), (PASS, Verdict::NoSocket));
}

#[test]
fn socket_of_another_queue_does_not_count() {
    needs_root!();
    let kernel = Kernel::empty();
    kernel.maps.flows.insert(OURS, PORT, 0).unwrap();
    let socket = af_xdp_socket();
    for queue in 1..Sockets::MAX_QUEUES {
        kernel.maps.sockets.set(queue, socket.as_fd()).unwrap();
    }
    assert_eq!(kernel.run(&frame()), (PASS, Verdict::NoSocket));
}

/// The kernel would reset a connection that lives.
#[test]
fn frame_at_an_unserved_queue_is_dropped_as_long_as_the_process_lives() {
    needs_root!();
    let kernel = Kernel::empty();
    let socket = af_xdp_socket();
    for first in 1..Sockets::MAX_QUEUES {
        kernel.maps.flows.insert(OURS, PORT, first).unwrap();
        kernel.maps.sockets.set(first, socket.as_fd()).unwrap();
        assert_eq!(kernel.run(&frame()), (DROP, Verdict::Unserved));
        kernel.maps.sockets.unset(first).unwrap();
        assert_eq!(kernel.run(&frame()), (PASS, Verdict::NoSocket));
    }
}

#[test]
fn slots_refuse_high_queues_and_other_sockets() {
    needs_root!();
    let Kernel { maps, .. } = Kernel::empty();
    let socket = af_xdp_socket();
    let beyond = maps
        .sockets
        .set(Sockets::MAX_QUEUES, socket.as_fd())
        .unwrap_err();
    assert!(
        matches!(beyond, MapError::NoSuchQueue { queue: 64 }),
        "{beyond}"
    );
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = maps.sockets.set(3, udp.as_fd()).unwrap_err();
    assert!(matches!(other, MapError::NotAfXdp { queue: 3 }), "{other}");
}

#[test]
fn maps_found_by_program_id_are_the_programs_own() {
    needs_root!();
    let kernel = Kernel::empty();
    let found = Maps::of_program(kernel.program_id())
        .unwrap()
        .expect("it is our program");
    assert_eq!(
        program_name(kernel.program_id()).unwrap().as_deref(),
        Some("steer")
    );
    found.flows.insert(OURS, PORT, 0).unwrap();
    assert_eq!(kernel.run(&frame()), (PASS, Verdict::NoSocket));
    assert_eq!(found.verdicts.counters().unwrap().get(Verdict::NoSocket), 1);
}

#[test]
fn id_without_a_program_has_no_maps() {
    needs_root!();
    let id = Kernel::empty().program_id(); // unloaded again
    assert!(Maps::of_program(u32::MAX).unwrap().is_none());
    assert!(program_name(u32::MAX).unwrap().is_none());
    assert_ne!(id, u32::MAX);
}

#[test]
fn counters_are_sums_over_the_cpus() {
    needs_root!();
    let kernel = Kernel::empty();
    let thread = Pid::from_raw(0);
    let allowed = sched_getaffinity(thread).unwrap();
    let cpus: Vec<_> = (0..CpuSet::count())
        .filter(|&cpu| allowed.is_set(cpu).unwrap())
        .collect();
    for &cpu in &cpus {
        let mut only = CpuSet::new();
        only.set(cpu).unwrap();
        sched_setaffinity(thread, &only).unwrap();
        kernel.run(&frame());
    }
    let counters = kernel.maps.verdicts.counters().unwrap();
    assert_eq!(counters.get(Verdict::NotOurFlow), cpus.len() as u64);
}

#[test]
fn frames_are_counted_for_their_queue() {
    needs_root!();
    let kernel = Kernel::empty();
    kernel.run(&frame());
    let verdicts = &kernel.maps.verdicts;
    let count = |queues| verdicts.of_queues(queues).unwrap().get(Verdict::NotOurFlow);
    let counts = [0..1, 0..u32::MAX, 1..3, 1..u32::MAX].map(count);
    assert_eq!(counts, [1, 1, 0, 0], "the kernel runs it on queue 0");
    let max = Sockets::MAX_QUEUES;
    let beyond = verdicts.of_queues(max..u32::MAX).unwrap_err();
    assert!(
        matches!(beyond, MapError::NoSuchQueue { queue: 64 }),
        "{beyond}"
    );
}

#[test]
fn board_is_found_by_program_id_and_shows_what_was_put_there() {
    needs_root!();
    let kernel = Kernel::empty();
    let found = Maps::of_program(kernel.program_id()).unwrap().unwrap();
    assert_eq!(found.board.read().unwrap(), []);
    let shown = |key| Shown {
        key,
        process: 2,
        begun: 3,
        words: vec![key; Board::ROOM],
    };
    let ours = kernel.maps.board.try_clone().unwrap();
    for (queue, key) in [(63, 5), (0, 6), (63, 7)] {
        ours.show(queue, &shown(key)).unwrap();
    }
    let expected = [(0, shown(6)), (63, shown(7))];
    assert_eq!(found.board.read().unwrap(), expected);
    found.board.wipe(0).unwrap();
    assert_eq!(found.board.read().unwrap(), expected[1..]);
    let beyond = ours.show(64, &shown(1)).unwrap_err();
    assert!(
        matches!(beyond, MapError::NoSuchQueue { queue: 64 }),
        "{beyond}"
    );
}

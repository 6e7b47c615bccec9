//! Every test of `xwarp perf`, in every way of attaching, with its data verified.

use xwarp_system_tests::{Case, Hosts, Mode, Setup, Shape, Way};
use xwarp_test_kit::needs_root;

const BANDWIDTH: [&str; 3] = ["write-bw", "read-bw", "send-bw"];
const LATENCY: [&str; 3] = ["write-lat", "read-lat", "send-lat"];
/// Bytes of a message, messages, and depth, of which the messages are no multiple, so that the
/// order of buffers matters.
const SIZES: [(u64, u64, u64); 5] = [
    (1, 500, 8),
    (64, 500, 8),
    (1 << 10, 300, 8),
    (64 << 10, 30, 8),
    (1 << 20, 5, 4),
];
/// The same at depths from the least to the most.
const DEPTHS: [(u64, u64, u64); 5] = [
    (64, 500, 1),
    (64 << 10, 30, 1),
    (64, 1000, 256),
    (4096, 600, 256),
    (64, 5000, 4096),
];

fn all_tests() -> impl Iterator<Item = &'static str> {
    BANDWIDTH.into_iter().chain(LATENCY)
}

/// Every test as it is by default.
fn every_test(way: Way, mode: Mode) {
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, way, mode);
    for test in all_tests() {
        setup.measure(&Case::new(test));
    }
}

/// Bandwidth and latency at every size.
fn every_size(way: Way, mode: Mode) {
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, way, mode);
    for test in BANDWIDTH {
        for (size, messages, depth) in SIZES {
            setup.measure(&Case {
                size,
                messages,
                depth,
                ..Case::new(test)
            });
        }
    }
    for test in LATENCY {
        for size in [1, 4096] {
            setup.measure(&Case {
                size,
                ..Case::new(test)
            });
        }
    }
}

#[test]
fn data_arrives_in_native_mode_attached_by_ip_link() {
    needs_root!();
    every_test(Way::IpLink, Mode::Native);
}

#[test]
fn data_arrives_in_generic_mode_attached_by_ip_link() {
    needs_root!();
    every_test(Way::IpLink, Mode::Generic);
}

#[test]
fn data_arrives_in_native_mode_attached_by_xwarp() {
    needs_root!();
    every_test(Way::Itself, Mode::Native);
}

#[test]
fn data_arrives_in_generic_mode_attached_by_xwarp() {
    needs_root!();
    every_test(Way::Itself, Mode::Generic);
}

#[test]
fn data_of_every_size_arrives() {
    needs_root!();
    every_size(Way::Itself, Mode::Native);
}

/// The way of attaching and the mode do not depend on the size of messages.
#[test]
#[ignore = "takes minutes; tools/test --long runs it"]
fn data_of_every_size_arrives_however_the_program_is_attached() {
    needs_root!();
    every_size(Way::IpLink, Mode::Native);
    every_size(Way::IpLink, Mode::Generic);
    every_size(Way::Itself, Mode::Generic);
}

#[test]
fn data_arrives_with_an_engine_thread_and_every_way_of_waiting() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    for test in all_tests() {
        for wait in ["adaptive", "blocking"] {
            for engine in ["thread", "inline"] {
                setup.measure(&Case {
                    both: format!("--engine {engine} --wait {wait}"),
                    ..Case::new(test)
                });
            }
        }
    }
    for engine in ["thread", "inline"] {
        setup.measure(&Case {
            both: format!("--engine {engine} --wait busy"),
            ..Case::new("send-bw")
        });
    }
}

#[test]
fn data_arrives_at_every_depth() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    for test in BANDWIDTH {
        for (size, messages, depth) in DEPTHS {
            setup.measure(&Case {
                size,
                depth,
                messages,
                ..Case::new(test)
            });
        }
    }
}

#[test]
fn data_arrives_with_markers_and_without_crcs() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    for (client, server) in [
        ("--markers", ""),
        ("--no-crc", "--markers"),
        ("--markers --no-crc", "--no-crc --markers"),
    ] {
        for test in BANDWIDTH {
            setup.measure(&Case {
                client: client.to_owned(),
                server: server.to_owned(),
                ..Case::new(test)
            });
        }
    }
}

#[test]
fn messages_of_no_bytes_arrive() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    for test in ["write-bw", "read-bw", "send-bw", "read-lat", "send-lat"] {
        setup.measure(&Case {
            size: 0,
            ..Case::new(test)
        });
    }
}

/// 3506 is the largest MTU at which a veth pair takes a native XDP program for frames of one
/// buffer. 3818 is the largest whose frames fit into one of ours, 65535 the largest of all.
#[test]
fn data_arrives_in_large_frames() {
    needs_root!();
    for (mtu, mode) in [
        (3500, Mode::Generic),
        (3506, Mode::Native),
        (3507, Mode::Native),
        (3818, Mode::Generic),
        (3819, Mode::Generic),
        (9000, Mode::Native),
        (9000, Mode::Generic),
        (65_535, Mode::Native),
        (65_535, Mode::Generic),
    ] {
        let hosts = Hosts::shaped(Shape {
            mtu,
            ..Shape::default()
        });
        for way in [Way::Itself, Way::IpLink] {
            let setup = Setup::new(&hosts, way, mode);
            for test in all_tests() {
                setup.measure(&Case::new(test));
            }
        }
    }
}

/// The kernel makes one buffer of what comes to the program that wants one.
#[test]
fn program_for_one_buffer_is_enough_in_generic_mode() {
    needs_root!();
    let hosts = Hosts::shaped(Shape {
        mtu: 9000,
        ..Shape::default()
    });
    let setup = Setup::by_ip_link(&hosts, Mode::Generic, "xdp");
    for test in all_tests() {
        setup.measure(&Case::new(test));
    }
}

#[test]
fn data_arrives_in_large_frames_over_ipv6() {
    needs_root!();
    let hosts = Hosts::shaped(Shape {
        mtu: 9000,
        ..Shape::default()
    });
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    for test in all_tests() {
        setup.measure(&Case {
            address: "fd77::2",
            ..Case::new(test)
        });
    }
}

#[test]
fn data_arrives_over_ipv6() {
    needs_root!();
    let hosts = Hosts::new();
    for (way, mode) in [
        (Way::Itself, Mode::Native),
        (Way::Itself, Mode::Generic),
        (Way::IpLink, Mode::Native),
    ] {
        let setup = Setup::new(&hosts, way, mode);
        for test in all_tests() {
            setup.measure(&Case {
                address: "fd77::2",
                ..Case::new(test)
            });
        }
    }
}

#[test]
fn test_by_duration_ends_and_its_data_arrives() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    for test in all_tests() {
        let (server, client) = setup.begin(&Case {
            client: "--duration 200ms".to_owned(),
            ..Case::new(test)
        });
        let printed = client.finish().succeeded().stdout;
        assert!(printed.contains("every byte as sent"), "{printed}");
        server.finish().succeeded();
        setup.check_as_found();
    }
}

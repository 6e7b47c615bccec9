//! Findings about interfaces that this machine does not have.

use xwarp_bpf::Counters;
use xwarp_driver::attach::XdpMode;
use xwarp_driver::net::{
    Channels, DriverRings, Interrupt, LinkLayer, Rss, Setting, XdpFeature, XdpFeatures,
};

use super::host::Limit;
use super::*;

/// An interface without complaints: one queue of a device with zero copy.
fn facts() -> Facts {
    let mut hardware = Hardware::default();
    hardware.driver = Some("igb".to_owned());
    hardware.channels = Some(Channels {
        combined: Setting { now: 1, max: 8 },
        ..Channels::default()
    });
    hardware.xdp = Some(XdpFeatures {
        named: vec![
            XdpFeature::Native,
            XdpFeature::Redirect,
            XdpFeature::ZeroCopy,
        ],
        zero_copy_segments: 1,
    });
    hardware.rings = Some(DriverRings {
        rx: Setting {
            now: 512,
            max: 4096,
        },
        tx: Setting {
            now: 512,
            max: 4096,
        },
    });
    Facts {
        host: Host::of_root("7.3.4"),
        interface: Interface {
            index: 2,
            name: "eth0".to_owned(),
            kind: None,
            mac: net::MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            up: true,
            carrier: true,
            layer: LinkLayer::Ethernet,
            programs: Vec::new(),
            addresses: vec![[10, 9, 0, 1].into()],
            networks: Vec::new(),
            rx_queues: 1,
        },
        hardware,
        program: Ok(Status::NotAttached),
        users: Vec::new(),
        descriptors: Some(15),
        zero_copy: Ok(true),
    }
}

#[test]
fn column_has_room_for_what_each_finding_is_about() {
    let all = checks::all(&facts());
    let longest = all.iter().map(|finding| finding.about.len()).max();
    assert_eq!(longest, Some(ABOUT));
}

/// The findings other than passes.
fn complaints(facts: &Facts) -> Vec<Finding> {
    let mut found = checks::all(facts);
    found.retain(|finding| finding.verdict != Verdict::Pass);
    found
}

/// The only complaint, with its remedy.
fn complaint(facts: &Facts) -> (Verdict, &'static str, String) {
    let mut found = complaints(facts);
    assert_eq!(found.len(), 1, "{found:?}");
    let Finding {
        about,
        verdict,
        remedy,
        ..
    } = found.remove(0);
    (verdict, about, remedy.unwrap_or_default())
}

#[test]
fn good_interface_is_not_complained_of() {
    assert_eq!(complaints(&facts()), []);
}

#[test]
fn several_queues_are_as_good_as_one() {
    let mut found = facts();
    found.interface.rx_queues = 4;
    found.hardware.rss = Some(Rss::default());
    assert_eq!(complaints(&found), []);
}

#[test]
fn short_ring_is_to_be_as_long_as_the_driver_allows() {
    let mut found = facts();
    let rings = |now, max| {
        Some(DriverRings {
            rx: Setting { now, max },
            tx: Setting { now, max },
        })
    };
    found.hardware.rings = rings(256, 4096);
    let remedy = "ethtool -G eth0 rx 4096".to_owned();
    assert_eq!(complaint(&found), (Verdict::Warn, "rings", remedy));
    found.hardware.rings = rings(256, 256);
    assert_eq!(complaints(&found), [], "there is no longer one");
}

#[test]
fn large_frames_need_a_kernel_and_a_driver() {
    let mut found = facts();
    found.interface.mtu = 9000;
    let remedy = "ip link set eth0 mtu 1500".to_owned();
    assert_eq!(complaint(&found), (Verdict::Warn, "XDP", remedy.clone()));
    if let Some(features) = &mut found.hardware.xdp {
        features.named.push(XdpFeature::SeveralBuffers);
    }
    assert_eq!(complaints(&found), []);
    found.host = Host::of_root("6.1.0-50-amd64");
    assert_eq!(complaint(&found), (Verdict::Fail, "MTU", remedy));
}

#[test]
fn driver_without_programs_leaves_generic_mode() {
    let mut found = facts();
    found.hardware.xdp = Some(XdpFeatures::default());
    let (verdict, about, _) = complaint(&found);
    assert_eq!((verdict, about), (Verdict::Warn, "XDP"));
    found.hardware.xdp = None;
    let (verdict, about, _) = complaint(&found);
    assert_eq!((verdict, about), (Verdict::Warn, "XDP"), "an old kernel");
}

#[test]
fn program_of_somebody_else_is_to_be_detached() {
    let mut found = facts();
    found.program = Ok(Status::Foreign {
        mode: XdpMode::Native,
        program_id: 7,
        name: "firewall".to_owned(),
    });
    let remedy = "ip link set dev eth0 xdp off".to_owned();
    assert_eq!(complaint(&found), (Verdict::Fail, "program", remedy));
}

#[test]
fn process_without_capabilities_can_lock_little_memory() {
    let mut found = facts();
    found.host = Host::of_nobody("7.3.4");
    let abouts: Vec<_> = complaints(&found)
        .iter()
        .map(|finding| finding.about)
        .collect();
    assert_eq!(abouts, ["privileges", "memory"]);
}

/// The finding about `thing`.
fn about(facts: &Facts, thing: &str) -> Finding {
    let all = checks::all(facts);
    let found = all.into_iter().find(|finding| finding.about == thing);
    found.expect("a finding")
}

#[test]
fn capabilities_count_in_the_initial_user_namespace_only() {
    let mut found = facts();
    found.host.in_initial_user_namespace = false;
    let all = complaints(&found);
    let abouts: Vec<_> = all.iter().map(|finding| finding.about).collect();
    assert_eq!(abouts, ["privileges", "memory"]);
    assert!(all[0].says.contains("initial user namespace"), "{all:?}");
}

#[test]
fn remedy_of_missing_capabilities_is_one_that_works() {
    let mut found = facts();
    found.host = Host::of_nobody("7.3.4");
    let remedy = |found: &Facts| about(found, "privileges").remedy.expect("a command");
    assert_eq!(remedy(&found), "sudo xwarp doctor eth0");
    let says = about(&found, "privileges").says;
    assert!(
        says.contains("`xwarp run --local -- PROGRAM` needs none"),
        "{says}"
    );
    // Root gains nothing from sudo.
    found.host.is_root = true;
    assert_eq!(
        remedy(&found),
        "docker run --cap-add NET_ADMIN --cap-add NET_RAW --cap-add BPF --cap-add SYS_ADMIN --cap-add IPC_LOCK --ulimit memlock=-1"
    );
}

#[test]
fn remedy_of_little_lockable_memory_depends_on_the_hard_limit() {
    let mut found = facts();
    found.host = Host::of_nobody("7.3.4");
    for (most, remedy) in [
        (8 << 20, "sudo prlimit --pid $$ --memlock=unlimited"),
        (u64::MAX, "ulimit -S -l 81920"),
    ] {
        let now = 64 << 10;
        found.host.lockable = Limit { now, most };
        let memory = about(&found, "memory");
        assert_eq!(memory.remedy.as_deref(), Some(remedy));
        for words in [
            "64 KiB may be locked",
            "LimitMEMLOCK=infinity",
            "--ulimit memlock=-1",
        ] {
            assert!(memory.says.contains(words), "{memory:?}");
        }
    }
    found.host.lockable.now = u64::MAX;
    assert_eq!(about(&found, "memory").says, "any memory may be locked");
}

#[test]
fn limit_of_open_files_has_room_for_an_rnic() {
    let mut found = facts();
    for (most, remedy) in [
        (4096, "ulimit -S -n 1024"),
        (17, "sudo prlimit --pid $$ --nofile=1024"),
    ] {
        found.host.open_files = Limit { now: 17, most };
        let remedy = remedy.to_owned();
        assert_eq!(complaint(&found), (Verdict::Fail, "open files", remedy));
    }
    found.host.open_files.now = 18;
    assert_eq!(complaints(&found), []);
}

#[test]
fn empty_checksums_of_the_kernel_are_a_remark() {
    let mut found = facts();
    found.interface.kind = Some("veth".to_owned());
    let offload = "tx-checksum-ip-generic".to_owned();
    found.hardware.offloads.push(offload);
    assert_eq!(complaints(&found), []);
    let remark = about(&found, "checksums");
    assert_eq!(remark.remedy.as_deref(), Some("ethtool -K eth0 tx off"));
}

#[test]
fn processes_that_use_the_program_are_named() {
    let mut found = facts();
    let program = "rping".to_owned();
    let process = 4242;
    found.users.push(User { process, program });
    for (held_by_link, says) in [
        (
            true,
            "xwarp's, native, of rping (process 4242), which has the interface now",
        ),
        (
            false,
            "xwarp's, native, attached to stay; rping (process 4242) has the interface now",
        ),
    ] {
        found.program = Ok(Status::Ours {
            mode: XdpMode::Native,
            program_id: 7,
            counters: Counters::default(),
            held_by_link,
            asks_for_tags: false,
        });
        assert_eq!(about(&found, "program").says, says);
    }
}

#[test]
fn firewall_is_remarked_on() {
    let firewall = about(&facts(), "firewall");
    assert!(firewall.says.contains("do not apply"), "{firewall:?}");
}

#[test]
fn control_group_with_too_little_memory_is_complained_of() {
    let mut found = facts();
    found.host.group_leaves = Some(79 << 20);
    let (verdict, about, _) = complaint(&found);
    assert_eq!((verdict, about), (Verdict::Fail, "memory"));
    found.host.group_leaves = Some(80 << 20);
    assert_eq!(complaints(&found), []);
}

#[test]
fn huge_pages_are_reported_as_an_rnic_finds_them() {
    let mut found = facts();
    let says = |found: &Facts| about(found, "huge pages").says;
    assert!(says(&found).contains("vm.nr_hugepages=40"));
    found.host.makes_huge_pages = true;
    assert!(says(&found).contains("makes more"));
    found.host.huge_pages = Some(40);
    assert_eq!(says(&found), "40 of 2 MiB are free, and an RNIC takes 40");
}

#[test]
fn interface_is_complained_of_for_what_it_lacks() {
    let broken: [fn(&mut Interface); 4] = [
        |interface| interface.up = false,
        |interface| interface.carrier = false,
        |interface| interface.addresses.clear(),
        |interface| interface.layer = LinkLayer::Loopback,
    ];
    for breaks in broken {
        let mut found = facts();
        breaks(&mut found.interface);
        let (verdict, about, _) = complaint(&found);
        assert_eq!((verdict, about), (Verdict::Fail, "interface"));
    }
}

#[test]
fn stripped_tags_matter_where_the_driver_does_not_tell_them() {
    let mut found = facts();
    found.hardware.offloads.push("rx-vlan-hw-parse".to_owned());
    let remedy = "ethtool -K eth0 rxvlan off".to_owned();
    assert_eq!(complaint(&found), (Verdict::Warn, "VLAN tags", remedy));
    if let Some(features) = &mut found.hardware.xdp {
        features.named.push(XdpFeature::RxVlanTag);
    }
    assert_eq!(complaints(&found), []);
}

#[test]
fn interrupts_and_node_are_reported() {
    let mut found = facts();
    found.hardware.interrupts = vec![Interrupt {
        number: 40,
        processors: "0-3".to_owned(),
    }];
    found.hardware.node = Some(1);
    let says: Vec<String> = checks::all(&found)
        .into_iter()
        .map(|finding| finding.says)
        .collect();
    assert!(
        says.iter().any(|text| text.contains("40 on 0-3")),
        "{says:?}"
    );
    assert!(
        says.iter().any(|text| text.contains("--cpunodebind=1")),
        "{says:?}"
    );
}

#[test]
fn one_processor_for_all_queues_is_complained_of() {
    let mut found = facts();
    found.interface.rx_queues = 2;
    let on = |processors: [&str; 2]| {
        let each = (40..)
            .zip(processors)
            .map(|(number, processors)| Interrupt {
                number,
                processors: processors.to_owned(),
            });
        each.collect()
    };
    for (processors, other) in [(["0", "0"], 1), (["3", "3"], 0)] {
        found.hardware.interrupts = on(processors);
        let remedy = format!("echo {other} > /proc/irq/41/smp_affinity_list");
        assert_eq!(complaint(&found), (Verdict::Warn, "interrupts", remedy));
    }
    for processors in [["0", "1"], ["0-3", "0-3"]] {
        found.hardware.interrupts = on(processors);
        assert_eq!(complaints(&found), []);
    }
    found.hardware.interrupts = on(["0", "0"]);
    found.host.processors = 1;
    assert_eq!(complaints(&found), [], "there is no other");
}

#[test]
fn queues_that_can_be_polled_are_reported() {
    let mut found = facts();
    found.interface.rx_queues = 2;
    for (polled, says) in [
        (vec![], "reports no queue"),
        (vec![1], "at 1 of 2 queues"),
        (vec![0, 1], "possible (--busy-poll)"),
    ] {
        found.hardware.polled = polled;
        let all = checks::all(&found);
        let is_found = all.iter().any(|finding| finding.says.contains(says));
        assert!(is_found, "{says}: {all:?}");
    }
}

#[test]
fn zero_copy_that_is_named_and_refused_is_complained_of() {
    let mut found = facts();
    found.zero_copy = Ok(false);
    let (verdict, about, remedy) = complaint(&found);
    assert_eq!(
        (verdict, about, &remedy[..]),
        (Verdict::Warn, "zero copy", "")
    );
    found.hardware.xdp = Some(XdpFeatures {
        named: vec![
            XdpFeature::Native,
            XdpFeature::Redirect,
            XdpFeature::SeveralBuffers,
            XdpFeature::ZeroCopy,
        ],
        zero_copy_segments: 1,
    });
    found.interface.mtu = 9000;
    let (_, _, remedy) = complaint(&found);
    assert_eq!(remedy, "ip link set eth0 mtu 1500");
    found.zero_copy = Err("a process uses the queue".to_owned());
    assert_eq!(complaints(&found), []);
}

#[test]
fn finding_for_a_vlan_interface_names_the_lower_one() {
    let mut found = facts();
    found.interface.kind = Some("vlan".to_owned());
    found.hardware.lower = Some("eth9".to_owned());
    let remedy = "xwarp doctor eth9".to_owned();
    assert_eq!(complaint(&found), (Verdict::Warn, "XDP", remedy));
}

#[test]
fn bond_has_generic_mode_and_its_member_no_address() {
    let mut found = facts();
    found.interface.kind = Some("bond".to_owned());
    let remedy = "xwarp attach eth0 --mode generic".to_owned();
    assert_eq!(complaint(&found), (Verdict::Warn, "XDP", remedy));
    let mut found = facts();
    found.interface.addresses.clear();
    found.hardware.bond = Some("bond0".to_owned());
    let remedy = "xwarp doctor bond0".to_owned();
    assert_eq!(complaint(&found), (Verdict::Fail, "interface", remedy));
}

#[test]
fn table_that_virtio_forgets_is_complained_of() {
    let mut found = facts();
    found.interface.rx_queues = 4;
    let table = |queues: u32| {
        Some(Rss {
            toeplitz: true,
            table: (0..128).map(|at| at % queues).collect(),
            key: vec![7; 40],
        })
    };
    found.hardware.rss = table(2);
    assert_eq!(complaints(&found), [], "igb keeps it");
    found.hardware.driver = Some("virtio_net".to_owned());
    let remedy = "ethtool -X eth0 default".to_owned();
    assert_eq!(complaint(&found), (Verdict::Warn, "RSS", remedy));
    found.hardware.rss = table(4);
    assert_eq!(complaints(&found), []);
}

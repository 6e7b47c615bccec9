//! Checks of an interface: each examines facts and returns a finding.

use xwarp_bpf::Buffers;
use xwarp_driver::attach::{Status, User, XdpMode};
use xwarp_driver::net::{Interrupt, LinkLayer, Rss, XdpFeature, XdpFeatures};

use super::Facts;
use super::finding::Finding;
use super::host_checks;

/// First kernel whose AF_XDP has frames of several buffers.
const SEVERAL_BUFFERS: (u32, u32) = (6, 6);
/// Descriptors of a receive ring that hold a burst of one connection's window.
const BURST: u32 = 512;
/// All checks, in the order in which they are printed.
pub(super) fn all(facts: &Facts) -> Vec<Finding> {
    let each: [fn(&Facts) -> Finding; 21] = [
        host_checks::kernel,
        host_checks::privileges,
        interface,
        driver,
        xdp,
        zero_copy,
        program,
        queues,
        rss,
        rings,
        mtu,
        vlan_tags,
        checksums,
        tx_checksum,
        host_checks::locked_memory,
        host_checks::huge_pages,
        host_checks::open_files,
        firewall,
        interrupts,
        busy_polling,
        memory_node,
    ];
    each.into_iter().map(|check| check(facts)).collect()
}

fn interface(facts: &Facts) -> Finding {
    let (interface, about) = (&facts.interface, "interface");
    let name = &interface.name;
    if let Some(finding) = unfit(facts) {
        return finding;
    }
    if !interface.up {
        return Finding::fail(about, format!("{name} is down"))
            .with_remedy(format!("ip link set {name} up"));
    }
    if !interface.carrier {
        return Finding::fail(
            about,
            format!("{name} has no carrier: connect its cable, or set its peer up"),
        );
    }
    let Some(address) = interface.addresses.first() else {
        return Finding::fail(about, format!("{name} has no address"))
            .with_remedy(format!("ip address add ADDRESS/LENGTH dev {name}"));
    };
    Finding::pass(about, format!("{name}, {}, {address}", interface.mac))
}

/// Fails for an interface that cannot carry an RNIC in any configuration.
fn unfit(facts: &Facts) -> Option<Finding> {
    let (interface, about) = (&facts.interface, "interface");
    let name = &interface.name;
    let bond = facts.hardware.bond.as_ref();
    if interface.is_loopback() {
        let says = "is the loopback interface, which has no frames: choose another";
        return Some(Finding::fail(about, format!("{name} {says}")));
    }
    if interface.layer != LinkLayer::Ethernet {
        let says = "carries no Ethernet frames, as tunnels do not: choose another";
        return Some(Finding::fail(about, format!("{name} {says}")));
    }
    bond.map(|bond| {
        let says = format!("{name} is a member of {bond}, which has its addresses: choose that");
        Finding::fail(about, says).with_remedy(format!("xwarp doctor {bond}"))
    })
}

fn driver(facts: &Facts) -> Finding {
    let name = (facts.hardware.driver.as_deref()).or(facts.interface.kind.as_deref());
    Finding::pass("driver", name.unwrap_or("unknown"))
}

fn xdp(facts: &Facts) -> Finding {
    if let Some(finding) = xdp_on_others(facts) {
        return finding;
    }
    let Some(features) = &facts.hardware.xdp else {
        return Finding::warn(
            "XDP",
            "Linux before 6.3 does not report the driver's XDP features",
        );
    };
    if !(features.has(XdpFeature::Native) && features.has(XdpFeature::Redirect)) {
        return Finding::warn(
            "XDP",
            "the driver runs no XDP programs: only generic mode remains, which costs one more copy",
        );
    }
    if facts.interface.frames() == Buffers::Many && !features.has(XdpFeature::SeveralBuffers) {
        let says =
            "the driver has no frames of several buffers: at this MTU only generic mode remains";
        return Finding::warn("XDP", says)
            .with_remedy(format!("ip link set {} mtu 1500", facts.interface.name));
    }
    Finding::pass("XDP", format!("native mode{}", metadata(features)))
}

/// XDP on an interface that is stacked on others.
fn xdp_on_others(facts: &Facts) -> Option<Finding> {
    let interface = &facts.interface;
    let about = "XDP";
    match interface.kind.as_deref()? {
        "vlan" => {
            let says = "a VLAN interface runs generic mode, which costs one more copy: the kernel removes the tag first";
            let beneath = facts.hardware.lower.as_ref();
            let mut finding = Finding::warn(about, says);
            if let Some(lower) = beneath {
                finding = finding.with_remedy(format!("xwarp doctor {lower}"));
            }
            Some(finding)
        }
        // The program of a bond runs at its members, and the kernel redirects to no socket of
        // another interface (`xsk_rcv_check`).
        "bond" => Some(
            Finding::warn(
                about,
                "a bond's AF_XDP sockets receive no frames in native mode: only generic mode remains, which costs one more copy",
            )
            .with_remedy(format!("xwarp attach {} --mode generic", interface.name)),
        ),
        _ => None,
    }
}

/// Further features that the driver reports.
fn metadata(features: &XdpFeatures) -> String {
    let known = [
        (XdpFeature::RxHash, "hash"),
        (XdpFeature::RxVlanTag, "VLAN tag"),
        (XdpFeature::RxTimestamp, "timestamp"),
        (XdpFeature::TxChecksum, "checksum on transmit"),
    ];
    let names: Vec<&str> = known
        .into_iter()
        .filter_map(|(feature, name)| features.has(feature).then_some(name))
        .collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("; the driver reports {}", names.join(", "))
    }
}

/// Zero copy was tried, as a driver may refuse the mode that it reports.
fn zero_copy(facts: &Facts) -> Finding {
    let about = "zero copy";
    let named = facts
        .hardware
        .xdp
        .as_ref()
        .map(|features| features.has(XdpFeature::ZeroCopy));
    match (&facts.zero_copy, named) {
        (Ok(true), _) => Finding::pass(about, "the driver accepts it"),
        (Ok(false), Some(true)) if facts.interface.frames() == Buffers::Many => Finding::warn(
            about,
            "the driver supports it for frames of one chunk, and refuses it at this MTU",
        )
        .with_remedy(format!("ip link set {} mtu 1500", facts.interface.name)),
        (Ok(false), Some(true)) => Finding::warn(
            about,
            "the driver reports it, but refuses it on this device",
        ),
        (Ok(false), _) => Finding::pass(
            about,
            "the driver does not support it: frames are copied once",
        ),
        (Err(why), _) => Finding::pass(about, format!("not known: {why}")),
    }
}

fn program(facts: &Facts) -> Finding {
    let name = &facts.interface.name;
    let about = "program";
    match &facts.program {
        Err(why) => Finding::fail(about, why),
        Ok(Status::NotAttached) => Finding::pass(about, "none: an RNIC attaches its own"),
        Ok(Status::Ours {
            mode, held_by_link, ..
        }) => Finding::pass(about, ours(*mode, *held_by_link, &facts.users)),
        Ok(Status::Foreign {
            name: other,
            program_id,
            ..
        }) => {
            let says = format!(
                "program {program_id} ({other}) runs on {name}, and an interface has room for one"
            );
            Finding::fail(about, says).with_remedy(format!("ip link set dev {name} xdp off"))
        }
    }
}

/// Describes our attached program, and the processes that use it.
fn ours(mode: XdpMode, held_by_link: bool, users: &[User]) -> String {
    let names: Vec<String> = users.iter().map(User::to_string).collect();
    match (held_by_link, names.is_empty()) {
        (true, true) => format!("xwarp's, {mode}, of a process that has the interface now"),
        (true, false) => format!(
            "xwarp's, {mode}, of {}, which has the interface now",
            names.join(" and ")
        ),
        (false, true) => format!("xwarp's, {mode}, attached to stay"),
        (false, false) => format!(
            "xwarp's, {mode}, attached to stay; {} has the interface now",
            names.join(" and ")
        ),
    }
}

fn queues(facts: &Facts) -> Finding {
    let name = &facts.interface.name;
    let count = facts.interface.rx_queues;
    if count == 1 {
        return Finding::pass("queues", "one receives");
    }
    Finding::pass(
        "queues",
        format!("{count} receive, and xwarp serves all of {name}'s"),
    )
}

fn rss(facts: &Facts) -> Finding {
    let about = "RSS";
    match &facts.hardware.rss {
        None => Finding::pass(about, "the driver does not report it"),
        Some(_) if facts.interface.rx_queues == 1 => {
            Finding::pass(about, "not in use, as one queue receives")
        }
        Some(rss) if forgets_table(facts, rss) => Finding::warn(
            about,
            "virtio_net drops a table of `ethtool -X` when a program is attached, but still reports it",
        )
        .with_remedy(format!("ethtool -X {} default", facts.interface.name)),
        Some(rss) => {
            let function = if rss.toeplitz {
                "Toeplitz"
            } else {
                "another function than Toeplitz"
            };
            let key = rss.key.len();
            Finding::pass(
                about,
                format!(
                    "{function}, table of {}, key of {key} bytes",
                    rss.table.len()
                ),
            )
        }
    }
}

/// True if attaching resets a configured RSS table: it sets the number of queue pairs, which
/// disables RSS in the device (`virtnet_set_queues`).
fn forgets_table(facts: &Facts, rss: &Rss) -> bool {
    let by_default = |at: usize| u32::try_from(at).unwrap_or_default() % facts.interface.rx_queues;
    let mut table = rss.table.iter().enumerate();
    facts.hardware.driver.as_deref() == Some("virtio_net")
        && table.any(|(at, queue)| *queue != by_default(at))
}

fn rings(facts: &Facts) -> Finding {
    let Some(rings) = facts.hardware.rings else {
        return Finding::pass("rings", "the driver has none to set");
    };
    let says = format!(
        "{} descriptors receive, {} send",
        rings.rx.now, rings.tx.now
    );
    let least = BURST.min(rings.rx.max);
    if rings.rx.now < least {
        return Finding::warn("rings", format!("{says}: a burst overflows the first")).with_remedy(
            format!("ethtool -G {} rx {}", facts.interface.name, rings.rx.max),
        );
    }
    Finding::pass("rings", says)
}

fn mtu(facts: &Facts) -> Finding {
    let mtu = facts.interface.mtu;
    if facts.interface.frames() == Buffers::One {
        return Finding::pass("MTU", format!("{mtu}: a frame is one chunk"));
    }
    if facts.host.kernel < SEVERAL_BUFFERS {
        let says = format!("{mtu}: a frame is several chunks, which Linux has since 6.6");
        return Finding::fail("MTU", says)
            .with_remedy(format!("ip link set {} mtu 1500", facts.interface.name));
    }
    Finding::pass("MTU", format!("{mtu}: a frame is several chunks"))
}

fn vlan_tags(facts: &Facts) -> Finding {
    let about = "VLAN tags";
    let stripped = facts.hardware.offloads("rx-vlan-hw-parse");
    let is_reported =
        (facts.hardware.xdp.as_ref()).is_some_and(|features| features.has(XdpFeature::RxVlanTag));
    match (stripped, is_reported) {
        (false, _) => Finding::pass(about, "left in received frames"),
        (true, true) => Finding::pass(about, "removed, and the driver reports them to XDP"),
        (true, false) => Finding::warn(about, "removed before XDP: a VLAN's frames look untagged")
            .with_remedy(format!("ethtool -K {} rxvlan off", facts.interface.name)),
    }
}

/// A virtual link carries checksums that the sender's kernel has left empty. Between two hosts with
/// xwarp the kernel's TCP is not involved.
fn checksums(facts: &Facts) -> Finding {
    let name = &facts.interface.name;
    let virtual_link = facts.interface.kind.as_deref() == Some("veth");
    if virtual_link && facts.hardware.offloads("tx-checksum-ip-generic") {
        let says = "xwarp computes its own; this kernel's TCP and siw leave theirs empty here, and an xwarp at the peer refuses such packets";
        return Finding::pass("checksums", says).with_remedy(format!("ethtool -K {name} tx off"));
    }
    Finding::pass("checksums", "computed by the sender")
}

fn interrupts(facts: &Facts) -> Finding {
    let list = &facts.hardware.interrupts;
    if list.is_empty() {
        return Finding::pass("interrupts", "the driver reports none");
    }
    let each: Vec<String> = list
        .iter()
        .map(|interrupt| format!("{} on {}", interrupt.number, interrupt.processors))
        .collect();
    let says = format!("{} (number on processors)", each.join(", "));
    if facts.interface.rx_queues > 1
        && facts.host.processors > 1
        && let Some((busy, last)) = crowded(list)
    {
        let (says, other) = (
            format!("{says}: one processor serves all queues"),
            u32::from(busy == 0),
        );
        return Finding::warn("interrupts", says)
            .with_remedy(format!("echo {other} > /proc/irq/{last}/smp_affinity_list"));
    }
    Finding::pass("interrupts", says)
}

/// The processor that serves all of several interrupts, and the last one of these.
fn crowded(all: &[Interrupt]) -> Option<(u32, u32)> {
    let (last, others) = all.split_last()?;
    let processor = last.processors.parse().ok()?;
    let same = |other: &Interrupt| other.processors == last.processors;
    (!others.is_empty() && others.iter().all(same)).then_some((processor, last.number))
}

/// A driver may report offloads that do not work: each connection tests them.
fn tx_checksum(facts: &Facts) -> Finding {
    let has = |features: &XdpFeatures| features.has(XdpFeature::TxChecksum);
    let named = facts.hardware.xdp.as_ref().is_some_and(has);
    let says = match facts.interface.frames() {
        Buffers::Many if named => {
            "the driver reports it for frames of one chunk: at this MTU xwarp computes it"
        }
        Buffers::One if named => {
            "the driver reports it: connections use it if their peers accept it"
        }
        Buffers::One => {
            "the driver does not report it: xwarp computes it (--tx-checksum always tries)"
        }
        Buffers::Many => "the driver does not report it: xwarp computes it",
    };
    Finding::pass("TX checksum", says)
}

/// Queues whose NAPI instances an engine can poll.
fn busy_polling(facts: &Facts) -> Finding {
    let about = "busy polling";
    let polled = facts.hardware.polled.len();
    let all = facts.interface.rx_queues as usize;
    let says = match polled {
        0 => "the kernel reports no queue with one NAPI instance for both directions".to_owned(),
        _ if polled < all => format!("possible at {polled} of {all} queues (--busy-poll --queues)"),
        _ => "possible (--busy-poll): it saves interrupts while an engine spins".to_owned(),
    };
    Finding::pass(about, says)
}

/// True of every XDP program, whatever the rules.
fn firewall(_facts: &Facts) -> Finding {
    let says = "XDP runs before it: rules of nftables, ufw or a NetworkPolicy do not apply to an RNIC's ports, and `ss` does not list them";
    Finding::pass("firewall", says)
}

fn memory_node(facts: &Facts) -> Finding {
    match facts.hardware.node {
        None => Finding::pass("NUMA", "one node, as far as the device reports"),
        Some(node) => Finding::pass(
            "NUMA",
            format!(
                "the device is at node {node}: run programs there (numactl --cpunodebind={node} --membind={node})"
            ),
        ),
    }
}

//! Open RNIC with each of its modifiers and attributes (verbs draft §9.2.1.1).

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use xwarp::cm::{MpaConfig, Revision};
use xwarp::config::{CongestionControl, NicConfig, Progress, WaitMode, XdpMode};
use xwarp::memory::{PblMode, PhysicalList, RegionSpec};
use xwarp::{Access, ProtectionDomain, QpConfig, Rnic, RnicConfig};
use xwarp_system_tests::{DEV, Host, Hosts, TIMEOUT, check_nothing_dropped};
use xwarp_test_kit::{End, needs_root, next_success};

/// None of these is the default where there is another value that a link of this host can have.
fn config(lists: PblMode) -> RnicConfig {
    RnicConfig::default()
        .nic(
            NicConfig::default()
                .mode(Some(XdpMode::Generic))
                .ring(1024)
                .frames(4096)
                .region_bytes(1 << 20)
                .capture(None),
        )
        .progress(Progress::Thread)
        .wait_mode(WaitMode::Blocking)
        .keepalive(Some(Duration::from_secs(5)))
        .min_rto(Duration::from_millis(50))
        .ack_delay(Duration::ZERO)
        .user_timeout(Duration::from_mins(2))
        .congestion(CongestionControl::NewReno)
        .ecn(true)
        .mpa(
            MpaConfig::default()
                .max_revision(Revision::One)
                .crc(false)
                .markers(true)
                .allow_revision_0(true)
                .first_fpdu_retry(None),
        )
        .backlog(3)
        .pbl_mode(lists)
        .max_events(7)
}

/// Opened by its name, it has what it was opened with.
fn opened(host: &Host, lists: PblMode) -> (Rnic, ProtectionDomain) {
    let rnic = host
        .run(|| Rnic::open(DEV, &config(lists)))
        .expect("an RNIC");
    let info = rnic.info().expect("an interface");
    assert_eq!((info.name.as_str(), info.mode), (DEV, XdpMode::Generic));
    let has = rnic.query().expect("an open RNIC");
    assert_eq!((has.pbl_mode, has.max_events), (lists, 7));
    assert!(
        rnic.allocate_memory((1 << 20) + 1).is_err(),
        "a MiB and no more"
    );
    let pd = rnic.allocate_pd().expect("a protection domain");
    let blocks = PhysicalList {
        entry_size: 3,
        addresses: [5, 1].into(),
        first_byte_offset: 0,
        len: 6,
    };
    let registered = pd.register_with(blocks, &RegionSpec::new(Access::LOCAL_READ));
    assert_eq!(registered.is_ok(), lists == PblMode::Block);
    (rnic, pd)
}

#[test]
fn interface_is_opened_by_its_name_with_every_modifier_set() {
    needs_root!();
    for lists in [PblMode::Page, PblMode::Block] {
        let hosts = Hosts::new();
        let (near, near_pd) = opened(&hosts.a, lists);
        let (far, far_pd) = opened(&hosts.b, lists);
        let queue = |rnic: &Rnic| rnic.create_cq(16).expect("a queue");
        let (mut near_cq, mut far_cq) = (queue(&near), queue(&far));
        let mut near_end = End::new(&near_pd, &near_cq, &QpConfig::default(), 8);
        let mut far_end = End::new(&far_pd, &far_cq, &QpConfig::default(), 8);
        near_end.source.bytes().write(0, b"it is on").unwrap();
        far_end.post_recv(1, 8);

        let at = SocketAddr::new(Hosts::SERVER, 7471);
        let mut listener = hosts.b.run(|| far.listen(at)).expect("a port");
        thread::scope(|scope| {
            scope.spawn(|| far_end.accept(&mut listener, b""));
            let connect = || near_end.qp.connect(at, b"", TIMEOUT);
            hosts.a.run(connect).expect("a connection");
        });
        let info = near_end.qp.connection().expect("a connection");
        assert_eq!((info.crc, info.revision), (false, 1));
        assert!(info.send_markers && info.receive_markers);
        near_end.post(near_end.send(2, 8));
        next_success(&mut near_cq);
        next_success(&mut far_cq);
        assert_eq!(far_end.sink.bytes().to_vec(), b"it is on");
        check_nothing_dropped(&near);
        check_nothing_dropped(&far);
    }
}

//! Open RNIC with each of its modifiers and attributes (verbs draft §9.2.1.1).

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use xwarp::{
    Access, CompletionQueue, CongestionControl, ListMode, MpaConfig, NicConfig, PhysicalList,
    Progress, ProtectionDomain, QpConfig, RecvRequest, RegionSpec, Revision, Rnic, RnicConfig,
    SendRequest, Waiting, WrId, XdpMode,
};
use xwarp_system_tests::{DEV, Host, Hosts, TIMEOUT, check_nothing_dropped};
use xwarp_test_kit::needs_root;

/// None of these is the default where there is another value that a link of this host can have.
fn config(lists: ListMode) -> RnicConfig {
    RnicConfig {
        nic: NicConfig {
            mode: Some(XdpMode::Generic),
            ring: 1024,
            frames: 4096,
            region_bytes: 1 << 20,
            capture: None,
        },
        progress: Progress::Thread,
        waiting: Waiting::Blocking,
        keepalive: Some(Duration::from_secs(5)),
        min_rto: Duration::from_millis(50),
        ack_delay: Duration::ZERO,
        user_timeout: Duration::from_mins(2),
        congestion: CongestionControl::Bbr,
        ecn: true,
        mpa: MpaConfig {
            highest: Revision::One,
            crc: false,
            markers: true,
            rdmac: true,
            nudge: None,
        },
        backlog: 3,
        lists,
        max_events: 7,
    }
}

/// Opened by its name, it has what it was opened with.
fn opened(host: &Host, lists: ListMode) -> (Rnic, ProtectionDomain) {
    let rnic = host
        .run(|| Rnic::open(DEV, &config(lists)))
        .expect("an RNIC");
    let info = rnic.info().expect("an interface");
    assert_eq!((info.name.as_str(), info.mode), (DEV, XdpMode::Generic));
    let has = rnic.query().expect("an open RNIC");
    assert_eq!((has.lists, has.max_events), (lists, 7));
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
    assert_eq!(registered.is_ok(), lists == ListMode::Block);
    (rnic, pd)
}

fn next(cq: &mut CompletionQueue) {
    let completion = cq.wait(TIMEOUT).expect("a queue");
    assert!(completion.expect("a completion").is_success());
}

#[test]
fn interface_is_opened_by_its_name_with_every_modifier_set() {
    needs_root!();
    for lists in [ListMode::Page, ListMode::Block] {
        let hosts = Hosts::new();
        let (near, near_pd) = opened(&hosts.a, lists);
        let (far, far_pd) = opened(&hosts.b, lists);
        let queue = |rnic: &Rnic| rnic.create_cq(16).expect("a queue");
        let (mut near_cq, mut far_cq) = (queue(&near), queue(&far));
        let config = QpConfig::default();
        let mut near_qp = near_pd.create_qp(&config, &near_cq, &near_cq).unwrap();
        let mut far_qp = far_pd.create_qp(&config, &far_cq, &far_cq).unwrap();
        let source = near_pd.allocate(8, Access::LOCAL_READ).unwrap();
        let sink = far_pd.allocate(8, Access::LOCAL_WRITE).unwrap();
        source.bytes().write(0, b"it is on").unwrap();
        far_qp
            .post_recv(RecvRequest::new(WrId(1), sink.local(0, 8)))
            .unwrap();

        let at = SocketAddr::new(Hosts::SERVER, 7471);
        let mut listener = hosts.b.run(|| far.listen(at)).expect("a port");
        thread::scope(|scope| {
            scope.spawn(|| {
                let request = listener
                    .accept(TIMEOUT)
                    .expect("an RNIC")
                    .expect("a request");
                request.accept(&mut far_qp, b"").expect("a connection");
            });
            let connect = || near_qp.connect(at, b"", TIMEOUT);
            hosts.a.run(connect).expect("a connection");
        });
        let info = near_qp.connection().expect("a connection");
        assert_eq!((info.crc, info.revision), (false, 1));
        assert!(info.send_markers && info.receive_markers);
        near_qp
            .post_send(SendRequest::send(WrId(2), source.local(0, 8)))
            .unwrap();
        next(&mut near_cq);
        next(&mut far_cq);
        assert_eq!(sink.bytes().to_vec(), b"it is on");
        check_nothing_dropped(&near);
        check_nothing_dropped(&far);
    }
}

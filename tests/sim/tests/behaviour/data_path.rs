//! The handles that post and poll, and cannot do anything else (verbs draft §8.2.1).

use std::time::Duration;

use xwarp::error::{DataPathError, PostError, PostListError, TermCode};
use xwarp::event::AsyncEventKind;
use xwarp::memory::PhysicalList;
use xwarp::work::DataPath;
use xwarp::{
    Access, CompletionStatus, Opcode, QpConfig, QpState, RecvRequest, SendRequest, Sge, Stag, WrId,
};
use xwarp_sim_tests::wire::Untagged;
use xwarp_sim_tests::{Done, Sim, SimEnd, pattern};
use xwarp_test_kit::netsim::Seed;

use crate::hostile::Dut;

fn sim() -> Sim {
    Sim::new(Seed(23)).one_way_delay(Duration::from_micros(50))
}

#[test]
fn data_path_posts_in_the_place_of_its_queue_pair() {
    fn can_go_to_another_thread<T: Send>(_: &T) {}
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let source = a.source(&pattern(100));
    let mut path = a.qp.take_data_path().unwrap();
    can_go_to_another_thread(&path);
    assert_eq!(a.qp.take_data_path().err(), Some(DataPathError::Taken));
    assert_eq!((path.id(), path.state()), (a.qp.id(), QpState::Rts));

    let send = |id| SendRequest::send(WrId(id), source);
    let taken = PostError::DataPathTaken;
    assert_eq!(a.qp.post_send(send(9)), Err(taken));
    let nothing = Err(PostListError::from(taken));
    assert_eq!(a.qp.post_send_list([send(9)]), nothing);
    assert_eq!(
        a.qp.post_recv(RecvRequest::new(WrId(9), source)),
        Err(taken)
    );

    for id in [1, 2, 3] {
        b.post_recv(id, 100);
    }
    path.post_send(send(1)).unwrap();
    assert_eq!(path.post_send_list([send(2)]), Ok(1));
    sim.run_until_idle();
    a.qp.return_data_path(path).unwrap();
    a.qp.post_send(send(3)).unwrap();
    sim.run_until_idle();
    assert_eq!(b.receives(), [1, 2, 3].map(|id| Done::receive(id, 100)));
    assert_eq!(a.sends(), [1, 2, 3].map(|id| Done::send(id, 100)));
}

#[test]
fn data_path_goes_back_to_its_own_queue_pair_only() {
    let mut sim = sim();
    let (mut a, _b) = sim.connected_pair();
    let (mut c, _d) = sim.connected_pair();
    let mine = a.qp.take_data_path().unwrap();
    let other = c.qp.take_data_path().unwrap();
    let id = other.id();
    let back: Result<(), Box<DataPath>> = a.qp.return_data_path(other);
    assert_eq!(back.unwrap_err().id(), id);
    a.qp.return_data_path(mine).unwrap();
}

#[test]
fn nothing_can_be_posted_to_a_queue_pair_that_is_destroyed() {
    let mut sim = sim();
    let (mut a, _b) = sim.connected_pair();
    let source = a.source(&pattern(10));
    let mut path = a.qp.take_data_path().unwrap();
    let request = || SendRequest::send(WrId(1), source);
    path.post_send(request()).unwrap();
    drop(a);
    assert_eq!(path.state(), QpState::Error);
    let gone = Err(PostError::Destroyed);
    assert_eq!(path.post_send(request()), gone);
    assert_eq!(path.post_recv(RecvRequest::new(WrId(2), source)), gone);
}

#[test]
fn poller_finds_what_its_queue_has() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    b.post_recv(1, 10);
    a.post_send(7, b"0123456789");
    sim.run_until_idle();
    let mut poller = a.send_cq().poller();
    let found = poller
        .poll()
        .unwrap()
        .map(|done| (done.wr_id, done.is_success()));
    assert_eq!(found, Some((WrId(7), true)));
    assert!(poller.poll().unwrap().is_none());
}

/// Verbs draft §6.1.1, §8.1.3.2.1, §9.2.5.1: what names physical memory is for the Privileged
/// Consumer alone.
#[test]
fn privileged_queue_pair_gives_no_data_path_away() {
    let mut sim = sim();
    let config = QpConfig::default().privileged(true);
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&QpConfig::default()));
    let refused = a.qp.take_data_path().err();
    assert_eq!(refused, Some(DataPathError::Privileged));
    assert!(refused.unwrap().to_string().contains("privileged"));
    sim.connect(&mut a, &mut b);
    assert!(a.qp.take_data_path().is_err(), "in no state");
    // It posts as before.
    b.post_recv(1, 10);
    a.post_send(2, b"its own");
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(1, 7)]);
}

/// RFC 5042 §2.3.2: it enables and disables what was registered for it.
#[test]
fn data_path_binds_and_invalidates_what_was_registered() {
    const VA: u64 = 0x1000_0000;
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let rights = Access::LOCAL_READ | Access::LOCAL_WRITE | Access::BIND_WINDOWS;
    let region = b.va_region(100, rights, VA);
    let mut window = b.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 100, Access::REMOTE_WRITE);
    let mut path = b.qp.take_data_path().unwrap();
    path.post_send(SendRequest::bind(WrId(1), bind)).unwrap();
    sim.run_until_idle();
    a.post_write(2, &pattern(100), bind.remote(0));
    sim.run_until_idle();
    path.post_send(SendRequest::invalidate(WrId(3), bind.window))
        .unwrap();
    sim.run_until_idle();
    assert_eq!(b.sends(), [Done::bind(1), Done::invalidate(3)]);
    assert_eq!(region.bytes().to_vec(), pattern(100));
    assert!(!window.query().unwrap().is_valid());
}

/// What a data path's holder makes of memory that it can name by its physical address: how the work
/// request ends.
fn physical(request: fn(&SimEnd, u64) -> SendRequest) -> Done {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    b.post_recv(1, 4096);
    let secret = a.host().rnic().allocate_memory(4096).unwrap();
    secret.fill(0..4096, 0x5a).unwrap();
    let address = a.host().rnic().physical_address(&secret).unwrap();
    let request = request(&a, address);
    let mut path = a.qp.take_data_path().unwrap();
    path.post_send(request).unwrap();
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::flushed(1, Opcode::Receive)]);
    assert!(b.buffer(1).iter().all(|byte| *byte == 0));
    let told = [AsyncEventKind::TerminateReceived(TermCode::rdmap_local())];
    assert_eq!(b.events(), told);
    let [done] = a.sends()[..] else {
        panic!("one completion")
    };
    done
}

/// Verbs draft §7.2.1, §7.3.2.5.
#[test]
fn data_path_neither_registers_memory_nor_names_it_by_address() {
    let sent = physical(|_, address| {
        let all = Sge {
            stag: Stag(0),
            to: address,
            len: 4096,
        };
        SendRequest::send(WrId(2), all)
    });
    let status = CompletionStatus::InvalidStag;
    assert_eq!(sent, Done::failed(2, Opcode::Send, status));

    let registered = physical(|a, address| {
        let mut stag = a.host().pd().allocate_stag(1, true).unwrap();
        let list = PhysicalList {
            entry_size: 4096,
            addresses: vec![address].into(),
            first_byte_offset: 0,
            len: 4096,
        };
        let request = stag.fast_register(list, Access::LOCAL_READ | Access::REMOTE_READ);
        std::mem::forget(stag);
        SendRequest::fast_register(WrId(2), request)
    });
    let status = CompletionStatus::NotPrivileged;
    assert_eq!(registered, Done::failed(2, Opcode::FastRegister, status));
}

#[test]
fn data_path_receives_nothing_into_memory_that_it_names_by_address() {
    let mut dut = Dut::new().expecting(&["drop_after_failure"]);
    let host = dut.end.host().clone();
    let memory = host.rnic().allocate_memory(4096).unwrap();
    let buffer = Sge {
        stag: Stag(0),
        to: host.rnic().physical_address(&memory).unwrap(),
        len: 4096,
    };
    let mut path = dut.end.qp.take_data_path().unwrap();
    path.post_recv(RecvRequest::new(WrId(1), buffer)).unwrap();
    dut.peer.send(&Untagged::default().fpdu(b"not there"));
    dut.sim.run_until("the FIN", || dut.peer.saw_fin());
    let failed = Done::failed(1, Opcode::Receive, CompletionStatus::InvalidStag);
    assert_eq!(dut.end.receives(), [failed]);
    assert_eq!(memory.to_vec(), [0; 4096]);
    dut.peer.close();
    dut.sim.run_until_idle();
}

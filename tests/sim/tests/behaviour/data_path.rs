//! The handles that post and poll, and cannot do anything else (verbs draft §8.2.1).

use std::time::Duration;

use xwarp::{DataPath, PostError, PostListError, QpState, RecvRequest, SendRequest, WrId};
use xwarp_netsim::Seed;
use xwarp_sim_tests::{Done, Sim, pattern};

fn sim() -> Sim {
    Sim::new(Seed(23)).one_way_delay(Duration::from_micros(50))
}

#[test]
fn a_data_path_posts_in_the_place_of_its_queue_pair() {
    fn can_go_to_another_thread<T: Send>(_: &T) {}
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let source = a.source(&pattern(100));
    let mut path = a.qp.take_data_path().unwrap();
    can_go_to_another_thread(&path);
    assert!(a.qp.take_data_path().is_none(), "there is one only");
    assert_eq!((path.id(), path.state()), (a.qp.id(), QpState::Rts));

    let send = |id| SendRequest::send(WrId(id), source);
    let taken = PostError::DataPathTaken;
    assert_eq!(a.qp.post_send(send(9)), Err(taken));
    let nothing = Err(PostListError {
        posted: 0,
        error: taken,
    });
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
fn a_data_path_goes_back_to_its_own_queue_pair_only() {
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
fn a_poller_finds_what_its_queue_has() {
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

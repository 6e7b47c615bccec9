//! Limits of a client and of a user, and that they are no other's.

use super::*;

#[test]
fn limits_of_users_are_their_own() {
    let mut switch = switch();
    let of = |switch: &mut Switch<Memory>, uid| switch.attach(user(uid), Memory::default(), None);
    let ids: Vec<_> = (0..4)
        .map(|_| of(&mut switch, USER).expect("room").0)
        .collect();
    let refused = of(&mut switch, USER).err();
    assert_eq!(refused, Some(Refusal::TooManyClients(4)));
    let (other, _) = of(&mut switch, USER + 1).expect("a limit of another user's");
    let any = SocketAddr::new(V4, 0);
    for at in 0..8 {
        let opened = open(&mut switch, ids[at % 4], any);
        assert!(opened.is_ok(), "{opened:?}");
    }
    let refused = open(&mut switch, ids[0], any);
    assert_eq!(refused, Err(Refusal::TooManyPorts(8)));
    assert!(open(&mut switch, other, any).is_ok());
    // What a client had is free when it has gone.
    switch.detach(ids[0], START);
    assert!(open(&mut switch, ids[1], any).is_ok());
    assert!(of(&mut switch, USER).is_ok());
    let privileged = SocketAddr::new(V4, 80);
    let refused = open(&mut switch, other, privileged);
    assert_eq!(refused, Err(Refusal::NotPermitted(80)));
    let (root, _) = of(&mut switch, 0).expect("room");
    assert_eq!(open(&mut switch, root, privileged), Ok(privileged));
    let elsewhere = Ipv4Addr::new(10, 0, 0, 1).into();
    for request in [
        Request::Source(elsewhere),
        Request::Hop(SocketAddr::new(elsewhere, 1)),
        Request::OpenPort(SocketAddr::new(elsewhere, 0)),
    ] {
        let refused = switch.handle(root, request, START);
        assert_eq!(refused, Err(Refusal::NotHere(elsewhere)));
    }
    assert_eq!(
        switch.handle(root, Request::Source(V6), START),
        Ok(Reply::Source(V6))
    );
    assert_eq!(
        switch.handle(root, Request::Hop(SocketAddr::new(V6, 1)), START),
        Ok(Reply::Hop(SWITCH))
    );
}

#[test]
fn each_client_has_its_turn_after_64_frames_of_another() {
    let mut switch = switch();
    let [a, b, c] = [7000, 7001, 7002].map(|port| peer(&mut switch, V4, port));
    for _ in 0..100 {
        a.memory.send(segment(a.at, c.at, DATA));
    }
    b.memory.send(segment(b.at, c.at, DATA));
    assert_eq!(switch.turn(START).0, 65);
    let received = c.memory.received();
    assert_eq!(received[64][34..36], b.at.port().to_be_bytes());
    assert_eq!(switch.turn(START).0, 36);
    assert_eq!(c.memory.received().len(), 36);
    // A receiver without room costs only its own frames.
    c.memory.0.borrow_mut().room = 0;
    a.memory.send(segment(a.at, c.at, DATA));
    a.memory.send(segment(a.at, b.at, DATA));
    switch.turn(START);
    assert_eq!(
        (c.memory.received().len(), b.memory.received().len()),
        (0, 1)
    );
    assert_eq!(switch.counters().drop_no_room, 1);
}

#[test]
fn resets_that_answer_a_client_have_a_limit_of_its_own() {
    let mut switch = switch();
    let [a, b, c] = [7000, 7001, 7002].map(|port| peer(&mut switch, V4, port));
    a.memory.0.borrow_mut().room = 10_000;
    let closed = SocketAddr::new(V4, 7009);
    let empty = Fields { len: 0, ..DATA };
    let flood = |switch: &mut Switch<Memory>, now: Duration| {
        for _ in 0..1500 {
            a.memory.send(segment(a.at, closed, empty));
        }
        while switch.turn(now).0 > 0 {}
        a.memory.received().len()
    };
    assert_eq!(flood(&mut switch, START), 1000);
    assert_eq!(switch.counters().resets_withheld, 500);
    assert_eq!(flood(&mut switch, START), 0);
    // Another client gets its answers, and the RST of a peer that dies.
    b.memory.send(segment(b.at, closed, empty));
    c.memory.send(segment(c.at, b.at, DATA));
    switch.turn(START);
    switch.detach(c.id, START);
    let received = b.memory.received();
    let resets: Vec<_> = [&received[0], &received[2]]
        .map(|frame| reset(frame, &b).0)
        .into();
    assert_eq!((received.len(), resets), (3, vec![7009, 7002]));
    let later = START + Duration::from_millis(300);
    assert_eq!(flood(&mut switch, later), 300);
    assert_eq!(flood(&mut switch, START + Duration::from_hours(1)), 1000);
}

#[test]
fn requests_of_a_client_have_a_limit_of_its_own() {
    let mut switch = switch();
    let [a, b] = [7000, 7001].map(|port| peer(&mut switch, V4, port));
    let ask =
        |switch: &mut Switch<Memory>, of: &Peer, now| switch.handle(of.id, Request::Hop(a.at), now);
    let flood = |switch: &mut Switch<Memory>, now| {
        (0..3000).filter(|_| ask(switch, &a, now).is_ok()).count()
    };
    assert_eq!(flood(&mut switch, START), 999, "it has opened a port");
    assert_eq!(ask(&mut switch, &a, START), Err(Refusal::TooFast(1000)));
    assert!(ask(&mut switch, &b, START).is_ok());
    assert_eq!(flood(&mut switch, START + Duration::from_millis(70)), 70);
    assert_eq!(flood(&mut switch, START + Duration::from_hours(1)), 1000);
    let not_its = switch.handle(a.id, Request::ClosePort(b.at), START);
    assert_eq!(not_its, Err(Refusal::TooFast(1000)));
    // A port that it cannot close would stay in use.
    let closed = switch.handle(a.id, Request::ClosePort(a.at), START);
    assert_eq!(closed, Ok(Reply::Closed));
}

//! Clients and their ports over time: what is theirs again, who is paired, and what they see.

use super::*;

/// So that a new client does not get the port of one that is about to return.
#[test]
fn switches_begin_with_different_ports() {
    let first = [0, 1, 16_383, 16_384, u64::MAX].map(|generation| {
        let mut switch = of_generation(generation);
        peer(&mut switch, V4, 0).at.port()
    });
    assert_eq!(first, [49_152, 49_153, u16::MAX, 49_152, u16::MAX]);
}

#[test]
fn closed_port_rests_unless_it_is_named() {
    let mut switch = switch();
    let memory = Memory::with_room(0);
    let (id, _) = switch.attach(user(USER), memory, None).expect("room");
    let any = SocketAddr::new(V4, 0);
    let first = open(&mut switch, id, any).expect("a port");
    let second = open(&mut switch, id, any).expect("a port");
    assert!(first.port() >= 49_152 && second != first);
    assert_eq!(open(&mut switch, id, first), Err(Refusal::InUse(first)));
    let close = Request::ClosePort(first);
    assert_eq!(switch.handle(id, close, START), Ok(Reply::Closed));
    assert_eq!(
        switch.handle(id, close, START),
        Err(Refusal::NotOpen(first))
    );
    // All dynamic ports once: the one that rests is not among them.
    let mut chosen = Vec::new();
    let mut rest = 2..=u16::MAX - 49_152;
    while !rest.is_empty() {
        let (other, _) = switch
            .attach(user(USER), Memory::default(), None)
            .expect("room");
        // As many requests as a client may make at once.
        for _ in rest.by_ref().take(1000) {
            let at = match switch.handle(other, Request::OpenPort(any), START + LINGER / 2) {
                Ok(Reply::Port(at)) => at,
                other => panic!("{other:?}"),
            };
            chosen.push(at);
            let closed = switch.handle(other, Request::ClosePort(at), START + LINGER / 2);
            assert_eq!(closed, Ok(Reply::Closed));
        }
        switch.detach(other, START + LINGER / 2);
    }
    assert!(!chosen.contains(&first) && !chosen.contains(&second));
    let none = switch.handle(id, Request::OpenPort(any), START + LINGER / 2);
    assert_eq!(none, Err(Refusal::NoneFree(V4)));
    let named = switch.handle(id, Request::OpenPort(first), START + LINGER / 2);
    assert_eq!(named, Ok(Reply::Port(first)));
    let later = switch.handle(id, Request::OpenPort(any), START + 2 * LINGER);
    assert!(matches!(later, Ok(Reply::Port(_))), "{later:?}");
}

#[test]
fn connections_of_a_former_switch_are_not_reset_before_their_clients_return() {
    let mut switch = switch();
    let a = peer(&mut switch, V4, 7000);
    let away = SocketAddr::new(V4, 7001);
    let syn = Fields {
        control: TcpControl::Syn,
        ack: None,
        len: 0,
        ..DATA
    };
    for (now, fields, count) in [
        (Duration::from_millis(999), DATA, 0),
        (Duration::from_millis(999), syn, 1),
        (Duration::from_secs(1), DATA, 1),
    ] {
        a.memory.send(segment(a.at, away, fields));
        switch.turn(now);
        assert_eq!(a.memory.received().len(), count, "{now:?}");
    }
}

#[test]
fn client_of_before_is_not_the_one_that_has_its_place() {
    let mut switch = switch();
    let a = peer(&mut switch, V4, 7000);
    switch.detach(a.id, START);
    let b = peer(&mut switch, V4, 7001);
    assert_eq!(b.mac, a.mac, "the place is used again");
    switch.detach(a.id, START);
    assert_eq!(
        switch.handle(a.id, Request::Addresses, START),
        Err(Refusal::Detached)
    );
    let addresses = switch.handle(b.id, Request::Addresses, START);
    assert_eq!(addresses, Ok(Reply::Addresses(vec![V4, V6])));
}

#[test]
fn clients_that_may_trace_each_other_are_paired_once_and_no_others() {
    let mut switch = switch();
    let of = |uid, domain| Identity {
        domain,
        ..user(uid)
    };
    let mut ids = Vec::new();
    for (port, identity) in (2000..).zip([
        of(USER, Some(1)),
        of(USER, Some(1)),
        of(USER, Some(2)),
        of(USER + 1, Some(1)),
        of(USER + 2, None),
        of(USER + 2, None),
    ]) {
        let memory = Memory::with_room(10);
        let (id, mac) = switch.attach(identity, memory, None).expect("room");
        let at = open(&mut switch, id, SocketAddr::new(V4, port)).expect("a port");
        ids.push((id, mac, at));
    }
    let hop = |switch: &mut Switch<Memory>, from: usize, to: usize| {
        let asked = switch.handle(ids[from].0, Request::Hop(ids[to].2), START);
        match asked {
            Ok(Reply::Hop(mac)) => mac,
            other => panic!("{other:?}"),
        }
    };
    for from in 0..ids.len() {
        for (to, (_, mac, _)) in ids.iter().enumerate() {
            let paired = (from, to) == (0, 1) || (from, to) == (1, 0);
            let expected = if paired { *mac } else { SWITCH };
            assert_eq!(hop(&mut switch, from, to), expected, "{from} to {to}");
        }
    }
    assert_eq!(switch.take_pairs(), [[ids[0].0, ids[1].0]]);
    assert!(switch.take_pairs().is_empty());
    let closed = SocketAddr::new(V4, 4000);
    let asked = switch.handle(ids[0].0, Request::Hop(closed), START);
    assert_eq!(asked, Ok(Reply::Hop(SWITCH)), "no client has it");
    // The place of one that ended is another's, who is paired anew.
    switch.detach(ids[1].0, START);
    let identity = of(USER, Some(1));
    let (id, mac) = switch
        .attach(identity, Memory::with_room(10), None)
        .expect("room");
    open(&mut switch, id, ids[1].2).expect("the port");
    let asked = switch.handle(ids[0].0, Request::Hop(ids[1].2), START);
    assert_eq!(asked, Ok(Reply::Hop(mac)));
    assert_eq!(switch.take_pairs(), [[ids[0].0, id]]);
}

#[test]
fn client_is_shown_the_others_and_processes_of_its_user_only() {
    let mut switch = switch();
    let attach = |switch: &mut Switch<Memory>, uid, domain| {
        let identity = Identity {
            domain,
            ..user(uid)
        };
        let attached = switch.attach(identity, Memory::default(), None);
        attached.expect("room").0
    };
    let other = attach(&mut switch, USER + 1, Some(1));
    let [asks, trusted] = [(); 2].map(|()| attach(&mut switch, USER, Some(1)));
    attach(&mut switch, USER, Some(2));
    let at = open(&mut switch, trusted, SocketAddr::new(V4, 7000)).expect("a port");
    open(&mut switch, trusted, SocketAddr::new(V6, 7000)).expect("a port");
    open(&mut switch, other, SocketAddr::new(V4, 7001)).expect("a port");
    assert!(switch.handle(asks, Request::Hop(at), START).is_ok());
    let shown = |switch: &mut Switch<Memory>, id| match switch.handle(id, Request::Clients, START) {
        Ok(Reply::Clients(state)) => state,
        other => panic!("{other:?}"),
    };
    let client = |uid, ports, peers, may_pair| ClientState {
        uid,
        process: NonZero::new(1000 + USER).filter(|_| uid == USER),
        ports,
        peers,
        may_pair,
    };
    let state = shown(&mut switch, asks);
    assert_eq!((state.generation, state.count), (GENERATION, 3));
    assert_eq!(state.counters, switch.counters());
    assert!(state.may_pair);
    let expected = [
        client(USER, 2, 1, true),
        client(USER, 0, 0, false),
        client(USER + 1, 1, 0, false),
    ];
    assert_eq!(state.clients, expected, "its user's first");
    let of_other = shown(&mut switch, other);
    assert!(of_other.clients.iter().all(|it| it.process.is_none()));
    let alone = attach(&mut switch, USER + 2, None);
    assert!(!shown(&mut switch, alone).may_pair);
    switch.detach(trusted, START);
    assert_eq!(shown(&mut switch, asks).count, 3);
}

#[test]
fn client_keeps_the_address_of_a_former_switch_unless_another_has_it() {
    let mut switch = switch();
    let mut attach = |before| {
        let attached = switch.attach(user(before_uid(before)), Memory::default(), before);
        attached.expect("room").1
    };
    let former = [2, 9, 9, 9, 0, 1];
    assert_eq!(attach(Some(former)), former);
    let others = [
        attach(Some(former)),
        attach(None),
        attach(Some(SWITCH)),
        attach(Some([3; 6])),
    ];
    for (at, mac) in others.iter().enumerate() {
        assert_eq!(mac[0] & 3, 2, "unicast, and administered here");
        assert!(*mac != former && *mac != SWITCH && !others[..at].contains(mac));
    }
}

/// The limit of clients is each user's.
fn before_uid(before: Option<MacAddress>) -> u32 {
    USER + u32::from(before.map_or(0, |mac| mac[5]))
}

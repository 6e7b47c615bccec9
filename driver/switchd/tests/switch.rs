//! The switch between clients whose memory is plain memory: what reaches whom, and what does not.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZero;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpProtocol, IpRepr, Ipv4Packet, Ipv6Packet, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};
use xwarp_switchd::{
    ClientId, ClientMemory, ClientState, Config, Delivery, HEAD, Head, Hostile, Identity, LINGER,
    MacAddress, Refusal, Reply, Request, SWITCH, Switch,
};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
const USER: u32 = 1000;
const GENERATION: u64 = 0x1122_3344_5566_7788;
const START: Duration = Duration::from_secs(100);

/// Memory of a client, both ends.
#[derive(Clone, Default)]
struct Memory(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    sends: VecDeque<Vec<u8>>,
    /// Frames that the switch has taken, in the order of their numbers.
    taken: Vec<Vec<u8>>,
    completed: usize,
    /// Frames that can still be delivered.
    room: usize,
    delivered: Vec<Vec<u8>>,
    published: usize,
    no_frames: u64,
    is_hostile: bool,
}

impl Memory {
    fn with_room(room: usize) -> Self {
        let memory = Self::default();
        memory.0.borrow_mut().room = room;
        memory
    }

    fn send(&self, frame: Vec<u8>) {
        self.0.borrow_mut().sends.push_back(frame);
    }

    /// What it was shown, once.
    fn received(&self) -> Vec<Vec<u8>> {
        let mut state = self.0.borrow_mut();
        assert_eq!(
            state.published,
            state.delivered.len(),
            "it was not shown all"
        );
        state.published = 0;
        std::mem::take(&mut state.delivered)
    }
}

impl ClientMemory for Memory {
    type Sent = usize;

    fn take_sent(&mut self) -> Result<Option<(usize, Head)>, Hostile> {
        let mut state = self.0.borrow_mut();
        if state.is_hostile {
            return Err(Hostile);
        }
        let Some(frame) = state.sends.pop_front() else {
            return Ok(None);
        };
        let head = head_of(&frame);
        state.taken.push(frame);
        Ok(Some((state.taken.len() - 1, head)))
    }

    fn refused(&mut self) -> u64 {
        std::mem::take(&mut self.0.borrow_mut().no_frames)
    }

    fn complete(&mut self) {
        let mut state = self.0.borrow_mut();
        state.completed = state.taken.len();
    }

    fn deliver(&mut self, head: &Head, from: Option<(&Self, usize)>) -> Result<Delivery, Hostile> {
        let mut frame = head.bytes().to_vec();
        if let Some((from, sent)) = from {
            let from = from.0.borrow();
            frame.extend_from_slice(&from.taken[sent][frame.len()..]);
        }
        assert_eq!(frame.len(), head.frame_len());
        let mut state = self.0.borrow_mut();
        if state.is_hostile {
            return Err(Hostile);
        }
        if state.room == 0 {
            return Ok(Delivery::NoRoom);
        }
        state.room -= 1;
        state.delivered.push(frame);
        Ok(Delivery::Delivered)
    }

    fn publish(&mut self) {
        let mut state = self.0.borrow_mut();
        state.published = state.delivered.len();
    }

    fn frames(&self) -> Vec<Head> {
        let state = self.0.borrow();
        state.taken.iter().map(|frame| head_of(frame)).collect()
    }
}

fn head_of(frame: &[u8]) -> Head {
    Head::copied(frame.len(), |into| {
        into.copy_from_slice(&frame[..into.len()]);
    })
}

/// A client with its memory, its address and a port.
struct Peer {
    id: ClientId,
    memory: Memory,
    mac: MacAddress,
    at: SocketAddr,
}

fn switch() -> Switch<Memory> {
    of_generation(GENERATION)
}

fn of_generation(generation: u64) -> Switch<Memory> {
    let config = Config {
        addresses: vec![V4, V6],
        clients: 100,
        clients_per_uid: 4,
        ports_per_uid: 8,
        pairs: true,
    };
    Switch::new(config, generation)
}

/// A client without a domain: it has no way of its own to others.
fn user(uid: u32) -> Identity {
    Identity {
        uid,
        process: NonZero::new(1000 + uid),
        domain: None,
    }
}

/// A client of `USER` with a port of an address.
fn peer(switch: &mut Switch<Memory>, address: IpAddr, port: u16) -> Peer {
    let memory = Memory::with_room(1000);
    let (id, mac) = switch
        .attach(user(USER), memory.clone(), None)
        .expect("room");
    let at = open(switch, id, SocketAddr::new(address, port)).expect("a port");
    Peer {
        id,
        memory,
        mac,
        at,
    }
}

fn open(switch: &mut Switch<Memory>, id: ClientId, at: SocketAddr) -> Result<SocketAddr, Refusal> {
    match switch.handle(id, Request::OpenPort(at), START)? {
        Reply::Port(at) => Ok(at),
        other => panic!("{other:?}"),
    }
}

/// Fields of a segment that tests choose.
#[derive(Clone, Copy)]
struct Fields {
    seq: i32,
    ack: Option<i32>,
    control: TcpControl,
    len: usize,
}

const DATA: Fields = Fields {
    seq: 7,
    ack: Some(9),
    control: TcpControl::Psh,
    len: 1000,
};

fn segment(from: SocketAddr, to: SocketAddr, fields: Fields) -> Vec<u8> {
    let payload: Vec<u8> = (0..fields.len).map(|at| at.to_le_bytes()[0]).collect();
    let tcp = TcpRepr {
        src_port: from.port(),
        dst_port: to.port(),
        control: fields.control,
        seq_number: TcpSeqNumber(fields.seq),
        ack_number: fields.ack.map(TcpSeqNumber),
        window_len: 100,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &payload,
    };
    let (source, destination) = (from.ip().into(), to.ip().into());
    let ip = IpRepr::new(source, destination, IpProtocol::Tcp, tcp.buffer_len(), 64);
    let mut frame = vec![0xee; 14 + ip.buffer_len()];
    frame[12..14].copy_from_slice(if from.is_ipv4() {
        &[8, 0]
    } else {
        &[0x86, 0xdd]
    });
    let checksums = ChecksumCapabilities::default();
    ip.emit(&mut frame[14..], &checksums);
    let mut packet = TcpPacket::new_unchecked(&mut frame[14 + ip.header_len()..]);
    tcp.emit(&mut packet, &source, &destination, &checksums);
    frame
}

/// A RST that was received: its ports, sequence number and acknowledgment number. Fails if its
/// checksums do not fit or it is something else.
fn reset(frame: &[u8], to: &Peer) -> (u16, u16, i32, Option<i32>) {
    assert_eq!((&frame[..6], &frame[6..12]), (&to.mac[..], &SWITCH[..]));
    let (addresses, tcp) = if to.at.is_ipv4() {
        let ip = Ipv4Packet::new_checked(&frame[14..]).expect("IPv4");
        assert!(ip.verify_checksum());
        let addresses = [ip.src_addr().into(), ip.dst_addr().into()];
        (addresses, &frame[14 + usize::from(ip.header_len())..])
    } else {
        let ip = Ipv6Packet::new_checked(&frame[14..]).expect("IPv6");
        ([ip.src_addr().into(), ip.dst_addr().into()], &frame[54..])
    };
    let tcp = TcpPacket::new_checked(tcp).expect("TCP");
    let [from, own] = addresses;
    assert!(tcp.verify_checksum(&from, &own));
    assert!(tcp.rst());
    let ack = tcp.ack().then(|| tcp.ack_number().0);
    (tcp.src_port(), tcp.dst_port(), tcp.seq_number().0, ack)
}

#[test]
fn frame_reaches_the_client_that_has_its_port_and_no_other() {
    for address in [V4, V6] {
        let mut switch = switch();
        let [a, b, c] = [7000, 7001, 7002].map(|port| peer(&mut switch, address, port));
        let sent = segment(a.at, b.at, DATA);
        a.memory.send(sent.clone());
        assert_eq!(switch.turn(START), (1, vec![]));
        let received = b.memory.received();
        assert_eq!(received.len(), 1);
        assert_eq!(
            (&received[0][..6], &received[0][6..12]),
            (&b.mac[..], &SWITCH[..])
        );
        assert_eq!(received[0][12..], sent[12..]);
        assert!(a.memory.received().is_empty() && c.memory.received().is_empty());
        assert_eq!(a.memory.0.borrow().completed, 1);
        assert_eq!(switch.counters().delivered, 1);
    }
}

#[test]
fn source_that_the_sender_has_not_reserved_goes_nowhere() {
    let mut switch = switch();
    let [a, b, c] = [7000, 7001, 7002].map(|port| peer(&mut switch, V4, port));
    let stranger = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), a.at.port());
    let free = SocketAddr::new(V4, 9999);
    for from in [c.at, stranger, free] {
        a.memory.send(segment(from, b.at, DATA));
    }
    switch.turn(START);
    assert!(b.memory.received().is_empty());
    assert_eq!(switch.counters().drop_spoofed, 3);
    // Nor does the port of a client that has closed it.
    let closed = switch.handle(a.id, Request::ClosePort(a.at), START);
    assert_eq!(closed, Ok(Reply::Closed));
    a.memory.send(segment(a.at, b.at, DATA));
    switch.turn(START);
    assert!(b.memory.received().is_empty());
    // A client does not send to itself by the switch.
    c.memory.send(segment(c.at, c.at, DATA));
    switch.turn(START);
    assert!(c.memory.received().is_empty());
    assert_eq!(switch.counters().drop_to_itself, 1);
}

#[test]
fn what_is_not_one_whole_tcp_segment_is_dropped() {
    let mut switch = switch();
    let [a, b] = [7000, 7001].map(|port| peer(&mut switch, V4, port));
    let good = segment(a.at, b.at, DATA);
    let change = |at: usize, to: u8| {
        let mut frame = good.clone();
        frame[at] = to;
        frame
    };
    let bad = [
        vec![],
        good[..13].to_vec(),
        good[..40].to_vec(),
        // The packet is longer than the frame.
        good[..good.len() - 1].to_vec(),
        // ARP, UDP, a version, a header without options' room, a fragment, TCP's offset.
        change(13, 6),
        change(23, 17),
        change(14, 0x65),
        change(14, 0x44),
        change(20, 0x20),
        change(21, 1),
        change(46, 0x40),
        change(46, 0xf0),
    ];
    let mut expected = u64::try_from(bad.len()).expect("few");
    for frame in bad {
        a.memory.send(frame);
    }
    switch.turn(START);
    // An offset of 60 bytes is one of options, as the payload has room for them.
    let received = b.memory.received();
    expected -= u64::try_from(received.len()).expect("few");
    assert_eq!(received.len(), 1);
    assert_eq!(switch.counters().drop_not_tcp, expected);
}

#[test]
fn segment_to_a_port_that_no_client_has_is_answered_by_a_reset() {
    for address in [V4, V6] {
        let mut switch = switch();
        let a = peer(&mut switch, address, 7000);
        let nobody = SocketAddr::new(address, 7009);
        let syn = Fields {
            ack: None,
            control: TcpControl::Syn,
            len: 0,
            ..DATA
        };
        let reset_itself = Fields {
            control: TcpControl::Rst,
            ..DATA
        };
        for fields in [DATA, syn, reset_itself] {
            a.memory.send(segment(a.at, nobody, fields));
        }
        switch.turn(START);
        let answers: Vec<_> = (a.memory.received().iter())
            .map(|frame| reset(frame, &a))
            .collect();
        assert_eq!(answers, [(7009, 7000, 9, None), (7009, 7000, 0, Some(8))]);
    }
}

#[test]
fn peers_of_a_dead_client_get_the_reset_that_they_expect() {
    let mut switch = switch();
    let [a, b, c] = [7000, 7001, 7002].map(|port| peer(&mut switch, V4, port));
    // Across the end of the sequence space, and out of order: the later one counts.
    let last = Fields {
        seq: i32::MAX - 10,
        ack: Some(50),
        len: 20,
        ..DATA
    };
    let earlier = Fields {
        seq: i32::MAX - 30,
        ack: Some(40),
        ..last
    };
    let closing = Fields {
        control: TcpControl::Fin,
        len: 5,
        ..DATA
    };
    a.memory.send(segment(a.at, b.at, last));
    a.memory.send(segment(a.at, b.at, earlier));
    a.memory.send(segment(a.at, c.at, closing));
    // Not its own: it is no connection of the client's.
    a.memory.send(segment(b.at, c.at, DATA));
    switch.turn(START);
    drop((b.memory.received(), c.memory.received()));
    switch.detach(a.id, START);
    let [to_b, to_c] = [&b, &c].map(|peer| {
        let received = peer.memory.received();
        assert_eq!(received.len(), 1);
        reset(&received[0], peer)
    });
    assert_eq!(
        to_b,
        (7000, 7001, (i32::MAX - 10).wrapping_add(20), Some(50))
    );
    assert_eq!(to_c, (7000, 7002, 7 + 5 + 1, Some(9)));
    // It is gone: its port is, and nothing of it can be asked or done again.
    let again = switch.handle(a.id, Request::Addresses, START);
    assert_eq!(again, Err(Refusal::Detached));
    switch.detach(a.id, START);
    b.memory.send(segment(b.at, a.at, DATA));
    switch.turn(START);
    assert_eq!(reset(&b.memory.received()[0], &b), (7000, 7001, 9, None));
}

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
fn hostile_client_is_detached_and_harms_no_other() {
    let mut switch = switch();
    let [a, b, c] = [7000, 7001, 7002].map(|port| peer(&mut switch, V4, port));
    a.memory.send(segment(a.at, b.at, DATA));
    switch.turn(START);
    drop(b.memory.received());
    a.memory.0.borrow_mut().is_hostile = true;
    a.memory.0.borrow_mut().no_frames = 3;
    c.memory.send(segment(c.at, b.at, DATA));
    c.memory.send(segment(c.at, a.at, DATA));
    assert_eq!(switch.turn(START), (2, vec![a.id]));
    let received = b.memory.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0][34..36], c.at.port().to_be_bytes());
    assert_eq!(reset(&received[1], &b).0, a.at.port());
    assert_eq!(switch.counters().drop_no_frame, 3);
    assert_eq!(switch.counters().drop_no_room, 1, "what was for it");
    assert_eq!(switch.turn(START), (0, vec![]));
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

proptest! {
    /// Whatever a client sends, another client gets only segments from ports of the sender, with
    /// Ethernet addresses of the switch's choice.
    #[test]
    fn arbitrary_frames_bring_nobody_anything_foreign(
        frames in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(any::<u8>(), 0..2 * HEAD), any::<[(u8, u8); 3]>()),
            0..40,
        ),
    ) {
        let mut switch = switch();
        let [a, b] = [7000, 7001].map(|port| peer(&mut switch, V4, port));
        for (from_scratch, bytes, changes) in frames {
            let mut frame = if from_scratch { bytes } else { segment(a.at, b.at, DATA) };
            for (at, to) in changes {
                let len = frame.len().min(60);
                if let Some(byte) = frame.get_mut(usize::from(at) % len.max(1)) {
                    *byte = to;
                }
            }
            a.memory.send(frame);
        }
        while switch.turn(START).0 > 0 {}
        for frame in b.memory.received() {
            prop_assert_eq!((&frame[..6], &frame[6..12]), (&b.mac[..], &SWITCH[..]));
            prop_assert_eq!(&frame[26..30], &[127, 0, 0, 1]);
            let header = 14 + usize::from(frame[14] & 15) * 4;
            prop_assert_eq!(&frame[header..header + 2], &a.at.port().to_be_bytes());
        }
        switch.detach(a.id, START);
    }
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

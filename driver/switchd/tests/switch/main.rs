//! The switch between clients whose memory is plain memory: what reaches whom, and what does not.

mod clients;
mod limits;
mod properties;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZero;
use std::rc::Rc;
use std::time::Duration;

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

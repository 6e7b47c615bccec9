//! Messages of the control socket: their bytes, and bytes that are no message.

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::NonZero;

use proptest::prelude::*;
use xwarp_switchd::{
    Before, ClientState, Counters, Event, Hello, LIST_MAX, MESSAGE_MAX, Malformed, NAME_MAX,
    Refusal, Reply, Request, SwitchState, ToClient, ToSwitch, VERSION, Welcome,
};

const HEADER: usize = 16;
const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));

/// Messages of one way, and their decoder.
trait Message: Clone + Debug + PartialEq {
    fn encode(&self) -> Vec<u8>;
    fn decode(bytes: &[u8]) -> Result<Self, Malformed>;
}

impl Message for ToSwitch {
    fn encode(&self) -> Vec<u8> {
        self.encode()
    }
    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::decode(bytes)
    }
}

impl Message for ToClient {
    fn encode(&self) -> Vec<u8> {
        self.encode()
    }
    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::decode(bytes)
    }
}

/// Whether bytes are a message of either way. If so, the message has these bytes.
fn is_message(bytes: &[u8]) -> bool {
    let (to_switch, to_client) = (ToSwitch::decode(bytes), ToClient::decode(bytes));
    if let Ok(message) = &to_switch {
        assert_eq!(message.encode(), bytes, "{message:?}");
    }
    if let Ok(message) = &to_client {
        assert_eq!(message.encode(), bytes, "{message:?}");
    }
    to_switch.is_ok() || to_client.is_ok()
}

/// The bytes with the length of their body in the header.
fn with_length(mut bytes: Vec<u8>) -> Vec<u8> {
    let body = u32::try_from(bytes.len() - HEADER).expect("few");
    bytes[12..16].copy_from_slice(&body.to_le_bytes());
    bytes
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(u32::from(digit), 16))
        .collect()
}

fn scoped() -> SocketAddr {
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    SocketAddrV6::new(link_local, 7471, 0, 3).into()
}

fn before() -> Before {
    Before {
        generation: 0x0102_0304_0506_0708,
        mac: [2, 0x77, 0x88, 0x99, 0, 5],
        ports: vec![SocketAddr::new(V4, 4420), scoped()],
    }
}

fn welcome() -> Welcome {
    Welcome {
        version: VERSION,
        generation: 9,
        mac: [2, 0x78, 0x77, 0x72, 0, 5],
        mtu: 65_536,
        name: "eth1".to_owned(),
        kept: vec![SocketAddr::new(V4, 4420)],
    }
}

fn state() -> SwitchState {
    SwitchState {
        generation: 9,
        counters: Counters::from([1, 2, 3, 4, 5, 6, 7, 8, 9]),
        may_pair: true,
        count: 2,
        clients: vec![
            ClientState {
                uid: 1000,
                process: NonZero::new(4242),
                ports: 3,
                peers: 1,
                may_pair: true,
            },
            ClientState {
                uid: 1001,
                process: None,
                ports: 0,
                peers: 0,
                may_pair: false,
            },
        ],
    }
}

/// One message of each variant at least.
fn to_switch() -> Vec<ToSwitch> {
    let hello = |before| ToSwitch::Hello {
        id: 1,
        hello: Hello {
            lowest: 1,
            highest: 3,
            before,
        },
    };
    let request = |request| ToSwitch::Request { id: 7, request };
    vec![
        hello(None),
        hello(Some(before())),
        request(Request::Addresses),
        request(Request::Source(V4)),
        request(Request::Hop(SocketAddr::new(V6, 4420))),
        request(Request::OpenPort(scoped())),
        request(Request::ClosePort(SocketAddr::new(V4, 4420))),
        request(Request::Clients),
        ToSwitch::Ring,
    ]
}

/// One message of each variant at least.
fn to_client() -> Vec<ToClient> {
    let reply = |reply| ToClient::Reply { id: 7, reply };
    let refused = |refusal| ToClient::Refused { id: 7, refusal };
    vec![
        ToClient::Welcome {
            id: 1,
            welcome: welcome(),
        },
        reply(Reply::Addresses(vec![V4, V6])),
        reply(Reply::Source(V6)),
        reply(Reply::Hop([2, 0x78, 0x77, 0x72, 0xff, 0xff])),
        reply(Reply::Port(scoped())),
        reply(Reply::Closed),
        reply(Reply::Clients(state())),
        refused(Refusal::NotHere(V4)),
        refused(Refusal::InUse(scoped())),
        refused(Refusal::NoneFree(V6)),
        refused(Refusal::NotPermitted(80)),
        refused(Refusal::NotOpen(SocketAddr::new(V4, 4420))),
        refused(Refusal::TooManyPorts(1024)),
        refused(Refusal::TooManyClients(64)),
        refused(Refusal::Full(usize::MAX)),
        refused(Refusal::Detached),
        refused(Refusal::Version {
            lowest: 2,
            highest: 3,
            speaks: 1,
        }),
        refused(Refusal::TooFast(1000)),
        ToClient::Event(Event::Peer {
            mac: [2, 0x77, 0x88, 0x99, 0, 5],
            first: true,
        }),
        ToClient::Event(Event::Gone {
            mac: [2, 0x77, 0x88, 0x99, 0, 6],
        }),
    ]
}

/// Bytes of all messages above.
fn all() -> Vec<Vec<u8>> {
    let to_client = to_client().into_iter().map(|message| message.encode());
    let to_switch = to_switch().into_iter().map(|message| message.encode());
    to_switch.chain(to_client).collect()
}

/// The format of version 1. A change of it is another version.
#[test]
fn bytes_of_messages_are_those_of_the_record() {
    let [_, hello, ..] = &to_switch()[..] else {
        panic!("there is a HELLO")
    };
    let expected = concat!(
        "01000000010000000000000043000000",
        "0100030001",
        "0807060504030201",
        "027788990005",
        "0200",
        "040a01020300000000000000000000000000000000",
        "4411",
        "06fe80000000000000000000000000000203000000",
        "2f1d",
    );
    assert_eq!(hex(&hello.encode()), expected);
    let welcome = to_client()[0].encode();
    let expected = concat!(
        "01000000010000000000000033000000",
        "0100",
        "0900000000000000",
        "027877720005",
        "00000100",
        "040065746831",
        "0100",
        "040a01020300000000000000000000000000000000",
        "4411",
    );
    assert_eq!(hex(&welcome), expected);
    let port = to_switch()[5].encode();
    let expected = concat!(
        "07000000070000000000000017000000",
        "06fe80000000000000000000000000000203000000",
        "2f1d",
    );
    assert_eq!(hex(&port), expected);
    let refused = ToClient::Refused {
        id: 7,
        refusal: Refusal::TooManyPorts(1024),
    };
    let expected = concat!("0000000007000000faffffff08000000", "0004000000000000");
    assert_eq!(hex(&refused.encode()), expected);
    let peer = to_client()[18].encode();
    assert_eq!(hex(&peer), "0900000000000000000000000700000002778899000501");
    let clients = to_client()[6].encode();
    let expected = concat!(
        "0e000000070000000000000079000000",
        "0900000000000000",
        "010000000000000002000000000000000300000000000000",
        "040000000000000005000000000000000600000000000000",
        "070000000000000008000000000000000900000000000000",
        "01",
        "02000000",
        "0200",
        "e803000092100000030000000100000001",
        "e903000000000000000000000000000000",
    );
    assert_eq!(hex(&clients), expected);
    let ring = "0f000000000000000000000000000000";
    assert_eq!(hex(&ToSwitch::Ring.encode()), ring);
}

/// Kind, and status if it is not 0, of every message.
#[test]
fn each_message_has_the_kind_and_status_of_the_record() {
    let numbers = |bytes: Vec<u8>| {
        let status = bytes[8..12].try_into().expect("4 bytes");
        (bytes[0], i32::from_le_bytes(status))
    };
    let to_switch: Vec<_> = to_switch().iter().map(|it| numbers(it.encode())).collect();
    let kinds = [1, 1, 2, 4, 5, 7, 8, 14, 15].map(|kind| (kind, 0));
    assert_eq!(to_switch, kinds);
    let to_client: Vec<_> = to_client().iter().map(|it| numbers(it.encode())).collect();
    let mut expected: Vec<_> = [1, 2, 4, 5, 7, 8, 14].map(|kind| (kind, 0)).into();
    expected.extend((1..=11).map(|refusal| (0, -refusal)));
    expected.extend([(9, 0), (10, 0)]);
    assert_eq!(to_client, expected);
}

fn assert_round_trip<M: Message>(message: &M) {
    let bytes = message.encode();
    assert!(bytes.len() <= MESSAGE_MAX);
    assert_eq!(M::decode(&bytes), Ok(message.clone()));
}

#[test]
fn each_message_is_decoded_again() {
    to_switch().iter().for_each(assert_round_trip);
    to_client().iter().for_each(assert_round_trip);
}

/// Why each cut of a message is malformed, and that a body is which is cut along with its length.
fn assert_cuts_are_malformed<M: Message>(message: &M) {
    let bytes = message.encode();
    let header = u32::try_from(bytes.len() - HEADER).expect("few");
    for len in 0..bytes.len() {
        let cut = bytes[..len].to_vec();
        let Some(body) = len.checked_sub(HEADER) else {
            assert_eq!(M::decode(&cut), Err(Malformed::Header(len)));
            continue;
        };
        let why = Malformed::Length { header, body };
        assert_eq!(M::decode(&cut), Err(why));
        let why = M::decode(&with_length(cut));
        assert!(matches!(why, Err(Malformed::Short(_))), "{why:?}");
    }
}

#[test]
fn truncated_message_is_malformed() {
    to_switch().iter().for_each(assert_cuts_are_malformed);
    to_client().iter().for_each(assert_cuts_are_malformed);
}

#[test]
fn longer_body_is_malformed() {
    let longer = |mut bytes: Vec<u8>| {
        bytes.push(0);
        with_length(bytes)
    };
    for message in to_switch() {
        let bytes = longer(message.encode());
        assert_eq!(ToSwitch::decode(&bytes), Err(Malformed::Long(1)));
    }
    for message in to_client() {
        let bytes = longer(message.encode());
        assert_eq!(ToClient::decode(&bytes), Err(Malformed::Long(1)));
    }
}

#[test]
fn header_with_another_byte_is_malformed_or_of_another_message() {
    let mut others = 0;
    for bytes in all() {
        for at in 0..HEADER {
            for byte in 0..=u8::MAX {
                let mut changed = bytes.clone();
                changed[at] = byte;
                let is_message = is_message(&changed);
                // Kinds of the same body, statuses of the same body, and ids.
                let may_differ = matches!(at, 0 | 4..12) || byte == bytes[at];
                assert!(may_differ || !is_message, "byte {at} of {}", hex(&changed));
                others += usize::from(is_message && byte != bytes[at]);
            }
        }
    }
    assert!(others > 0, "ids are any but 0");
}

/// A message of which `change` changes bytes is malformed, and `why`.
#[track_caller]
fn assert_malformed<M: Message>(message: &M, change: impl FnOnce(&mut Vec<u8>), why: Malformed) {
    let mut bytes = message.encode();
    change(&mut bytes);
    assert_eq!(M::decode(&bytes), Err(why));
    assert!(!why.to_string().is_empty());
}

#[test]
fn malformed_messages_are_named() {
    let to_switch = to_switch();
    let [alone, hello, addresses, source, _, open, _, _, ring] = &to_switch[..] else {
        panic!("nine messages")
    };
    assert_malformed(addresses, |it| it[2] = 1, Malformed::Flags(1));
    assert_malformed(addresses, |it| it[0] = 3, Malformed::Kind(3));
    // Events, and refusals, go the other way.
    assert_malformed(addresses, |it| it[0] = 9, Malformed::Kind(9));
    assert_malformed(addresses, |it| it[0] = 0, Malformed::Kind(0));
    assert_malformed(addresses, |it| it[4] = 0, Malformed::Id { kind: 2, id: 0 });
    assert_malformed(alone, |it| it[4] = 0, Malformed::Id { kind: 1, id: 0 });
    assert_malformed(ring, |it| it[4] = 1, Malformed::Id { kind: 15, id: 1 });
    let status = |kind, status| Malformed::Status { kind, status };
    assert_malformed(addresses, |it| it[8] = 1, status(2, 1));
    assert_malformed(ring, |it| it[8] = 1, status(15, 1));
    let versions = Malformed::Versions {
        lowest: 4,
        highest: 3,
    };
    assert_malformed(alone, |it| it[16] = 4, versions);
    assert_malformed(alone, |it| it[20] = 2, Malformed::Truth(2));
    // The count of ports, which is believed after the ports are there.
    assert_malformed(hello, |it| it[35] = 3, Malformed::Short(23));
    let limit = u8::try_from(LIST_MAX).expect("few");
    let short = Malformed::Short((LIST_MAX - 2) * 23);
    assert_malformed(hello, |it| it[35] = limit, short);
    assert_malformed(
        hello,
        |it| it[35] = limit + 1,
        Malformed::List(LIST_MAX + 1),
    );
    assert_malformed(source, |it| it[16] = 5, Malformed::Family(5));
    assert_malformed(source, |it| it[21] = 1, Malformed::Padding);
    assert_malformed(source, |it| it[32] = 1, Malformed::Padding);
    assert_malformed(source, |it| it[33] = 1, Malformed::Scope(1));
    let of_v6 = ToSwitch::Request {
        id: 1,
        request: Request::Source(V6),
    };
    assert_malformed(&of_v6, |it| it[36] = 1, Malformed::Scope(1 << 24));
    assert_malformed(open, |it| it[16] = 4, Malformed::Padding);
    let long = |it: &mut Vec<u8>| *it = with_length([&it[..], &[0; MESSAGE_MAX]].concat());
    assert_malformed(ring, long, Malformed::Message(HEADER + MESSAGE_MAX));

    let to_client = to_client();
    let (welcome, detached) = (&to_client[0], &to_client[15]);
    let [.., peer, gone] = &to_client[..] else {
        panic!("two events")
    };
    assert_malformed(welcome, |it| it[16] = 2, Malformed::Version(2));
    assert_malformed(welcome, |it| it[16] = 0, Malformed::Version(0));
    assert_malformed(welcome, |it| it[40] = 0xff, Malformed::Text);
    assert_malformed(welcome, |it| it[36] = 65, Malformed::Name(65));
    assert_malformed(welcome, |it| it[0] = 15, Malformed::Kind(15));
    assert_malformed(welcome, |it| it[8] = 0xff, status(1, 0xff));
    assert_malformed(detached, |it| it[8] -= 3, status(0, -12));
    assert_malformed(detached, |it| it[8..12].fill(0), status(0, 0));
    assert_malformed(detached, |it| it[4] = 0, Malformed::Id { kind: 0, id: 0 });
    assert_malformed(peer, |it| it[4] = 1, Malformed::Id { kind: 9, id: 1 });
    assert_malformed(gone, |it| it[4] = 1, Malformed::Id { kind: 10, id: 1 });
    assert_malformed(peer, |it| it[22] = 2, Malformed::Truth(2));
}

/// What is too long for a message is cut at an entry or a character, and the rest is a message.
#[test]
fn longest_messages_fit() {
    let ports = |count: u16| (0..count).map(|port| SocketAddr::new(V6, port));
    let most = u16::try_from(LIST_MAX).expect("few");
    for (given, kept) in [(most, most), (most + 1, most), (5000, most)] {
        let hello = |count| ToSwitch::Hello {
            id: 1,
            hello: Hello {
                lowest: 1,
                highest: 1,
                before: Some(Before {
                    ports: ports(count).collect(),
                    ..before()
                }),
            },
        };
        assert_eq!(ToSwitch::decode(&hello(given).encode()), Ok(hello(kept)));
        let welcome = |count, name: String| ToClient::Welcome {
            id: 1,
            welcome: Welcome {
                name,
                kept: ports(count).collect(),
                ..welcome()
            },
        };
        // Of two bytes each, behind one.
        let [name, whole] = [40, 31].map(|count| format!("a{}", "ü".repeat(count)));
        assert_eq!(whole.len(), NAME_MAX - 1);
        let bytes = welcome(given, name).encode();
        assert!(bytes.len() <= MESSAGE_MAX);
        assert_eq!(ToClient::decode(&bytes), Ok(welcome(kept, whole)));
        let addresses = |count: u16| {
            let addresses = (0..count).map(|_| V6).collect();
            let reply = Reply::Addresses(addresses);
            ToClient::Reply { id: 1, reply }
        };
        let bytes = addresses(given).encode();
        assert_eq!(ToClient::decode(&bytes), Ok(addresses(kept)));
        let clients = |count: u16| {
            let clients = (0..count).map(|_| state().clients[0]).collect();
            let state = SwitchState { clients, ..state() };
            let reply = Reply::Clients(state);
            ToClient::Reply { id: 1, reply }
        };
        let bytes = clients(given).encode();
        assert!(bytes.len() <= MESSAGE_MAX);
        assert_eq!(ToClient::decode(&bytes), Ok(clients(kept)));
    }
    let mut name = welcome();
    name.name = "x".repeat(NAME_MAX);
    assert_round_trip(&ToClient::Welcome {
        id: 1,
        welcome: name,
    });
}

#[test]
fn client_and_switch_agree_on_a_common_version() {
    let agree = |lowest, highest| {
        let before = None;
        let hello = Hello {
            lowest,
            highest,
            before,
        };
        hello.agree().map_err(|refusal| refusal.to_string())
    };
    for (lowest, highest) in [(1, 1), (0, 1), (1, 9), (0, u16::MAX)] {
        assert_eq!(agree(lowest, highest), Ok(VERSION));
    }
    let newer = agree(2, 3).expect_err("the client is too new");
    assert!(newer.contains("versions 2 to 3") && newer.contains("version 1"));
    assert!(newer.ends_with("upgrade the switch"), "{newer}");
    let older = agree(0, 0).expect_err("the client is too old");
    assert!(older.ends_with("upgrade the program"), "{older}");
}

fn ip() -> impl Strategy<Value = IpAddr> {
    any::<IpAddr>()
}

/// Without flow information, which no message carries.
fn at() -> impl Strategy<Value = SocketAddr> {
    (ip(), any::<u16>(), any::<u32>()).prop_map(|(ip, port, scope)| match ip {
        IpAddr::V4(ip) => SocketAddr::from((ip, port)),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    })
}

fn ports() -> impl Strategy<Value = Vec<SocketAddr>> {
    prop::collection::vec(at(), 0..=LIST_MAX)
}

fn any_to_switch() -> impl Strategy<Value = ToSwitch> {
    let before = (any::<u64>(), any::<[u8; 6]>(), ports());
    let before = before.prop_map(|(generation, mac, ports)| Before {
        generation,
        mac,
        ports,
    });
    let hello = (any::<[u16; 2]>(), prop::option::of(before));
    let hello = hello.prop_map(|(versions, before)| Hello {
        lowest: versions[0].min(versions[1]),
        highest: versions[0].max(versions[1]),
        before,
    });
    let request = prop_oneof![
        Just(Request::Addresses),
        ip().prop_map(Request::Source),
        at().prop_map(Request::Hop),
        at().prop_map(Request::OpenPort),
        at().prop_map(Request::ClosePort),
        Just(Request::Clients),
    ];
    prop_oneof![
        (1_u32.., hello).prop_map(|(id, hello)| ToSwitch::Hello { id, hello }),
        (1_u32.., request).prop_map(|(id, request)| ToSwitch::Request { id, request }),
        Just(ToSwitch::Ring),
    ]
}

fn any_state() -> impl Strategy<Value = SwitchState> {
    let client = any::<([u32; 4], bool)>();
    let client = client.prop_map(|([uid, process, ports, peers], may_pair)| ClientState {
        uid,
        process: NonZero::new(process),
        ports,
        peers,
        may_pair,
    });
    let clients = prop::collection::vec(client, 0..=LIST_MAX);
    let numbers = any::<(u64, [u64; Counters::NAMES.len()], bool, u32)>();
    (numbers, clients).prop_map(
        |((generation, counters, may_pair, count), clients)| SwitchState {
            generation,
            counters: counters.into(),
            may_pair,
            count,
            clients,
        },
    )
}

fn any_to_client() -> impl Strategy<Value = ToClient> {
    let name = prop::collection::vec(any::<char>(), 0..=NAME_MAX / 4);
    let welcome = (
        any::<(u64, [u8; 6], u32)>(),
        name.prop_map(String::from_iter),
        ports(),
    );
    let welcome = welcome.prop_map(|((generation, mac, mtu), name, kept)| Welcome {
        version: VERSION,
        generation,
        mac,
        mtu,
        name,
        kept,
    });
    let reply = prop_oneof![
        prop::collection::vec(ip(), 0..=LIST_MAX).prop_map(Reply::Addresses),
        ip().prop_map(Reply::Source),
        any::<[u8; 6]>().prop_map(Reply::Hop),
        at().prop_map(Reply::Port),
        Just(Reply::Closed),
        any_state().prop_map(Reply::Clients),
    ];
    let refusal = prop_oneof![
        ip().prop_map(Refusal::NotHere),
        at().prop_map(Refusal::InUse),
        ip().prop_map(Refusal::NoneFree),
        any::<u16>().prop_map(Refusal::NotPermitted),
        at().prop_map(Refusal::NotOpen),
        any::<usize>().prop_map(Refusal::TooManyPorts),
        any::<usize>().prop_map(Refusal::TooManyClients),
        any::<usize>().prop_map(Refusal::Full),
        Just(Refusal::Detached),
        any::<[u16; 3]>().prop_map(|[lowest, highest, speaks]| Refusal::Version {
            lowest,
            highest,
            speaks,
        }),
        any::<u32>().prop_map(Refusal::TooFast),
    ];
    prop_oneof![
        (1_u32.., welcome).prop_map(|(id, welcome)| ToClient::Welcome { id, welcome }),
        (1_u32.., reply).prop_map(|(id, reply)| ToClient::Reply { id, reply }),
        (1_u32.., refusal).prop_map(|(id, refusal)| ToClient::Refused { id, refusal }),
        any::<([u8; 6], bool)>()
            .prop_map(|(mac, first)| ToClient::Event(Event::Peer { mac, first })),
        any::<[u8; 6]>().prop_map(|mac| ToClient::Event(Event::Gone { mac })),
    ]
}

/// Bytes of a message of either way.
fn any_message() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any_to_switch().prop_map(|message| message.encode()),
        any_to_client().prop_map(|message| message.encode()),
    ]
}

proptest! {
    #[test]
    fn any_message_to_the_switch_is_decoded_again(message in any_to_switch()) {
        assert_round_trip(&message);
        assert_cuts_are_malformed(&message);
    }

    #[test]
    fn any_message_to_a_client_is_decoded_again(message in any_to_client()) {
        assert_round_trip(&message);
        assert_cuts_are_malformed(&message);
    }

    #[test]
    fn arbitrary_bytes_are_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..2 * MESSAGE_MAX),
    ) {
        is_message(&bytes);
    }

    /// Arbitrary bodies behind a header that could be.
    #[test]
    fn arbitrary_bodies_are_survived(
        kind in 0..=16_u8,
        status in -12..=0_i8,
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = vec![0; HEADER];
        (bytes[0], bytes[4]) = (kind, u8::from(!matches!(kind, 9 | 10 | 15)));
        let status = if kind == 0 { i32::from(status) } else { 0 };
        bytes[8..12].copy_from_slice(&status.to_le_bytes());
        bytes.extend(body);
        is_message(&with_length(bytes));
    }

    /// Few bytes of a message are others.
    #[test]
    fn changed_messages_are_survived(
        bytes in any_message(),
        changes in any::<[(prop::sample::Index, u8); 3]>(),
    ) {
        let mut bytes = bytes;
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
            is_message(&bytes);
        }
    }
}

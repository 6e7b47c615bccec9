//! Commands of the peer program: each is used between connected peers, siw to siw.

use xwarp_guest_tests::siw::{Completion, Image, Lab, Peer, filling};
use xwarp_system_tests::Capture;

use crate::{PORT, Remote, connect, connect_with_regions, prepare, with_two_guests};

pub(crate) fn success(id: u64, opcode: &str, length: u64) -> Completion {
    Completion {
        id,
        status: "success".to_owned(),
        opcode: opcode.to_owned(),
        length,
    }
}

/// All successful, in order of their numbers, of this kind.
pub(crate) fn check_done(done: &[Completion], opcode: &str, count: usize) {
    assert_eq!(done.len(), count);
    for (number, done) in (0..).zip(done) {
        let right = done.status == "success" && done.opcode == opcode && done.id == number;
        assert!(right, "{done:?} is not {opcode} number {number}");
    }
}

#[test]
fn sends_arrive_both_ways_with_what_they_carry() {
    with_two_guests(|_, guests| {
        let mut peers = prepare(guests);
        connect_with_regions(&mut peers, 65536);
        let [client, server] = &mut peers;
        server.ask("recv name=s id=7 region=r offset=100 length=20000");
        client.ask("fill region=r offset=0 length=10000 seed=5");
        client.ask("send name=c id=9 region=r offset=0 length=10000");
        assert_eq!(server.poll("s", 1), [success(7, "recv", 10_000)]);
        assert_eq!(client.poll("c", 1)[0].opcode, "send");
        server.ask("check region=r offset=100 length=10000 seed=5");
        client.ask("recv name=c id=1 region=r offset=0 length=16");
        server.ask("put region=r offset=50000 data=0123456789abcdef");
        server.ask("send name=s id=2 region=r offset=50000 length=8 flags=fence");
        assert_eq!(client.poll("c", 1), [success(1, "recv", 8)]);
        let held = client.ask("dump region=r offset=0 length=9");
        assert_eq!(&held.text("data")[..16], "0123456789abcdef");
    });
}

/// siw marks what it sends, but never wakes who waits for a solicited Send: it does not hand the
/// mark on to the completion queue.
#[test]
fn solicited_and_plain_sends_differ_on_the_wire() {
    with_two_guests(|lab, guests| {
        let recorder = lab.record(2);
        let mut peers = prepare(guests);
        connect_with_regions(&mut peers, 4096);
        let [client, server] = &mut peers;
        server.ask("recv name=s id=0 region=r offset=0 length=64 times=3");
        server.ask("arm name=s");
        assert_eq!(server.ask("woken name=s timeout=50").number("woken"), 0);
        client.ask("send name=c id=0 region=r offset=0 length=64 flags=unsignaled times=2");
        client.ask("send name=c id=2 region=r offset=0 length=64 flags=solicited");
        assert_eq!(server.ask("woken name=s").number("woken"), 1);
        check_done(&server.poll("s", 3), "recv", 3);
        // The first two were not signaled.
        assert_eq!(client.poll("c", 1)[0].id, 2);
        let capture = Capture::dissect_port(&recorder.finish(), PORT);
        let opcodes = capture.count("iwarp_rdma.opcode");
        let seen = ["0x03", "0x05"].map(|opcode| opcodes.get(opcode));
        assert_eq!(seen, [Some(&2), Some(&1)], "{opcodes:?}");
    });
}

#[test]
fn send_can_invalidate_a_region() {
    with_two_guests(|_, guests| {
        let mut peers = prepare(guests);
        let [_, Remote { stag, to }] = connect_with_regions(&mut peers, 4096);
        let [client, server] = &mut peers;
        let write = format!("write name=c id=0 region=r offset=0 length=8 stag={stag} to={to}");
        client.ask(&write);
        check_done(&client.poll("c", 1), "write", 1);
        server.ask("region region=inbox size=4096 rights=local-write");
        server.ask("recv name=s id=3 region=inbox offset=0 length=64 times=2");
        client.ask(&format!(
            "send name=c id=1 region=r offset=0 length=8 invalidate={stag}"
        ));
        assert_eq!(server.poll("s", 1), [success(3, "recv", 8)]);
        client.ask(&write);
        let flushed = &server.poll("s", 1)[0];
        assert_eq!(
            (flushed.id, flushed.status.as_str()),
            (4, "work-request-flushed-error")
        );
        server.ask("dereg region=r");
        let error = server.try_ask("fill region=r offset=0 length=1 seed=0");
        assert!(error.is_err(), "a region that is gone");
    });
}

/// Writes `size` bytes in `pieces` and reads them back into another place, everything posted at
/// once.
fn write_and_read(peers: &mut [Peer<'_>; 2], size: u64, pieces: u64) {
    let [_, Remote { stag, to }] = connect_with_regions(peers, 2 * size);
    let [client, server] = peers;
    let length = size / pieces;
    let count = usize::try_from(pieces).expect("a small number");
    client.ask(&format!("fill region=r offset=0 length={size} seed=1"));
    client.ask(&format!(
        "write name=c id=0 region=r offset=0 length={length} stag={stag} to={to} times={pieces}"
    ));
    check_done(&client.poll("c", count), "write", count);
    client.ask(&format!(
        "read name=c id=0 region=r offset={size} length={length} stag={stag} to={to} times={pieces}"
    ));
    check_done(&client.poll("c", count), "read", count);
    server.ask(&format!("check region=r offset=0 length={size} seed=1"));
    client.ask(&format!(
        "check region=r offset={size} length={size} seed=1"
    ));
    let wrong = format!("check region=r offset={size} length={size} seed=2");
    assert!(client.try_ask(&wrong).is_err(), "of another pattern");
}

#[test]
fn writes_and_reads_move_their_bytes() {
    with_two_guests(|_, guests| {
        write_and_read(&mut prepare(guests), 1 << 20, 64);
    });
}

#[test]
#[ignore = "only in the set of all"]
fn writes_and_reads_of_64_mib_move_their_bytes() {
    with_two_guests(|_, guests| {
        write_and_read(&mut prepare(guests), 64 << 20, 1);
    });
}

#[test]
fn pattern_is_the_same_here_and_there() {
    let Some(image) = Image::find() else { return };
    let lab = Lab::new();
    let guest = xwarp_guest_tests::siw::Guest::boot(&lab, &image, 1);
    let mut peer = Peer::start(&guest);
    peer.ask("region region=r size=200000 rights=local-write");
    peer.ask("fill region=r offset=0 length=200000 seed=9");
    let held = peer.ask("dump region=r offset=0 length=70000");
    let digits = |byte: &u8| format!("{byte:02x}");
    let ours: Vec<String> = filling(70_000, 9).iter().map(digits).collect();
    assert!(held.text("data") == ours.concat(), "the first 70000 bytes");
}

#[test]
fn connections_have_names_and_end_apart() {
    with_two_guests(|_, guests| {
        let mut peers = prepare(guests);
        connect(&mut peers);
        let [client, server] = &mut peers;
        client.ask(&format!(
            "resolve name=c2 address={} port={PORT} depth=8",
            guests[1].address()
        ));
        client.ask("connect name=c2");
        server.ask("take listener=l name=s2 depth=8");
        server.ask("accept name=s2");
        client.expect_event("c2", "ESTABLISHED");
        server.expect_event("s2", "ESTABLISHED");
        client.ask("disconnect name=c2");
        client.expect_event("c2", "DISCONNECTED");
        server.expect_event("s2", "DISCONNECTED");
        for (peer, name) in [(client, ["c", "c2"]), (server, ["s", "s2"])] {
            let state = |peer: &mut Peer<'_>, name| {
                let state = peer.ask(&format!("state name={name}"));
                state.text("state").to_owned()
            };
            assert_eq!(state(peer, name[0]), "rts");
            assert_ne!(state(peer, name[1]), "rts");
            peer.ask(&format!("close name={}", name[1]));
        }
    });
}

#[test]
fn siw_asks_for_a_crc_when_its_parameter_says_so() {
    with_two_guests(|lab, guests| {
        guests[0].set_siw("mpa_crc_required", 1);
        let recorder = lab.record(2);
        let mut peers = prepare(guests);
        connect_with_regions(&mut peers, 65536);
        let [client, server] = &mut peers;
        server.ask("recv name=s id=0 region=r offset=0 length=30000");
        client.ask("send name=c id=0 region=r offset=0 length=30000");
        server.poll("s", 1);
        let capture = Capture::dissect_port(&recorder.finish(), PORT);
        let verdicts = capture.verdicts();
        assert!(
            verdicts.good > 20,
            "{verdicts:?} of {} FPDUs",
            capture.fpdus()
        );
        assert_eq!((verdicts.good, verdicts.bad), (capture.fpdus(), 0));
    });
}

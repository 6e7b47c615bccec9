//! Refusals of the peer program: its answers when things go wrong.

use xwarp_guest_tests::siw::{Image, Lab, Peer};

use crate::{Remote, connect_with_regions, prepare, with_two_guests};

#[test]
fn rejection_carries_its_private_data() {
    with_two_guests(|_, guests| {
        let [mut client, mut server] = prepare(guests);
        client.ask("connect name=c");
        server.ask("take listener=l name=s");
        server.ask("reject name=s data=6e6f");
        let rejected = client.expect_event("c", "REJECTED");
        assert_eq!(rejected.text("data"), "6e6f");
    });
}

#[test]
fn write_to_an_unknown_stag_ends_both_queue_pairs() {
    with_two_guests(|_, guests| {
        let mut peers = prepare(guests);
        let [_, Remote { stag, to }] = connect_with_regions(&mut peers, 4096);
        let [client, server] = &mut peers;
        let wrong = stag ^ 0x0100_0000;
        server.ask("recv name=s id=5 region=r offset=0 length=64");
        client.ask(&format!(
            "write name=c id=0 region=r offset=0 length=64 stag={wrong} to={to}"
        ));
        let flushed = server.poll("s", 1);
        assert_eq!(flushed[0].id, 5);
        assert_eq!(flushed[0].status, "work-request-flushed-error");
        client.expect_event("c", "DISCONNECTED");
        for (peer, name) in [(client, "c"), (server, "s")] {
            assert_eq!(peer.ask(&format!("state name={name}")).text("state"), "err");
        }
    });
}

#[test]
fn peer_says_what_it_does_not_understand() {
    let Some(image) = Image::find() else { return };
    let lab = Lab::new();
    let guest = xwarp_guest_tests::siw::Guest::boot(&lab, &image, 1);
    let mut peer = Peer::start(&guest);
    for (command, said) in [
        ("dance", "there is no dance"),
        ("listen name=l", "listen needs address="),
        ("close name=x", "there is no connection x"),
        ("close name=x force=1", "close knows no force="),
        ("region", "region needs region="),
        (
            "fill region=r offset=0 length=1 seed=0",
            "there is no region r",
        ),
        ("async timeout=1", "no event"),
        ("close x", "not understood"),
    ] {
        let error = peer.try_ask(command).expect_err("an error");
        assert!(error.starts_with(said), "{command}: {error}");
    }
    peer.ask("region region=r size=100 rights=local-write");
    let error = peer.try_ask("fill region=r offset=99 length=2 seed=0");
    assert!(error.is_err_and(|error| error.starts_with("r has 100 bytes")));
}

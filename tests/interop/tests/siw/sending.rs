//! Sends between xwarp and siw.

use std::thread;

use xwarp::Opcode;
use xwarp_interop_tests::{Guest, Image, Lab, Peer, pattern};
use xwarp_system_tests::{Capture, check_nothing_dropped};

use crate::{OCTETS, PORT, SETTLE, Xwarp};

#[test]
fn xwarp_connects_to_siw_and_a_send_arrives_each_way() {
    const LEN: u32 = 20_000;
    let Some(image) = Image::find() else { return };
    let lab = Lab::new();
    let guest = Guest::boot(&lab, &image, 1);
    let recorder = lab.record(1);
    let mut siw = Peer::start(&guest);
    siw.ask(&format!(
        "listen name=l address={} port={PORT}",
        guest.address()
    ));
    siw.ask(&format!("region region=r size={OCTETS} rights=local-write"));
    let mut xwarp = Xwarp::open(&lab);
    xwarp
        .source
        .bytes()
        .write(0, &pattern(OCTETS, 1))
        .expect("our own memory");
    xwarp.expect(0, LEN);

    let welcome = thread::scope(|scope| {
        scope.spawn(|| {
            let request = siw.ask("take listener=l name=s");
            assert_eq!(request.text("data"), "68656c6c6f");
            siw.ask(&format!(
                "recv name=s id=7 region=r offset=0 length={OCTETS}"
            ));
            siw.ask("accept name=s data=77656c63");
            siw.expect_event("s", "ESTABLISHED");
        });
        xwarp.connect(guest.at(PORT), b"hello")
    });
    assert_eq!(welcome, b"welc");
    thread::sleep(SETTLE);
    xwarp.send(1, LEN);
    xwarp.done(1, Opcode::Send);
    let received = &siw.poll("s", 1)[0];
    assert_eq!(
        (received.status.as_str(), received.length),
        ("success", u64::from(LEN))
    );
    siw.ask(&format!("check region=r offset=0 length={LEN} seed=1"));

    siw.ask(&format!("fill region=r offset=0 length={LEN} seed=2"));
    siw.ask(&format!("send name=s id=8 region=r offset=0 length={LEN}"));
    assert_eq!(xwarp.done(0, Opcode::Receive).byte_len, LEN);
    assert_eq!(siw.poll("s", 1)[0].status, "success");
    let len = usize::try_from(LEN).expect("a small number");
    assert!(xwarp.sink.bytes().to_vec()[..len] == pattern(len, 2));
    check_nothing_dropped(&xwarp.rnic);

    let capture = Capture::dissect_port(&recorder.finish(), PORT);
    let verdicts = capture.verdicts();
    assert_eq!((verdicts.good, verdicts.bad), (capture.fpdus(), 0));
}

//! Connections of an RNIC to an address of its own.

use std::net::SocketAddr;
use std::time::Duration;

use xwarp::config::{Progress, WaitMode};
use xwarp::error::ConnectError;
use xwarp::{CompletionQueue, Listener, Opcode, QpConfig, RecvRequest, Rnic, RnicConfig};
use xwarp::{SendRequest, WrId};
use xwarp_driver::Wire;
use xwarp_test_kit::{End, MemoryRnic, Side, next_success};

const LIMIT: Duration = Duration::from_secs(20);
const BYTES: u32 = 100_000;
const PORT: u16 = 7471;

/// An RNIC that sleeps as soon as it is idle: it would stop if a frame arrived without waking it.
fn open(progress: Progress) -> (Rnic, Wire) {
    let config = RnicConfig::default()
        .progress(progress)
        .wait_mode(WaitMode::Blocking);
    MemoryRnic::at(Side::A)
        .config(config)
        .announced()
        .region_area(8 * BYTES as usize)
        .open()
}

fn own(port: u16) -> SocketAddr {
    SocketAddr::new(Side::A.address(), port)
}

/// Two ends of one RNIC, connected to each other.
fn connect(rnic: &Rnic, cq: &CompletionQueue, listener: &mut Listener) -> [End; 2] {
    let pd = rnic.allocate_pd().unwrap();
    let mut ends = [0, 1].map(|_| End::new(&pd, cq, &QpConfig::default(), BYTES as usize));
    let [a, b] = &mut ends;
    let begun = a.qp.begin_connect(own(PORT), b"to myself", LIMIT).unwrap();
    assert_eq!(b.accept(listener, b"from myself"), b"to myself");
    assert_eq!(&begun.wait().unwrap()[..], b"from myself");
    ends
}

/// A Send, a Write and a Read of all that the ends have, from one to the other.
fn exchange([from, to]: [&mut End; 2], cq: &mut CompletionQueue, seed: u8) {
    let fill = |byte: u8| vec![byte; BYTES as usize];
    from.source.bytes().write(0, &fill(seed)).unwrap();
    let receive = RecvRequest::new(WrId(1), to.sink.local(0, BYTES));
    to.qp.post_recv(receive).unwrap();
    from.post(from.send(2, BYTES));
    let done = [next_success(cq), next_success(cq)].map(|it| it.wr_id);
    assert!(done == [WrId(1), WrId(2)] || done == [WrId(2), WrId(1)]);
    assert!(to.sink.bytes().to_vec() == fill(seed));

    from.source.bytes().write(0, &fill(seed + 1)).unwrap();
    let write = SendRequest::write(WrId(3), from.source.local(0, BYTES), to.sink.remote(0));
    from.post(write);
    assert_eq!(next_success(cq).opcode, Opcode::Write);
    to.source.bytes().write(0, &fill(seed + 2)).unwrap();
    let read = SendRequest::read(WrId(4), from.sink.local(0, BYTES), to.source.remote(0));
    from.post(read);
    assert_eq!(next_success(cq).opcode, Opcode::Read);
    assert!(to.sink.bytes().to_vec() == fill(seed + 1));
    assert!(from.sink.bytes().to_vec() == fill(seed + 2));
}

#[test]
#[cfg_attr(miri, ignore = "needs threads and time")]
fn rnic_connects_to_itself_whoever_runs_it() {
    for progress in [Progress::Thread, Progress::Inline, Progress::Assisted] {
        let (rnic, wire) = open(progress);
        let mut cq = rnic.create_cq(64).unwrap();
        let mut listener = rnic.listen(own(PORT)).unwrap();
        let [mut a, mut b] = connect(&rnic, &cq, &mut listener);
        exchange([&mut a, &mut b], &mut cq, 1);
        exchange([&mut b, &mut a], &mut cq, 5);
        drop(a);
        drop(rnic);
        assert_eq!(wire.take_sent(), None, "{progress:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs threads and time")]
fn connection_to_itself_is_refused_where_nobody_listens() {
    let (rnic, _wire) = open(Progress::Thread);
    let cq = rnic.create_cq(64).unwrap();
    let pd = rnic.allocate_pd().unwrap();
    let mut end = End::new(&pd, &cq, &QpConfig::default(), 64);
    let refused = end.qp.connect(own(PORT), b"", LIMIT);
    assert!(
        matches!(refused, Err(ConnectError::Refused(_))),
        "{refused:?}"
    );
}

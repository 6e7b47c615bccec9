//! Two queues, each of which is handed the other's frames. A queue uses only its own frames, so it
//! gives the kernel no frame that the other queue still reads.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use xwarp_driver::{Nic, NicConfig, PacketIo, RxFrame, TxFrame};
use xwarp_system_tests::impair::{Bridged, DEV, Side};
use xwarp_system_tests::{Exclusive, LOCK};
use xwarp_test_kit::needs_root;

const PORT: u16 = 5011;
/// Chunks of a queue, of which half receive.
const CHUNKS: u32 = 128;
/// Bytes of the Ethernet, IPv4 and TCP headers.
const HEADERS: usize = 14 + 20 + 20;
/// An MTU whose frames take one chunk, and one whose frames take several.
const MTUS: [usize; 2] = [1500, 9000];
/// How long anything may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One end, with its interface.
struct Endpoint {
    nic: Nic,
    side: Side,
}

impl Endpoint {
    fn open(hosts: &Bridged, side: Side) -> Self {
        let host = match side {
            Side::A => &hosts.a,
            Side::B => &hosts.b,
        };
        let config = NicConfig::default()
            .ring(CHUNKS)
            .frames(CHUNKS)
            .region_bytes(0);
        let mut nic = host.call(move || Nic::open(DEV, &config).expect("root may"));
        let local = SocketAddr::from((side.address(), PORT));
        nic.steering.add(local).expect("room in the map");
        Self { nic, side }
    }

    fn io(&mut self) -> &mut dyn PacketIo {
        &mut *self.nic.ios[0]
    }

    /// A frame of `len` bytes to the other end, filled with `byte` behind its headers, which the
    /// XDP program steers.
    fn filled(&mut self, len: usize, byte: u8) -> Option<TxFrame> {
        let (from, to) = (self.side, self.side.other());
        let mut frame = self.io().tx_frame()?;
        frame.set_len(len);
        frame[..HEADERS].fill(0);
        frame[HEADERS..].fill(byte);
        frame[..6].copy_from_slice(&to.mac());
        frame[6..12].copy_from_slice(&from.mac());
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        let ip_len = u16::try_from(len - 14).expect("a packet");
        frame[16..18].copy_from_slice(&ip_len.to_be_bytes());
        frame[22..24].copy_from_slice(&[64, 6]);
        frame[26..30].copy_from_slice(&from.ipv4().octets());
        frame[30..34].copy_from_slice(&to.ipv4().octets());
        let sum = ip_checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum);
        frame[34..36].copy_from_slice(&PORT.to_be_bytes());
        frame[36..38].copy_from_slice(&PORT.to_be_bytes());
        frame[46..48].copy_from_slice(&[5 << 4, 0x10]);
        Some(frame)
    }

    /// Sends `count` such frames, as frames become free.
    fn send(&mut self, count: usize, len: usize, byte: u8) {
        let began = Instant::now();
        let mut sent = 0;
        while sent < count {
            match self.filled(len, byte) {
                Some(frame) => {
                    self.io().send(frame);
                    sent += 1;
                }
                None => self.io().flush().expect("a sane kernel"),
            }
            assert!(began.elapsed() < TIMEOUT, "{sent} of {count} frames");
        }
        while self.io().backlog() {
            self.io().flush().expect("a sane kernel");
            assert!(began.elapsed() < TIMEOUT, "frames stay behind");
        }
    }

    /// Takes what comes until the kernel has delivered or dropped `count` frames since the queue
    /// was opened.
    fn receive(&mut self, count: u64, received: &mut Vec<RxFrame>) {
        let began = Instant::now();
        loop {
            self.io().receive(64, received);
            self.io().flush().expect("a sane kernel");
            let counters = self.io().counters();
            let dropped = counters.drop_rx_no_frame + counters.drop_rx_other;
            if counters.rx_frames + dropped >= count {
                return;
            }
            assert!(began.elapsed() < TIMEOUT, "{counters:?}");
        }
    }

    /// Takes one frame.
    fn receive_one(&mut self) -> RxFrame {
        let mut received = Vec::new();
        self.receive(1, &mut received);
        assert_eq!(received.len(), 1);
        received.remove(0)
    }
}

/// Both ends, on a bridge that forwards, as a connection of their kernels has shown. A bridge drops
/// what comes in its first moments.
fn ends(hosts: &Bridged) -> (Endpoint, Endpoint) {
    let server = SocketAddr::from((Side::B.address(), PORT));
    let listener = hosts
        .b
        .call(move || TcpListener::bind(server).expect("free"));
    let connected = hosts.a.call(move || TcpStream::connect(server).map(drop));
    connected.expect("a bridge that forwards in time");
    drop(listener);
    (
        Endpoint::open(hosts, Side::A),
        Endpoint::open(hosts, Side::B),
    )
}

/// The checksum of an IPv4 header that has none yet (RFC 1071): a bridge may look at it.
fn ip_checksum(header: &[u8]) -> [u8; 2] {
    let words = header.as_chunks::<2>().0.iter();
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    u16::try_from(!folded & 0xffff)
        .expect("16 bits")
        .to_be_bytes()
}

/// Where it lies in its queue's memory.
fn place(frame: &RxFrame) -> String {
    let text = format!("{frame:?}");
    let (_, place) = text.split_once(" at ").expect("a place");
    place.to_owned()
}

#[test]
fn foreign_frame_gives_the_kernel_no_frame_that_is_being_read() {
    needs_root!();
    let _alone = Exclusive::wait_for(LOCK);
    for mtu in MTUS {
        let hosts = Bridged::with_mtu(mtu);
        let (mut a, mut b) = ends(&hosts);
        a.send(1, 200, 1);
        b.send(1, 200, 2);
        let (live, foreign) = (a.receive_one(), b.receive_one());
        let same = (place(&live), place(&foreign));
        assert_eq!(same.0, same.1, "they have the same number in their queues");
        let before = live.to_vec();

        a.io().recycle(foreign);
        a.io().flush().expect("a sane kernel");
        // All chunks that the kernel has are filled, so one that it should not have is, too.
        let chunks = CHUNKS as usize / 2;
        b.send(2 * chunks, 200, 3);
        let mut received = Vec::new();
        a.receive(1 + 2 * chunks as u64, &mut received);
        assert!(*live == before, "MTU {mtu}: it was written over");
        assert_eq!(received.len(), chunks - 1, "MTU {mtu}");
        assert_eq!(a.io().counters().drop_foreign, 1, "MTU {mtu}");
        assert!(received.iter().all(|frame| frame[HEADERS..] == [3; 146]));
    }
}

/// The kernel counts an empty fill ring twice where it copies frames: as a drop, and as a ring that
/// was found empty.
#[test]
fn frame_that_finds_no_chunk_is_counted_once() {
    needs_root!();
    let _alone = Exclusive::wait_for(LOCK);
    let chunks = u64::from(CHUNKS / 2);
    for (mtu, len, room) in [(1500, 200, chunks), (9000, 200, chunks), (9000, 9000, 21)] {
        let hosts = Bridged::with_mtu(mtu);
        let (mut a, mut b) = ends(&hosts);
        let sent = 2 * room;
        b.send(usize::try_from(sent).expect("few"), len, 3);
        let mut received = Vec::new();
        a.receive(sent, &mut received);
        let counters = a.io().counters();
        let dropped = counters.drop_rx_no_frame + counters.drop_rx_other;
        assert_eq!((counters.rx_frames, dropped), (room, sent - room), "{len}");
        // A frame of several chunks that finds too few is no empty ring to the kernel.
        assert!(len > 1500 || counters.drop_rx_other == 0, "{counters:?}");
    }
}

#[test]
fn joined_frame_of_another_queue_is_not_reused() {
    needs_root!();
    let _alone = Exclusive::wait_for(LOCK);
    let hosts = Bridged::with_mtu(9000);
    let (mut a, mut b) = ends(&hosts);
    a.send(1, 9000, 1);
    let foreign = b.receive_one();
    assert_eq!(foreign.len(), 9000);
    a.io().recycle(foreign);
    assert_eq!(a.io().counters().drop_foreign, 1);
    b.send(1, 9000, 2);
    assert_eq!(a.receive_one()[HEADERS..], [2; 9000 - HEADERS]);
}

#[test]
fn what_another_queue_is_to_send_is_dropped_and_counted() {
    needs_root!();
    let _alone = Exclusive::wait_for(LOCK);
    for mtu in MTUS {
        let hosts = Bridged::with_mtu(mtu);
        let (mut a, mut b) = ends(&hosts);
        let free = a.io().tx_free();
        let mut theirs = || b.filled(300, 9).expect("a free frame");
        a.io().discard(theirs());
        a.io().send(theirs());
        let sent = a.io().send_kept(theirs());
        let sent = a.io().reclaim(sent).expect_err("it was not sent");
        a.io().release(sent);
        let counters = a.io().counters();
        assert_eq!((counters.drop_foreign, counters.tx_frames), (3, 0));
        assert_eq!((a.io().tx_free(), a.io().backlog()), (free, false));

        let kept = b.filled(300, 4).expect("a free frame");
        let kept = b.io().send_kept(kept);
        let kept = a.io().reclaim(kept).expect_err("it is b's");
        b.send(1, 300, 5);
        let mut frame = b.io().reclaim(kept).expect("the kernel has sent it");
        assert_eq!(frame[HEADERS..], [4; 300 - HEADERS]);
        frame[HEADERS..].fill(6);
        let kept = b.io().send_kept(frame);
        a.io().release(kept);
        assert_eq!(a.io().counters().drop_foreign, 4, "MTU {mtu}");
        assert_eq!(a.io().tx_free(), free, "nothing of a's was given up");

        // Both still work.
        b.send(1, 300, 7);
        a.send(1, 300, 8);
        let mut received = Vec::new();
        a.receive(4, &mut received);
        let bytes: Vec<u8> = received.iter().map(|frame| frame[HEADERS]).collect();
        assert_eq!(bytes, [4, 5, 6, 7]);
        assert_eq!(b.receive_one()[HEADERS..], [8; 300 - HEADERS]);
    }
}

#[test]
fn frame_of_several_chunks_is_the_kernels_until_all_of_them_are_sent() {
    needs_root!();
    let _alone = Exclusive::wait_for(LOCK);
    for (mtu, len) in [(9000, 9000), (65_535, 65_549)] {
        let hosts = Bridged::with_mtu(mtu);
        let (mut a, mut b) = ends(&hosts);
        let free = a.io().tx_free();
        let mut frame = a.filled(len, 1).expect("a free frame");
        for (at, byte) in frame[HEADERS..].iter_mut().enumerate() {
            *byte = u8::try_from(at % 251).expect("below 251");
        }
        let bytes = frame.to_vec();
        let mut kept = a.io().send_kept(frame);
        kept = a.io().reclaim(kept).expect_err("nothing has set it off");
        let began = Instant::now();
        let frame = loop {
            a.io().flush().expect("a sane kernel");
            match a.io().reclaim(kept) {
                Ok(frame) => break frame,
                Err(token) => kept = token,
            }
            assert!(began.elapsed() < TIMEOUT, "MTU {mtu}: it stays away");
        };
        assert!(*frame == bytes, "MTU {mtu}: it has changed");
        a.io().send(frame);
        a.io().flush().expect("a sane kernel");
        let mut received = Vec::new();
        b.receive(2, &mut received);
        assert_eq!(received.len(), 2, "MTU {mtu}");
        assert!(received.iter().all(|frame| **frame == bytes));

        // More frames than fit into the transmit ring, so that some wait for room. B receives none
        // of them.
        a.send(2 * free, len, 2);
        assert_eq!(a.io().tx_free(), free, "MTU {mtu}: all are back");
        assert_eq!(a.io().counters().drop_tx_invalid, 0, "MTU {mtu}");
    }
}

/// Whether one call of `sendto` takes more than 32 descriptors where the socket option allows it.
fn is_linux_6_17() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    let mut numbers = release.split(['.', '-']).map_while(|it| it.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(17))
}

#[test]
fn burst_leaves_in_one_call() {
    const BURST: usize = 60;
    needs_root!();
    if !is_linux_6_17() {
        println!("not tested: this kernel takes 32 descriptors a call");
        return;
    }
    let _alone = Exclusive::wait_for(LOCK);
    let hosts = Bridged::with_mtu(1500);
    let (mut a, mut b) = ends(&hosts);
    for _ in 0..BURST {
        let frame = a.filled(300, 1).expect("a free frame");
        a.io().send(frame);
    }
    a.io().flush().expect("a sane kernel");
    let mut received = Vec::new();
    b.receive(BURST as u64, &mut received);
    assert_eq!(received.len(), BURST);
}

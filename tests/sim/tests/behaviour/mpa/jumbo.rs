//! Markers in long FPDUs: on interfaces with a large MTU an FPDU has up to 127 of them (RFC 5044
//! §4.3).

use super::info;
use std::time::Duration;
use xwarp::cm::MpaConfig;
use xwarp::{Access, QpConfig};
use xwarp_sim_tests::{Done, KIB, Sim, SimEnd, for_each_seed, pattern_of};
use xwarp_test_kit::netsim::{Rng, Seed};

/// Bytes of an IP packet. The last one is the longest that there is.
const MTUS: [usize; 3] = [9000, 16_384, 65_535];
/// Bytes of IPv4's and TCP's headers, with timestamps (RFC 7323 §3.2).
const HEADERS: usize = 52;
/// Messages of each kind.
const MESSAGES: u64 = 4;

fn sim(seed: Seed, mtu: usize, crc: bool) -> Sim {
    let mpa = MpaConfig::default().crc(crc).markers(true);
    Sim::with_mtu_and_mpa(seed, mtu, mpa).one_way_delay(Duration::from_micros(100))
}

/// A length around that of a whole segment, or of several, or short.
fn length(rng: &mut Rng, mtu: usize) -> usize {
    let segment = mtu - HEADERS;
    match rng.below(4) {
        0 => rng.index(2 * KIB),
        1 => segment - 1000 + rng.index(1100),
        2 => 3 * segment + rng.index(1024),
        _ => rng.index(segment),
    }
}

/// Writes, Reads and Sends from one side to the other: what is there afterwards is what was sent,
/// to the byte.
fn exchange(sim: &mut Sim, rng: &mut Rng, [from, to]: [&mut SimEnd; 2], mtu: usize) {
    for id in 0..MESSAGES {
        let id = 10 * id;
        let [write, read, last] = [0; 3].map(|_| length(rng, mtu));
        let bytes = [(id, write), (id + 1, read), (id + 2, last)];
        let [written, source, sent] = bytes.map(|(which, len)| pattern_of(which, len));
        let (target, remote, sink) = (to.target(write), to.target(read), from.target(read));
        remote.fill(&source);
        to.post_recv(id, last);
        from.post_write(id, &written, target.remote(0));
        from.post_read(id + 1, sink.local(0, read), remote.remote(0));
        from.post_send(id + 2, &sent);
        sim.run_until_idle();
        let done = [
            Done::write(id, write),
            Done::read(id + 1, read),
            Done::send(id + 2, last),
        ];
        assert_eq!(from.sends(), done);
        assert_eq!(to.receives(), [Done::receive(id, last)]);
        assert!(target.to_vec() == written, "Write of {write}");
        assert!(sink.to_vec() == source, "Read of {read}");
        assert!(to.buffer(id) == sent, "Send of {last}");
    }
}

/// Both sides send with markers.
fn both_ways(mut sim: Sim, rng: &mut Rng, mtu: usize, crc: bool) {
    let (mut a, mut b) = sim.connected_pair_with(&QpConfig::default());
    for end in [&a, &b] {
        let info = info(end);
        assert!(info.send_markers && info.receive_markers && info.crc == crc);
    }
    exchange(&mut sim, rng, [&mut a, &mut b], mtu);
    exchange(&mut sim, rng, [&mut b, &mut a], mtu);
}

#[test]
fn markers_in_long_fpdus_are_where_they_belong() {
    for mtu in MTUS {
        for crc in [true, false] {
            for seed in 1..=3 {
                let mut rng = Rng::new(Seed(seed), 310);
                both_ways(sim(Seed(seed), mtu, crc), &mut rng, mtu, crc);
            }
        }
    }
}

#[test]
fn markers_in_long_fpdus_survive_a_bad_link() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed, 311);
        let mtu = MTUS[rng.index(MTUS.len())];
        let crc = rng.chance(0.5);
        let sim = sim(seed, mtu, crc).loss(0.03).reorder(0.05).duplicate(0.05);
        both_ways(sim, &mut rng, mtu, crc);
    });
}

/// Whatever markers a message needs, one that fits a segment is one FPDU: of 64,000 bytes with 125
/// or more of them.
#[test]
fn one_segment_is_one_fpdu_with_markers() {
    for (mtu, longest) in [(9000, 8000), (65_535, 64_000)] {
        let mut sim = sim(Seed(1), mtu, true);
        let (mut a, b) = sim.connected_pair();
        let target = b.region(longest, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let fpdus = |end: &SimEnd| end.host().rnic().counters().unwrap().rdma.fpdus_in;
        sim.run_until_idle();
        let before = fpdus(&b);
        a.post_write(1, &pattern_of(7, longest), target.remote(0));
        sim.run_until_idle();
        assert_eq!(fpdus(&b) - before, 1, "of {longest} bytes");
        assert!(target.bytes().to_vec() == pattern_of(7, longest));
    }
}

//! Rights that are taken while a message is under way: each segment is checked anew, in either
//! direction (RFC 5040 §8.1.1, RFC 5042 §6.2).
//!
//! A region keeps its `STag` here, and loses a right by RI-Reregister, so that only the check of
//! that right can notice.

use std::time::Duration;

use xwarp::error::TermCode;
use xwarp::memory::RegionSpec;
use xwarp::{
    Access, CompletionStatus, MemoryRegion, MemoryWindow, Opcode, QpState, RecvRequest,
    SendRequest, Stag, WrId,
};
use xwarp_sim_tests::wire::{Tagged, Untagged, read_request, terminate, ulpdus};
use xwarp_sim_tests::{
    Done, Host, MIB, Sim, SimEnd, TAGGED_PAYLOAD, UNTAGGED_PAYLOAD, needs_link, pattern,
};
use xwarp_test_kit::netsim::Seed;

use crate::hostile::Dut;

const SINK: Stag = Stag(0x5566_7788);
/// Tagged Offset of the first byte of regions that windows are bound to.
const VA: u64 = 0x7000_0000_0000;
const LOCAL: Access = Access::LOCAL_READ.union(Access::LOCAL_WRITE);

/// A link on which a MiB takes a tenth of a second.
fn slow_pair() -> (Sim, SimEnd, SimEnd) {
    let mut sim = Sim::new(Seed(83))
        .rate(100_000_000)
        .expecting(&["drop_refused_segment", "drop_after_failure"]);
    let (a, b) = sim.connected_pair();
    (sim, a, b)
}

/// Long enough for a part of the message, too short for all of it.
fn some_segments(sim: &mut Sim) {
    sim.run_for(Duration::from_millis(20));
}

fn filled(host: &Host, access: Access) -> MemoryRegion {
    let region = host.region(MIB, access);
    region.bytes().write(0, &pattern(MIB)).unwrap();
    region
}

/// The same region with the same `STag` and other rights.
fn with_rights(host: &Host, region: MemoryRegion, access: Access) -> MemoryRegion {
    let (stag, memory) = (region.stag(), region.bytes().clone());
    let spec = RegionSpec::new(access).with_key(stag.key());
    let region = region.reregister(host.pd(), memory, &spec).ok().unwrap();
    assert_eq!(region.stag(), stag);
    region
}

/// The same region with the same `STag` and all rights, but of another protection domain.
fn in_another_domain(host: &Host, region: MemoryRegion) -> MemoryRegion {
    let (stag, memory) = (region.stag(), region.bytes().clone());
    let spec = RegionSpec::new(Access::all()).with_key(stag.key());
    let other = host.rnic().allocate_pd().unwrap();
    let region = region.reregister(&other, memory, &spec).ok().unwrap();
    assert_eq!(region.stag(), stag);
    region
}

/// A region for windows, and one that gives all of it to the peer of `end`.
fn windowed(sim: &mut Sim, end: &mut SimEnd) -> (MemoryRegion, MemoryWindow) {
    let region = end.va_region(MIB, LOCAL | Access::BIND_WINDOWS, VA);
    let mut window = end.host().pd().allocate_window().unwrap();
    let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let bind = window.bind(region.remote(0), MIB as u64, rights);
    end.post(SendRequest::bind(WrId(77), bind));
    sim.run_until("the Bind", || end.sends() == [Done::bind(77)]);
    (region, window)
}

/// A Dut whose memory the peer begins to read: one MiB of `stag` from `to` on. Part of the response
/// has left.
fn begin_response(dut: &mut Dut, stag: Stag, to: u64) {
    let len = u32::try_from(MIB).unwrap();
    let header = read_request(SINK, 0, len, stag, to);
    dut.peer.send(&Untagged::read_request().fpdu(&header));
    dut.sim.run_for(Duration::from_micros(52));
}

/// The response stops for good, before any byte that the memory has held since, and the Terminate
/// has this code.
fn assert_response_stopped(mut dut: Dut, code: TermCode) {
    dut.sim.run_until("the FIN", || dut.peer.saw_fin());
    let answer = dut.answer();
    assert_eq!(terminate(&answer).0, code);
    let mut segments = ulpdus(&answer);
    segments.pop();
    let sent: Vec<u8> = (segments.iter())
        .flat_map(|segment| segment[14..].to_vec())
        .collect();
    assert!(!sent.is_empty() && sent.len() < MIB, "{} bytes", sent.len());
    assert_eq!(sent.len() % TAGGED_PAYLOAD, 0, "whole segments");
    assert!(sent == pattern(MIB)[..sent.len()]);
    dut.peer.close();
    dut.sim.run_until_idle();
    assert_eq!(dut.end.state(), QpState::Error);
}

fn dut() -> Dut {
    Dut::new().expecting(&["drop_after_failure"])
}

#[test]
fn rights_that_are_taken_midway_stop_the_response() {
    let mut dut = dut();
    let host = dut.end.host().clone();
    let region = filled(&host, Access::all());
    begin_response(&mut dut, region.stag(), 0);
    let region = with_rights(&host, region, Access::LOCAL_READ);
    region.bytes().fill(0..MIB, 0x55).unwrap();
    assert_response_stopped(dut, TermCode::rdmap_protection(2));
}

/// A Read that waits behind another is checked again when its turn comes, also if its response is
/// short.
#[test]
fn rights_that_are_taken_before_a_short_response_begins_stop_it() {
    for len in [1, 100, 1400] {
        let mut dut = dut();
        let host = dut.end.host().clone();
        let (first, short) = (filled(&host, Access::all()), filled(&host, Access::all()));
        begin_response(&mut dut, first.stag(), 0);
        let header = read_request(SINK, 0, len, short.stag(), 0);
        let second = Untagged {
            msn: 2,
            ..Untagged::read_request()
        };
        dut.peer.send(&second.fpdu(&header));
        dut.sim.run_for(Duration::from_micros(60));
        let short = with_rights(&host, short, Access::LOCAL_READ);
        dut.sim.run_until("the FIN", || dut.peer.saw_fin());
        let answer = dut.answer();
        assert_eq!(terminate(&answer).0, TermCode::rdmap_protection(2));
        let segments = ulpdus(&answer);
        let sent: usize = segments.iter().map(|it| it.len() - 14).sum();
        let told = segments.last().unwrap().len() - 14;
        assert_eq!(sent - told, MIB, "the first response, and no more");
        dut.peer.close();
        dut.sim.run_until_idle();
        assert_eq!(dut.end.state(), QpState::Error);
        drop(short);
    }
}

#[test]
fn source_that_goes_to_another_domain_midway_stops_the_response() {
    let mut dut = dut();
    let host = dut.end.host().clone();
    let region = filled(&host, Access::all());
    begin_response(&mut dut, region.stag(), 0);
    let region = in_another_domain(&host, region);
    region.bytes().fill(0..MIB, 0x55).unwrap();
    assert_response_stopped(dut, TermCode::rdmap_protection(3));
}

#[test]
fn window_that_goes_midway_stops_the_response() {
    let mut dut = dut();
    let (region, window) = windowed(&mut dut.sim, &mut dut.end);
    region.bytes().write(0, &pattern(MIB)).unwrap();
    begin_response(&mut dut, window.stag(), VA);
    window.deallocate().unwrap();
    region.bytes().fill(0..MIB, 0x55).unwrap();
    assert_response_stopped(dut, TermCode::rdmap_protection(0));
}

/// The peer takes away what it is reading itself: the rest is no longer its own.
#[test]
fn source_that_the_peer_invalidates_midway_stops_the_response() {
    let mut dut = dut();
    let (region, window) = windowed(&mut dut.sim, &mut dut.end);
    region.bytes().write(0, &pattern(MIB)).unwrap();
    dut.end.post_recv(1, 10);
    begin_response(&mut dut, window.stag(), VA);
    let Stag(stag) = window.stag();
    let invalidate = Untagged {
        rdmap: 0x44, // RV=1, Send with Invalidate
        stag,
        ..Untagged::default()
    };
    dut.peer.send(&invalidate.fpdu(b"enough"));
    let end = &mut dut.end;
    (dut.sim).run_until("the message", || end.receives() == [Done::receive(1, 6)]);
    region.bytes().fill(0..MIB, 0x55).unwrap();
    assert_response_stopped(dut, TermCode::rdmap_protection(0));
}

/// How a Write or Send of one MiB fails whose source is spoiled midway. The peer has whole segments
/// of what it held, and nothing else.
fn outgoing(
    what: Opcode,
    spoil: fn(&Host, MemoryRegion) -> MemoryRegion,
) -> Result<u32, CompletionStatus> {
    let (mut sim, mut a, mut b) = slow_pair();
    let target = b.region(MIB, Access::all());
    let source = filled(a.host(), Access::LOCAL_READ);
    let all = source.local(0, u32::try_from(MIB).unwrap());
    let (request, segment) = if what == Opcode::Write {
        let write = SendRequest::write(WrId(1), all, target.remote(0));
        (write, TAGGED_PAYLOAD)
    } else {
        let buffer = target.local(0, u32::try_from(MIB).unwrap());
        b.qp.post_recv(RecvRequest::new(WrId(2), buffer)).unwrap();
        (SendRequest::send(WrId(1), all), UNTAGGED_PAYLOAD)
    };
    a.post(request);
    some_segments(&mut sim);
    let source = spoil(a.host(), source);
    source.bytes().fill(0..MIB, 0x55).unwrap();
    sim.run_until_idle();
    let placed = b.host().rnic().counters().unwrap().rdma.placed_bytes;
    let placed = usize::try_from(placed).unwrap();
    assert!(placed > 0 && placed < MIB, "{placed} bytes");
    assert_eq!(placed % segment, 0, "whole segments");
    let memory = target.bytes().to_vec();
    assert!(memory[..placed] == pattern(MIB)[..placed]);
    assert!(memory[placed..].iter().all(|byte| *byte == 0));
    b.receives();
    let [done] = a.sends()[..] else {
        panic!("one completion")
    };
    assert_eq!((done.wr_id, done.opcode), (1, what));
    done.outcome
}

#[test]
fn source_that_may_not_be_read_any_more_fails_its_work_request() {
    needs_link!("it counts segments of a link's MTU");
    for what in [Opcode::Write, Opcode::Send] {
        let unreadable = outgoing(what, |host, region| {
            with_rights(host, region, Access::LOCAL_WRITE)
        });
        assert_eq!(unreadable, Err(CompletionStatus::AccessViolation));
        let foreign = outgoing(what, in_another_domain);
        assert_eq!(foreign, Err(CompletionStatus::InvalidPd));
    }
}

/// A peer's Write of segments that come one by one: after two of them `spoil` takes what they go
/// to. The third is refused with this code, and nothing of it is placed.
fn inbound(
    what: &str,
    prepare: fn(&mut Dut) -> (Stag, u64, Placed),
    code: TermCode,
    spoil: fn(&Host, Placed) -> Placed,
) {
    let mut dut = Dut::new().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let (stag, base, placed) = prepare(&mut dut);
    let bytes = placed.region().bytes().clone();
    let segment = |at: u64, last: bool| {
        let control = if last { 0xc1 } else { 0x81 }; // T=1 DV=1, and L
        let header = Tagged {
            control,
            ..Tagged::write(stag, base + at)
        };
        header.fpdu(&[u8::try_from(at / 100 + 1).unwrap(); 100])
    };
    for at in [0, 100] {
        dut.peer.send(&segment(at, false));
    }
    dut.sim.run_until_idle();
    let before = bytes.to_vec();
    assert_eq!(before[..200], [[1; 100], [2; 100]].concat(), "{what}");
    let _kept = spoil(dut.end.host(), placed);
    dut.assert_terminates(what, &segment(200, true), code);
    assert!(bytes.to_vec() == before, "{what}");
}

/// What the peer writes to.
enum Placed {
    Region(MemoryRegion),
    Window(MemoryRegion, MemoryWindow),
    /// The window is gone.
    Unbound(MemoryRegion),
}

impl Placed {
    fn region(&self) -> &MemoryRegion {
        match self {
            Self::Region(region) | Self::Window(region, _) | Self::Unbound(region) => region,
        }
    }

    fn into_region(self) -> MemoryRegion {
        match self {
            Self::Region(region) | Self::Window(region, _) | Self::Unbound(region) => region,
        }
    }
}

fn a_region(dut: &mut Dut) -> (Stag, u64, Placed) {
    let region = dut.end.region(1000, Access::all());
    (region.stag(), 0, Placed::Region(region))
}

fn a_window(dut: &mut Dut) -> (Stag, u64, Placed) {
    let (region, window) = windowed(&mut dut.sim, &mut dut.end);
    (window.stag(), VA, Placed::Window(region, window))
}

#[test]
fn write_that_may_not_go_on_is_refused_at_its_next_segment() {
    inbound("rights", a_region, TermCode::ddp_tagged(2), |host, it| {
        let region = with_rights(host, it.into_region(), LOCAL | Access::REMOTE_READ);
        Placed::Region(region)
    });
    inbound("domain", a_region, TermCode::ddp_tagged(2), |host, it| {
        Placed::Region(in_another_domain(host, it.into_region()))
    });
    inbound("window", a_window, TermCode::ddp_tagged(0), |_, it| {
        let Placed::Window(region, window) = it else {
            panic!("a window")
        };
        window.deallocate().unwrap();
        Placed::Unbound(region)
    });
}

/// The application's own Invalidate has its turn between two segments of the peer's Write.
#[test]
fn window_that_is_invalidated_midway_ends_the_write() {
    let mut dut = Dut::new().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let (region, window) = windowed(&mut dut.sim, &mut dut.end);
    let write = |to| Tagged {
        control: 0x81, // T=1 L=0 DV=1
        ..Tagged::write(window.stag(), to)
    };
    dut.peer.send(&write(VA).fpdu(b"one"));
    dut.sim.run_until_idle();
    let invalidate = SendRequest::invalidate(WrId(5), window.stag());
    dut.end.post(invalidate);
    dut.sim.run_until_idle();
    assert_eq!(dut.end.sends(), [Done::invalidate(5)]);
    let late = write(VA + 3).fpdu(b"two");
    dut.assert_terminates("invalidated", &late, TermCode::ddp_tagged(0));
    assert_eq!(region.bytes().to_vec()[..6], *b"one\0\0\0");
}

/// A receive buffer is a place of this side's own: its work request fails, and nothing more is
/// placed.
#[test]
fn receive_buffer_that_may_not_be_written_any_more_fails_its_message() {
    let drops = ["drop_after_failure"];
    for (spoil, status) in [
        (
            (|host, region| with_rights(host, region, Access::LOCAL_READ))
                as fn(&Host, MemoryRegion) -> MemoryRegion,
            CompletionStatus::AccessViolation,
        ),
        (in_another_domain, CompletionStatus::InvalidPd),
    ] {
        let mut dut = Dut::new().expecting(&drops);
        let buffer = dut.end.region(MIB, LOCAL);
        let request = RecvRequest::new(WrId(1), buffer.local(0, 1000));
        dut.end.qp.post_recv(request).unwrap();
        let first = Untagged {
            control: 0x01, // T=0 L=0 DV=1
            ..Untagged::default()
        };
        dut.peer.send(&first.fpdu(&[7; 100]));
        dut.sim.run_until_idle();
        let buffer = spoil(dut.end.host(), buffer);
        let before = buffer.bytes().to_vec();
        assert_eq!(before[..100], [7; 100]);
        let second = Untagged {
            mo: 100,
            ..Untagged::default()
        };
        dut.peer.send(&second.fpdu(&[8; 100]));
        dut.sim.run_until("the FIN", || dut.peer.saw_fin());
        let failed = Done::failed(1, Opcode::Receive, status);
        assert_eq!(dut.end.receives(), [failed]);
        assert_eq!(terminate(&dut.answer()).0, TermCode::rdmap_local());
        assert!(buffer.bytes().to_vec() == before);
        dut.peer.close();
        dut.sim.run_until_idle();
    }
}

/// The peer writes the sink of a Read. Once the sink loses that right, the next segment is refused
/// (verbs draft §7.5).
#[test]
fn sink_that_may_not_be_written_any_more_ends_the_read() {
    let mut dut = Dut::new().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let sink = dut.end.region(1000, Access::all());
    let source = xwarp::RemoteAddress { stag: SINK, to: 0 };
    dut.end.post_read(1, sink.local(0, 200), source);
    dut.sim.run_until_idle();
    let first = Tagged {
        control: 0x81, // T=1 L=0 DV=1
        ..Tagged::read_response(sink.stag(), 0)
    };
    dut.peer.send(&first.fpdu(&[7; 100]));
    dut.sim.run_until_idle();
    let sink = with_rights(dut.end.host(), sink, LOCAL | Access::REMOTE_READ);
    let second = Tagged::read_response(sink.stag(), 100);
    let late = second.fpdu(&[8; 100]);
    dut.assert_terminates("the sink", &late, TermCode::ddp_tagged(2));
    assert_eq!(
        sink.bytes().to_vec()[..101],
        [[7; 100].as_slice(), &[0]].concat()
    );
    assert_eq!(dut.end.sends(), [Done::flushed(1, Opcode::Read)]);
}

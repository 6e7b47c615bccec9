//! All operation types, done, flushed and fenced (verbs draft §9.3.1).

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::memory::{AllocatedStag, PhysicalList, SharedBytes};
use xwarp::work::{MAX_SGE, Operation, Sgl};
use xwarp::{
    Access, MemoryRegion, MemoryWindow, Opcode, QpConfig, QpState, RecvRequest, SendRequest, Sge,
    WrId,
};
use xwarp_sim_tests::{Done, SimEnd, Target, pattern};

use super::{completions, opcode_of, privileged, received, send_of, sim};

/// Memory that one operation of each type works on.
struct Operands {
    /// A's: sink of a Read, sink of a Read that invalidates it, and what a window is bound to.
    near: Target,
    sink: MemoryRegion,
    windowed: MemoryRegion,
    window: MemoryWindow,
    /// For Fast-Register.
    memory: SharedBytes,
    stag: AllocatedStag,
    source: Sge,
    /// B's: source of Reads and sink of the Write, and what Sends invalidate.
    far: Target,
    gone: [MemoryRegion; 2],
}

impl Operands {
    fn new(a: &mut SimEnd, b: &SimEnd) -> Self {
        let far = b.target(8);
        far.fill(b"far away");
        Self {
            near: a.target(8),
            sink: a.region(8, Access::all()),
            windowed: a.va_region(64, Access::all(), 0x1000),
            window: a.host().pd().allocate_window().unwrap(),
            memory: a.host().rnic().allocate_memory(4096).unwrap(),
            stag: a.host().pd().allocate_stag(1, true).unwrap(),
            source: a.source(b"8 bytes!"),
            far,
            gone: [0, 1].map(|_| b.own_region(8, Access::all())),
        }
    }

    /// All ten operations of the draft, and the opcodes that they complete with.
    fn requests(&mut self, a: &SimEnd) -> [(SendRequest, Opcode); 10] {
        use Opcode::{
            Bind, FastRegister, Invalidate, Read, ReadInvalidate, Send, SendInvalidate,
            SendSolicited, SendSolicitedInvalidate, Write,
        };
        let gone = self.gone.each_ref().map(|region| Some(region.stag()));
        let (far, near, sink) = (
            self.far.remote(0),
            self.near.local(0, 8),
            self.sink.local(0, 8),
        );
        let first = self.windowed.remote(0);
        let bind = self.window.bind(first, 64, Access::REMOTE_READ);
        let fast = self.stag.fast_register(self.page(a), Access::LOCAL_READ);
        let registered = fast.stag;
        let source = self.source;
        let send = |i, solicited, invalidate| {
            SendRequest::new(name(i), send_of(source, solicited, invalidate))
        };
        [
            (send(0, false, None), Send),
            (send(1, true, None), SendSolicited),
            (send(2, false, gone[0]), SendInvalidate),
            (send(3, true, gone[1]), SendSolicitedInvalidate),
            (SendRequest::read(name(4), near, far), Read),
            (
                SendRequest::read(name(5), sink, far).invalidating_sink(),
                ReadInvalidate,
            ),
            (SendRequest::write(name(6), source, far).fenced(), Write),
            (SendRequest::bind(name(7), bind), Bind),
            (SendRequest::fast_register(name(8), fast), FastRegister),
            (SendRequest::invalidate(name(9), registered), Invalidate),
        ]
    }

    fn page(&self, a: &SimEnd) -> PhysicalList {
        let address = a.host().rnic().physical_address(&self.memory).unwrap();
        PhysicalList {
            entry_size: 4096,
            addresses: vec![address].into(),
            first_byte_offset: 0,
            len: 4096,
        }
    }

    /// Bytes have moved, and `STags` are as the operations leave them.
    fn assert_done(&self) {
        let is_valid = |region: &MemoryRegion| region.query().unwrap().is_valid();
        assert!(!self.gone.iter().any(is_valid));
        assert_eq!(self.near.to_vec(), b"far away");
        assert_eq!(self.sink.bytes().to_vec(), b"far away");
        assert!(!is_valid(&self.sink));
        assert_eq!(self.far.to_vec(), b"8 bytes!");
        assert!(self.window.query().unwrap().is_valid());
        let stag = self.stag.query().unwrap();
        assert!(!stag.is_valid(), "registered, then invalidated");
    }
}

fn name(i: u64) -> WrId {
    WrId(u64::MAX - i)
}

/// All ten of the draft, in one list.
#[test]
fn every_operation_type_is_done_and_completes_by_its_name() {
    let mut sim = sim();
    let (mut a, mut b) = (
        sim.a().end(&privileged()),
        sim.b().end(&QpConfig::default()),
    );
    sim.connect(&mut a, &mut b);
    let mut operands = Operands::new(&mut a, &b);
    let list = operands.requests(&a);
    let opcodes = list.each_ref().map(|(_, opcode)| *opcode);
    (0..4).for_each(|i| b.post_recv(i, 8));
    a.qp.post_send_list(list.map(|(request, _)| request))
        .unwrap();
    sim.run_until_idle();

    let done = completions(&mut a);
    assert_eq!(done.len(), opcodes.len(), "one each");
    for ((i, done), opcode) in (0..).zip(done).zip(opcodes) {
        assert_eq!((done.wr_id, done.opcode), (name(i), opcode));
        assert!(done.is_success(), "{done:?}");
        assert_eq!(done.qp, a.qp.id());
    }
    let told: Vec<_> = received(&mut b)
        .iter()
        .map(|it| (it.qp, it.solicited, it.invalidated))
        .collect();
    let id = b.qp.id();
    let gone = operands.gone.each_ref().map(|it| Some(it.stag()));
    let expected = [
        (id, false, None),
        (id, true, None),
        (id, false, gone[0]),
        (id, true, gone[1]),
    ];
    assert_eq!(told, expected);
    (0..4).for_each(|i| assert_eq!(b.buffer(i), b"8 bytes!"));
    operands.assert_done();
}

/// Lists of every length from none to the maximum that Query QP returns.
#[test]
fn lists_may_have_any_number_of_elements() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let info = a.qp.query().unwrap();
    let max = [info.send_sge, info.write_sge, info.recv_sge];
    assert_eq!(max, [MAX_SGE; 3]);
    for n in 0..=MAX_SGE {
        let bytes = pattern(10 * n);
        let (sink, target) = (b.target(10 * n), b.target(10 * n));
        let sources: Sgl = bytes.chunks(10).map(|it| a.source(it)).collect();
        let sinks: Sgl = (0..n).map(|i| sink.local(10 * i, 10)).collect();
        b.qp.post_recv(RecvRequest::new(WrId(1), sinks)).unwrap();
        a.post(SendRequest::send(WrId(1), sources.clone()));
        a.post(SendRequest::write(WrId(2), sources, target.remote(0)));
        sim.run_until_idle();
        assert_eq!(a.sends(), [Done::send(1, 10 * n), Done::write(2, 10 * n)]);
        assert_eq!(b.receives(), [Done::receive(1, 10 * n)]);
        assert_eq!((sink.to_vec(), target.to_vec()), (bytes.clone(), bytes));
    }
}

fn one_page() -> PhysicalList {
    PhysicalList {
        entry_size: 4096,
        addresses: vec![0].into(),
        first_byte_offset: 0,
        len: 4096,
    }
}

#[test]
fn work_of_every_operation_type_is_flushed_by_its_name() {
    let sim = sim();
    let mut a = sim.a().end(&privileged());
    let (place, source) = (a.target(8), a.source(b"8 bytes!"));
    let (local, remote) = (place.local(0, 8), place.remote(0));
    let windowed = a.va_region(64, Access::all(), 0x1000);
    let mut window = a.host().pd().allocate_window().unwrap();
    let bind = window.bind(windowed.remote(0), 64, Access::REMOTE_READ);
    let mut stag = a.host().pd().allocate_stag(1, true).unwrap();
    let fast = stag.fast_register(one_page(), Access::LOCAL_READ);
    let read = SendRequest::read(WrId(4), local, remote);
    let send = |id, solicited, invalidate| {
        SendRequest::new(WrId(id), send_of(source, solicited, invalidate))
    };
    let taken = Some(remote.stag);
    let invalidate = SendRequest::invalidate(WrId(9), remote.stag);
    let fast_register = SendRequest::fast_register(WrId(8), fast);
    let list = [
        (send(0, false, None), Opcode::Send),
        (send(1, true, None), Opcode::SendSolicited),
        (send(2, false, taken), Opcode::SendInvalidate),
        (send(3, true, taken), Opcode::SendSolicitedInvalidate),
        (read.clone().invalidating_sink(), Opcode::ReadInvalidate),
        (read, Opcode::Read),
        (SendRequest::write(WrId(6), source, remote), Opcode::Write),
        (SendRequest::bind(WrId(7), bind), Opcode::Bind),
        (fast_register, Opcode::FastRegister),
        (invalidate, Opcode::Invalidate),
    ];
    let flushed = list
        .each_ref()
        .map(|(it, opcode)| Done::flushed(it.wr_id.0, *opcode));
    a.qp.post_send_list(list.map(|(it, _)| it)).unwrap();
    a.post_recv(20, 8);
    a.qp.modify(QpChange::to(QpState::Error)).unwrap();
    assert_eq!(a.sends(), flushed);
    assert_eq!(a.receives(), [Done::flushed(20, Opcode::Receive)]);
    assert!(!window.query().unwrap().is_valid() && !stag.query().unwrap().is_valid());
}

#[test]
fn read_fence_holds_back_sends_of_each_type_and_writes() {
    for kind in 0..5 {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        sim.run_until_idle();
        let (near, far, target) = (a.target(8), b.target(8), b.target(8));
        let gone = b.own_region(8, Access::all());
        let source = a.source(b"8 bytes!");
        b.post_recv(2, 8);
        let operation = match kind {
            0..4 => send_of(source, kind % 2 == 1, (kind >= 2).then_some(gone.stag())),
            _ => Operation::Write {
                payload: source.into(),
                remote: target.remote(0),
            },
        };
        let opcode = opcode_of(&operation);
        a.post_read(1, near.local(0, 8), far.remote(0));
        a.post(SendRequest::new(WrId(2), operation).fenced());
        // The Read Request is there, its response not back.
        sim.run_for(Duration::from_micros(60));
        assert_eq!((b.receives(), target.to_vec()), (vec![], vec![0; 8]));
        sim.run_until_idle();
        assert_eq!(a.sends(), [Done::read(1, 8), Done::success(2, opcode, 8)]);
        if kind < 4 {
            assert_eq!(b.receives(), [Done::receive(2, 8)]);
        } else {
            assert_eq!(target.to_vec(), b"8 bytes!");
        }
        assert_eq!(gone.query().unwrap().is_valid(), !(2..4).contains(&kind));
    }
}

#[test]
fn completions_can_be_polled_in_every_state() {
    for state in [
        QpState::Rts,
        QpState::Idle,
        QpState::Closing,
        QpState::Terminate,
        QpState::Error,
    ] {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        b.post_recv(1, 8);
        a.post_send(2, b"8 bytes!");
        sim.run_until_idle();
        match state {
            QpState::Rts => {}
            QpState::Idle => {
                a.qp.begin_disconnect().unwrap();
                sim.run_until_idle();
            }
            QpState::Closing | QpState::Terminate | QpState::Error => {
                a.qp.modify(QpChange::to(state)).unwrap();
            }
        }
        assert_eq!(a.state(), state);
        assert_eq!(a.sends(), [Done::send(2, 8)], "{state:?}");
    }
}

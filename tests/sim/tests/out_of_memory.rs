//! Verbs in a process that can have no more memory. There is one test in this program: threads of
//! others could not begin meanwhile.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use xwarp::attr::QpChange;
use xwarp::error::{CreateError, ModifyError, ModifySrqError, RegisterError, ResizeError};
use xwarp::memory::{PhysicalList, RegionSpec};
use xwarp::{Access, QpConfig, QpState, Rnic, SrqConfig};
use xwarp_sim_tests::{KIB, Side};
use xwarp_test_kit::MemoryRnic;

/// An RNIC without a link.
fn open() -> Rnic {
    MemoryRnic::at(Side::A).region_area(64 * KIB).open().0
}

#[test]
fn without_memory_a_verb_is_refused_and_all_is_as_it_was() {
    without_memory_queues_are_neither_created_nor_resized();
    without_memory_a_list_of_any_length_is_registered_anew();
    without_memory_no_more_stags_are_given_away();
}

/// What keeps this process from having memory, until it is dropped: pieces of some size can be had,
/// larger ones cannot.
struct Hog {
    limits: (u64, u64),
    _taken: Vec<Vec<u8>>,
    _between: Vec<Vec<u8>>,
}

impl Hog {
    /// Bytes that nothing can be had of in one piece.
    const LARGE: usize = 256 * KIB;
    /// Bytes of what can be had, some hundred times.
    const SMALL: usize = 16 * KIB;

    fn new() -> Self {
        let reserved = |len| {
            let mut memory: Vec<u8> = Vec::new();
            memory.try_reserve_exact(len).ok().map(|()| memory)
        };
        // What lies between the small pieces keeps them from becoming large ones.
        let mut small: Vec<_> = Vec::with_capacity(200);
        let mut between: Vec<_> = Vec::with_capacity(200);
        for _ in 0..200 {
            small.push(reserved(Self::SMALL).unwrap());
            between.push(reserved(KIB).unwrap());
        }
        let mut taken = Vec::with_capacity(100_000);
        let limits = getrlimit(Resource::RLIMIT_AS).unwrap();
        setrlimit(Resource::RLIMIT_AS, 0, limits.1).unwrap();
        taken.extend(std::iter::from_fn(|| reserved(Self::LARGE)));
        drop(small);
        Self {
            limits,
            _taken: taken,
            _between: between,
        }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        setrlimit(Resource::RLIMIT_AS, self.limits.0, self.limits.1).unwrap();
    }
}

/// Insufficient Resources is what a verb says, and its object is as it was (verbs draft §9.2.3.3,
/// §9.2.4.3, §9.2.5.3).
fn without_memory_queues_are_neither_created_nor_resized() {
    let rnic = open();
    let has = rnic.query().unwrap();
    let depth = has.max_work_requests;
    let pd = rnic.allocate_pd().unwrap();
    let mut cq = rnic.create_cq(4).unwrap();
    let mut srq = pd.create_srq(SrqConfig::default()).unwrap();
    let config = QpConfig::default();
    let deep = [
        config.clone().send_depth(depth),
        config.clone().recv_depth(depth),
    ];
    let mut qp = pd.create_qp(&config, &cq, &cq).unwrap();
    let before = (
        cq.query().unwrap(),
        srq.query().unwrap(),
        qp.query().unwrap(),
    );
    let large = SrqConfig::default().depth(depth);
    let deeper =
        |change: fn(QpChange, usize) -> QpChange| change(QpChange::to(QpState::Idle), depth);

    let hog = Hog::new();
    let created = (
        rnic.create_cq(has.max_cq_entries).err(),
        pd.create_srq(large).err(),
        deep.each_ref()
            .map(|config| pd.create_qp(config, &cq, &cq).err()),
    );
    let resized = (cq.resize(has.max_cq_entries), srq.resize(depth));
    let modified = [
        qp.modify(deeper(QpChange::send_depth)),
        qp.modify(deeper(QpChange::recv_depth)),
    ];
    let small = rnic.create_cq(4).is_ok();
    drop(hog);

    assert!(matches!(created.0, Some(CreateError::Memory(_))));
    assert!(matches!(created.1, Some(CreateError::Memory(_))));
    for refused in created.2 {
        assert!(matches!(refused, Some(CreateError::Memory(_))));
    }
    assert!(matches!(resized.0, Err(ResizeError::Memory(_))));
    let of_srq = matches!(
        resized.1,
        Err(ModifySrqError::Resize(ResizeError::Memory(_)))
    );
    assert!(of_srq);
    for refused in modified {
        assert!(matches!(refused, Err(ModifyError::Memory(_))));
    }
    assert!(small, "what needs little memory is made");
    let after = (
        cq.query().unwrap(),
        srq.query().unwrap(),
        qp.query().unwrap(),
    );
    assert_eq!(after, before);
    assert_eq!(cq.resize(has.max_cq_entries), Ok(()));
    assert_eq!(srq.resize(depth), Ok(()));
    assert!(qp.modify(deeper(QpChange::send_depth)).is_ok());
}

/// A registration keeps its list, and copies none of it (verbs draft §9.2.6.5).
fn without_memory_a_list_of_any_length_is_registered_anew() {
    let rnic = open();
    let pd = rnic.allocate_pd().unwrap();
    let entries = rnic.query().unwrap().max_list_entries;
    let list = PhysicalList {
        entry_size: 4096,
        addresses: vec![0; entries].into(),
        first_byte_offset: 0,
        len: 4096 * entries as u64,
    };
    assert!(entries * size_of::<u64>() > Hog::LARGE);
    let region = pd.allocate(8, Access::LOCAL_READ).unwrap();
    let spec = RegionSpec::new(Access::LOCAL_READ);
    let hog = Hog::new();
    let region = region.reregister(&pd, list, &spec).ok();
    drop(hog);
    assert_eq!(region.unwrap().query().unwrap().entries, entries);
}

/// As many as there is memory for, each usable; the next one is refused, and takes none away.
fn without_memory_no_more_stags_are_given_away() {
    let rnic = open();
    let pd = rnic.allocate_pd().unwrap();
    let mut windows = Vec::with_capacity(1 << 16);
    let hog = Hog::new();
    let refused = loop {
        match pd.allocate_window() {
            Ok(window) => windows.push(window),
            Err(refused) => break refused,
        }
    };
    drop(hog);
    assert!(matches!(refused, RegisterError::Memory(_)), "{refused}");
    assert!(windows.len() > 100, "{}", windows.len());
    assert!(windows.iter().all(|window| window.query().is_ok()));
    assert!(pd.allocate_window().is_ok());
}

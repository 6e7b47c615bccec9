//! Protection domains as objects: how many there are, what keeps one, and its end (verbs draft
//! §5.2.2, §9.2.2).

use std::time::Duration;

use xwarp::error::{CapabilityError, CreateError, DestroyError};
use xwarp::memory::RegionSpec;
use xwarp::{
    Access, CompletionQueue, MemoryRegion, ProtectionDomain, QpConfig, SendRequest, SrqConfig, WrId,
};
use xwarp_sim_tests::{Done, Host, KIB, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

fn sim() -> Sim {
    Sim::new(Seed(83)).one_way_delay(Duration::from_micros(50))
}

/// Why a domain was not deallocated, which comes back.
fn refused(pd: ProtectionDomain) -> (ProtectionDomain, DestroyError) {
    let refused = pd.deallocate().expect_err("a refusal");
    (*refused.object, refused.error)
}

/// Deallocates a domain that one object is of, in vain, and again when that is gone.
fn assert_kept_by<T>(kind: &str, pd: ProtectionDomain, object: T, end: impl FnOnce(T)) {
    let (pd, error) = refused(pd);
    assert_eq!(error, DestroyError::DomainInUse(1), "{kind}");
    assert_usable(&pd);
    end(object);
    assert!(pd.deallocate().is_ok(), "{kind}");
}

/// Objects can be made in the domain still.
fn assert_usable(pd: &ProtectionDomain) {
    let region = pd.allocate(8, Access::LOCAL_READ).unwrap();
    assert_eq!(region.query().unwrap().pd, pd.id());
}

fn new_pd(host: &Host) -> ProtectionDomain {
    host.rnic().allocate_pd().unwrap()
}

fn small_cq(host: &Host) -> CompletionQueue {
    host.rnic().create_cq(4).unwrap()
}

#[test]
fn domain_is_kept_by_an_object_of_each_kind_until_that_is_gone() {
    let sim = sim();
    let host = sim.a();
    let (cq, spec) = (small_cq(&host), RegionSpec::new(Access::LOCAL_READ));

    let pd = new_pd(&host);
    let qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
    assert_kept_by("queue pair", pd, qp, |qp| {
        qp.destroy().map_err(|it| it.error).unwrap();
    });
    let pd = new_pd(&host);
    let srq = pd.create_srq(SrqConfig::default()).unwrap();
    assert_kept_by("shared receive queue", pd, srq, |it| it.destroy().unwrap());
    let pd = new_pd(&host);
    let region = pd.allocate(8, Access::all()).unwrap();
    assert_kept_by("region", pd, region, |it| it.deallocate().unwrap());
    let pd = new_pd(&host);
    let stag = pd.allocate_stag(1, true).unwrap();
    assert_kept_by("STag without memory", pd, stag, |it| {
        it.deallocate().unwrap();
    });
    let pd = new_pd(&host);
    let window = pd.allocate_window().unwrap();
    assert_kept_by("window", pd, window, |it| it.deallocate().unwrap());

    let (pd, home) = (new_pd(&host), new_pd(&host));
    let region = home.allocate(8, Access::all()).unwrap();
    let shared = region.share(&pd, &spec).unwrap();
    assert_kept_by("shared region", pd, shared, |it| it.deallocate().unwrap());
    region.deallocate().unwrap();
    assert!(home.deallocate().is_ok());
}

/// An RNIC's host, a domain of it, and in that a queue pair, which is connected, and a region.
fn with_own_domain(sim: &mut Sim) -> (ProtectionDomain, SimEnd, MemoryRegion, SimEnd) {
    let config = QpConfig::default().bind_windows(true);
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let pd = new_pd(a.host());
    let (send_cq, recv_cq) = a.cqs();
    a.qp = pd.create_qp(&config, send_cq, recv_cq).unwrap();
    sim.connect(&mut a, &mut b);
    let memory = a.host().rnic().allocate_memory(KIB).unwrap();
    let spec = RegionSpec::new(Access::all()).at(0x1000);
    let region = pd.register_with(memory, &spec).unwrap();
    (pd, a, region, b)
}

#[test]
fn domain_is_kept_by_windows_and_regions_whether_valid_or_not() {
    let mut sim = sim();
    let (pd, mut a, region, _b) = with_own_domain(&mut sim);
    let mut window = pd.allocate_window().unwrap();
    let own = a.qp.allocate(8, Access::all()).unwrap();
    let (pd, error) = refused(pd);
    assert_eq!(error, DestroyError::DomainInUse(4));
    let bind = window.bind(region.remote(0), 100, Access::REMOTE_READ);
    a.post(SendRequest::bind(WrId(1), bind));
    sim.run_until_idle();
    assert!(window.query().unwrap().is_valid());
    let (pd, error) = refused(pd);
    assert_eq!(error, DestroyError::DomainInUse(4), "a bound window");
    a.post(SendRequest::invalidate(WrId(2), bind.window));
    a.post(SendRequest::invalidate(WrId(3), region.stag()));
    sim.run_until_idle();
    assert!(!window.query().unwrap().is_valid() && !region.query().unwrap().is_valid());
    let (pd, error) = refused(pd);
    assert_eq!(error, DestroyError::DomainInUse(4), "they are invalid");
    region.deallocate().unwrap();
    let (pd, error) = refused(pd);
    assert_eq!(error, DestroyError::DomainInUse(3));
    a.qp.destroy().map_err(|it| it.error).unwrap();
    let (pd, error) = refused(pd);
    assert_eq!(error, DestroyError::DomainInUse(2));
    own.deallocate().unwrap();
    let (pd, error) = refused(pd);
    assert_eq!(error, DestroyError::DomainInUse(1), "an invalidated window");
    window.deallocate().unwrap();
    assert!(pd.deallocate().is_ok());
}

#[test]
fn refusal_leaves_what_is_of_the_domain_at_work() {
    let mut sim = sim();
    let (pd, mut a, region, mut b) = with_own_domain(&mut sim);
    let (pd, _) = refused(pd);
    region.bytes().write(0, b"8 bytes!").unwrap();
    b.post_recv(1, 8);
    a.post(SendRequest::send(WrId(1), region.local(0, 8)));
    sim.run_until_idle();
    assert_eq!(a.sends().last(), Some(&Done::send(1, 8)));
    assert_eq!(b.buffer(1), b"8 bytes!");
    assert_usable(&pd);
}

#[test]
fn reregistered_region_keeps_its_new_domain_and_no_longer_the_former() {
    let sim = sim();
    let host = sim.a();
    let (former, next) = (new_pd(&host), new_pd(&host));
    let region = former.allocate(8, Access::all()).unwrap();
    let memory = region.bytes().clone();
    let spec = RegionSpec::new(Access::LOCAL_READ);
    let region = region.reregister(&next, memory.clone(), &spec).unwrap();
    assert!(former.deallocate().is_ok());
    let (next, error) = refused(next);
    assert_eq!(error, DestroyError::DomainInUse(1));
    let bad = RegionSpec::new(Access::REMOTE_WRITE);
    let failed = region.reregister(&next, memory, &bad).unwrap_err();
    assert!(failed.region.is_none());
    assert!(next.deallocate().is_ok(), "no registration is left");
}

/// The number of domains that the RNIC has room for, taken to the last one; and what is said then.
fn fill(host: &Host) -> (Vec<ProtectionDomain>, CreateError) {
    let mut all = Vec::new();
    loop {
        match host.rnic().allocate_pd() {
            Ok(pd) => all.push(pd),
            Err(error) => return (all, error),
        }
    }
}

#[test]
fn domains_are_as_many_as_the_rnic_says_until_one_is_deallocated() {
    let sim = sim();
    let host = sim.a();
    let max = host.rnic().query().unwrap().max_pds;
    let (mut all, error) = fill(&host);
    assert_eq!(all.len(), max - 1, "the simulated host has one already");
    let expected =
        CapabilityError::check("a number of protection domains of", max + 1, 1, max).unwrap_err();
    assert!(matches!(error, CreateError::Capability(it) if it == expected));
    assert_usable(&all[0]);
    let ids: std::collections::HashSet<_> = all.iter().map(ProtectionDomain::id).collect();
    assert_eq!(ids.len(), all.len());

    let region = all[0].allocate(8, Access::all()).unwrap();
    let (first, _) = refused(all.swap_remove(0));
    assert!(host.rnic().allocate_pd().is_err(), "nothing was freed");
    drop(region);
    assert!(first.deallocate().is_ok());
    all.push(host.rnic().allocate_pd().unwrap());
    assert!(host.rnic().allocate_pd().is_err());
}

/// Rust's way to deallocate: the handle goes first, the domain with its last object.
#[test]
fn dropped_domain_is_there_until_its_last_object_is_gone() {
    let mut sim = sim();
    let (pd, mut a, region, mut b) = with_own_domain(&mut sim);
    let (mut others, _) = fill(a.host());
    let srq = pd.create_srq(SrqConfig::default()).unwrap();
    let config = QpConfig::default();
    let cq = small_cq(a.host());
    let taking = pd.create_qp_with_srq(&config, &cq, &cq, &srq).unwrap();
    drop((pd, srq));
    region.bytes().write(0, b"8 bytes!").unwrap();
    b.post_recv(1, 8);
    a.post(SendRequest::send(WrId(1), region.local(0, 8)));
    sim.run_until_idle();
    assert_eq!(b.buffer(1), b"8 bytes!", "its objects are at work");
    let host = a.host().clone();
    let is_full = || host.rnic().allocate_pd().is_err();
    assert!(is_full());
    drop(region);
    assert!(is_full());
    drop(a);
    assert!(is_full(), "a shared receive queue, too, was only dropped");
    drop(taking);
    others.push(host.rnic().allocate_pd().unwrap());
    assert!(is_full());
    drop(others.pop());
    assert!(host.rnic().allocate_pd().is_ok(), "one without objects");
}
